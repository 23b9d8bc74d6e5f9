"""Tinker as a backend: a model on a service. See `kernelgym_train.backends.backend`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

from kernelgym import Problem, UsageError
from kernelgym_train.backends.backend import check_packages
from kernelgym_train.backends.tinker.checkpoint import (
    KeptCheckpoint,
    is_of_training,
    read_trained,
    write_trained,
)
from kernelgym_train.backends.tinker.keys import tinker_key
from kernelgym_train.backends.tinker.policy import OpenedLater, TinkerPolicy
from kernelgym_train.backends.tinker.prices import PRICES, cost_lines
from kernelgym_train.backends.tinker.remote_model import Remote
from kernelgym_train.backends.tinker.server_probe import (
    KeptWeights,
    ServedModel,
    find_model,
    find_weights,
    reach,
    server_address,
)
from kernelgym_train.backends.tinker.service import Sampler, Service
from kernelgym_train.backends.tinker.settings import check_address
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.backends.tinker.train import train
from kernelgym_train.config.config import Config
from kernelgym_train.models import answer_ends, known_context, load_tokenizer
from kernelgym_train.rollout.huggingface_policy import ChatText, SamplingRule
from kernelgym_train.run.training import Progress, TrainingOutcome


class TinkerModel:
    """A model on a Tinker service.

    Args:
        config: The configuration.
        served: The model as the service describes it.
        server: Address of the service.
        kept: Trained weights of the model; None for the untrained model.

    Raises:
        UsageError: If the tokenizer is not found, or names no token that ends an answer.
    """

    def __init__(
        self, config: Config, served: ServedModel, server: str, kept: KeptCheckpoint | None = None
    ) -> None:
        self._config, self._served, self._server, self._kept = config, served, server, kept
        self.tokenizer = load_tokenizer(config.model)
        self._text = ChatText(self.tokenizer, {"enable_thinking": config.sampling.thinking})
        self._stop = answer_ends(config.model, self.tokenizer)
        self.context = served.context or known_context(config.model)
        self._service: Service | None = None
        self._spending = Spending(
            PRICES.get(served.name),
            most_usd=config.tinker.most_usd,
            most_tokens=config.tinker.most_tokens,
        )

    @property
    def device(self) -> str:
        """``cpu``: the service samples and learns, not this machine."""
        return "cpu"

    def about(self, assume_gpu_gib: float | None = None) -> Iterator[str]:
        """Yield lines about the service, the key, and the model on the service."""
        yield f"server      {self._server}, reached"
        yield f"key         {tinker_key(self._server).source}"
        yield f"model       {self._served.name}, adapter of rank {self._config.model.lora_rank}"
        if self._config.tinker.start_from:
            yield f"weights     begin with {self._config.tinker.start_from}"

    def plan(
        self,
        judge: str,
        problems: Sequence[Problem],
        held_out: Sequence[Problem],
        assume_gpu_gib: float | None = None,
    ) -> Iterator[str]:
        """Yield lines with the largest possible cost of a training step and of the run."""
        for line in cost_lines(self._config, len(held_out)):
            yield f"cost        {line}"

    def load(self) -> None:
        """Connect to the service."""
        if self._service is None:
            self._service = Service(self._server, self._config.tinker.step_timeout_s)

    def check_kept(self) -> None:
        """Check that the service has the weights for sampling.

        Raises:
            UsageError: If the service does not have them; the connection is closed then.
        """
        self.load()
        assert self._service is not None and self._kept is not None
        try:
            asyncio.run(self._service.sampler(self._kept.sampler_path))
        except BaseException:
            self.close()
            raise

    def policy(self, sampling: SamplingRule) -> TinkerPolicy:
        """Return a policy that samples with the trained weights, or with the untrained model."""
        remote, kept = self._remote(), self._kept
        service = self._service
        assert service is not None  # _remote has connected

        def make() -> Awaitable[Sampler]:
            if kept is None:
                return service.sampler(base_model=self._served.name)
            if not kept.sampler_path:
                return _snapshot_of(service, kept.state_path)
            return service.sampler(kept.sampler_path)

        return remote.policy(OpenedLater(make), kept.version if kept else 0, sampling)

    def train(self, progress: Progress) -> TrainingOutcome:
        """Train; see `kernelgym_train.backends.tinker.train.train`."""
        outcome = train(progress, self._remote())
        self._kept = outcome.model
        return outcome

    def save(self, folder: Path) -> None:
        """Write the address of the trained weights, and the tokenizer, into a folder."""
        if self._kept is not None:
            write_trained(folder, self._kept)
            self.tokenizer.save_pretrained(str(folder))

    def wait_for_others(self) -> None:
        """Return at once: one process trains."""

    def close(self) -> None:
        """Close the connection to the service."""
        if self._service is not None:
            service, self._service = self._service, None
            service.close()

    def _remote(self) -> Remote:
        self.load()
        assert self._service is not None
        return Remote(
            self._service,
            self._server,
            self._served.name,
            self._text,
            self._stop,
            self.context,
            self._config.tinker.answer_timeout_s,
            self._spending,
        )


class TinkerBackend:
    """Backend that samples and trains on a Tinker service, the hosted one or another server."""

    def check(self, config: Config) -> None:
        """Raise a UsageError if the package `tinker` or `transformers` is not installed."""
        check_packages("tinker", ("tinker", "transformers"))

    def prepare(self, config: Config, *, resumed: bool = False) -> TinkerModel:
        """Return the configured model on its service.

        Only a new run checks that the weights of `tinker.start_from` exist.
        """
        server = server_address(config.tinker.base_url)
        key = tinker_key(server).value
        served = find_model(reach(server, key), config.model.id, server)
        if not resumed:
            _check_start(config, served, server, key)
        return TinkerModel(config, served, server)

    def trained(self, config: Config, folder: Path) -> TinkerModel:
        """Return the model whose trained weights a run's folder names."""
        kept = read_trained(folder)
        # A server of one's own may have another port by now; paths are the same.
        server = server_address(config.tinker.base_url or kept.server)
        models = reach(server, tinker_key(server).value)
        served = next((model for model in models if model.name == kept.base_model), None)
        return TinkerModel(config, served or ServedModel(kept.base_model, None), server, kept)

    def kept(self, config: Config, address: str) -> TinkerModel:
        """Return the configured model with weights that the service keeps.

        Weights for sampling say nothing of their model; those of a training are compared.
        """
        check_address(f"--evaluate {address}", address)
        server = server_address(config.tinker.base_url)
        key = tinker_key(server).value
        served = find_model(reach(server, key), config.model.id, server)
        paths = ("", address)
        if is_of_training(address):
            _compared(address, served, server, key)
            paths = (address, "")
        model = TinkerModel(config, served, server, KeptCheckpoint(*paths, 0, served.name, server))
        if not is_of_training(address):
            model.check_kept()
        return model


