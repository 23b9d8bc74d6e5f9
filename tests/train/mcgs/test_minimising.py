"""The end of a search takes from the best what it does not need."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search.texts import TextProposer
from kernelgym import Duel, Kernel, duel
from kernelgym.records.trajectories import read_records
from kernelgym.testing import verdict
from kernelgym.types import Problem, Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.proposing import Proposal, RuleProposer
from kernelgym_train.mcgs.variant import MoveStep, Variant, read_variant
from support import searches

LOOPS = MoveStep("compiler_flags", "unrolling", "-funroll-loops")
FLAG = MoveStep("compiler_flags", "level", "-O3 -march=native")
TILE = MoveStep("register_block", "matrix_product/i", "4 x 2 x 8")
START = read_variant(searches.TASK.start)


class OneKernel(RuleProposer):
    """Offers one kernel, of three steps."""

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        return () if variant.applied else (("compiler_flags", 1.0),)

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        made = self.replay([LOOPS, FLAG, TILE])
        assert made is not None
        return Proposal(LOOPS, *made) if attempt == 0 else None


def judged(worth: dict[str, float]) -> Any:
    def judge(problem: Problem, kernel: Kernel) -> Verdict:
        speed = 0.1
        for text, factor in worth.items():
            speed *= factor if text in kernel.source else 1.0
        return verdict("wrong") if speed <= 0 else verdict("correct", speedup=speed)

    return searches.evaluator(judge)


def searched(folder: Path, worth: dict[str, float], **given: Any) -> dict[str, Any]:
    return searches.run(folder, judged(worth), proposer=OneKernel(START), **given)


@pytest.mark.parametrize(
    ("unrolled", "kept"),
    [(1.0, False), (1.015, False), (1.05, True), (0.9, False), (3.0, True)],
)
def test_step_goes_unless_it_gains_two_percent(unrolled: float, kept: bool, tmp_path: Path) -> None:
    worth = {"vector_size(32)": 4.0, "-O3": 2.0, "-funroll-loops": unrolled}
    result = searched(tmp_path, worth)
    places = [place for _, place, _ in result["best"]["moves"]]
    assert places == ["matrix_product/i", "level", *(["unrolling"] if kept else [])]
    assert result["minimised"]["done"]
    assert [each[1] for each in result["minimised"]["left_out"]] == ([] if kept else ["unrolling"])
    assert result["speedup"] == pytest.approx(8.0 * (unrolled if kept else 1.0))
    best = Kernel((tmp_path / result["best"]["path"]).read_text(), "cpp")
    assert best.digest == result["best"]["digest"]
    assert ("-funroll-loops" in best.source) == kept


def test_steps_worth_little_do_not_add_up(tmp_path: Path) -> None:
    worth = {"vector_size(32)": 1.5, "-O3": 1.015, "-funroll-loops": 1.015}
    result = searched(tmp_path, worth)
    assert [move for move, _, _ in result["best"]["moves"]].count("register_block") == 1
    assert len(result["best"]["moves"]) == 2, "one of two steps of 1.5 % goes, the other stays"


def test_step_stays_where_a_duel_leaves_doubt(tmp_path: Path) -> None:
    worth = {"vector_size(32)": 4.0, "-O3": 2.0}

    def compare(*args: Any, **given: Any) -> Duel:
        found = duel(*args, **given)
        if found.decided == "neither":  # as on a busy host
            found = dataclasses.replace(found, low=found.ratio * 0.6, high=found.ratio / 0.6)
        return found

    result = searched(tmp_path, worth, compare=compare)
    assert len(result["best"]["moves"]) == 3 and result["minimised"]["done"]


def test_best_that_is_not_confirmed_keeps_its_steps(tmp_path: Path) -> None:
    worth = {"vector_size(32)": 4.0, "-O3": 2.0}
    seen: list[str] = []

    def compare(evaluator: Any, problem: Problem, one: Kernel, other: Kernel, **given: Any) -> Duel:
        found = duel(evaluator, problem, one, other, **given)
        seen.append(other.source)
        if given["most"] == 12 and "-funroll-loops" not in other.source:
            found = dataclasses.replace(found, decided="neither", low=0.5)
        return found

    result = searched(tmp_path, worth, compare=compare)
    assert len(result["best"]["moves"]) == 3 and result["speedup"] == pytest.approx(8.0)
    assert result["minimised"] == {"done": False, "left_out": []}
    assert any("-funroll-loops" not in text for text in seen), "it was tried without that step"


def test_wrong_without_a_step_keeps_it(tmp_path: Path) -> None:
    def judge(problem: Problem, kernel: Kernel) -> Verdict:
        if "vector_size" in kernel.source and "-O3" not in kernel.source:
            return verdict("wrong")
        return verdict("correct", speedup=0.4 if "vector_size" in kernel.source else 0.1)

    rules = OneKernel(START)
    result = searches.run(tmp_path, searches.evaluator(judge), proposer=rules)
    assert [move for move, _, _ in result["best"]["moves"]] == ["register_block", "compiler_flags"]


def test_cut_while_minimising_goes_on(tmp_path: Path) -> None:
    worth = {"vector_size(32)": 4.0, "-funroll-loops": 1.01, "-O3": 1.2}
    whole = searched(tmp_path, worth)
    path = tmp_path / "kernels" / "matmul" / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if json.loads(line)["event"] == "reduced")
    path.write_text("".join(lines[: number + 1]))
    resumed = searched(tmp_path, worth, resume=True)
    assert resumed["best"]["digest"] == whole["best"]["digest"]
    assert resumed["minimised"] == whole["minimised"]
    events = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [tuple(row["step"]) for row in events if row["event"] == "reduced"]
    assert len(steps) == len(set(steps)) == 3


def test_a_best_that_lost_steps_ends_the_episode(tmp_path: Path) -> None:
    result = searched(tmp_path, {"vector_size(32)": 4.0, "-O3": 2.0})
    assert result["minimised"]["left_out"]
    (record,) = read_records(tmp_path / "kernels" / "matmul" / "episode.jsonl")
    before, last = record.trajectory.turns
    assert "-funroll-loops" in before.action and last.action.startswith("Without compiler_flags")
    best = (tmp_path / result["best"]["path"]).read_text()
    assert last.reply.kernel is not None and last.reply.kernel.source.rstrip() == best.rstrip()


def test_ctrl_c_while_minimising_can_be_resumed(tmp_path: Path) -> None:
    worth = {"vector_size(32)": 4.0, "-funroll-loops": 1.01, "-O3": 1.2}

    def compare(evaluator: Any, problem: Problem, one: Kernel, *args: Any, **given: Any) -> Duel:
        if one != searches.TASK.start and not said:
            said.append("Ctrl-C")
            signal.raise_signal(signal.SIGINT)
        return duel(evaluator, problem, one, *args, **given)

    said: list[str] = []

    cut = searched(tmp_path, worth, compare=compare)
    assert (cut["stopped"], cut["minimised"]["done"]) == ("interrupted", False)
    resumed = searched(tmp_path, worth, resume=True)
    assert resumed["minimised"]["done"] and resumed["evaluations"] == cut["evaluations"]
    assert resumed["best"]["digest"] == searched(tmp_path / "whole", worth)["best"]["digest"]


@pytest.mark.parametrize("seconds", [240, 280])  # without time for a duel before the last, and with
def test_no_time_to_minimise_is_said(seconds: int, tmp_path: Path) -> None:
    now = [0.0]
    worth = {"vector_size(32)": 4.0, "-O3": 2.0}
    inner = judged(worth)

    def slow(problem: Problem, kernel: Kernel) -> Verdict:
        now[0] += 10.0
        return dataclasses.replace(inner.evaluate(problem, kernel), wall_s=10.0)

    result = searches.run(
        tmp_path,
        searches.evaluator(slow),
        proposer=OneKernel(START),
        budget=Budget(9, seconds=seconds),
        clock=lambda: now[0],
        workers=1,
    )
    assert not result["minimised"]["done"] and result["speedup"] == pytest.approx(8.0)


def test_text_loses_changes_that_do_nothing(tmp_path: Path) -> None:
    source = searches.TASK.start.source
    fast = source.replace('"-O2"', '"-O3"').replace(
        "  const int64_t rows", "  // a remark\n  // another\n  const int64_t rows"
    )
    fast = fast.replace("total += a[", "total += 1.0f * a[")
    proposer = TextProposer(searches.TASK.start, {"mine": Kernel(fast, "cpp")})
    result = searches.run(tmp_path, judged({'"-O3"': 2.0}), proposer=proposer, approximate=True)
    assert result["speedup"] == pytest.approx(2.0) and result["minimised"]["done"]
    best = (tmp_path / result["best"]["path"]).read_text()
    assert best == source.replace('"-O2"', '"-O3"')
