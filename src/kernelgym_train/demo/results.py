"""Results of a learning demonstration as data, for its tables, its report and the benchmark.

Contract: records of numbers and texts; `as_data` gives plain JSON, rates with their intervals.
Nothing is measured or drawn here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from kernelgym.records.jsonlines import read_lines
from kernelgym_train.demo.scores import Scores

CURVES = {
    "right at the first turn": "turn_1/correct_rate",
    "right within the episode": "episode/success_rate",
    "refused as cheating": "kernel/cheat_rate",
    "parsed": "kernel/format_rate",
    "reward": "reward/mean",
    "entropy, nats per token": "train/entropy",
    "seconds of the model": "time/model_s",
    "seconds of the judge": "time/judge_s",
    "seconds of the optimiser": "time/train_s",
}
"""Metrics of a run's steps that the report draws, by the title of the curve."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """One held-out problem, with the model's answers to it before and after training."""

    problem: str
    question: str
    before: str
    before_verdict: str
    after: str
    after_verdict: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Result of a demonstration: a model's held-out scores before and after training."""

    title: str
    seed: int
    facts: Mapping[str, str]
    """Facts about model, data, judge and machine: short texts by name."""
    before: Mapping[str, Scores]
    """Scores before training, by table; the report's headline is about the first table."""
    after: Mapping[str, Scores]
    """Scores after training, by table."""
    curves: Mapping[str, Sequence[float]]
    """Values by step of each curve of `CURVES`."""
    seconds: Mapping[str, float]
    """Wall time by stage, in order."""
    notes: Sequence[str] = ()
    """Sentences that the report shows beside the numbers."""
    specimens: Sequence[Specimen] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further figures, which only the JSON file has."""


def as_data(record: Any) -> Any:
    """Return a record as plain JSON data; numbers that are not finite become None."""
    return to_jsonable_python(record, inf_nan_mode="null")


def curves_of(run: Path) -> dict[str, list[float]]:
    """Return a run's curves of `CURVES` from metrics.jsonl; a missing value repeats the last."""
    path = run / "metrics.jsonl"
    rows = [row for _, row in read_lines(path)] if path.exists() else []
    found: dict[str, list[float]] = {}
    for name, key in CURVES.items():
        values: list[float] = []
        for row in rows:
            value = row.get(key)
            if value is None and not values:
                continue
            values.append(values[-1] if value is None else float(value))
        if values:
            found[name] = values
    return found
