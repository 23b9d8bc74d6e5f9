"""The corpus on the CPU: no exploit is accepted, no honest kernel refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelgym.cli.redteam import judge_entries, load_corpus
from kernelgym.judge import LocalEvaluator
from kernelgym.redteam.corpus import select

pytestmark = pytest.mark.slow

ENTRIES, PROBLEMS = load_corpus(Path(__file__).parent)
PARAMETERS = [
    pytest.param(
        entry,
        id=entry.name,
        marks=[pytest.mark.xfail(reason=entry.open, strict=False)] if entry.open else [],
    )
    for entry in select(ENTRIES, "cpu")
]


@pytest.fixture(scope="session")
def outcomes(request, tmp_path_factory):
    """Return every outcome that this run asks for, by name; judged two at a time, once."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = [spec.params["entry"] for spec in specs if spec and "entry" in spec.params]
    folder = os.environ.get("KERNELGYM_CACHE") or tmp_path_factory.mktemp("cache")
    with LocalEvaluator("cpu", "strict", workers=2, cache_dir=folder) as evaluator:
        found = judge_entries(evaluator, wanted, PROBLEMS)
        return {outcome.entry.name: outcome for _, outcome in found}


@pytest.mark.parametrize("entry", PARAMETERS)
def test_the_judge_is_not_fooled_and_refuses_nobody(entry, outcomes):
    outcome = outcomes[entry.name]
    verdict = outcome.verdict
    assert outcome.result in ("caught", "passed"), (
        f"{entry.what} {verdict.status.value} {verdict.speedup_low:.2f}x: {verdict.message}"
    )
