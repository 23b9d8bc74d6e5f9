"""A session: it begins once, and counts its own time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.records.jsonlines import read_lines
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.controller import explore
from kernelgym_train.mcgs.events import SearchLog
from kernelgym_train.mcgs.finishing import finish
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.starting import begin
from kernelgym_train.mcgs.task import read_kernel
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


@pytest.mark.parametrize("changed", ["../../../../outside", 7, None, ["x"]])
def test_log_whose_events_do_not_fit_is_refused(
    session: Callable[..., SearchSession], tmp_path: Path, changed: object
) -> None:
    first = session(searches.evaluator())
    begin(first)
    explore(first)
    first.close()
    rows = list(read_lines(first.folder.events))
    key = next(row["key"] for _, row in rows if row["event"] == "proposed")
    text = "".join(f"{json.dumps(row)}\n" for _, row in rows)
    text = text.replace(json.dumps(key), json.dumps(changed))
    first.folder.events.unlink()
    with SearchLog.open(first.folder.events) as log:
        for row in map(json.loads, text.splitlines()):
            del row["crc"], row["number"]
            log.append(row.pop("seconds"), row.pop("event"), row)
    with pytest.raises(UsageError, match="do not fit"):
        session(searches.evaluator())


def test_kernel_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel.py")
    for path in (tmp_path / "kernel.py", Path("/dev/zero")):
        with pytest.raises(UsageError, match="not a regular file"):
            read_kernel(path, "")
