"""TRL as a backend: a model in this process. See `kernelgym_train.backends.backend`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelgym import Problem, UsageError
from kernelgym_train.backends.backend import check_packages
from kernelgym_train.backends.trl.loop import model_policy
from kernelgym_train.backends.trl.train import train
from kernelgym_train.config.config import Config
from kernelgym_train.launch.memory import estimate_memory
from kernelgym_train.launch.reference_sizes import reference_sizes
from kernelgym_train.models import (
    context_tokens,
    gpus,
    load_model,
    load_shape,
    load_tokenizer,
    model_device,
    save_model,
)
from kernelgym_train.rollout.huggingface_policy import HFPolicy, SamplingRule
from kernelgym_train.run.training import Progress, TrainingOutcome

_PACKAGES = ("trl", "transformers", "peft", "accelerate")


class TrlModel:
    """A model of transformers in this process, which TRL trains.

    Args:
        config: The configuration.
        model: Settings of the model that is loaded; the configured one if None.

    Raises:
        UsageError: If its tokenizer or shape is not found.
    """

    def __init__(self, config: Config, model: str | None = None) -> None:
        own = (
            config.model
            if model is None
            else config.model.model_copy(update={"id": model, "revision": ""})
        )
        self._config, self._own = config, own
        self.tokenizer = load_tokenizer(own)
        self._given = model is not None
        self._loaded: Any = None
        self._trained: Any = None

    @property
    def context(self) -> int | None:
        """Number of tokens that the model's context holds; None if unknown."""
        if self._given:
            return None  # an adapter's folder has no shape; the model is asked itself
        return context_tokens(load_shape(self._own))

    @property
    def device(self) -> str:
        """Configured device of the model: ``cpu`` or a GPU such as ``cuda:0``."""
        return model_device(self._config.model)

    def about(self, assume_gpu_gib: float | None = None) -> Iterator[str]:
        """Yield a line on the device of the model."""
        yield f"model       on {self.device if assume_gpu_gib is None else 'cuda:0'}"

    def plan(
        self,
        judge: str,
        problems: Sequence[Problem],
        held_out: Sequence[Problem],
        assume_gpu_gib: float | None = None,
    ) -> Iterator[str]:
        """Yield an estimate of the device memory that a run takes."""
        device = self.device if assume_gpu_gib is None else "cuda:0"
        number = _number(device)
        judged = None
        if number is not None and _number(judge) == number:
            sizes = reference_sizes([*problems, *held_out])
            judged = max((each.on_gpu for each in sizes if each), default=0)
        estimate = estimate_memory(self._config, half=number is not None, judged_bytes=judged)
        yield from (f"memory      {line}" for line in estimate.lines())
        if number is None:
            return
        assumed = None if assume_gpu_gib is None else assume_gpu_gib * 2**30
        total = float(gpus()[number].memory_bytes) if assumed is None else assumed
        if estimate.peak > total:
            advice = (
                "lower optimiser.micro_batch, sampling.batch_size, sampling.max_new_tokens or "
                "max_prompt_tokens, or set model.quantisation=4bit"
            )
            if estimate.judge:
                advice = (
                    f"{estimate.judge / 2**30:.0f} of it are the judge's: give it another GPU "
                    "(judge.device=cuda:1), or lower judge.memory_bytes, judge.workers or "
                    "judge.standby; else " + advice
                )
            raise UsageError(
                f"the run is estimated to take {estimate.peak / 2**30:.0f} GiB of a GPU that has "
                f"{total / 2**30:.0f}; {advice}"
            )
        yield f"memory      fits into {total / 2**30:.0f} GiB"

    def load(self) -> None:
        """Load the weights."""
        self._loaded = load_model(self._own)

    def policy(self, sampling: SamplingRule) -> HFPolicy:
        """Return a policy that samples with the current weights."""
        if self._trained is None and self._loaded is None:
            self.load()
        model = self._loaded if self._trained is None else self._trained
        return model_policy(self._config, model, self.tokenizer, sampling)

    def train(self, progress: Progress) -> TrainingOutcome:
        """Train; see `kernelgym_train.backends.trl.train.train`."""
        model, self._loaded = self._loaded, None
        # After a rollback the weights that were loaded first have been trained.
        model = load_model(self._own) if model is None else model
        outcome = train(progress, model, self.tokenizer)
        self._trained = outcome.model
        return outcome

    def save(self, folder: Path) -> None:
        """Save the trained model, or its adapter, with the tokenizer."""
        save_model(self._trained, self.tokenizer, folder)

    def wait_for_others(self) -> None:
        """Wait until every process of the training has called this method."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()

    def close(self) -> None:
        """Do nothing: the memory is freed when the process ends."""


class TrlBackend:
    """Backend that trains with TRL's GRPOTrainer in this process."""

    def check(self, config: Config) -> None:
        """Refuse a machine on which a needed package is missing."""
        check_packages("trl", _PACKAGES)
        extra = {"vllm": config.sampling.engine != "transformers"}
        extra["bitsandbytes"] = config.model.quantisation != "none"
        for name, needed in extra.items():
            if needed and importlib.util.find_spec(name) is None:
                what = "sampling.engine" if name == "vllm" else "model.quantisation"
                raise UsageError(
                    f"{what} as configured needs {name}, which is not installed: pip install {name}"
                )

    def prepare(self, config: Config, *, resumed: bool = False) -> TrlModel:
        """Return the configured model, its weights not loaded yet."""
        return TrlModel(config)

    def trained(self, config: Config, folder: Path) -> TrlModel:
        """Return the model that a finished run has saved, its weights not loaded."""
        return TrlModel(config, str(folder))

    def kept(self, config: Config, address: str) -> TrlModel:
        """Refuse weights given by an address, since TRL's models are folders."""
        raise UsageError(
            f"{address} is an address on a Tinker service, and the backend is trl; give --backend "
            "tinker, or set model.id to a model's folder"
        )


BACKEND = TrlBackend()


def _number(device: str) -> int | None:
    """Return the number of a device's GPU; None for the CPU."""
    kind, _, number = device.partition(":")
    return int(number or 0) if kind == "cuda" else None
