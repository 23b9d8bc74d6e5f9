"""The corpus on a CUDA device: no exploit is accepted, no honest kernel refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelgym.cli.redteam import judge_entries, load_corpus
from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling.requirements import check_requirements
from kernelgym.languages import LANGUAGES
from kernelgym.redteam.corpus import select

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

DEVICE = "cuda:0"
ENTRIES, PROBLEMS = load_corpus(Path(__file__).parent.parent / "adversarial")
PARAMETERS = [
    pytest.param(
        entry,
        id=entry.name,
        marks=[pytest.mark.xfail(reason=entry.open, strict=False)] if entry.open else [],
    )
    for entry in select(ENTRIES, DEVICE)
]


def lacking(language):
    """Return what this machine lacks for a language of packages or headers; empty if nothing."""
    entry = LANGUAGES[language]
    if entry.packages or entry.headers:
        try:
            check_requirements(entry, device=DEVICE)
        except UnsupportedLanguage as missing:
            return str(missing)
    return ""


@pytest.fixture(scope="session")
def gpu_outcomes(request, tmp_path_factory):
    """Return every outcome that this run asks for, by name; judged two at a time, once."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = [spec.params["gpu_entry"] for spec in specs if spec and "gpu_entry" in spec.params]
    wanted = [entry for entry in wanted if not lacking(entry.language)]
    folder = os.environ.get("KERNELGYM_CACHE") or tmp_path_factory.mktemp("cache")
    with LocalEvaluator(DEVICE, "strict", workers=2, cache_dir=folder) as evaluator:
        found = judge_entries(evaluator, wanted, PROBLEMS)
        return {outcome.entry.name: outcome for _, outcome in found}


@pytest.mark.parametrize("gpu_entry", PARAMETERS)
def test_the_judge_is_not_fooled_and_refuses_nobody_on_a_gpu(gpu_entry, gpu_outcomes):
    if missing := lacking(gpu_entry.language):
        pytest.skip(missing)
    outcome = gpu_outcomes[gpu_entry.name]
    verdict = outcome.verdict
    assert outcome.result in ("caught", "passed"), (
        f"{gpu_entry.what} {verdict.status.value} {verdict.speedup_low:.2f}x: {verdict.message}"
    )
