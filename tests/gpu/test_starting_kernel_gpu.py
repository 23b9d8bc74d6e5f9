"""A starting kernel that says what is right, on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelgym import LocalEvaluator
from kernelgym.starting_kernel import BASELINE
from kernelgym.suites.spec_files import spec_from
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.types import Kernel, Status
from kernelgym_train.mcgs import Budget, SearchConfig
from kernelgym_train.mcgs.search import optimize_spec

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"


def suite(name: str, *edits: tuple[str, str], **more: Any) -> SpecSuite:
    """Return an example whose own kernel, with its text edited, says what is right."""
    given = json.loads((EXAMPLES / f"{name}.json").read_text())
    source = (EXAMPLES / given.pop("path")).read_text()
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    given |= {"source": source, "reference": "start", **more}
    given["contract"]["shapes"] = given["contract"]["shapes"][:1]
    return SpecSuite(spec_from(given, EXAMPLES))


@pytest.fixture(scope="module")
def evaluator() -> Any:
    with LocalEvaluator("cuda:0") as made:
        yield made


def test_triton_start_that_is_off_is_right_on_a_gpu(evaluator: LocalEvaluator) -> None:
    found = suite("triton_softmax", (" / total, mask", " / total + 1.0, mask"))
    problem, start = found.problems()[0], found.kernel
    verdict = evaluator.evaluate(problem, start)
    print(verdict)
    assert verdict.correct and verdict.timing is not None, verdict.message
    assert verdict.timing.baseline == BASELINE
    assert "agree with the starting kernel" in verdict.message
    faster = Kernel(start.source.replace("BLOCK=128", "BLOCK=1024"), "triton")
    other = evaluator.evaluate(problem, faster)
    print(other.message, other.timing)
    assert faster != start and other.correct, other.message
    wrong = evaluator.evaluate(problem, suite("triton_softmax").kernel)
    assert wrong.status is Status.WRONG, wrong.message


def test_cuda_start_agrees_with_itself_on_a_gpu(evaluator: LocalEvaluator) -> None:
    found = suite("cuda_matmul")
    verdict = evaluator.evaluate(found.problems()[0], found.kernel)
    print(verdict.message, verdict.timing)
    assert verdict.correct and verdict.timing is not None, verdict.message


def test_start_that_leaves_memory_unwritten_is_refused_on_a_gpu(evaluator: LocalEvaluator) -> None:
    found = suite(
        "triton_softmax", (" / total, mask=at < columns", " / total, mask=at < columns - 7")
    )
    verdict = evaluator.evaluate(found.problems()[0], found.kernel)
    print(verdict.message)
    assert verdict.status is Status.UNAVAILABLE
    assert "disagrees with itself" in verdict.message


def test_search_by_a_start_on_a_gpu_ends_with_a_checked_best(
    evaluator: LocalEvaluator, tmp_path: Path
) -> None:
    config = SearchConfig(budget=Budget(builds=4), say=print)
    result = optimize_spec(suite("triton_softmax").spec, evaluator, tmp_path, config)
    print({name: result[name] for name in ("correct_means", "speedup", "over_reference")})
    assert result["evaluations"] == 4 and result["best"]["seed"]
    assert result["correct_means"] == "agrees with the starting kernel"
