"""The labels of Synthetic's kernels, checked by the real judge on the CPU.

By default a few problems in Triton; with the slow tests every family: all variants in Triton, one
problem per family in C++.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.suites.synthetic import SyntheticSuite, broken_variants, solve
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


def check(
    judge: LocalEvaluator, problems: Sequence[Problem], language: str, styles: Sequence[int]
) -> None:
    """Judge correct and broken kernels and compare with their labels."""
    jobs, labels = [], []
    for problem in problems:
        for style in styles:
            jobs.append(Job(problem, solve(problem, language, style)))  # type: ignore[arg-type]
            labels.append(("correct", Status.CORRECT))
        for b in broken_variants(problem, language, styles[0]):  # type: ignore[arg-type]
            jobs.append(Job(problem, b.kernel))
            labels.append((b.defect, b.expected))
    verdicts = judge.evaluate_many(jobs)
    failures = [
        f"{job.problem.id} ({job.problem.name}, {job.problem.family}) {what}: expected "
        f"{expected.value}, got {verdict.status.value}: {verdict.message} {verdict.log[-400:]}"
        for job, (what, expected), verdict in zip(jobs, labels, verdicts, strict=True)
        if verdict.status is not expected
    ]
    assert not failures, f"{len(failures)} of {len(jobs)} labels fail:\n" + "\n".join(failures)
    assert len(jobs) > len(problems) * (len(styles) + 1)


def test_labels_hold_for_a_few_triton_kernels(evaluator: LocalEvaluator) -> None:
    ids = ["L1/2", "L1/34", "L2/4", "L3/6"]
    check(evaluator, SUITE.problems(ids=ids), "triton", [0])


@pytest.mark.slow
def test_labels_hold_for_every_family_in_triton(evaluator: LocalEvaluator) -> None:
    check(evaluator, by_family(3), "triton", [0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("level", SUITE.levels)
def test_labels_hold_for_one_problem_per_family_in_cpp(
    evaluator: LocalEvaluator, level: int
) -> None:
    check(evaluator, [p for p in by_family(1) if p.level == level], "cpp", [0])
