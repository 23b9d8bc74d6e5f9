"""The one module that touches Tinker's SDK (0.38 and 0.39).

Contract: everything is awaited, with a limit in seconds of ours, since the SDK waits for ever while
a server is away. What the SDK raises passes. A `Sampler` is one snapshot of the weights: it does
not change when the learner does. `Service.pauses` is told of queues and billing pauses: those of
samplers and learners through the SDK's observers, billing through its log, and a new adapter, which
the SDK has no observer of, once it has taken 25 seconds.

It knows nothing of episodes, credit and runs, and retries nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kernelgym import UsageError
from kernelgym_train.backends.tinker.datums import DatumRow
from kernelgym_train.backends.tinker.keys import tinker_key
from kernelgym_train.backends.tinker.pauses import Pauses

_MOST_SEED = 2**31 - 1
_SLOW_S = 25.0
_DELETION_S = 60.0
"""Seconds to wait for the deletion of a checkpoint; the run continues without it."""
_CLOSING_S = 2.0


class ServiceTimeout(TimeoutError):
    """A request to the service was not answered within its limit of time.

    It is not known whether the service carried the request out.
    """


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer sampled on the service."""

    ids: tuple[int, ...]
    """Token ids of the answer."""
    logprobs: tuple[float, ...]
    """Log-probability of each token at temperature 1, whatever the sampling temperature."""
    stopped: bool
    """True if a stop token ended the answer; False if the limit of tokens did."""


@dataclass(frozen=True, slots=True)
class Updated:
    """Result of one optimiser update on the service."""

    logprobs: tuple[tuple[float, ...], ...]
    """The learner's log-probability of each target of each row, before the update."""
    metrics: Mapping[str, float]
    """Metrics that the service reports, by name."""


class Sampler:
    """Snapshot of weights that samples; later updates of the learner do not change it."""

    def __init__(self, client: Any, pauses: Pauses) -> None:
        self._client = client
        client.on_queue_state_change = _Queue(pauses, "sampling").on_queue_state_change

    async def sample(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float,
        stop: Sequence[int],
        seed: int,
        limit_s: float,
    ) -> Answered:
        """Return one answer.

        Raises:
            ServiceTimeout: If it takes longer than `limit_s`.
        """
        from tinker import types

        params = types.SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            stop=list(stop),
            seed=seed & _MOST_SEED,  # the server refuses larger ones
        )
        asked = self._client.sample(
            prompt=types.ModelInput.from_ints(list(prompt)), num_samples=1, sampling_params=params
        )
        found = (await within(asked, limit_s, "an answer")).sequences[0]
        told = tuple(float(value) for value in found.logprobs)
        return Answered(tuple(int(i) for i in found.tokens), told, found.stop_reason == "stop")

    async def score(
        self, prompt: Sequence[int], answer: Sequence[int], *, limit_s: float
    ) -> tuple[float, ...]:
        """Return the log-probability of each token of an answer.

        Raises:
            ServiceTimeout: If it takes longer than `limit_s`.
            ValueError: If the service leaves one out.
        """
        from tinker import types

        whole = types.ModelInput.from_ints([*prompt, *answer])
        found = await within(self._client.compute_logprobs(whole), limit_s, "log-probabilities")
        # From the end: of the first token there is none, which some servers leave out.
        told = tuple(found)[-len(answer) :]
        if len(told) < len(answer) or any(value is None for value in told):
            raise ValueError(
                f"the service returned {len(told)} log-probabilities for an answer "
                f"of {len(answer)} tokens"
            )
        return tuple(map(float, told))


