"""How a search measures: beside the start, with a pooled zero; what is right is not given up."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgym.evaluators.duel import Duel
from kernelgym.testing import verdict
from kernelgym.types import Finding, Kernel, Problem, Verdict
from kernelgym.verdict import HOST_BUSY
from kernelgym_train.mcgs.events import SearchEvent
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import sentence
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.variant import plain_variant, read_variant
from support import searches
from support.searches import InTurns, rows, timed

START = read_variant(searches.TASK.start)


def moving(_: Problem, kernel: Kernel) -> Verdict:
    """Judge beside a reference whose time says nothing: all kernels have speedups around 1."""
    return verdict("correct", speedup=0.5 + (hash(kernel.digest) % 100) / 100)


def test_search_beside_a_moving_reference_finds_the_faster_kernel(tmp_path: Path) -> None:
    judge = InTurns(moving, lambda _, kernel: timed(kernel))
    result = searches.run(tmp_path, judge, 12)
    best = Kernel((tmp_path / result["best"]["path"]).read_text(), "cpp")
    assert result["speedup"] == pytest.approx(searches.speedup(best) / 0.01)
    assert result["speedup"] > 4.0
    values = [row for row in rows(tmp_path) if row["event"] == "judged" and row["beside"]]
    assert len(values) == 12 and all(row["value"] == row["beside"][0] for row in values)
    beside = [kernels for kernels in judge.rounds if kernels[0] == searches.TASK.start]
    assert len(beside) >= 12, "each state is timed beside the start"


def test_kernel_that_fails_in_turns_is_no_state(tmp_path: Path) -> None:
    def turns(_: Problem, kernel: Kernel) -> Verdict:
        return verdict("wrong") if "parallel" in kernel.source else timed(kernel)

    result = searches.run(tmp_path, InTurns(moving, turns), 6)
    assert result["failures"]["wrong"] > 0
    assert "parallel" not in (tmp_path / result["best"]["path"]).read_text()


def test_kernels_that_turns_cannot_time_are_valued_by_their_verdicts(tmp_path: Path) -> None:
    judge = InTurns(searches.judged, lambda *_: verdict("unavailable"))
    result = searches.run(tmp_path, judge, 5)
    plain = searches.run(tmp_path / "plain", searches.evaluator(), 5)
    assert result["speedup"] == pytest.approx(plain["speedup"])


def test_correct_kernel_without_a_time_is_timed_again(tmp_path: Path) -> None:
    """Each kernel is untimed in its first verdict, as on a host that is too busy."""
    seen: set[str] = set()

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        first = kernel.digest not in seen and kernel != searches.TASK.start
        seen.add(kernel.digest)
        return verdict("correct") if first else searches.judged(problem, kernel)

    result = searches.run(tmp_path, searches.evaluator(judged), 6)
    assert result["untimed"] == 0 and result["speedup"] > 1.0
    assert "correct" not in result["failures"] and "untimed" not in result["failures"]
    again = [row for row in rows(tmp_path) if row["event"] == "timed"]
    assert again and all(row["value"] is not None for row in again)


def test_correct_kernel_that_is_never_timed_is_no_failure(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        return (
            verdict("correct", speedup=0.01)
            if kernel == searches.TASK.start
            else verdict("correct")
        )

    result = searches.run(tmp_path, searches.evaluator(judged), 5)
    assert (result["untimed"], result["failures"], result["speedup"]) == (5, {}, 1.0)
    trace = (tmp_path / "kernels" / "matmul" / "trace.md").read_text()
    assert "## Failures" not in trace and "## Correct, not timed" in trace
    attempts = [row["key"] for row in rows(tmp_path) if row["event"] in ("judged", "timed")]
    assert all(attempts.count(key) == 3 for key in attempts)


def take(state: SearchState, name: str, **fields: Any) -> None:
    state.take(SearchEvent(0, 1.0, name, fields))


def judge_state(state: SearchState, key: str, speedup: float) -> None:
    variant = {"variant": plain_variant(START), "risk": "exact", "links": []}
    take(state, "proposed", key=key, node=state.start, move="m", attempt=0, **variant)
    value = math.log(speedup / state.start_speedup)
    told = {"build_s": 0.0, "wall_s": 0.0, "floor_share": 0.0, "message": "", "status": "correct"}
    take(state, "judged", key=key, value=value, speedup=speedup, **told)


def start_judged(state: SearchState, speedup: float) -> None:
    take(state, "start", speedup=speedup, wall_s=1.0, build_s=0.0, host_busy=True)


def test_start_with_a_lucky_first_verdict_hides_no_faster_kernel() -> None:
    """The start's usual speed is 0.44: a kernel at 0.55 is 1.25 times as fast."""
    state = searches.empty_state(START)
    for speedup in (0.60, 0.44):
        start_judged(state, speedup)
    judge_state(state, "a", 0.55)
    assert state.challenger() == "a"
    for speedup in (0.44, 0.43, 0.45, 0.44):
        start_judged(state, speedup)
    assert math.exp(state.graph.nodes["a"].value) == pytest.approx(1.25, abs=0.1)
    assert math.exp(3 * state.noise) < 1.6, "more verdicts on the start tell its noise better"


