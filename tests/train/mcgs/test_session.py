"""A session: it begins once, and counts its own time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.controller import explore
from kernelgym_train.mcgs.finishing import finish
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.starting import begin
from support import searches


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., SearchSession]]:
    with contextlib.ExitStack() as stack:

        def opened(judge: ScriptedEvaluator, **given: Any) -> SearchSession:
            config = SearchConfig(**({"budget": Budget(3)} | given))
            return stack.enter_context(SearchSession(searches.TASK, judge, tmp_path, config))

        yield opened


def test_second_begin_judges_nothing(session: Callable[..., SearchSession]) -> None:
    judge = searches.evaluator()
    made = session(judge)
    begin(made)
    begin(made)
    assert len(judge.judged) == 2
    explore(made)
    begin(made)
    assert finish(made)["evaluations"] == 3


def test_second_begin_forgets_no_log(session: Callable[..., SearchSession], tmp_path: Path) -> None:
    speeds = itertools.chain([0.01, 0.02], itertools.repeat(0.01))
    judge = searches.evaluator(lambda problem, kernel: verdict("correct", speedup=next(speeds)))
    made = session(judge)
    begin(made)
    explore(made)
    made.config = dataclasses.replace(made.config, require_quiet=True)
    log = tmp_path / "kernels" / "matmul" / "events.jsonl"
    before = log.read_bytes()
    with pytest.raises(UsageError, match="wait until the host is idle"):
        begin(made)
    assert log.read_bytes() == before and before.count(b"judged") == 3


def test_time_between_rounds_does_not_count(session: Callable[..., SearchSession]) -> None:
    now = [0.0]
    made = session(searches.evaluator(), clock=lambda: now[0])
    begin(made)
    explore(made, contests=False)
    now[0] += 1000.0  # another kernel's turn
    explore(made)
    assert finish(made)["seconds"] == 0.0
