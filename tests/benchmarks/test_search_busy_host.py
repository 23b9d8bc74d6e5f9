"""Verdicts on a busy host agree if their intervals overlap, or if they say that it was busy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search.busy_host import consistent, spinning
from benchmarks.search.rows import busy_host, false_promotions, offline


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


def test_tables_show_what_was_found() -> None:
    search = {"evaluations": 8, "speedup": 1.0, "seconds": 60.0}
    text = busy_host({"verdicts": [row(1.0, 2.0, busy=True)], "search": search})
    assert "| 1 | 1.50 | 1.00 to 2.00 | yes |" in text and "promoted none" in text
    found = {str(at): [0.5, 0.25] for at in (20, 60, 100, 200)} | {"area": 0.1}
    case = {"table": "t", "failing": 0.3, "noise": 0.05, "figures": {"auto": found}}
    text = offline({"held_out": ["t"], "rows": [case | {"misses": ["there"]}]})
    assert "| t (held out) | 30 % | 5 % | auto | 0.50 / 0.25 |" in text and "- there" in text
    searches = [{"noise": 0.02}, {"noise": 0.16}]
    alone = {"searches": searches, "promoted": 1, "again": []}
    assert "| of these promoted one | 1 |" in (text := false_promotions(alone))
    assert "2 % to 16 %" in text and "repeated" not in text
    again = [{"inside": True}, {"inside": False}]
    assert "| 2, 1 |" in false_promotions(alone | {"again": again})
