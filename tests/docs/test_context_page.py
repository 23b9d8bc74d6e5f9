"""docs/context.md and docs/feedback.md say what is so."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from kernelgym.feedback import CATEGORIES, LEVELS
from kernelgym.prompts.context import CONTEXTS

ROOT = Path(__file__).parents[2]
CONTEXT = (ROOT / "docs" / "context.md").read_text()
FEEDBACK = (ROOT / "docs" / "feedback.md").read_text()


def first_column(text: str, title: str) -> list[str]:
    table = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`=]+)` \|", table, re.MULTILINE)


def test_every_policy_category_and_level_is_there() -> None:
    assert first_column(CONTEXT, "Context policies") == list(CONTEXTS)
    assert first_column(FEEDBACK, "Categories") == list(CATEGORIES)
    assert first_column(FEEDBACK, "Levels") == list(LEVELS)


def test_snippets_run_as_they_stand() -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner()
    test = doctest.DocTestParser().get_doctest(CONTEXT, {}, "context.md", "docs/context.md", 0)
    assert len(test.examples) >= 7
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
