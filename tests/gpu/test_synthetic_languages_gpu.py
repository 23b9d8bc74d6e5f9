"""Synthetic's kernels in Gluon, CuTe DSL and TileLang get the verdicts of their labels."""

from __future__ import annotations

import pytest

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling.requirements import check_requirements
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import precise_rules
from kernelgym.suites.synthetic import SyntheticSuite, broken_variants, reaches, solve
from kernelgym.suites.synthetic.source import spec_of
from kernelgym.types import Job, Problem, Status

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

DEVICE = "cuda:0"


def of_every_kind(language, per_level=60):
    """Return one problem of level 1 for each operation that a language's templates reach."""
    found: dict[str, Problem] = {}
    for problem in SyntheticSuite(per_level=per_level).problems(level=1):
        stage = spec_of(problem).stages[0]
        if reaches(language, problem):
            found.setdefault(getattr(stage, "tail", "") or getattr(stage, "kind", ""), problem)
    return list(found.values())


@pytest.mark.parametrize("language", ["gluon", "cute", "tilelang"])
def test_kernels_of_every_operation_get_their_labels(language, tmp_path):
    try:
        check_requirements(LANGUAGES[language], device=DEVICE)
    except UnsupportedLanguage as missing:
        pytest.skip(str(missing))
    jobs, expected = [], []
    for number, problem in enumerate(of_every_kind(language)):
        jobs.append(Job(problem, solve(problem, language, number)))
        expected.append(("correct", Status.CORRECT))
        broken = broken_variants(problem, language, number)
        chosen = broken[number % len(broken)]
        jobs.append(Job(problem, chosen.kernel))
        expected.append((chosen.defect, chosen.expected))
    own = "" if "fp32" in LANGUAGES[language].precisions else "fp16"
    rules = precise_rules("strict", own)
    with LocalEvaluator(DEVICE, rules, workers=4, timing=False, cache_dir=tmp_path) as judge:
        verdicts = judge.evaluate_many(jobs)
    failures = [
        f"{job.problem.id} ({job.problem.name}) {what}: expected {status.value}, got "
        f"{verdict.status.value}: {verdict.message} {verdict.log[-300:]}"
        for job, (what, status), verdict in zip(jobs, expected, verdicts, strict=True)
        if verdict.status is not status
    ]
    assert not failures, f"{len(failures)} of {len(jobs)} labels fail:\n" + "\n".join(failures)
