"""The live table: what it shows follows from events; no terminal, no table."""

from __future__ import annotations

import io
import math
import sys
from typing import Any

import pytest

from kernelgym_train.mcgs.events import Event
from kernelgym_train.mcgs.live import Standing, live_table


def event(name: str, seconds: float = 1.0, **fields: Any) -> Event:
    return Event(0, seconds, name, fields)


def judged(key: str, speedup: float | None, low: float = 0.0, status: str = "correct") -> Event:
    value = None if speedup is None else math.log(speedup / 0.5)
    fields = {"key": key, "value": value, "status": status}
    return event("judged", 9.0, speedup=speedup or 0.0, speedup_low=low, **fields)


def test_standing_folds_events_into_cells() -> None:
    standing = Standing(20)
    standing.take(event("start", speedup=0.5))
    standing.take(event("start", speedup=0.6))
    assert standing.cells()["best so far"] == "the start"
    for each in (judged("a", 2.0, 1.6), judged("b", 1.0, 0.9), judged("c", None, status="wrong")):
        standing.take(each)
    assert standing.cells() == {
        "evaluations": "3 of 20",
        "best so far": "4x (3.2 to 5)",
        "failures": "1 wrong",
        "seconds": "9",
    }
    standing.take(event("duel", decided="second", low=0.9, second="a"))
    assert "confirmed" not in standing.cells()["best so far"]
    standing.take(event("duel", 12.0, decided="second", low=1.1, second="a"))
    assert standing.cells()["best so far"].endswith("confirmed")


def test_lines_alone_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with live_table(20) as (say, watch):
        watch(judged("a", 2.0))
        say("one [line]")
    assert capsys.readouterr().err == "one [line]\n"


def test_table_stands_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with live_table(20) as (say, watch):
        watch(event("start", speedup=0.5))
        watch(judged("a", 2.0, 1.6))
        say("one [line]")
    shown = terminal.getvalue()
    assert "one [line]" in shown and "4x (3.2 to 5)" in shown and "1 of 20" in shown


def test_an_equal_verdict_is_no_new_best() -> None:
    """log(exp(value)) may be below value."""
    value = next(n / 97 for n in range(1, 97) if n / 97 > math.log(math.exp(n / 97)))
    standing = Standing(9)
    standing.take(event("start", speedup=0.5))
    for key in ("a", "b"):
        fields = {"key": key, "value": value, "status": "correct", "speedup_low": 0.1}
        standing.take(event("judged", **fields))
    assert standing.leader == "a"
