"""Verdicts are written before they are used, and given again."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from kernelgym import Evaluator, Job, JudgeError, Kernel, Problem, Verdict
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Status
from kernelgym_train.rollout.verdict_log import VerdictLog

KERNELS = [Kernel(f"class ModelNew: x = {n}", "triton") for n in range(8)]
JOBS = [Job(SAMPLE_PROBLEM, kernel) for kernel in KERNELS]


def drifting() -> ScriptedEvaluator:
    """Gives each kernel another speed each time it is asked."""
    return ScriptedEvaluator([verdict("correct", speedup=1.0 + n / 10) for n in range(100)])


def test_it_keeps_the_protocol(tmp_path: Path) -> None:
    log = VerdictLog(drifting(), tmp_path / "v.jsonl")
    assert isinstance(log, Evaluator)
    assert log.capabilities == drifting().capabilities


def test_a_verdict_is_given_again_also_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    first = VerdictLog(drifting(), path).evaluate_many(JOBS)
    assert len({found.speedup for found in first}) == len(JOBS)
    evaluator = drifting()
    evaluator.evaluate(*_parts(JOBS[0]))  # so that its next verdicts are others
    again = VerdictLog(evaluator, path)
    assert again.evaluate_many(JOBS) == first
    assert len(evaluator.judged) == 1
    assert (again.status.hits, again.status.misses) == (8, 0)


def test_it_is_written_before_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    for count, _ in enumerate(VerdictLog(drifting(), path).evaluate_iter(JOBS), 1):
        assert len(path.read_text().splitlines()) >= count


def test_problem_kernel_ruleset_and_device_tell_verdicts_apart(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    VerdictLog(drifting(), path).evaluate(SAMPLE_PROBLEM, KERNELS[0])
    other = Problem("Other/L1/1", "Other", 1, "1", f"{SAMPLE_PROBLEM.source}# other\n")
    for evaluator, problem, kernel in (
        (drifting(), other, KERNELS[0]),
        (drifting(), SAMPLE_PROBLEM, KERNELS[1]),
        (ScriptedEvaluator(ruleset="kernelbench"), SAMPLE_PROBLEM, KERNELS[0]),
        (ScriptedEvaluator(device="cuda:0"), SAMPLE_PROBLEM, KERNELS[0]),
    ):
        log = VerdictLog(evaluator, path)
        log.evaluate(problem, kernel)
        assert log.status.misses == 1


def test_a_kernel_asked_for_twice_at_once_is_judged_once(tmp_path: Path) -> None:
    class Slow(ScriptedEvaluator):
        def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
            time.sleep(0.05)
            return super().evaluate(problem, kernel, seed=seed)

    evaluator = Slow()
    log = VerdictLog(evaluator, tmp_path / "v.jsonl")
    found: list[Verdict] = []
    askers = [
        threading.Thread(target=lambda: found.extend(log.evaluate_many(JOBS[:2] * 2)))
        for _ in range(4)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(evaluator.judged) == 2 and len(found) == 16


def test_unavailable_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    down = Verdict(Status.UNAVAILABLE)
    log = VerdictLog(ScriptedEvaluator([down, verdict("correct")]), path)
    assert not log.evaluate(SAMPLE_PROBLEM, KERNELS[0]).valid
    assert not path.exists()
    assert log.evaluate(SAMPLE_PROBLEM, KERNELS[0]).correct


class Raising(ScriptedEvaluator):
    """Raises for one kernel."""

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        if kernel == KERNELS[2]:
            raise JudgeError("gone")
        return super().evaluate(problem, kernel, seed=seed)


def test_error_reaches_its_caller_and_leaves_no_other_waiting(tmp_path: Path) -> None:
    log = VerdictLog(Raising(), tmp_path / "v.jsonl")
    with pytest.raises(JudgeError):
        log.evaluate_many(JOBS)
    assert log.evaluate(*_parts(JOBS[0])).correct  # it is asked again, and answers
    assert len(log) >= 2


class Seeded(ScriptedEvaluator):
    """Takes seeds, as the local judge does."""

    def __init__(self) -> None:
        super().__init__(workers=3)
        self.by_kernel: dict[str, str] = {}

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        self.by_kernel[kernel.digest] = seed
        return super().evaluate(problem, kernel, seed=seed)


def test_inputs_follow_from_the_runs_secret(tmp_path: Path) -> None:
    one, two, three, none = Seeded(), Seeded(), Seeded(), Seeded()
    VerdictLog(one, tmp_path / "1", secret="a" * 64).evaluate_many(JOBS)
    VerdictLog(two, tmp_path / "2", secret="a" * 64).evaluate_many(JOBS[::-1])
    VerdictLog(three, tmp_path / "3", secret="b" * 64).evaluate_many(JOBS)
    VerdictLog(none, tmp_path / "4").evaluate_many(JOBS)
    assert one.by_kernel == two.by_kernel
    assert len(set(one.by_kernel.values()) | set(three.by_kernel.values())) == 16
    assert all(int(seed, 16) >= 0 for seed in one.by_kernel.values())
    assert set(none.by_kernel.values()) == {""}


def test_a_seeded_kernel_is_judged_and_not_kept(tmp_path: Path) -> None:
    evaluator = drifting()
    log = VerdictLog(evaluator, tmp_path / "v.jsonl", secret="a" * 64)
    kept = log.evaluate(*_parts(JOBS[0]))
    assert log.evaluate(*_parts(JOBS[0]), seed="1f") != kept
    assert log.evaluate(*_parts(JOBS[0])) == kept
    assert (len(evaluator.judged), evaluator.seeds[1], len(log)) == (2, "1f", 1)


def test_it_closes_nothing(tmp_path: Path) -> None:
    evaluator = ScriptedEvaluator()
    VerdictLog(evaluator, tmp_path / "v.jsonl").close()
    assert not evaluator.closed


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    VerdictLog(drifting(), path).evaluate_many(JOBS[:2])
    with open(path, "a") as file:
        file.write('{"problem": "x", "ker')
    log = VerdictLog(drifting(), path)
    assert len(log) == 2
    log.evaluate(SAMPLE_PROBLEM, next(iter(SAMPLE_KERNELS.values())))
    assert [json.loads(line)["device"] for line in path.read_text().splitlines()] == ["cpu"] * 3


def _parts(job: Job) -> tuple[Problem, Kernel]:
    return job.problem, job.kernel