BACKEND = TinkerBackend()


def _check_start(config: Config, served: ServedModel, server: str, key: str) -> None:
    """Refuse weights in ``tinker.start_from`` that do not fit the configured adapter.

    Raises:
        UsageError: If the server does not have the weights, or says that they belong to another
            model or have another rank.
    """
    path, rank = config.tinker.start_from, config.model.lora_rank
    if not path:
        return
    kept = _compared(path, served, server, key)
    if kept.rank not in (None, rank):
        raise UsageError(
            f"{path} are weights of an adapter of rank {kept.rank}, and model.lora_rank is {rank}; "
            f"set model.lora_rank={kept.rank}"
        )


def _compared(path: str, served: ServedModel, server: str, key: str) -> KeptWeights:
    """Return the server's description of weights, after checking that the model fits.

    Raises:
        UsageError: If the server does not have the weights, or they belong to another model.
    """
    kept = find_weights(server, key, path)
    if kept.base_model not in ("", served.name):
        raise UsageError(
            f"{path} are weights of an adapter of {kept.base_model}, and model.id is "
            f"{served.name}; set model.id to theirs"
        )
    return kept


async def _snapshot_of(service: Service, path: str) -> Sampler:
    """Return a sampler for weights that were saved for training."""
    learner = await service.restore(path, optimiser=False)
    return await learner.snapshot()
