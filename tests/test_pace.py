"""How far a job is, in one line, and a line a minute from a thread."""

from __future__ import annotations

import threading

import pytest

from kernelgym import pace
from kernelgym.pace import Pace, duration, line_a_minute


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (1e6, "12 d")]
)
def test_duration_is_in_its_largest_fitting_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("before", "done", "seconds", "said"),
    [
        (0, 0, 90.0, "episodes 0 of 100, none in the first 90 s"),
        (0, 20, 300.0, "episodes 20 of 100, 4 a minute, about 20 min left"),
        (0, 2, 3600.0, "episodes 2 of 100, 2 an hour, about 2 d left"),
        (60, 20, 300.0, "episodes 80 of 100, 4 a minute, about 5 min left"),
        (0, 100, 60.0, "episodes 100 of 100, 100 a minute, about 0 s left"),
    ],
)
def test_line_has_rate_and_time_left_of_this_process(
    before: int, done: int, seconds: float, said: str
) -> None:
    now = [10.0]
    counted = Pace("episodes", 100, before, clock=lambda: now[0])
    for _ in range(done):
        counted.advance()
    now[0] += seconds
    assert counted.line() == said


def test_lines_come_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "EVERY_S", 0.01)
    said: list[str] = []
    twice = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            twice.set()

    with line_a_minute(lambda: "so far", say):
        assert twice.wait(30)
    count = len(said)
    assert set(said) == {"so far"}
    assert not [each for each in threading.enumerate() if each.name == "kernelgym-pace"]
    assert len(said) == count
