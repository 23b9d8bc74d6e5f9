"""Write docs/performance.md: a table for each result file, with where its figures come from.

Run ``python -m benchmarks.tables`` after a result file changes; ``--check`` compares the page with
what would be written, and ends with exit code 1 if they differ. Every figure is read from a file in
``benchmarks/results``. Below each table stand the machine, the date, the commit that recorded the
file, and the command that makes it.

Not covered: whether the figures still hold. A result says what one machine did on one day.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.sections import RESULTS, SECTIONS, Section

__all__ = ["PAGE", "RESULTS", "SECTIONS", "Section", "differences", "page"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
UNCOMMITTED = "with this page"
"""Stands for the commit of a result that is committed together with the page."""
RECORDED = "- Recorded in "

INTRODUCTION = """\
# Performance

How long verdicts take, how well they repeat, what the red team and the soak found, and what a small
model learns. Each table is one result file in `benchmarks/results`; `python -m benchmarks.tables`
writes this page from those files, and a test compares the two. Figures are of one machine on one
day: compare rows of one table, not tables with each other. What a verdict promises is on
[the judge's page](judge.md).

"Recorded in" is the commit that last changed the result file. "Source" is the commit of the code
that was measured, where the file names one."""


def git(*arguments: str) -> str:
    """Return what git says of this checkout; empty where there is no git or no checkout."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit_of(path: Path) -> tuple[str, str]:
    """Return the commit that last changed a file, and its date; UNCOMMITTED if it has changes."""
    if git("status", "--porcelain", "--", str(path)):
        return UNCOMMITTED, ""
    commit, _, date = git("log", "-1", "--format=%h %cs", "--", str(path)).partition(" ")
    return commit or UNCOMMITTED, date


def machine_line(machine: Any) -> str:
    """Return one machine in words."""
    gpu = machine.get("gpu") or machine.get("hardware")
    named = [gpu.partition(",")[0]] if gpu else []
    named += [f"{machine['cores']} cores ({machine['cpu']})", f"Python {machine['python']}"]
    named += [f"{name} {machine[name]}" for name in ("torch", "triton") if name in machine]
    return ", ".join(named)


def provenance(section: Section, data: Any) -> list[str]:
    """Return where a table's figures come from, as a list in Markdown."""
    machines = section.machines(data)
    commit, committed = commit_of(RESULTS / section.result)
    recorded = f"`{commit}` of {committed}" if committed else commit
    dates = " and ".join(sorted({machine["date"] for machine in machines}))
    ran_on = dict.fromkeys(machine_line(machine) for machine in machines)
    sources = dict.fromkeys(re.findall(r"\bcommit ([0-9a-f]{7})\b", section.source(data)))
    lines = [f"{RECORDED}{recorded}: `benchmarks/results/{section.result}`"]
    if sources:
        lines.append(f"- Source: {' and '.join(f'`{source}`' for source in sources)}")
    lines.append(f"- Date: {dates or 'that of the commit; the file records none'}")
    lines.append(f"- Machine: {'; '.join(ran_on) or 'any, since nothing is timed'}")
    return [*lines, f"- Command: `{section.command}`"]


def page() -> str:
    """Return the page as it is to be."""
    parts = [INTRODUCTION]
    for section in SECTIONS:
        data = json.loads((RESULTS / section.result).read_text())
        parts += [f"## {section.title}", textwrap.fill(section.about, 120, break_on_hyphens=False)]
        parts += [section.rows(data), "\n".join(provenance(section, data))]
    return "\n\n".join(parts) + "\n"


def holds(commit: str, result: str) -> bool:
    """Return True if a commit is not known here, or has the result file as it is now."""
    if not git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"):
        return True  # a shallow checkout, or none: nothing can be said
    path = f"benchmarks/results/{result}"
    return git("rev-parse", f"{commit}:{path}") == git("hash-object", str(ROOT / path))


def differences(written: str) -> list[str]:
    """Return the lines in which a page differs from what would be written.

    A commit's name is only asked to hold the file as it is now, so that the check also passes in a
    shallow checkout, in a source distribution, and when a branch was rebased.
    """
    found = []
    for is_now, is_to_be in itertools.zip_longest(written.splitlines(), page().splitlines()):
        if is_now == is_to_be:
            continue
        named = re.fullmatch(re.escape(RECORDED) + r"(.*): `benchmarks/results/(.*)`", is_now or "")
        if named and str(is_to_be).endswith(f"/{named[2]}`"):
            commit = re.match(r"`([0-9a-f]+)` of ", named[1])
            if holds(commit[1], named[2]) if commit else named[1] == UNCOMMITTED:
                continue
        found.append(f"- {is_now}\n+ {is_to_be}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    found = differences(PAGE.read_text())
    if found:
        print("\n".join(found))
        print("docs/performance.md is out of date; run `python -m benchmarks.tables`")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
