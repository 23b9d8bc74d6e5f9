"""A session: it begins once, and counts its own time."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.session import Session
from support import searches


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    with contextlib.ExitStack() as stack:

        def opened(judge: ScriptedEvaluator, **given: Any) -> Session:
            options = {"algo": "best_first", "approximate": False, "seed": 0, "workers": 2}
            options |= {"budget": Budget(3)} | given
            return stack.enter_context(Session(searches.TASK, judge, tmp_path, **options))

        yield opened


def test_second_begin_judges_nothing(session: Callable[..., Session]) -> None:
    judge = searches.evaluator()
    made = session(judge)
    made.begin()
    made.begin()
    assert len(judge.judged) == 2
    made.explore()
    made.begin()
    assert made.finish()["evaluations"] == 3


def test_second_begin_forgets_no_log(session: Callable[..., Session], tmp_path: Path) -> None:
    speeds = itertools.chain([0.01, 0.02], itertools.repeat(0.01))
    judge = searches.evaluator(lambda problem, kernel: verdict("correct", speedup=next(speeds)))
    made = session(judge)
    made.begin()
    made.explore()
    log = tmp_path / "kernels" / "matmul" / "events.jsonl"
    before = log.read_bytes()
    with pytest.raises(UsageError, match="wait until the host is idle"):
        made.begin(require_quiet=True)
    assert log.read_bytes() == before and before.count(b"judged") == 3


def test_refused_cannot_begin_again(session: Callable[..., Session]) -> None:
    made = session(searches.evaluator(lambda problem, kernel: verdict("wrong")))
    with pytest.raises(UsageError, match="start kernel is wrong"):
        made.begin()
    with pytest.raises(UsageError, match="open another session"):
        made.begin()


def test_time_between_rounds_does_not_count(session: Callable[..., Session]) -> None:
    now = [0.0]
    made = session(searches.evaluator(), clock=lambda: now[0])
    made.begin()
    made.explore(contests=False)
    now[0] += 1000.0  # another kernel's turn
    made.explore()
    assert made.finish()["seconds"] == 0.0
