"""Write docs/performance.md from benchmarks/results: one section for each question of a user.

The tables of docs/languages.md are written between two comments of that page.

Run ``python -m benchmarks.tables`` after a result file changes; ``--check`` compares the pages with
what would be written, and ends with exit code 1 if they differ. Every figure is read from a file in
``benchmarks/results``. Below each table stand its machine, date, result file and command.

Not covered: whether the figures still hold. A result says what one machine did on one day.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.sections import ELSEWHERE, LANGUAGES, RESULTS, SECTIONS, ResultTable

__all__ = ["LANGUAGES_PAGE", "PAGE", "differences", "languages_page", "page"]

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
LANGUAGES_PAGE = PAGE.with_name("languages.md")
_BEGIN, _END = "<!-- written by python -m benchmarks.tables -->", "<!-- until here -->"

INTRODUCTION = """\
# Performance

Each section answers one question. The line below a table names its machine and its day: compare
rows within one table only. `python -m benchmarks.tables` writes this page from
`benchmarks/results`, which holds more. What a verdict promises is on [the judge's
page](judge.md)."""


def machine_line(machine: Any) -> str:
    """Return one machine in words."""
    gpu = machine.get("gpu") or machine.get("hardware")
    named = [gpu.partition(",")[0]] if gpu else []
    named += [f"{machine['cores']} cores ({machine['cpu']})"]
    named += [f"{name} {machine[name]}" for name in ("torch", "triton") if name in machine]
    return ", ".join(named)


def provenance(answer: ResultTable, data: Any) -> str:
    """Return where a table's figures come from, as one line."""
    machines = answer.machines(data)
    ran_on = "; ".join(dict.fromkeys(map(machine_line, machines))) or "any machine"
    dates = " and ".join(sorted({machine["date"] for machine in machines})) or "nothing is timed"
    return f"*{ran_on}; {dates}; {link(answer.result)} by `{answer.command}`*"


def link(result: str) -> str:
    """Return a link from the page to a result file."""
    return f"[{result}](../benchmarks/results/{result})"


def page() -> str:
    """Return the page as the result files would have it; a file that is missing is left out."""
    there = {path.name: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    parts = [INTRODUCTION]
    for section in SECTIONS:
        parts.append(f"## {section.question}")
        for answer in section.tables:
            if data := there.get(answer.result):
                parts += _told(answer, data)
        facts = [(each, there[each.result]) for each in section.sentences if each.result in there]
        lines = [f"- {each.rows(data)}\n  {provenance(each, data)}" for each, data in facts]
        parts += ["\n".join(lines)] if lines else []
    named = [f"{link(name)}: {about}" for name, about in ELSEWHERE.items() if name in there]
    parts += [f"## Also measured\n\n{'; '.join(named)}."]
    return "\n\n".join(parts) + "\n"


def _told(answer: ResultTable, data: Any) -> list[str]:
    """Return a table with the text above it and its provenance."""
    about = textwrap.fill(answer.about, 120, break_on_hyphens=False)
    return [about, answer.rows(data), provenance(answer, data)]


def languages_page(written: str) -> str:
    """Return the page on languages with its tables as the result file would have them."""
    before, begin, rest = written.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    parts = []
    for answer in LANGUAGES:
        path = RESULTS / answer.result
        parts += _told(answer, json.loads(path.read_text())) if path.is_file() else []
    return before + "\n\n".join([begin, *parts, end]) + after


def differences(written: str, wanted: str) -> list[str]:
    """Return the lines in which a page differs from what would be written."""
    lines = difflib.unified_diff(written.splitlines(), wanted.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check, late = parser.parse_args().check, False
    pages = {PAGE: page(), LANGUAGES_PAGE: languages_page(LANGUAGES_PAGE.read_text())}
    for path, text in pages.items():
        found = differences(path.read_text(), text)
        if not check:
            path.write_text(text)
        elif found:
            print("\n".join(found))
            print(f"docs/{path.name} is out of date; run `python -m benchmarks.tables`")
            late = True
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
