"""Cells and tables in Markdown, for the tables of docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["interval", "number", "percent", "table", "whole"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float) -> str:
    """Return a number with three significant digits, and at most two decimals."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def whole(value: float) -> str:
    """Return a number without decimals, thousands apart."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """Return a share as whole percent."""
    return f"{100 * value:.0f} %"


def interval(rate: Any) -> str:
    """Return a rate with its 95 % interval, in percent."""
    return f"{percent(rate['value'])} ({100 * rate['low']:.0f} to {100 * rate['high']:.0f})"
