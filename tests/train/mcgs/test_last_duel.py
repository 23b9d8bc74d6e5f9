"""How a search ends: a duel of the best with the start, and a check of the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from kernelgym import duel
from kernelgym.evaluators.duel import Duel
from kernelgym.testing import verdict
from kernelgym.types import Kernel, Problem, Verdict
from support import searches
from support.searches import rows

CHALLENGE, LAST = 6, 12
"""Rounds of a challenge, and of the last duel."""


def ending_in(rounds: int, found: Duel) -> Any:
    """Return a duel whose kinds with so many rounds end as given."""

    def compare(*args: Any, most: int, **given: Any) -> Duel:
        return found if most == rounds else duel(*args, most=most, **given)

    return compare


def test_search_start_that_fails_promotes_nothing(tmp_path: Path) -> None:
    failing = ending_in(CHALLENGE, Duel(0.0, 0.0, 0.0, 1, (), "second"))
    result = searches.run(tmp_path, searches.evaluator(), 4, compare=failing)
    assert result["speedup"] == 1.0 and not result["best"]["diff"]
    assert not [row for row in rows(tmp_path) if row["event"] == "confirmed"]


@pytest.mark.parametrize(
    ("last", "kept"),
    [
        (Duel(0.0, 0.0, 0.0, 1, (), "second"), True),  # the start failed
        (Duel(1.5, 0.7, 3.2, 3, (), "neither"), True),
        (Duel(0.8, 0.7, 0.9, 3, (), "first"), False),
        (Duel(0.0, 0.0, 0.0, 1, ((verdict("correct"), verdict("wrong")),), "neither"), False),
        (Duel(0.0, 0.0, 0.0, 1, ((verdict("correct"), verdict("unavailable")),), "neither"), True),
    ],
)
def test_search_lost_last_duel_takes_the_best(last: Duel, kept: bool, tmp_path: Path) -> None:
    result = searches.run(tmp_path, searches.evaluator(), 4, compare=ending_in(LAST, last))
    assert (result["speedup"] > 1.0) == bool(result["best"]["diff"]) == kept
    proofs = [row["ratio"] for row in rows(tmp_path) if row["event"] == "duel"]
    assert result["speedup"] == pytest.approx(proofs[-1] if kept else 1.0)


def test_undecided_last_duel_leaves_those_before(tmp_path: Path) -> None:
    """The best beat another kernel, which had beaten the start."""
    undecided = ending_in(LAST, Duel(1.5, 0.7, 3.2, 3, (), "neither"))
    result = searches.run(tmp_path, searches.evaluator(), 30, compare=undecided)
    won = [row for row in rows(tmp_path) if row["event"] == "duel" and row["low"] > 1.0]
    assert len(won) > 1 and won[1]["first"] == won[0]["second"] != won[0]["first"]
    assert result["best"]["state"] == won[-1]["second"]
    for name, end in (("speedup", "ratio"), ("speedup_low", "low"), ("speedup_high", "high")):
        assert result[name] == pytest.approx(math.prod(row[end] for row in won))


def test_search_best_wrong_at_the_end_keeps_the_start(tmp_path: Path) -> None:
    counts: dict[str, int] = {}

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        counts[kernel.digest] = counts.get(kernel.digest, 0) + 1
        fast = "parallel" in kernel.source
        # Search, duel and the duel with the start take 7 verdicts; the file from disk is the 8th.
        if fast and counts[kernel.digest] == 8:
            return verdict("wrong")
        return verdict("correct", speedup=1.0 if fast else 0.5)

    result = searches.run(tmp_path, searches.evaluator(judged), 4)
    assert max(counts.values()) >= 8
    assert result["best"]["digest"] == searches.TASK.start.digest
