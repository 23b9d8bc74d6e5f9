"""OpenEvolve's own package evolves kernels by this judge's verdicts."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from openevolve import api
from openevolve.config import Config, LLMModelConfig
from openevolve.evaluation_result import EvaluationResult

from kernelgym import UnknownName, UnsupportedLanguage
from kernelgym.adapters.openevolve import VerdictUnavailable, evaluate_for
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Verdict
from support.chat_server import chat_server

SLOW = SAMPLE_KERNELS["cpp"].source
FAST = SLOW.replace("class ModelNew", "FAST = 1\n\n\nclass ModelNew")


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    """Judge a program that says so as faster, and one with ``BROKEN`` as wrong."""
    if "BROKEN" in kernel.source:
        return verdict("wrong", message="3 of 4 calls failed")
    if "GONE" in kernel.source:
        return verdict("unavailable", message="the device is gone")
    if "UNTIMED" in kernel.source:
        return verdict("correct")
    return verdict("correct", speedup=2.0 if "FAST" in kernel.source else 0.5)


def scored(source: str, folder: Path) -> EvaluationResult:
    path = folder / "program.py"
    path.write_text(source)
    made = evaluate_for(SAMPLE_PROBLEM, language="cpp", make=lambda: ScriptedEvaluator(judged))
    found = made(str(path))
    assert isinstance(found, EvaluationResult)
    return found


def test_verdict_is_metrics_and_feedback_an_artifact(tmp_path: Path) -> None:
    found = scored(SLOW, tmp_path)
    assert found.metrics["combined_score"] == pytest.approx(0.475)
    assert found.metrics["correct"] == 1.0 and found.metrics["speedup"] == 0.5
    found = scored(f"BROKEN = 1\n{SLOW}", tmp_path)
    assert found.metrics["combined_score"] == found.metrics["correct"] == 0.0
    assert found.artifacts["status"] == "wrong" and "calls failed" in found.artifacts["feedback"]


def test_withheld_time_scores_nothing(tmp_path: Path) -> None:
    assert scored(f"UNTIMED = 1\n{SLOW}", tmp_path).metrics["combined_score"] == 0.0


def test_failure_of_the_judge_is_no_score(tmp_path: Path) -> None:
    with pytest.raises(VerdictUnavailable, match="the device is gone"):
        scored(f"GONE = 1\n{SLOW}", tmp_path)


def test_refused_text_is_not_run(tmp_path: Path) -> None:
    found = scored(f"import ctypes\n{SLOW}", tmp_path)
    assert found.artifacts["status"] == "rejected" and found.metrics["combined_score"] == 0.0


def test_what_cannot_be_judged_is_refused_at_once() -> None:
    with pytest.raises(UnknownName):
        evaluate_for(SAMPLE_PROBLEM, language="fortran")
    with pytest.raises(UnsupportedLanguage):
        evaluate_for(SAMPLE_PROBLEM, language="hip", device="cpu")


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Put back the handlers of signals, which OpenEvolve's controller replaces for good."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_handlers")
def test_openevolve_finds_the_faster_kernel(tmp_path: Path) -> None:
    """Its controller, its own processes, and a model at a local server."""
    file = tmp_path / "evaluator.py"
    file.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path[:0] = [{str(Path(__file__).parents[2])!r}, {str(Path(__file__).parents[1])!r}]
            from adapters.test_openevolve import SAMPLE_PROBLEM, ScriptedEvaluator, judged
            from kernelgym.adapters.openevolve import evaluate_for

            evaluate = evaluate_for(
                SAMPLE_PROBLEM, language="cpp", make=lambda: ScriptedEvaluator(judged)
            )
            """
        )
    )
    program = tmp_path / "program.py"
    program.write_text(SLOW)
    answer = f"```python\n{FAST}\n```"
    with chat_server(reply=lambda body: answer) as server:
        config = Config()
        config.llm.models = [
            LLMModelConfig(name="kernel-writer", api_base=server.url, api_key="none", weight=1.0)
        ]
        config.diff_based_evolution = False
        config.evaluator.parallel_evaluations = 1
        config.database.num_islands = 1
        result = api.run_evolution(
            program, file, config, iterations=2, output_dir=str(tmp_path / "out"), cleanup=False
        )
        assert server.bodies, "the model was asked"
    assert "FAST" in result.best_code
    assert result.metrics["combined_score"] == pytest.approx(1.9)
