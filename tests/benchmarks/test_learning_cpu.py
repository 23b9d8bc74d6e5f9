"""The learning benchmark's book-keeping: rows of what is done, and goals that are met or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import cpu


def stage(sampled: float, parsed: float = 1.0) -> dict[str, Any]:
    rates = {"sampled": {"value": sampled}, "greedy": {"value": sampled}}
    return {
        "seconds": 10.0,
        "tables": {cpu.HEADLINE: {**rates, "parsed": {"value": parsed}, "n": 480}},
    }


def assembled(folder: Path, *seeds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    for number, stages in enumerate(seeds):
        (folder / f"seed{number}").mkdir()
        for name, found in stages.items():
            (folder / f"seed{number}" / f"{name}.json").write_text(json.dumps(found))
    return cpu.assemble(folder, range(len(seeds)), ("main", "shuffled"))


def test_a_row_holds_what_is_done_and_nothing_for_the_rest(tmp_path: Path) -> None:
    found = assembled(tmp_path, {"start": stage(0.4), "main": stage(0.9)})
    (row,) = found["seeds"]
    assert (row["before_sampled"], row["after_sampled"], row["seconds"]) == (0.4, 0.9, 20.0)
    assert row["control_after_sampled"] is None and row["clean_sft_after"] is None


def test_a_seed_without_a_start_has_no_row(tmp_path: Path) -> None:
    assert assembled(tmp_path, {"main": stage(0.9)})["seeds"] == []


@pytest.mark.parametrize(
    ("after", "met"),
    [
        ((0.92, 0.90), True),
        ((0.92, 0.89), False),
        ((0.92, None), None),
        ((0.89, None), False),
        ((None, None), None),
    ],
)
def test_a_goal_that_one_seed_misses_is_missed_whatever_the_others_come_to(
    tmp_path: Path, after: tuple[float | None, ...], met: bool | None
) -> None:
    seeds = [
        {"start": stage(0.4), **({} if reached is None else {"main": stage(reached)})}
        for reached in after
    ]
    assert assembled(tmp_path, *seeds)["goals"]["after_met"] is met


@pytest.mark.parametrize(("control", "met"), [(0.31, True), (0.49, True), (0.06, False)])
def test_a_control_stays_near_its_start(tmp_path: Path, control: float, met: bool) -> None:
    found = assembled(tmp_path, {"start": stage(0.4), "shuffled": stage(control, parsed=0.7)})
    assert found["goals"]["control_met"] is met
    assert found["goals"]["control_parses_met"] is False
