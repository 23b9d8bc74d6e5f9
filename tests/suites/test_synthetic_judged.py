"""The labels of Synthetic's kernels, checked by the real judge on the CPU.

By default a few problems in Triton; with the slow tests every family: all variants in Triton, a
correct and a broken kernel each in C++.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.suites.synthetic import Defect, SyntheticSuite, broken_variants, solve
from kernelgym.types import Job, Problem, Status

SUITE = SyntheticSuite(per_level=120)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    judge = LocalEvaluator(device="cpu", ruleset="strict", timing=False, workers=2)
    yield judge
    judge.close()


def by_family(each: int) -> list[Problem]:
    """Return the first problems of every family of every level."""
    found: dict[tuple[int, str], list[Problem]] = {}
    for problem in SUITE.problems():
        group = found.setdefault((problem.level, problem.family), [])
        if len(group) < each:
            group.append(problem)
    assert len(found) == 23
    assert all(len(group) == each for group in found.values())
    return [problem for group in found.values() for problem in group]


def check(judge: LocalEvaluator, jobs: Sequence[Job], labels: Sequence[tuple[str, Status]]) -> None:
    """Judge kernels and compare with their labels (what it is, expected status)."""
    verdicts = judge.evaluate_many(jobs)
    failures = [
        f"{job.problem.id} ({job.problem.name}, {job.problem.family}) {what}: expected "
        f"{expected.value}, got {verdict.status.value}: {verdict.message} {verdict.log[-400:]}"
        for job, (what, expected), verdict in zip(jobs, labels, verdicts, strict=True)
        if verdict.status is not expected
    ]
    assert not failures, f"{len(failures)} of {len(jobs)} labels fail:\n" + "\n".join(failures)


def check_triton(judge: LocalEvaluator, problems: Sequence[Problem], styles: int) -> None:
    """Check correct kernels in several styles, and every broken variant."""
    jobs, labels = [], []
    for problem in problems:
        for style in range(styles):
            jobs.append(Job(problem, solve(problem, "triton", style)))
            labels.append(("correct", Status.CORRECT))
        for b in broken_variants(problem, "triton"):
            jobs.append(Job(problem, b.kernel))
            labels.append((b.defect, b.expected))
    check(judge, jobs, labels)


@pytest.mark.slow
def test_labels_hold_for_a_few_triton_kernels(evaluator: LocalEvaluator) -> None:
    problems = SUITE.problems(ids=["L1/2", "L1/34", "L2/4", "L3/6"])
    check_triton(evaluator, problems, 1)


@pytest.mark.slow
def test_labels_hold_for_every_family_in_triton(evaluator: LocalEvaluator) -> None:
    check_triton(evaluator, by_family(3), 3)


@pytest.mark.slow
def test_labels_hold_for_every_family_in_cpp(evaluator: LocalEvaluator) -> None:
    # A build takes seconds: one problem per family, correct and with the rarest defect so far.
    jobs, labels = [], []
    seen: Counter[str] = Counter()
    for problem in by_family(1):
        jobs.append(Job(problem, solve(problem, "cpp")))
        labels.append(("correct", Status.CORRECT))
        b = min(broken_variants(problem, "cpp"), key=lambda b: seen[b.defect])
        seen[b.defect] += 1
        jobs.append(Job(problem, b.kernel))
        labels.append((b.defect, b.expected))
    assert set(seen) == {defect.value for defect in Defect} - {"missing_mask"}
    check(evaluator, jobs, labels)
