"""Whose failure it is when workers are lost: the kernel's if the reference passes in its place."""

import pytest

from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator, local
from kernelgym.judge.outcome import JudgeFailure
from kernelgym.judge.untrusted.protocol import ProtocolError
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.types import Status, Verdict
from support.programs import AFFINE, TRITON

CORRECT = Verdict(
    Status.CORRECT, compiled=True, trials=3, trials_passed=3, device="cpu", ruleset="strict@0"
)
WRONG = Verdict(Status.WRONG, compiled=True, trials=3, device="cpu", ruleset="strict@0")
DEVICE_LOST = JudgeFailure("the device is lost", "device_lost")
OUR_BUG = JudgeFailure("TypeError: a bug of ours")
LOST = [
    EOFError("killed"),
    ConnectionResetError(),
    ProtocolError("no JSON"),
    TimeoutError("no answer"),
]


class Workers:
    """Stands in for worker processes: a script for the kernel, one answer for the reference."""

    def __init__(self, script, reference=CORRECT):
        self.script, self.reference = list(script), reference
        self.asked, self.started, self.closed = [], 0, 0

    def __call__(self, *arguments, **options):
        self.started += 1
        return self

    def judge(self, problem, kernels, seed):
        (kernel,) = kernels
        self.asked.append((problem, kernel, seed))
        what = self.reference if kernel.language == REFERENCE_LANGUAGE else self.script.pop(0)
        if isinstance(what, Exception):
            raise what
        return (what,) if isinstance(what, Verdict) else what

    def close(self):
        self.closed += 1

    @property
    def languages(self):
        return [kernel.language for _, kernel, _ in self.asked]


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """Return a function: script, and what becomes of the reference -> verdict, workers."""

    def judge(script, reference=CORRECT, seed=""):
        workers = Workers(script, reference)
        monkeypatch.setattr(local, "WorkerProcess", workers)
        with LocalEvaluator(cache_dir=tmp_path) as evaluator:
            verdict = evaluator.evaluate(AFFINE, TRITON, seed=seed)
        assert workers.started == workers.closed and not workers.script
        assert verdict.device == "cpu"
        return verdict, workers

    return judge


@pytest.mark.parametrize("failure", [*LOST, DEVICE_LOST], ids=repr)
def test_a_kernel_that_takes_three_workers_down_failed_if_the_reference_passes(judged, failure):
    verdict, workers = judged([failure] * 3)
    assert verdict.status is Status.RUNTIME_ERROR and verdict.valid
    assert "each time on this kernel and on no other" in verdict.message
    assert workers.languages == ["triton", "triton", REFERENCE_LANGUAGE, "triton"]
    assert workers.started == 3  # each was replaced, and none that failed judged the reference
    problem, reference, seed = workers.asked[2]
    assert problem is AFFINE and seed == ""
    assert reference.source.startswith(AFFINE.source) and "ModelNew = Model\n" in reference.source


def test_kernel_whose_workers_were_killed_by_others_has_the_verdict_of_the_third(judged):
    verdict, workers = judged([EOFError("killed"), EOFError("killed"), WRONG], seed="00ff")
    assert verdict is WRONG
    assert [seed for *_, seed in workers.asked] == ["00ff", "00ff", "", "00ff"]


def test_bug_of_ours_in_the_third_attempt_blames_nobody(judged):
    verdict, _ = judged([EOFError("killed"), EOFError("killed"), OUR_BUG])
    assert verdict.status is Status.UNAVAILABLE and "a bug of ours" in verdict.message


@pytest.mark.parametrize("reference", [*LOST, DEVICE_LOST, OUR_BUG, WRONG], ids=repr)
def test_nobody_is_blamed_for_what_happens_to_the_reference_too(judged, reference):
    verdict, workers = judged([EOFError("killed"), EOFError("killed again")], reference)
    assert verdict.status is Status.UNAVAILABLE and not verdict.valid
    assert "killed again" in verdict.message
    assert verdict.ruleset.startswith("strict@")
    assert workers.languages.count(REFERENCE_LANGUAGE) == 1  # asked once, not twice


def test_an_exception_in_our_own_code_is_nobodys_doing(judged):
    verdict, workers = judged([OUR_BUG, OUR_BUG])
    assert verdict.status is Status.UNAVAILABLE and "a bug of ours" in verdict.message
    assert workers.languages == ["triton", "triton"]


@pytest.mark.parametrize("failure", [*LOST, DEVICE_LOST, OUR_BUG], ids=repr)
@pytest.mark.parametrize("second", [CORRECT, WRONG], ids=["correct", "wrong"])
def test_a_kernel_is_judged_by_the_second_attempt_on_the_same_inputs(judged, failure, second):
    verdict, workers = judged([failure, second], seed="00ff")
    assert verdict is second
    assert [seed for *_, seed in workers.asked] == ["00ff", "00ff"]


def test_what_is_refused_is_neither_tried_again_nor_blamed(judged, tmp_path, monkeypatch):
    workers = Workers([UsageError("too little memory"), CORRECT])
    monkeypatch.setattr(local, "WorkerProcess", workers)
    with LocalEvaluator(cache_dir=tmp_path) as evaluator:
        with pytest.raises(UsageError, match="too little memory"):
            evaluator.evaluate(AFFINE, TRITON)
        assert workers.closed == 0  # the worker is as good as before
        assert evaluator.evaluate(AFFINE, TRITON).correct
    assert workers.started == 1


def test_a_closed_evaluator_blames_nobody(monkeypatch, tmp_path):
    workers = Workers([EOFError("killed")])
    monkeypatch.setattr(local, "WorkerProcess", workers)
    evaluator = LocalEvaluator(cache_dir=tmp_path)
    lost = workers.judge

    def judge_and_close(*arguments):
        evaluator.close()
        return lost(*arguments)

    workers.judge = judge_and_close
    verdict = evaluator.evaluate(AFFINE, TRITON)
    assert verdict.status is Status.UNAVAILABLE and workers.languages == ["triton"]


@pytest.mark.parametrize("script", [[OUR_BUG, EOFError("killed")], [EOFError("killed"), OUR_BUG]])
def test_one_worker_lost_and_one_bug_of_ours_blame_nobody(judged, script):
    verdict, workers = judged(script)
    assert verdict.status is Status.UNAVAILABLE
    assert workers.languages == ["triton", "triton"]