class Learner:
    """Weights on the service that are trained, with their optimiser."""

    def __init__(self, client: Any, limit_s: float, pauses: Pauses) -> None:
        self._client, self._limit_s, self._pauses = client, limit_s, pauses
        # The SDK's own observer speaks of a pause after a quarter of an hour.
        client._queue_state_logger = _Queue(pauses, "training")

    async def snapshot(self) -> Sampler:
        """Return a snapshot of the current weights, to sample with."""
        asked = self._client.save_weights_and_get_sampling_client()
        found = await within(asked, self._limit_s, "a snapshot of the weights")
        return Sampler(found, self._pauses)

    async def update(
        self,
        rows: Sequence[DatumRow],
        *,
        loss: str,
        loss_config: Mapping[str, float],
        learning_rate: float,
        weight_decay: float,
        max_grad_norm: float,
    ) -> Updated:
        """Take one optimiser step on the rows.

        Both requests are submitted before either is waited for: the service carries them out in one
        of its cycles then.

        Raises:
            ServiceTimeout: If both take longer than the learner's limit.
        """
        from tinker import types

        adam = types.AdamParams(
            learning_rate=learning_rate, weight_decay=weight_decay, grad_clip_norm=max_grad_norm
        )
        backward = self._client.forward_backward(
            [_datum(row, loss) for row in rows], loss, dict(loss_config) or None
        )
        step = self._client.optim_step(adam)

        async def both() -> tuple[Any, Any]:
            return await backward, await step

        found, taken = await within(both(), self._limit_s, "an update")
        told = tuple(tuple(output["logprobs"].tolist()) for output in found.loss_fn_outputs)
        measured = {**dict(found.metrics or {}), **dict(taken.metrics or {})}
        return Updated(told, {name: float(value) for name, value in measured.items()})

    async def has_loss(self, loss: str, loss_config: Mapping[str, float]) -> bool:
        """Return True if the service knows a loss.

        The API has no request for that, so the loss is tried on a row of two tokens, forward only:
        nothing is learned. If the service refuses it, this learner can no longer be used.

        Raises:
            ServiceTimeout: If it takes longer than the learner's limit.
        """
        row = DatumRow((0, 1), (1, 0), (0.0, 0.0), (0.0, 0.0), (0.0, 1.0))
        try:
            asked = self._client.forward([_datum(row, loss)], loss, dict(loss_config) or None)
            await within(asked, self._limit_s, "a forward pass")
        except Exception as error:
            if _refuses(error):
                return False
            raise
        return True

    async def save(self, name: str, *, keep_days: int) -> tuple[str, str]:
        """Save weights and optimiser on the service; return the path for training and for sampling.

        Raises:
            ServiceTimeout: If both take longer than the learner's limit.
        """
        seconds = keep_days * 86400 or None
        state = self._client.save_state(name, ttl_seconds=seconds)
        sampler = self._client.save_weights_for_sampler(name, ttl_seconds=seconds)

        async def both() -> tuple[Any, Any]:
            return await state, await sampler

        kept, sampled = await within(both(), self._limit_s, "a checkpoint")
        return str(kept.path), str(sampled.path)

    async def save_sampler(self, name: str, *, keep_days: int) -> str:
        """Save the weights for sampling on the service; return their path."""
        seconds = keep_days * 86400 or None
        asked = self._client.save_weights_for_sampler(name, ttl_seconds=seconds)
        kept = await within(asked, self._limit_s, "a checkpoint for sampling")
        return str(kept.path)


