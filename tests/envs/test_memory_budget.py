"""The memory budget as a player meets it: what is drawn, what is refused, where it is named."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import pytest

from kernelgym import judging_memory
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.problem_choice import agreed_budget
from kernelgym.envs.vector import KernelVectorEnv
from kernelgym.errors import DegenerateProblem, ProblemError, UsageError
from kernelgym.evaluators.cached import CachedEvaluator
from kernelgym.judge import LocalEvaluator, shared_evaluator
from kernelgym.suites.base import Ids, find_problem, non_empty, select_ids
from kernelgym.suites.kernelbench_facts import facts
from kernelgym.suites.known_memory import needed_bytes
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Problem

GB = 10**9
ROWS = [row for row in facts().values() if row.level == 1]
TABLE = tuple(
    Problem(row.problem_id, "KernelBench", 1, row.name, f"{SAMPLE_PROBLEM.source}# {row.number}\n")
    for row in ROWS
)
"""Level 1 of KernelBench with its ids and names, and so its sizes, but a source of ours."""
RELU = "KernelBench/L1/19"  # 6.4 GB of inputs, and as much of output


@dataclass(frozen=True)
class Level1:
    """A suite of those problems."""

    name: str = "KernelBench"
    levels: tuple[int, ...] = (1,)
    splits: tuple[str, ...] = ()

    def problems(
        self,
        level: int | None = None,
        ids: Ids | None = None,
        split: str | None = None,
    ) -> tuple[Problem, ...]:
        return non_empty(TABLE if ids is None else select_ids(TABLE, ids), self.name)

    def get(self, problem_id: str) -> Problem:
        return find_problem(TABLE, problem_id)


def budgeted() -> ScriptedEvaluator:
    return ScriptedEvaluator(memory_bytes=12 * GB)


def make(**options: Any) -> KernelEnv:
    given = {"level": 1, "evaluator": ScriptedEvaluator(), "memory_bytes": 12 * GB}
    return KernelEnv(Level1(), **given | options)


def drawn(env: KernelEnv, count: int = 400, **options: Any) -> set[str]:
    return {
        str(env.reset(seed=seed, options=options or None)[1]["problem_id"]) for seed in range(count)
    }


def test_problems_above_the_budget_are_not_drawn() -> None:
    env = make()
    fit = {p.id for p in TABLE if (needed_bytes(p) or 0) <= 12 * GB}
    assert len(env.problems) == 100 and len(fit) == 56 and RELU not in fit
    seen = drawn(env)
    assert seen < fit and len(seen) > 50
    assert drawn(env, allow_degenerate=True) <= fit, "worthless or not, it does not fit"
    assert drawn(env.sibling(), 30) <= fit


def test_problem_above_the_budget_is_refused_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    for problem_id in (RELU, "L1/19", 19):
        options = {"problem_id": problem_id, "allow_degenerate": True}
        with pytest.raises(UsageError, match=rf"{RELU}.*26\.8 GB.*12\.0 GB \(12000000000 bytes\)"):
            make().reset(options=options)
    named: Sequence[Ids] = ("19", [19], RELU, "1,19")
    for ids in named:
        with pytest.raises(UsageError, match=RELU):
            make(problems=ids, allow_degenerate=True)
    env = make(problems="17-19")
    assert len(env.problems) == 3 and RELU not in drawn(env, 20), "a range names no problem"


def test_larger_budget_draws_what_was_refused() -> None:
    env = make(memory_bytes=40 * GB, problems=RELU, allow_degenerate=True)
    assert drawn(env, 3) == {RELU}


def test_nothing_that_fits_is_an_error() -> None:
    with pytest.raises(ProblemError, match="all 1 problems of the choice need more"):
        make(problems=[p for p in TABLE if p.id == RELU])
    with pytest.raises(ProblemError, match=r"all 100 problems.*1 bytes"):
        make(memory_bytes=1)
    bad = ("KernelBench/L1/94", RELU)  # one is degenerate, the other does not fit
    with pytest.raises(DegenerateProblem, match="all 1 problems"):
        make(problems=[p for p in TABLE if p.id in bad], memory_bytes=24 * GB)


def test_problems_of_unknown_size_are_drawn() -> None:
    env = make(memory_bytes=1, problems=[SAMPLE_PROBLEM])
    assert drawn(env, 3) == {SAMPLE_PROBLEM.id}


def test_default_is_half_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_memory, "device_bytes", lambda device: 16 * GB)
    env = KernelEnv(Level1(), 1)
    assert env.memory_bytes == 8 * GB and drawn(env, 20)
    monkeypatch.setattr(judging_memory, "device_bytes", lambda device: 1)
    assert env.reset(seed=0)[1]["memory_bytes"] == 8 * GB, "fixed when the environment is made"


def test_budget_is_that_of_the_evaluator() -> None:
    assert make(evaluator=budgeted(), memory_bytes=None).memory_bytes == 12 * GB
    assert make(evaluator=budgeted(), memory_bytes=4 * GB).memory_bytes == 4 * GB
    with pytest.raises(UsageError, match=r"memory_bytes=13000000000 .* budget is 12000000000"):
        make(evaluator=budgeted(), memory_bytes=13 * GB)
    # An evaluator that names none may judge on another machine: nothing is known of its memory.
    unlimited = make(memory_bytes=None)
    assert unlimited.memory_bytes is None and RELU in drawn(unlimited, allow_degenerate=True)
    assert unlimited.reset(seed=1)[1]["memory_bytes"] == 0


def test_cached_evaluators_pass_the_budget_on(tmp_path: Any) -> None:
    with CachedEvaluator(budgeted(), tmp_path) as cached:
        assert agreed_budget(cached, None, "cpu") == 12 * GB
    with CachedEvaluator(ScriptedEvaluator(), tmp_path) as cached:
        assert agreed_budget(cached, None, "cpu") is None


def test_spec_names_the_budget_and_makes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_memory, "device_bytes", lambda device: 16 * GB)
    env = gym.make("KernelBench-L1-MultiTurn-v0", suite=Level1())
    assert env.spec is not None and env.spec.kwargs["memory_bytes"] == 8 * GB
    monkeypatch.setattr(judging_memory, "device_bytes", lambda device: 30 * GB)
    again = gym.make(env.spec)
    assert again.unwrapped.memory_bytes == 8 * GB  # type: ignore[attr-defined]
    slots = gym.make_vec("KernelBench-L1-MultiTurn-v0", num_envs=2, suite=Level1())
    assert slots.spec is not None and slots.spec.kwargs["memory_bytes"] == 15 * GB
    scripted = gym.make("KernelBench-L1-MultiTurn-v0", suite=Level1(), evaluator=budgeted())
    assert scripted.spec is not None and scripted.spec.kwargs["memory_bytes"] == 12 * GB


def test_info_names_the_budget_at_every_step() -> None:
    env = make(problems="1")
    _, info = env.reset(seed=1)
    assert info["memory_bytes"] == 12 * GB
    assert env.step("nothing")[-1]["memory_bytes"] == 12 * GB
    slots = KernelVectorEnv(
        2,
        suite=Level1(),
        evaluator=ScriptedEvaluator(),
        memory_bytes=12 * GB,
        autoreset_mode="Disabled",
    )
    assert slots.memory_bytes == 12 * GB
    assert slots.reset(seed=1)[1]["memory_bytes"].tolist() == [12 * GB] * 2


def test_shared_evaluators_differ_by_budget() -> None:
    one, same, other = (shared_evaluator(memory_bytes=size) for size in (GB, GB, 2 * GB))
    try:
        assert one is same and other is not one
        budgets = [each.capabilities.memory_bytes for each in (one, other)]
        assert budgets == [GB, 2 * GB]
    finally:
        for each in (one, same, other):
            each.close()


def test_evaluator_refuses_before_it_starts_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgym.testing import SAMPLE_KERNELS

    relu = next(p for p in TABLE if p.id == RELU)
    with LocalEvaluator(memory_bytes=12 * GB) as judge:
        monkeypatch.setattr(judge, "_pool", None)  # whatever is asked of it fails
        with pytest.raises(UsageError, match=r"26\.8 GB"):
            judge.evaluate(relu, SAMPLE_KERNELS["cpp"])
        with pytest.raises(UsageError, match=r"26\.8 GB"):
            judge.prepare_baseline(relu)
        monkeypatch.undo()
