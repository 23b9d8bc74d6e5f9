"""Stands for tinker-cookbook where it is not installed: the few types that the adapter uses.

`make test-adapters` runs the same tests with the real one.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


class Env:
    """Plays one episode."""


class EnvGroupBuilder:
    """Makes the episodes of a group."""


class RLDataset:
    """Holds batches."""


class RLDatasetBuilder:
    """Makes datasets."""


@dataclass
class StepResult:
    """What a step came to."""

    reward: float
    episode_done: bool
    next_observation: Any
    next_stop_condition: Any
    metrics: dict[str, float] = field(default_factory=dict)
    logs: dict[str, Any] = field(default_factory=dict)


def install(monkeypatch: Any) -> bool:
    """Put the stubs in the place of what is not installed; returns False if it is installed."""
    if importlib.util.find_spec("tinker_cookbook") is not None:
        return False
    monkeypatch.setattr("kernelgym.adapters.frameworks.check_framework", lambda extra: None)
    chz = ModuleType("chz")
    chz.chz = dataclasses.dataclass(frozen=True, kw_only=True)  # type: ignore[attr-defined]
    types = ModuleType("tinker_cookbook.rl.types")
    for each in (Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult):
        setattr(types, each.__name__, each)
    packages = {name: ModuleType(name) for name in ("tinker_cookbook", "tinker_cookbook.rl")}
    for name, module in {**packages, "chz": chz, types.__name__: types}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return True
