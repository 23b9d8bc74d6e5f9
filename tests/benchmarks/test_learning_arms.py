"""The arms of the learning benchmarks: what each is rewarded by, fits, and begins with."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest

from benchmarks.learning.arms import ARMS, right_answers, rules_of, run_arm, worth_fitting
from kernelgym import UnknownName
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.short import ShortObserver
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.types import Problem, Status
from kernelgym_train.demo.plan import TINY_PLAN
from kernelgym_train.demo.stages import evaluate_tables, open_judge, prepare
from kernelgym_train.types import Rollout
from support.demo_rollouts import RIGHT, WRONG, rollout

PROBLEM = SyntheticSuite().problems(level=1)[0]


def about(problem: Problem, made: Rollout) -> Rollout:
    return dataclasses.replace(
        made, trajectory=dataclasses.replace(made.trajectory, problem=problem)
    )


def test_arms_differ_in_what_they_are_rewarded_by() -> None:
    digests = {arm: rules_of(arm).digest for arm in ARMS}
    assert len(set(digests.values())) == 2
    assert not rules_of("evidence_off").require_custom_kernel
    assert rules_of("main").label.startswith("strict@")
    with pytest.raises(UnknownName, match="arm"):
        rules_of("mane")


def test_what_was_right_is_worth_fitting_with_what_was_read() -> None:
    observer = ShortObserver("triton", "cpu", "strict", 2)
    played = [
        about(PROBLEM, rollout(0, [RIGHT])),
        about(PROBLEM, rollout(1, [WRONG, RIGHT])),
        about(PROBLEM, rollout(2, [WRONG, WRONG])),
    ]
    rules = EpisodeConfig()
    found = list(worth_fitting(played, observer, rules))
    assert [len(example.messages) for example in found] == [1, 3]
    assert {(e.label, e.expected) for e in found} == {("right", Status.CORRECT)}
    assert found[1].messages[1].content == played[1].trajectory.turns[0].action


def test_a_clean_corpus_is_right_throughout() -> None:
    problems = SyntheticSuite().problems(level=1)[:5]
    found = right_answers(problems, 3, 2)
    assert {example.label for example in found} == {"right"}
    assert right_answers(problems, 3, 2) == found != right_answers(problems, 4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_runs_from_the_same_start(arm: str, tmp_path: Path) -> None:
    prepared = prepare(tmp_path, TINY_PLAN, 2)
    assert prepare(tmp_path, TINY_PLAN, 2) == prepared, "found again, not made again"
    with contextlib.ExitStack() as closing, open_judge(1, rules_of(arm)) as judge:
        policy = run_arm(arm, prepared, judge, closing)
        strict = judge if rules_of(arm).name == "strict" else open_judge(1)
        try:
            after = evaluate_tables(prepared, strict, policy)
        finally:
            strict.close()
    assert after["compositions"].scores.n == TINY_PLAN.samples
