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
from kernelgym_train.rollout.play import BatchPolicy, Policy
from kernelgym_train.rollout.policies import SamplingRule
from kernelgym_train.run.training import Progress, TrainingOutcome

__all__ = ["BACKENDS", "Backend", "Model", "check_packages", "find_backend"]

BACKENDS = {
    "trl": "kernelgym_train.backends.trl.backend",
    "tinker": "kernelgym_train.backends.tinker.backend",
}
"""Module of each backend, by name."""


class Model(Protocol):
    """A model that a backend samples from and trains."""

    tokenizer: Any
    """The model's, of transformers."""
    context: int | None
    """Tokens that its context holds; None if that is not known."""

    @property
    def device(self) -> str:
        """Device that sampling and learning take here; ``cpu`` if none.

        Raises:
            UsageError: If the configured device is not there.
        """

    def about(self, assume_gpu_gib: float | None = None) -> Iterator[str]:
        """Yield where it is, in lines for the dry run.

        Args:
            assume_gpu_gib: Memory of a GPU that this machine is taken to have; None for its own.

        Raises:
            UsageError: If it is not there.
        """

    def plan(
        self,
        judge: str,
        problems: Sequence[Problem],
        held_out: Sequence[Problem],
        assume_gpu_gib: float | None = None,
    ) -> Iterator[str]:
        """Yield what a run takes, in lines for the dry run.

        Args:
            judge: The judge's device.
            problems: Those that are trained on.
            held_out: Those of an evaluation; none if the run makes none.
            assume_gpu_gib: As for `about`.

        Raises:
            UsageError: If it does not fit.
        """

    def load(self) -> None:
        """Make it ready to sample and to learn.

        Raises:
            UsageError: If that fails for want of something.
        """

    def policy(self, sampling: SamplingRule) -> Policy | BatchPolicy:
        """Return what samples with the weights: loaded, or trained since."""

    def train(self, progress: Progress) -> TrainingOutcome:
        """Train from the checkpoint at which `progress` begins until `progress.ends`.

        `kernelgym_train.run.training.run_stretches` calls it, again after a rollback.
        """

    def save(self, folder: Path) -> None:
        """Write the trained weights, or their address, for `Backend.trained`."""

    def wait_for_others(self) -> None:
        """Wait until every process that trains together has come here."""

    def close(self) -> None:
        """Release what it holds; may be called twice."""


class Backend(Protocol):
    """Makes models."""

    def check(self, config: Config) -> None:
        """Refuse a configuration, or a machine, that it cannot train with.

        Raises:
            UsageError: If a package is missing or a setting does not fit.
        """

    def prepare(self, config: Config, *, resumed: bool = False) -> Model:
        """Return the configured model, its weights not loaded.

        Args:
            config: The configuration.
            resumed: Whether a run goes on. What only its start needed may be gone by then.

        Raises:
            UsageError: If it, or the service that has it, is not there.
        """

    def trained(self, config: Config, folder: Path) -> Model:
        """Return the model that `Model.save` wrote, its weights not loaded.

        Raises:
            UsageError: If it is not there.
        """

    def kept(self, config: Config, address: str) -> Model:
        """Return the configured model with weights that are kept outside of a run.

        Args:
            config: The configuration.
            address: Where they are, such as ``tinker://RUN/sampler_weights/NAME``.

        Raises:
            UsageError: If they are not there, or the backend keeps none by such an address.
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
        backend: Its name, which is that of the extra that brings them.
        wanted: The packages.

    Raises:
        UsageError: If one is missing.
    """
    lacking = [name for name in wanted if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(
            f"backend {backend!r} needs {', '.join(lacking)}: pip install 'kernelgym[{backend}]'"
        )
