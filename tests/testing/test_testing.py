from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kernelgym.errors import UsageError
from kernelgym.testing import (
    SAMPLE_BROKEN,
    SAMPLE_KERNELS,
    SAMPLE_PROBLEM,
    ScriptedEvaluator,
    verdict,
)
from kernelgym.types import Job, Kernel, Problem, Status, Verdict

KERNEL = SAMPLE_KERNELS["triton"]


def marked(comment: str) -> Kernel:
    return Kernel(f"{KERNEL.source}\n{comment}\n", "triton")


@pytest.mark.parametrize("status", list(Status))
def test_a_verdict_of_every_status_can_be_made(status: Status) -> None:
    assert verdict(status).status is status
    assert verdict(status.value) == verdict(status)


@pytest.mark.parametrize(
    ("comment", "status", "speedup"),
    [
        ("", Status.CORRECT, 0.0),
        ("# verdict: wrong", Status.WRONG, 0.0),
        ("# verdict: correct 1.5", Status.CORRECT, 1.5),
        ("# verdict: wrong\n# verdict: timeout", Status.TIMEOUT, 0.0),
    ],
)
def test_comments_decide_without_a_script(comment: str, status: Status, speedup: float) -> None:
    found = ScriptedEvaluator().evaluate(SAMPLE_PROBLEM, marked(comment))
    assert (found.status, found.speedup) == (status, speedup)


def test_an_unknown_status_in_a_comment_is_refused() -> None:
    with pytest.raises(UsageError, match="compile_error"):
        ScriptedEvaluator().evaluate(SAMPLE_PROBLEM, marked("# verdict: splendid"))


def test_a_sequence_is_used_in_turn() -> None:
    evaluator = ScriptedEvaluator([verdict("wrong"), verdict("correct")])
    found = evaluator.evaluate_many([Job(SAMPLE_PROBLEM, KERNEL)] * 3)
    assert [each.status.value for each in found] == ["wrong", "correct", "wrong"]
    with pytest.raises(UsageError):
        ScriptedEvaluator([])


def test_a_mapping_goes_by_digest_or_text() -> None:
    script = {KERNEL.digest: verdict("timeout"), "+ 3.0": verdict("wrong")}
    evaluator = ScriptedEvaluator(script)
    assert evaluator.evaluate(SAMPLE_PROBLEM, KERNEL).status is Status.TIMEOUT
    assert evaluator.evaluate(SAMPLE_PROBLEM, SAMPLE_BROKEN["triton"]).status is Status.WRONG
    assert evaluator.evaluate(SAMPLE_PROBLEM, SAMPLE_KERNELS["cpp"]).status is Status.CORRECT


def test_a_function_sees_problem_and_kernel() -> None:
    def judge(problem: Problem, kernel: Kernel) -> Verdict:
        return verdict("wrong", message=f"{problem.id} {kernel.language}")

    found = ScriptedEvaluator(judge).evaluate(SAMPLE_PROBLEM, KERNEL)
    assert found.message == "Sample/L1/1 triton"


def test_verdicts_are_stamped_and_jobs_remembered() -> None:
    with ScriptedEvaluator(ruleset="kernelbench", device="cuda:0") as evaluator:
        found = evaluator.evaluate(SAMPLE_PROBLEM, KERNEL)
        assert (found.device, found.ruleset) == ("cuda:0", evaluator.capabilities.ruleset.label)
        assert evaluator.judged == [Job(SAMPLE_PROBLEM, KERNEL)]
    assert evaluator.closed
    evaluator.close()


def test_threads_share_a_sequence_evenly() -> None:
    evaluator = ScriptedEvaluator([verdict("wrong"), verdict("correct")])
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda _: evaluator.evaluate(SAMPLE_PROBLEM, KERNEL).correct, range(200))
        )
    assert sum(found) == 100
