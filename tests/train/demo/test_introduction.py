"""The demonstration's introduction: what is printed follows the verdicts, whatever they are."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kernelgym import LocalEvaluator
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Finding, Severity, Status, Verdict
from kernelgym_train.demo.introduction import cheat, introduce

REFUSED = Verdict(
    Status.REJECTED,
    findings=(Finding("work_not_replaced", "torch [all] of it", Severity.HARD),),
    message="torch [all] of it",
)


def printed(verdicts: list[Verdict]) -> str:
    console = Console(file=io.StringIO(), width=100)
    with ScriptedEvaluator(verdicts) as judge:
        turns = introduce(console, judge)
    assert [turn.verdict.status for turn in turns] == [each.status for each in verdicts]
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_introduction_as_expected_shows_speed_interval_and_finding() -> None:
    right = verdict(Status.CORRECT, speedup=2.5, speedup_low=2.25)
    text = printed([verdict(Status.WRONG), right, REFUSED])
    assert "verdict: wrong" in text and "verdict: correct" in text
    assert "2.50x (95 % interval 2.25x to" in text
    assert "hard finding work_not_replaced: torch [all] of it" in text
    assert "expected was" not in text


def test_introduction_with_other_verdicts_tells_them() -> None:
    broken = verdict(Status.UNAVAILABLE, message="no compiler")
    text = printed([broken, verdict(Status.CORRECT), verdict(Status.CORRECT)])
    assert "expected was: wrong. no compiler" in text
    assert "speedup over PyTorch: not measured" in text
    assert "expected was: rejected" in text


@pytest.mark.parametrize("level", [1, 2])
def test_cheat_computes_what_the_reference_does(level: int) -> None:
    for problem in SyntheticSuite().problems(level=level, ids="1-30"):
        if "nn.Linear" in problem.source or "nn.Parameter" in problem.source:
            continue  # a reference with parameters keeps them in its constructor
        kernel = cheat(problem, solve(problem, "cpp"))
        compile(kernel.source, "cheat.py", "exec")
        _, _, forward = kernel.source.rpartition("super().forward(")
        assert forward.partition("\n")[2].strip() in problem.source


@pytest.mark.slow
def test_introduction_played_for_real_comes_out_as_told() -> None:
    console = Console(file=io.StringIO(), width=100)
    with LocalEvaluator("cpu") as judge:
        wrong, repaired, refused = introduce(console, judge)
    assert wrong.verdict.status is Status.WRONG
    assert "only the last block" in str(wrong.feedback)
    assert repaired.verdict.correct and repaired.verdict.timed
    assert refused.verdict.status is Status.REJECTED
    hard = {each.code for each in refused.verdict.findings if each.severity is Severity.HARD}
    assert "work_not_replaced" in hard
    assert "expected was" not in console.file.getvalue()  # type: ignore[attr-defined]
