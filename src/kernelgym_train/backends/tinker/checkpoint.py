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
    """Address of weights and optimiser, ``tinker://...``, from which a run is resumed."""
    sampler_path: str
    """Address of the same weights for sampling."""
    version: int
    """Number of optimiser updates that made the weights."""
    base_model: str
    """Name of the base model on the service."""
    server: str
    """Address of the service."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return the checkpoint whose data `state` returned."""
        return cls(**{each.name: state[each.name] for each in fields(cls)})

    def state(self) -> dict[str, Any]:
        """Return the checkpoint as JSON data."""
        return asdict(self)

    def facts(self, step: int) -> dict[str, Any]:
        """Return the row of checkpoints.jsonl, with the field names that tinker-cookbook reads.

        Args:
            step: Number of steps that were done.
        """
        return {
            "name": checkpoint_name(step),
            "batch": step,
            "state_path": self.state_path,
            "sampler_path": self.sampler_path,
        }


def is_of_training(path: str) -> bool:
    """Return True if an address names weights that can be trained further.

    Those for sampling are ``tinker://RUN/sampler_weights/NAME``, or ``tinker://RUN/NAME`` on
    servers of skyrl's.
    """
    return "/weights/" in path


def checkpoint_name(step: int) -> str:
    """Return the name of a checkpoint, here and on the service."""
    return f"step-{step:06d}"


def write_trained(folder: Path, kept: KeptCheckpoint) -> None:
    """Write the address of a run's trained weights into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_text(json.dumps(kept.state(), indent=2) + "\n")


def read_trained(folder: Path) -> KeptCheckpoint:
    """Return the address of the weights in a run's ``model/``, or in one of its checkpoints.

    Raises:
        UsageError: If the folder holds no such address.
    """
    try:
        if (state := folder / "state.json").is_file():
            return KeptCheckpoint.of(json.loads(state.read_text("utf-8"))["tinker"])
        return KeptCheckpoint.of(json.loads((folder / _FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        raise UsageError(
            f"{str(folder)!r} does not say where trained weights are (no {_FILE} that can be "
            "read); give the folder of a run with run.backend=tinker"
        ) from None