class Service:
    """A connection to a Tinker service.

    Args:
        base_url: Address of the service; if empty, TINKER_BASE_URL or the hosted service.
        limit_s: Seconds that a request of training may take.

    Raises:
        UsageError: If there is no key, or one of a wrong form.
    """

    def __init__(self, base_url: str, limit_s: float) -> None:
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        self.pauses = Pauses()
        """Reporter of the service's pauses, to a log line and an event."""
        self._limit_s = limit_s
        key = tinker_key(base_url).value
        self._given: dict[str, Any] = {"base_url": base_url or None, "api_key": key}
        self._client = self._connect()
        self._billing = _Billing(self.pauses)
        _SDKS_LOG.addFilter(self._billing)

    async def create(self, model: str, rank: int, seed: int) -> Learner:
        """Return a learner with a new LoRA adapter on a base model."""

        def make() -> Any:
            return self._client.create_lora_training_client(
                base_model=model, rank=rank, seed=seed & _MOST_SEED
            )

        client = await self._made(make, "a new adapter")
        return Learner(client, self._limit_s, self.pauses)

    async def restore(self, path: str, *, optimiser: bool = True) -> Learner:
        """Return a learner with the weights of a checkpoint.

        Args:
            path: Address of the checkpoint, ``tinker://...``.
            optimiser: True to restore the state of the optimiser as well.

        Raises:
            UsageError: If the service has no such checkpoint.
        """
        import tinker

        def make() -> Any:
            if optimiser:
                return self._client.create_training_client_from_state_with_optimizer(path)
            return self._client.create_training_client_from_state(path)

        try:
            client = await self._made(make, "a checkpoint")
        except tinker.NotFoundError:
            raise _no_such(path) from None
        return Learner(client, self._limit_s, self.pauses)

    async def sampler(self, path: str = "", *, base_model: str = "") -> Sampler:
        """Return a sampler of saved weights, or of a base model.

        Args:
            path: Address of saved weights, ``tinker://...``; empty for a base model.
            base_model: Name of the base model.

        Raises:
            UsageError: If the service has no such weights.
        """
        import tinker

        def make() -> Any:
            return self._client.create_sampling_client(
                model_path=path or None, base_model=None if path else base_model
            )

        try:
            return Sampler(await self._made(make, "a sampler"), self.pauses)
        except tinker.NotFoundError:
            raise _no_such(path or base_model) from None

    def renew(self) -> None:
        """Connect to the service again; the old session may have expired."""
        with contextlib.suppress(Exception):
            self._client.close("errored")
        self._client = self._connect()

    async def delete(self, path: str) -> None:
        """Delete saved weights; weights that are already deleted cause no error.

        Args:
            path: Address of the weights, ``tinker://...``.

        Raises:
            ServiceTimeout: If it takes longer than a minute, or than the service's limit.
        """
        import tinker

        run, _, name = path.removeprefix("tinker://").partition("/")
        kept = name if "/" in name else f"sampler_weights/{name}"  # skyrl leaves the kind out
        # A client by address and key would keep its own connection open until the process ends.
        asked = tinker.RestClient(self._client.holder).delete_checkpoint(run, kept)
        try:
            await within(asked, min(self._limit_s, _DELETION_S), "the deletion of a checkpoint")
        except tinker.NotFoundError:
            return

    def close(self) -> None:
        """End the session, so that the service can free its memory.

        The request is awaited for two seconds at most, because it would be lost if the process
        ended first. Its failure does not matter: the session also expires by itself.
        """
        _SDKS_LOG.removeFilter(self._billing)
        with contextlib.suppress(Exception):
            self._client.close("success").result(_CLOSING_S)

    def _connect(self) -> Any:
        import tinker

        return tinker.ServiceClient(**self._given)

    async def _made(self, make: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Return the SDK's client that `make` requests; a slow request is reported as a pause."""
        slow = asyncio.get_running_loop().call_later(
            _SLOW_S, self.pauses.told, what, "slow", f"no answer for {_SLOW_S:g} s"
        )
        try:
            return await within(_apart(make), self._limit_s, what)
        finally:
            slow.cancel()


_SDKS_LOG = logging.getLogger("tinker.lib.internal_client_holder")


class _Billing(logging.Filter):
    """Log filter that reports pauses for billing, which the SDK only writes to its log."""

    def __init__(self, pauses: Pauses) -> None:
        super().__init__()
        self._pauses = pauses

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if "paused due to billing" not in message or record.levelno > logging.WARNING:
            return True
        self._pauses.told("every request", "billing", message)
        return False


class _Queue:
    """Reports that requests wait in the service's queue; the SDK calls it as QueueStateObserver."""

    def __init__(self, pauses: Pauses, what: str) -> None:
        self._pauses, self._what = pauses, what

    def on_queue_state_change(self, queue_state: Any, queue_state_reason: str | None) -> None:
        """Report a paused queue; called in a thread of the SDK."""
        if queue_state.value.startswith("paused"):
            self._pauses.told(self._what, queue_state.value, queue_state_reason)


def _no_such(path: str) -> UsageError:
    return UsageError(
        f"the Tinker server has no {path}: it was kept on another server, or deleted since; set "
        "tinker.base_url to the server that the run was made with"
    )


def _refuses(error: Exception) -> bool:
    """Return True if the service refused a request, rather than failed to answer it."""
    import tinker

    if isinstance(error, tinker.RequestFailedError):
        return bool(error.category is tinker.types.RequestErrorCategory.User)
    refusals = (tinker.BadRequestError, tinker.UnprocessableEntityError)
    # A refusal that a later request tells of comes as the cause of a ValueError.
    return isinstance(error, refusals) or isinstance(error.__cause__, refusals)


def _datum(row: DatumRow, loss: str) -> Any:
    from tinker import types

    # The SDK takes lists for the keys it knows, and says so in no type.
    inputs: Any = {
        "target_tokens": list(row.targets),
        "logprobs": list(row.logprobs),
        "advantages": list(row.advantages),
    }
    if loss == "gspo":  # servers refuse keys that a loss has no use for, or ignore them
        inputs["sequence_ratio_mask"] = list(row.answered)
    tokens = types.ModelInput.from_ints(list(row.tokens))
    return types.Datum(model_input=tokens, loss_fn_inputs=inputs)


async def within(asked: Awaitable[Any], limit_s: float, what: str) -> Any:
    """Return the result of a request, which is given up after a limit of time.

    Raises:
        ServiceTimeout: If the request takes longer than `limit_s`; it is cancelled.
    """

    async def answer() -> Any:
        return await asked

    try:
        return await asyncio.wait_for(answer(), limit_s)
    except TimeoutError:
        raise ServiceTimeout(f"the service did not give {what} within {limit_s:g} s") from None


async def _apart(make: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of a blocking request, made in a thread of its own.

    The first request of a session opens it, which blocks for as long as the server is away. The
    thread does not keep the process from ending.
    """
    asked: Future[Awaitable[Any]] = Future()

    def work() -> None:
        if not asked.set_running_or_notify_cancel():
            return
        try:
            asked.set_result(make())
        except BaseException as error:
            asked.set_exception(error)

    threading.Thread(target=work, daemon=True, name="tinker-session").start()
    return await (await asyncio.wrap_future(asked))
