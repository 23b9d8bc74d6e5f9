"""Held-out tables: each problem played by the policy, sampled and greedy, under its own table."""

from __future__ import annotations

from collections.abc import Sequence

from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.short import ShortObserver
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply
from kernelgym.types import Problem
from kernelgym_train.demo.heldout import evaluate_policy
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from kernelgym_train.types import Completion, SampleRequest

OBSERVER = ShortObserver("triton", "cpu", "strict", 2)
ANSWER = reply(SAMPLE_KERNELS["triton"])


class Scripted:
    """Answers well if it is asked greedily."""

    def __init__(self, sampling: SamplingRule) -> None:
        self.text = "no kernel" if sampling.temperature else ANSWER
        self.asked: list[SampleRequest] = []

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        self.asked += requests
        return [Completion(self.text, (1,), (2, 3), None, "stop", 0) for _ in requests]


def problem(number: int) -> Problem:
    return Problem(f"T/L1/{number}", "T", 1, str(number), SAMPLE_PROBLEM.source)


def test_tables_hold_their_own_problems_both_ways() -> None:
    made: list[tuple[SamplingRule, Scripted]] = []

    def policy(sampling: SamplingRule) -> Scripted:
        made.append((sampling, Scripted(sampling)))
        return made[-1][1]

    tables = {"one": [problem(1), problem(2)], "two": [problem(3)]}
    found = evaluate_policy(
        policy,
        tables,
        ScriptedEvaluator(),
        OBSERVER,
        EpisodeConfig(),
        samples=4,
        max_new_tokens=7,
        pass_at=(1, 4),
    )
    assert [(each.temperature, each.max_new_tokens) for each, _ in made] == [(1.0, 7), (0.0, 7)]
    for name, problems in tables.items():
        ids = [each.id for each in problems]
        sampled = [rollout.trajectory.problem.id for rollout in found[name].sampled]
        assert sorted(sampled) == sorted(4 * ids)
        assert [rollout.trajectory.problem.id for rollout in found[name].greedy] == ids
        assert found[name].scores.greedy.value == 1.0 and found[name].scores.sampled.value == 0.0
    (_, drawn), (_, single) = made
    assert len(drawn.asked) == 3 * 4 * 2, "two turns each, since none is right"
    assert len(single.asked) == 3


def test_tables_are_sampled_alone_where_greedy_is_off() -> None:
    made: list[SamplingRule] = []

    def policy(sampling: SamplingRule) -> Scripted:
        made.append(sampling)
        return Scripted(sampling)

    rules, judge = EpisodeConfig(), ScriptedEvaluator()
    tables = {"one": [problem(1)]}
    found = evaluate_policy(
        policy, tables, judge, OBSERVER, rules, samples=2, greedy=False, pass_at=(1,)
    )
    assert len(made) == 1 and found["one"].greedy == ()
