"""Paths of the weights that a Tinker service keeps.

Contract: a checkpoint's ``state.json`` holds a `KeptCheckpoint` beside the run's own parts, its row
in checkpoints.jsonl the names that tinker-cookbook's tools read, and a run's ``model/`` a file
``tinker.json``. Pure but for that file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from kernelgym import UsageError

_FILE = "tinker.json"


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """Weights that a service keeps."""

    state_path: str
    """Weights and optimiser, ``tinker://...``: a run goes on from them."""
    sampler_path: str
    """The weights for sampling."""
    version: int
    """Optimiser updates that they have had."""
    base_model: str
    """Name of the base model on the service."""
    server: str
    """Address of the service."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return what `state` told."""
        return cls(**{each.name: state[each.name] for each in fields(cls)})

    def state(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    def facts(self, step: int) -> dict[str, Any]:
        """Return what a row of checkpoints.jsonl says of it, in tinker-cookbook's names.

        Args:
            step: Steps that were done.
        """
        return {
            "name": checkpoint_name(step),
            "batch": step,
            "state_path": self.state_path,
            "sampler_path": self.sampler_path,
        }


def is_of_training(path: str) -> bool:
    """Return True if an address is of weights that can be trained.

    Those for sampling are ``tinker://RUN/sampler_weights/NAME``, or ``tinker://RUN/NAME`` on
    servers of skyrl's.
    """
    return "/weights/" in path


def checkpoint_name(step: int) -> str:
    """Return the name of a checkpoint, here and on the service."""
    return f"step-{step:06d}"


def write_trained(folder: Path, kept: KeptCheckpoint) -> None:
    """Write where a run's trained weights are."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_text(json.dumps(kept.state(), indent=2) + "\n")


def read_trained(folder: Path) -> KeptCheckpoint:
    """Return where a run's trained weights are.

    Raises:
        UsageError: If the folder does not say.
    """
    try:
        return KeptCheckpoint.of(json.loads((folder / _FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        raise UsageError(
            f"{str(folder)!r} does not say where trained weights are (no {_FILE} that can be "
            "read); give the folder of a run with run.backend=tinker that has ended"
        ) from None
