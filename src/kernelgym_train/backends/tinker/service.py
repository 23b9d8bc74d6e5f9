"""The one module that touches Tinker's SDK (0.38 and 0.39).

Contract: everything is awaited, with a limit in seconds of ours, since the SDK waits for ever while
a server is away. What the SDK raises passes. A `Sampler` is one snapshot of the weights: it does
not change when the learner does.

It knows nothing of episodes, credit and runs, retries nothing, and prints nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernelgym import UsageError
from kernelgym_train.backends.tinker.datums import DatumRow
from kernelgym_train.backends.tinker.keys import tinker_key

__all__ = ["Answered", "Learner", "Sampler", "Service", "ServiceTimeout", "Updated"]

_MOST_SEED = 2**31 - 1
_DELETION_S = 60.0
"""A run goes on without a deletion: it waits no longer for one."""


class ServiceTimeout(TimeoutError):
    """A request was not answered within its limit.

    Whether it was carried out is not known.
    """


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer that was sampled."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """At temperature 1, whatever was sampled at."""
    stopped: bool
    """Whether a stop token ended it, rather than the limit of tokens."""


@dataclass(frozen=True, slots=True)
class Updated:
    """What an optimiser update came to."""

    logprobs: tuple[tuple[float, ...], ...]
    """The learner's, before the update, of each row's targets."""
    metrics: Mapping[str, float]


class Sampler:
    """Samples with one snapshot of the weights."""

    def __init__(self, client: Any) -> None:
        self._client = client

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
        found = (await _within(asked, limit_s, "an answer")).sequences[0]
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
        found = await _within(self._client.compute_logprobs(whole), limit_s, "log-probabilities")
        # From the end: of the first token there is none, which some servers leave out.
        told = tuple(found)[-len(answer) :]
        if len(told) < len(answer) or any(value is None for value in told):
            raise ValueError(f"the service told {len(told)} of {len(answer)} log-probabilities")
        return tuple(map(float, told))


class Learner:
    """The remote weights that are trained, with their optimiser."""

    def __init__(self, client: Any, limit_s: float) -> None:
        self._client, self._limit_s = client, limit_s

    async def snapshot(self) -> Sampler:
        """Return what samples with the weights as they are now."""
        asked = self._client.save_weights_and_get_sampling_client()
        return Sampler(await _within(asked, self._limit_s, "a snapshot of the weights"))

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
            ServiceTimeout: If it takes longer than the learner's limit.
        """
        from tinker import types

        adam = types.AdamParams(
            learning_rate=learning_rate, weight_decay=weight_decay, grad_clip_norm=max_grad_norm
        )
        backward = self._client.forward_backward(
            [_datum(row, loss) for row in rows], loss, dict(loss_config) or None
        )
        step = self._client.optim_step(adam)
        found = await _within(backward, self._limit_s, "a backward pass")
        taken = await _within(step, self._limit_s, "an optimiser step")
        told = tuple(tuple(output["logprobs"].tolist()) for output in found.loss_fn_outputs)
        measured = {**dict(found.metrics or {}), **dict(taken.metrics or {})}
        return Updated(told, {name: float(value) for name, value in measured.items()})

    async def has_loss(self, loss: str, loss_config: Mapping[str, float]) -> bool:
        """Return whether the service has a loss.

        No request tells that, so one is tried on a row of two tokens, forward only: nothing is
        learned. The client is of no use after a refusal.

        Raises:
            ServiceTimeout: If it takes longer than the learner's limit.
        """
        row = DatumRow((0, 1), (1, 0), (0.0, 0.0), (0.0, 0.0), (0.0, 1.0))
        try:
            asked = self._client.forward([_datum(row, loss)], loss, dict(loss_config) or None)
            await _within(asked, self._limit_s, "a forward pass")
        except Exception as error:
            if _refuses(error):
                return False
            raise
        return True

    async def save(self, name: str, *, keep_days: int) -> tuple[str, str]:
        """Keep weights and optimiser; returns their path and the sampler's."""
        seconds = keep_days * 86400 or None
        state = self._client.save_state(name, ttl_seconds=seconds)
        sampler = self._client.save_weights_for_sampler(name, ttl_seconds=seconds)
        kept = await _within(state, self._limit_s, "a checkpoint")
        sampled = await _within(sampler, self._limit_s, "a checkpoint for sampling")
        return str(kept.path), str(sampled.path)


