"""Numbers of an evaluation, from episodes of known outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from kernelgym import UsageError, Verdict
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, reply, verdict
from kernelgym.types import Status
from kernelgym_train.rollout.evaluation import (
    Evaluation,
    play_and_score,
    score_rollouts,
)
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
    found = score_rollouts(episodes("r wr ww ww", "ww ww ww ww"), pass_at=(1, 2)).metrics
    assert found["eval/pass@1"] == pytest.approx((0.25 + 0.0) / 2)
    assert found["eval/pass@1_within"] == pytest.approx((0.5 + 0.0) / 2)
    assert found["eval/pass@2"] == pytest.approx(0.5 / 2)
    assert found["eval/pass@2_within"] == pytest.approx((5 / 6) / 2)
    assert found["eval/problems"] == 2.0


def test_levels_apart() -> None:
    found = score_rollouts(episodes("r r", "w w", "r w")).metrics
    assert found["eval/level_1/pass@1"] == 0.5 and found["eval/level_2/pass@1"] == 0.5


def test_lost_episodes_are_left_out() -> None:
    result = score_rollouts(episodes("r x", "x x"), pass_at=(1, 2))
    assert result.metrics["eval/pass@1"] == 1.0
    assert "eval/pass@2" not in result.metrics, "no problem has two episodes left"
    assert result.metrics["eval/problems"] == 1.0
    assert result.metrics["eval/infra/fail_rate"] == 0.75


def test_episodes_cut_by_a_policy_are_left_out() -> None:
    result = score_rollouts(episodes("r r- -", "- w-"), pass_at=(1,))
    assert result.metrics["eval/pass@1"] == result.metrics["eval/fast_0"] == 1.0
    assert result.metrics["eval/problems"] == 1.0
    assert result.metrics["eval/infra/fail_rate"] == 0.8
    assert result.metrics["eval/kernel/correct_rate"] == 1.0


def test_the_fastest_is_measured_again() -> None:
    kernel = SAMPLE_KERNELS["vector_add"] if "vector_add" in SAMPLE_KERNELS else None
    kernel = kernel or next(iter(SAMPLE_KERNELS.values()))
    lucky = [verdict("correct", speedup=s) for s in (1.2, 3.0)]
    policy = Repeating([reply(kernel), reply(kernel).replace("ModelNew", "ModelNew", 1) + "\n# b"])
    observer = Observer("triton", "cpu", "kernelbench", max_turns=2, examples="zero_shot")
    judge = ScriptedEvaluator(lucky, ruleset="kernelbench")
    again = ScriptedEvaluator([verdict("correct", speedup=1.1)], ruleset="kernelbench")
    options = {"samples": 1, "pass_at": (1,)}
    rules = EpisodeConfig(stop_when="never")
    found = asyncio.run(
        play_and_score(policy, PROBLEMS[:1], judge, observer, rules, again=again, **options)
    )
    assert len(again.judged) == 1
    assert found.metrics["eval/speedup_mean"] == pytest.approx(1.1)
    assert (found.metrics["eval/fast_1"], found.metrics["eval/fast_1.5"]) == (1.0, 0.0)


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
    found = asyncio.run(play_and_score(policy, PROBLEMS, judge, observer, samples=4))
    assert Counter(each.key.problem for each in found.rollouts) == {0: 4, 1: 4, 2: 4}
    assert found.metrics["eval/pass@4"] == 1.0
    for arguments in ({"samples": 0}, {"samples": 2, "pass_at": (4,)}):
        with pytest.raises(UsageError):
            asyncio.run(play_and_score(policy, PROBLEMS, judge, observer, **arguments))
    with pytest.raises(UsageError, match="no problem"):
        asyncio.run(play_and_score(policy, [], judge, observer))


def test_evaluation_is_awaited_inside_a_loop() -> None:
    judge = ScriptedEvaluator(ruleset="kernelbench")
    observer = Observer("triton", "cpu", "kernelbench", examples="zero_shot")
    policy = Repeating(["<KERNEL>class ModelNew: ...</KERNEL>"])

    async def both() -> list[Evaluation]:
        parts = (play_and_score(policy, PROBLEMS, judge, observer, name=name) for name in "ab")
        return await asyncio.gather(*parts)

    one, other = asyncio.run(both())
    assert one.metrics["a/pass@1"] == other.metrics["b/pass@1"] == 1.0
