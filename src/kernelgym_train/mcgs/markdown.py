"""Markdown whose texts come from kernels, compilers, models and users."""

from __future__ import annotations

from collections.abc import Sequence

_MARKUP = frozenset("\\|`*_<>&[]#")


def escaped(text: str) -> str:
    """Return a text as one line that Markdown shows as it is."""
    line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in line)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's lines, with all cells escaped."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return lines + [f"| {' | '.join(map(escaped, row))} |" for row in rows]
