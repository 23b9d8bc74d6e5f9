"""The live table: its cells follow from the search's state; no terminal, no table."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from kernelgym_train.mcgs.events import SearchEvent
from kernelgym_train.mcgs.live import cells, live_table
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.variant import plain_variant, read_variant
from support import searches

START = read_variant(searches.TASK.start)


def take(state: SearchState, name: str, seconds: float = 1.0, **fields: Any) -> None:
    state.take(SearchEvent(0, seconds, name, fields))


def begun() -> SearchState:
    """Return a search whose start has half of the reference's speed."""
    state = searches.empty_state(START)
    for speedup in (0.5, 0.6):
        take(state, "start", speedup=speedup, wall_s=1.0, build_s=1.0, host_busy=False)
    return state


def judge(state: SearchState, key: str, value: float | None) -> None:
    proposed = {"key": key, "node": state.start, "move": "m", "attempt": len(state.history)}
    variant = {"variant": plain_variant(START), "risk": "exact"}
    take(state, "proposed", links=[], **proposed, **variant)
    status = "wrong" if value is None else "correct"
    fields = {"key": key, "value": value, "status": status, "message": ""}
    take(state, "judged", 9.0, build_s=0.0, wall_s=0.0, floor_share=0.0, **fields)


def compare(state: SearchState, low: float) -> None:
    fields = {"ratio": 2.0, "high": 4.0, "rounds": 3, "decided": "second", "took_s": 1.0}
    take(state, "duel", 12.0, first=state.start, second="a", low=low, **fields)


def test_cells_tell_the_leader_and_the_failures() -> None:
    state = begun()
    assert cells(state, 20)["best so far"] == "the start"
    for key, value in (("a", 1.3863), ("b", 0.7), ("c", None)):
        judge(state, key, value)
    assert cells(state, 20) == {
        "evaluations": "3 of 20",
        "best so far": "4x (3.11 to 5.15)",
        "failures": "1 wrong",
    }
    compare(state, low=0.9)
    assert "confirmed" not in cells(state, 20)["best so far"]
    compare(state, low=1.1)
    assert cells(state, 20)["best so far"].endswith("confirmed")


def test_lines_alone_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with live_table(20) as (say, watch):
        watch(begun())
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
    state = begun()
    judge(state, "a", 1.3863)
    with live_table(20) as (say, watch):
        watch(state)
        say("one [line]")
    shown = terminal.getvalue()
    assert "one [line]" in shown and "4x (3.11 to 5.15)" in shown and "1 of 20" in shown
