"""docs/retrieval.md says what is so."""

from __future__ import annotations

import dataclasses
import doctest
import re
from pathlib import Path

from kernelgym.retrieval.exclusion import REASONS
from kernelgym.retrieval.prompt_part import Retrieval

PAGE = (Path(__file__).parents[2] / "docs" / "retrieval.md").read_text()


def column(head: str) -> list[str]:
    """Return the names in the first column of the table with this head."""
    table = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)


def test_every_field_and_reason_is_there() -> None:
    assert column("field | default") == [field.name for field in dataclasses.fields(Retrieval)]
    assert column("reason | an entry is excluded if it has") == list(REASONS)


def test_snippets_run_as_they_stand() -> None:
    report: list[str] = []
    text = "".join(re.findall(r"```python\n(>>>.*?)```", PAGE, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(text, {}, "retrieval", "retrieval.md", 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
