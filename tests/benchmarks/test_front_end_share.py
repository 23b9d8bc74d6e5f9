"""The share of right answers that Triton's front end accepts is counted by answers."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.judge.front_end_share import measure, right_answers
from kernelgym import Kernel, ScriptedEvaluator
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.testing import SAMPLE_KERNELS, reply, verdict
from kernelgym.types import Finding, Severity
from kernelgym.verdict import FRONT_END
from support.benchmark_runs import made, record

SAMPLE = SAMPLE_KERNELS["triton"].source
GOOD, REFUSED, WRONG = (
    Kernel(f"{SAMPLE}\n# {name}\n", "triton") for name in ("good", "refused", "wrong")
)


def episode(step: int, *kernels: Kernel) -> EpisodeRecord:
    said = [verdict("wrong" if kernel is WRONG else "correct") for kernel in kernels]
    played = made(said, texts=[reply(kernel) for kernel in kernels])
    return record(played, key=f"{step}/0/0", ruleset="strict@1")


def test_late_right_answers_count_as_often_as_given():
    records = [episode(0, GOOD), episode(1, WRONG, GOOD), episode(2, GOOD), episode(2, REFUSED)]
    answers, learned_by = right_answers(records, 2)
    assert {job.kernel: count for job, count in answers.items()} == {GOOD: 2, REFUSED: 1}
    assert learned_by == "strict@1"
    with pytest.raises(ValueError, match="no episodes"):
        right_answers([], 2)


def test_share_is_of_answers_and_not_of_kernels():
    answers, _ = right_answers([episode(0, GOOD), episode(0, GOOD), episode(0, REFUSED)], 1)
    refusal = Finding(FRONT_END, Severity.HARD, "no GPU takes it")
    refused = dataclasses.replace(verdict("compile_error"), findings=(refusal,))
    judge = ScriptedEvaluator(
        lambda _, kernel: refused if kernel == REFUSED else verdict("correct")
    )
    found = measure(answers, judge)
    assert (found["right_answers"], found["kernels"], found["accepted"]) == (3, 2, 2)
    assert found["statuses"] == {"correct": 2, FRONT_END: 1}
    assert found["share"]["low"] < found["share"]["value"] == pytest.approx(2 / 3)
