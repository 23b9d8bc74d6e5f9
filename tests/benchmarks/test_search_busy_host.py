"""Verdicts on a busy host agree if their intervals overlap, or if they say that it was busy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.page.models import false_promotions, offline
from benchmarks.page.verdicts import busy_host
from benchmarks.search.busy_host import consistent, spinning


def row(low: float, high: float, busy: bool = False) -> dict[str, Any]:
    return {"speedup": (low + high) / 2, "low": low, "high": high, "host_busy": busy}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(1.0, 2.0), row(1.5, 3.0)], True),
        ([row(1.0, 2.0), row(2.5, 3.0)], False),
        ([row(1.0, 2.0), row(2.5, 3.0, busy=True)], True),
        ([row(1.0, 1.4), row(1.2, 3.0), row(1.5, 2.0)], False),
    ],
)
def test_intervals_overlap_or_say_busy(rows: list[dict[str, Any]], expected: bool) -> None:
    assert consistent(rows) is expected


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)).map(sorted), max_size=6))
def test_each_pair_overlaps_or_none_agree(ends: list[list[float]]) -> None:
    rows = [row(*pair) for pair in ends]
    pairs = all(a["low"] <= b["high"] for a in rows for b in rows)
    assert consistent(rows) is pairs


def test_spinning_programs_end() -> None:
    with spinning(1) as programs:
        assert programs[0].poll() is None
    assert programs[0].poll() is not None


def test_page_tells_what_was_found() -> None:
    search = {"evaluations": 8, "speedup": 1.0, "seconds": 60.0}
    about = {"spinning": 2, "cores": 2, "search": search}
    text = busy_host({"verdicts": [row(1.0, 2.0, busy=True), row(1.0, 1.2)], **about})
    assert "speedups of 1.10 to 1.50, 1 of them marked" in text and "promoted none" in text
    found = {"60": [0.5, 0.25]}
    case = {"table": "t", "failing": 0.3, "noise": 0.05, "figures": {"auto": found}}
    text = offline({"held_out": ["t"], "rows": [case, case | {"noise": 0.0}]})
    assert text.count("| t (held out) | 0.50 |") == 1
    again = [{"inside": True}, {"inside": False}]
    text = false_promotions({"searches": [{}, {}], "promoted": 1, "again": again})
    assert "Of 2 searches" in text and "1 promoted one" in text and "and 1 of them" in text