def test_start_is_judged_again_where_nothing_is_timed_in_turns(tmp_path: Path) -> None:
    searches.run(tmp_path, searches.evaluator(), 11)
    names = [row["event"] for row in rows(tmp_path)]
    assert names.count("start") == 3  # twice at first, and after 10 evaluations


def duelled(state: SearchState, decided: str, logs: Sequence[float] = ()) -> None:
    fields = {"ratio": 1.1, "low": 0.9, "high": 1.3, "rounds": 3, "took_s": 1.0}
    told = {"first": state.start, "second": "a", "decided": decided, "logs": list(logs)}
    take(state, "duel", **fields, **told)


def test_undecided_duel_may_be_fought_again_once() -> None:
    state = searches.empty_state(START)
    start_judged(state, 0.5)
    judge_state(state, "a", 0.6)
    for expected in ("a", None):
        duelled(state, "neither")
        assert state.challenger() == expected


def test_rounds_of_a_duel_are_pooled_into_the_value() -> None:
    state = searches.empty_state(START)
    start_judged(state, 0.5)
    judge_state(state, "a", 0.6)
    state.beside["a"] = [0.4]
    duelled(state, "neither", [0.1, 0.1, 0.2])
    assert state.graph.nodes["a"].value == pytest.approx(0.2)


def busy(made: Verdict) -> Verdict:
    return dataclasses.replace(made, findings=(Finding(HOST_BUSY, "others ran"),))


@pytest.mark.parametrize("is_busy", [True, False])
def test_sentence_tells_intervals_and_the_busy_host(is_busy: bool, tmp_path: Path) -> None:
    def turns(_: Problem, kernel: Kernel) -> Verdict:
        return busy(timed(kernel)) if is_busy else timed(kernel)

    result = searches.run(tmp_path, InTurns(searches.judged, turns), 6)
    told = sentence(result, SearchFolder(tmp_path, "matmul"))
    assert result["host_busy"] == is_busy == ("host_busy" in told)
    assert told.count(" to ") + told.count("(from ") == 2, "every speedup has its interval"
    page = (tmp_path / "kernels" / "matmul" / "report.html").read_text()
    assert "host_busy" in page and ("yes, other programs" in page) == is_busy


def test_search_says_what_it_left_undecided(tmp_path: Path) -> None:
    def compare(*_: Any, **__: Any) -> Duel:
        return Duel(1.2, 0.8, 1.7, 3, (), "neither")

    result = searches.run(tmp_path, searches.evaluator(), 6, compare=compare)
    told = sentence(result, SearchFolder(tmp_path, "matmul"))
    assert result["speedup"] == 1.0 and not result["best"]["diff"]
    assert "undecided: a kernel 1.2x (0.8 to 1.7) as fast" in told
