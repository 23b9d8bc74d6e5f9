"""The protocol of a backend: it samples, learns, saves and restores.

Contract: a backend is a module with a constant ``BACKEND``, found by name in `BACKENDS` and
imported when it is asked for. `Backend.prepare` is quick and loads no weights, so that what is
missing is said before a run's folder is made; `Model.load` may take its time. Launching a run,
evaluating it and planning it (`kernelgym_train.launch`) know these protocols and no backend.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from kernelgym import Problem, UnknownName, UsageError
from kernelgym_train.config.config import Config
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from kernelgym_train.rollout.play import BatchPolicy, Policy
from kernelgym_train.run.training import Progress, TrainingOutcome

BACKENDS = {
    "trl": "kernelgym_train.backends.trl.backend",
    "tinker": "kernelgym_train.backends.tinker.backend",
}
"""Module of each backend, by name."""


class Model(Protocol):
    """Model that a backend samples from and trains."""

    tokenizer: Any
    """Tokenizer of the model, of transformers."""
    context: int | None
    """Length of the model's context, in tokens; None if it is unknown."""

    @property
    def device(self) -> str:
        """Device of this machine on which the model works; ``cpu`` if it works elsewhere.

        Raises:
            UsageError: If the configured device is not there.
        """

    def about(self, assume_gpu_gib: float | None = None) -> Iterator[str]:
        """Yield lines for the dry run: the device or the service that has the model.

        Args:
            assume_gpu_gib: Memory of a GPU that this machine is assumed to have, in GiB; None for
                its own GPUs.

        Raises:
            UsageError: If device or service is missing.
        """

    def plan(
        self,
        judge: str,
        problems: Sequence[Problem],
        held_out: Sequence[Problem],
        assume_gpu_gib: float | None = None,
    ) -> Iterator[str]:
        """Yield lines for the dry run: the memory or the tokens that a run takes.

        Args:
            judge: Device on which kernels are judged.
            problems: Problems to train on.
            held_out: Problems to evaluate on; empty if the run makes no evaluation.
            assume_gpu_gib: Memory of an assumed GPU, as for `about`.

        Raises:
            UsageError: If the run does not fit.
        """

    def load(self) -> None:
        """Make the model ready to sample and to learn.

        Raises:
            UsageError: If something that it needs is missing.
        """

    def policy(self, sampling: SamplingRule) -> Policy | BatchPolicy:
        """Return a policy that samples with the current weights."""

    def train(self, progress: Progress) -> TrainingOutcome:
        """Train from the checkpoint at which `progress` begins until `progress.ends`.

        `kernelgym_train.run.training.run_stretches` calls it, again after a rollback.
        """

    def save(self, folder: Path) -> None:
        """Write the trained weights, or their address, into a folder for `Backend.trained`."""

    def wait_for_others(self) -> None:
        """Wait until all processes of the training have called this method."""

    def close(self) -> None:
        """Release the model's resources; may be called twice."""


class Backend(Protocol):
    """Trainer of a kind, such as TRL: makes the models that it trains."""

    def check(self, config: Config) -> None:
        """Refuse a configuration, or a machine, with which the backend cannot train.

        Raises:
            UsageError: If a package is missing or a setting does not fit.
        """

    def prepare(self, config: Config, *, resumed: bool = False) -> Model:
        """Return the configured model, its weights not loaded.

        Args:
            config: The configuration.
            resumed: Whether a run is resumed. Weights that only its start needed may be deleted.

        Raises:
            UsageError: If the model, or the service that has it, is missing.
        """

    def trained(self, config: Config, folder: Path) -> Model:
        """Return the model that `Model.save` wrote, or a checkpoint's, its weights not loaded.

        Raises:
            UsageError: If the folder holds no such model.
        """

    def kept(self, config: Config, address: str) -> Model:
        """Return the configured model with weights that are kept outside of a run.

        Args:
            config: The configuration.
            address: Address of the weights, such as ``tinker://RUN/sampler_weights/NAME``.

        Raises:
            UsageError: If there are no such weights, or the backend has no addresses of weights.
        """


def find_backend(name: str) -> Backend:
    """Return a backend by its name.

    Raises:
        UnknownName: If there is no such backend.
    """
    if name not in BACKENDS:
        raise UnknownName("backend", name, BACKENDS)
    found: Backend = importlib.import_module(BACKENDS[name]).BACKEND
    return found


def check_packages(backend: str, wanted: Sequence[str]) -> None:
    """Refuse a backend whose packages are not installed.

    Args:
        backend: Name of the backend, which is also that of the extra that brings them.
        wanted: The packages.

    Raises:
        UsageError: If one is missing.
    """
    lacking = [name for name in wanted if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(
            f"backend {backend!r} needs {', '.join(lacking)}: pip install 'kernelgym[{backend}]'"
        )
