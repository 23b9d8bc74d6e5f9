"""Numbers of an evaluation, from episodes of known outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from kernelgym import Verdict
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, reply, verdict
from kernelgym.types import Status
from kernelgym_train.rollout.evaluation import score_rollouts
from kernelgym_train.rollout.play import play, tasks_of
from kernelgym_train.types import Completion, Rollout, SampleRequest
from support import played

RIGHT, WRONG = verdict("correct"), verdict("wrong")
PROBLEMS = played.problems("add", 1, 2) + played.problems("mul", 2, 1)


def episodes(*outcomes: str) -> list[Rollout]:
    """One problem per text, one episode per word, one turn per letter.

    r: right, w: wrong, x: not judged; a word that ends in ``-`` was cut before its next turn.
    """
    verdicts = {"r": RIGHT, "w": WRONG, "x": Verdict(Status.UNAVAILABLE)}
    return [
        played.rollout(
            [float(letter == "r") for letter in word.rstrip("-")],
            group=place,
            number=number,
            verdicts=[verdicts[letter] for letter in word.rstrip("-")],
            problem=PROBLEMS[place],
            ended="cut" if "x" in word or "-" in word else "solved" if "r" in word else "budget",
            horizon=4,
        )
        for place, text in enumerate(outcomes)
        for number, word in enumerate(text.split())
    ]


def test_pass_rates_of_first_answers_and_of_episodes() -> None:
    found = score_rollouts(episodes("r wr ww ww", "ww ww ww ww"), pass_at=(1, 2))
    assert found["eval/pass@1"] == pytest.approx((0.25 + 0.0) / 2)
    assert found["eval/pass@1_within"] == pytest.approx((0.5 + 0.0) / 2)
    assert found["eval/pass@2"] == pytest.approx(0.5 / 2)
    assert found["eval/pass@2_within"] == pytest.approx((5 / 6) / 2)
    assert found["eval/problems"] == 2.0


def test_levels_apart() -> None:
    found = score_rollouts(episodes("r r", "w w", "r w"))
    assert found["eval/level_1/pass@1"] == 0.5 and found["eval/level_2/pass@1"] == 0.5


def test_lost_episodes_are_left_out() -> None:
    result = score_rollouts(episodes("r x", "x x"), pass_at=(1, 2))
    assert result["eval/pass@1"] == 1.0
    assert "eval/pass@2" not in result, "no problem has two episodes left"
    assert result["eval/problems"] == 1.0
    assert result["eval/infra/fail_rate"] == 0.75


def test_episodes_cut_by_a_policy_are_left_out() -> None:
    result = score_rollouts(episodes("r r- -", "- w-"), pass_at=(1,))
    assert result["eval/pass@1"] == result["eval/fast_0"] == 1.0
    assert result["eval/problems"] == 1.0
    assert result["eval/infra/fail_rate"] == 0.8
    assert result["eval/kernel/correct_rate"] == 1.0


def test_the_fastest_is_measured_again() -> None:
    kernel = SAMPLE_KERNELS["vector_add"] if "vector_add" in SAMPLE_KERNELS else None
    kernel = kernel or next(iter(SAMPLE_KERNELS.values()))
    lucky = [verdict("correct", speedup=s) for s in (1.2, 3.0)]
    policy = Repeating([reply(kernel), reply(kernel).replace("ModelNew", "ModelNew", 1) + "\n# b"])
    observer = Observer("triton", "cpu", "kernelbench", max_turns=2, examples="zero_shot")
    judge = ScriptedEvaluator(lucky, ruleset="kernelbench")
    again = ScriptedEvaluator([verdict("correct", speedup=1.1)], ruleset="kernelbench")
    rules = EpisodeConfig(stop_when="never")
    rollouts = asyncio.run(play(tasks_of(0, PROBLEMS[:1], 1), policy, judge, observer, rules))
    found = score_rollouts(rollouts, again=again)
    assert len(again.judged) == 1
    assert found["eval/speedup_mean"] == pytest.approx(1.1)
    assert (found["eval/fast_1"], found["eval/fast_1.5"]) == (1.0, 0.0)


class Repeating:
    """Gives the same answers, turn by turn."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers = answers

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        return [
            Completion(self.answers[each.key.turn], (1,), (2,), None, "stop", 0)
            for each in requests
        ]


def test_every_problem_is_played_as_often_as_asked() -> None:
    judge = ScriptedEvaluator(ruleset="kernelbench")
    observer = Observer("triton", "cpu", "kernelbench", examples="zero_shot")
    policy = Repeating(["<KERNEL>class ModelNew: ...</KERNEL>"])
    rollouts = asyncio.run(play(tasks_of(0, PROBLEMS, 4), policy, judge, observer))
    assert Counter(each.key.problem for each in rollouts) == {0: 4, 1: 4, 2: 4}
    assert score_rollouts(rollouts, pass_at=(1, 4))["eval/pass@4"] == 1.0
