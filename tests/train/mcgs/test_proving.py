"""States judged in a round with the start alone, and whole before anything rests on them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search.texts import TextProposer
from kernelgym.counters import Counters
from kernelgym.testing import verdict
from kernelgym.types import Kernel, Problem, Verdict
from kernelgym.verdict import Stages
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.variant import variant_of
from support import searches, writers
from support.searches import TASK, InTurns, rows, timed
from support.writers import WholePolicy

WRITTEN = Kernel(TASK.start.source.replace('"-O2"', '"-O3", "-march=native"'), "cpp")


def in_turns(_: Problem, kernel: Kernel) -> Verdict:
    return timed(kernel)


def refusing(problem: Problem, kernel: Kernel) -> Verdict:
    """Refuse every kernel but the start, as if torch did the work."""
    known = kernel == TASK.start
    return searches.judged(problem, kernel) if known else verdict("rejected", message="torch")


def kernels_of(folder: Path) -> dict[str, Kernel]:
    """Return the kernels of all proposed states by key."""
    found = (row for row in rows(folder) if row["event"] == "proposed")
    return {row["key"]: variant_of(row["variant"]).kernel() for row in found}


def before_the_end(judge: InTurns, kernel: Kernel) -> int:
    """Return the number of full verdicts on a kernel."""
    return sum(job.kernel == kernel for job in judge.judged)


@pytest.mark.parametrize("algo", ["tpe", "mcgs"])
def test_state_made_by_rules_takes_one_round_and_no_verdict(algo: str, tmp_path: Path) -> None:
    judge = InTurns(searches.judged, in_turns)
    result = searches.run(tmp_path, judge, 12, algo=algo, workers=1, together=False)
    events, kernels = rows(tmp_path), kernels_of(tmp_path)
    judged = [row for row in events if row["event"] == "judged"]
    proved = [row["key"] for row in events if row["event"] == "proved"]
    assert len(judged) == 12 and not any(row["whole"] for row in judged)
    assert all(row["verdicts"] == 1 and row["wall_s"] == 0.0 for row in judged)
    left = [key for key in kernels if key not in (*proved, result["best"]["state"])]
    assert left and not any(before_the_end(judge, kernels[key]) for key in left)
    state = json.loads((tmp_path / "kernels" / "matmul" / "search_state.json").read_text())
    assert set(state["unproven"]) == {key for key in state["nodes"] if key in left}
    promoted = [row["second"] for row in events if row["event"] == "duel"]
    assert promoted and set(promoted) <= set(proved) and len(proved) == len(set(proved))
    assert all(before_the_end(judge, kernels[key]) for key in proved)


def test_seconds_of_a_whole_verdict_after_a_round_are_counted_for_its_state(tmp_path: Path) -> None:
    def slow(problem: Problem, kernel: Kernel) -> Verdict:
        return dataclasses.replace(searches.judged(problem, kernel), wall_s=2.0)

    states = list[SearchState]()
    searches.run(tmp_path, InTurns(slow, in_turns), 8, algo="tpe", workers=1, watch=states.append)
    proved = {row["key"]: row["wall_s"] for row in rows(tmp_path) if row["event"] == "proved"}
    assert proved and all(seconds > 0 for seconds in proved.values())
    assert {each.key: each.judge_s for each in states[-1].history if each.judge_s} == proved


def test_same_seed_and_resume_give_the_same_search(tmp_path: Path) -> None:
    def run(folder: str, builds: int, **given: Any) -> dict[str, Any]:
        judge = InTurns(searches.judged, in_turns)
        result = searches.run(tmp_path / folder, judge, builds, algo="tpe", **given)
        return {name: result[name] for name in ("speedup", "best", "failures", "evaluations")}

    def keys(folder: str) -> list[str]:
        return [row["key"] for row in rows(tmp_path / folder) if row["event"] == "judged"]

    first = run("one", 10, workers=3)
    second = run("two", 10, workers=3)
    assert keys("one") == keys("two") and first["speedup"] == second["speedup"] > 1.0
    assert run("one", 10, workers=3, resume=True) == first
    assert run("one", 14, workers=3, resume=True)["evaluations"] == 14


@pytest.mark.parametrize("algo", ["best_first", "mcgs", "tpe"])
def test_state_that_its_whole_verdict_refuses_is_never_promoted(algo: str, tmp_path: Path) -> None:
    judge = InTurns(refusing, in_turns)
    result = searches.run(tmp_path, judge, 12, algo=algo)
    events = rows(tmp_path)
    refused = [row for row in events if row["event"] == "proved"]
    assert refused and all(row["status"] == "rejected" for row in refused)
    assert not [row for row in events if row["event"] in ("duel", "confirmed")]
    assert result["speedup"] == 1.0 and result["best"]["digest"] == TASK.start.digest
    assert result["failures"]["rejected"] == len(refused)
    assert result["evaluations"] == 12
    trace = (tmp_path / "kernels" / "matmul" / "trace.md").read_text()
    assert "## Failures" in trace and "torch" in trace
    idle = InTurns(refusing, in_turns)
    again = searches.run(tmp_path, idle, 12, algo=algo, resume=True)
    assert again == result and not idle.judged and not idle.rounds


@pytest.mark.parametrize("algo", ["best_first", "mcgs", "random", "tpe"])
def test_refused_state_is_changed_no_more_and_ends_no_search_at_the_bandwidth(
    algo: str, tmp_path: Path
) -> None:
    def at_the_bandwidth(_: Problem, kernel: Kernel) -> Verdict:
        made = timed(kernel)
        assert made.timing is not None
        timing = dataclasses.replace(made.timing, floor_ms=made.timing.kernel_ms)
        return dataclasses.replace(made, timing=timing)

    judge = InTurns(refusing, at_the_bandwidth)
    result = searches.run(tmp_path, judge, 10, workers=1, algo=algo)
    assert result["stopped"] == "budget_builds"
    refused = set[str]()
    for row in rows(tmp_path):
        if row["event"] == "proved":
            refused.add(row["key"])
        assert row["event"] != "proposed" or row["node"] not in refused
    judge = InTurns(at_the_bandwidth, at_the_bandwidth)
    result = searches.run(tmp_path / "right", judge, 30, workers=1, algo=algo)
    assert result["stopped"] == "floor_share" and result["speedup"] > 1.0


def test_bandwidth_that_only_a_round_shows_ends_no_search(tmp_path: Path) -> None:
    def too_fast(_: Problem, kernel: Kernel) -> Verdict:
        made = timed(kernel)
        assert made.timing is not None
        timing = dataclasses.replace(made.timing, floor_ms=2.0 * made.timing.kernel_ms)
        return dataclasses.replace(made, timing=timing)

    result = searches.run(tmp_path, InTurns(searches.judged, too_fast), 8, workers=1)
    assert result["stopped"] == "budget_builds"


@pytest.mark.parametrize("algo", ["best_first", "mcgs", "tpe"])
def test_more_refused_states_than_are_compared_leave_the_best_that_is_right(
    algo: str, tmp_path: Path
) -> None:
    refused: list[str] = []

    def whole(problem: Problem, kernel: Kernel) -> Verdict:
        if "parallel for" in kernel.source:
            refused.append(kernel.digest)
            return verdict("rejected", message="torch")
        return searches.judged(problem, kernel)

    result = searches.run(tmp_path, InTurns(whole, in_turns), 24, workers=1, algo=algo)
    assert len(set(refused)) > 3
    assert result["speedup"] > 5.0 and result["best"]["digest"] not in refused


def test_written_state_has_its_whole_verdict_first(tmp_path: Path) -> None:
    judge = InTurns(lambda *job: dataclasses.replace(searches.judged(*job), wall_s=30.0), in_turns)
    no_better = Kernel(TASK.start.source.replace('"-O2"', '"-O2", "-pipe"'), "cpp")
    policy = writers.priced(WholePolicy([no_better]))
    writers.run(tmp_path, policy, judge, builds=8, algo="best_first")
    moves = {row["key"]: row["variant"] for row in rows(tmp_path) if row["event"] == "proposed"}
    judged = {row["key"]: row for row in rows(tmp_path) if row["event"] == "judged"}
    whole = {key: row["whole"] for key, row in judged.items() if not row.get("twin")}
    by_writer = {
        key: any(step["move"].startswith("written:") for step in moves[key]["applied"])
        for key in whole
    }
    assert whole == by_writer and set(whole.values()) == {True, False}


def test_kernels_of_another_proposer_have_whole_verdicts_first(tmp_path: Path) -> None:
    judge = InTurns(searches.judged, in_turns)
    proposer = TextProposer(TASK.start, {"faster": WRITTEN})
    searches.run(tmp_path, judge, 3, proposer=proposer, approximate=True)
    (row,) = (row for row in rows(tmp_path) if row["event"] == "judged")
    assert row["whole"] and row["verdicts"] == 2
    assert judge.judged[2].kernel == WRITTEN  # after the start's verdicts


def test_state_that_no_round_decides_is_judged_whole(tmp_path: Path) -> None:
    def not_timed(problem: Problem, kernel: Kernel) -> Verdict:
        return in_turns(problem, kernel) if kernel == TASK.start else verdict("correct")

    searches.run(tmp_path, InTurns(searches.judged, not_timed), 4)
    judged = [row for row in rows(tmp_path) if row["event"] == "judged"]
    assert all(row["whole"] and row["value"] is not None for row in judged)
    assert all(row["verdicts"] == 3 for row in judged), "no round is asked for a third time"
    assert not [row for row in rows(tmp_path) if row["event"] == "proved"]


def test_build_and_wait_of_a_round_are_no_time_of_the_round(tmp_path: Path) -> None:
    """Each round takes 12 s of the search's clock: 8 for its build, 2 for waiting."""
    now = [0.0]

    def building(_: Problem, kernel: Kernel) -> Verdict:
        now[0] += 6.0
        stages = Stages(build_s=4.0, queue_s=1.0)
        return dataclasses.replace(timed(kernel), wall_s=6.0, stages=stages)

    judge = InTurns(searches.judged, building)
    searches.run(tmp_path, judge, 3, workers=1, clock=lambda: now[0])
    judged = [row for row in rows(tmp_path) if row["event"] == "judged"]
    assert [(row["build_s"], row["round_s"]) for row in judged] == 3 * [(8.0, 2.0)]


class Profiled(InTurns):
    """Reads counters of kernels that had a full verdict, as the local evaluator does."""

    def profile(self, problem: Problem, kernel: Kernel, **_: Any) -> Counters:
        assert kernel in [job.kernel for job in self.judged]
        return Counters("measured", {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 9.0})


def test_state_is_judged_whole_before_it_is_profiled(tmp_path: Path) -> None:
    judge = Profiled(searches.judged, in_turns)
    searches.run(tmp_path, judge, 8, ncu_every=2, budget=Budget(8, patience=0))
    names = [row["event"] for row in rows(tmp_path)]
    assert names.count("profiled") >= 3 and "proved" in names[: names.index("duel")]
