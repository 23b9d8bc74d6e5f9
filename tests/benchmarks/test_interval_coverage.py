"""Counts of verdicts beside spinning processes."""

from __future__ import annotations

from typing import Any

from benchmarks.judge.interval_coverage import coverage


def row(low: float | None = None, high: float | None = None, busy: bool = False) -> dict[str, Any]:
    speedup = None if low is None or high is None else (low + high) / 2
    return {"speedup": speedup, "low": low, "high": high, "host_busy": busy}


ROWS = [row(1.0, 2.0), row(1.6, 2.0, busy=True), row(busy=True), row(0.5, 1.5, busy=True)]


def test_coverage_counts_untimed_verdicts_as_good_and_apart() -> None:
    found = coverage(ROWS, 1.2)
    assert (found["verdicts"], found["timed"], found["held"], found["busy"]) == (4, 3, 2, 3)
    assert found["good_share"] == 0.75 and found["width"] == 2.0
    none = coverage([row(busy=True)], 1.2)
    assert none["good_share"] == 1.0 and none["timed"] == 0 and none["width"] is None