class Service:
    """A connection to a Tinker service.

    Args:
        base_url: Its address; that of TINKER_BASE_URL, or of the hosted service, if empty.
        limit_s: Seconds that a request of training may take.

    Raises:
        UsageError: If there is no key, or one of a wrong form.
    """

    def __init__(self, base_url: str, limit_s: float) -> None:
        import tinker

        os.environ.setdefault("TINKER_TELEMETRY", "0")
        self._limit_s = limit_s
        key = tinker_key(base_url).value
        self._given: dict[str, Any] = {"base_url": base_url or None, "api_key": key or None}
        self._client = tinker.ServiceClient(**self._given)

    async def create(self, model: str, rank: int, seed: int) -> Learner:
        """Return a fresh adapter on a base model."""
        asked = self._client.create_lora_training_client(
            base_model=model, rank=rank, seed=seed & _MOST_SEED
        )
        return Learner(await _within(asked, self._limit_s, "a new adapter"), self._limit_s)

    async def restore(self, path: str, *, optimiser: bool = True) -> Learner:
        """Return an adapter as a checkpoint has it.

        Args:
            path: Of the checkpoint, ``tinker://...``.
            optimiser: Whether the optimiser goes on as well, or only the weights.

        Raises:
            UsageError: If the service has no such checkpoint.
        """
        import tinker

        make = (
            self._client.create_training_client_from_state_with_optimizer
            if optimiser
            else self._client.create_training_client_from_state
        )
        try:
            client = await _within(make(path), self._limit_s, "a checkpoint")
        except tinker.NotFoundError:
            raise _no_such(path) from None
        return Learner(client, self._limit_s)

    async def sampler(self, path: str = "", *, base_model: str = "") -> Sampler:
        """Return what samples with kept weights, or with a base model.

        Args:
            path: Of the sampler's weights, ``tinker://...``; empty for a base model.
            base_model: Its name.

        Raises:
            UsageError: If the service has no such weights.
        """
        import tinker

        asked = self._client.create_sampling_client(
            model_path=path or None, base_model=None if path else base_model
        )
        try:
            return Sampler(await _within(asked, self._limit_s, "a sampler"))
        except tinker.NotFoundError:
            raise _no_such(path or base_model) from None

    async def delete(self, path: str) -> None:
        """Delete weights that are kept; those that are gone already are no error.

        Args:
            path: Their address, ``tinker://...``.

        Raises:
            ServiceTimeout: If it takes longer than a minute, or than the service's limit.
        """
        import tinker

        run, _, name = path.removeprefix("tinker://").partition("/")
        kept = name if "/" in name else f"sampler_weights/{name}"  # skyrl leaves the kind out
        asked = tinker.RestClient(**self._given).delete_checkpoint(run, kept)
        try:
            await _within(asked, min(self._limit_s, _DELETION_S), "the deletion of a checkpoint")
        except tinker.NotFoundError:
            return

    def close(self, status: Literal["success", "errored", "interrupted"] = "success") -> None:
        """End the session; the service may free what it holds."""
        self._client.close(status)


def _no_such(path: str) -> UsageError:
    return UsageError(
        f"the Tinker server has no {path}: it was kept on another server, or deleted since; set "
        "tinker.base_url to the server that the run was made with"
    )


def _refuses(error: Exception) -> bool:
    """Return True if a service refused a request, rather than failed."""
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


async def _within(asked: Awaitable[Any], limit_s: float, what: str) -> Any:
    async def answer() -> Any:
        return await asked

    try:
        return await asyncio.wait_for(answer(), limit_s)
    except TimeoutError:
        raise ServiceTimeout(f"the service did not give {what} within {limit_s:g} s") from None
