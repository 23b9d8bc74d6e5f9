"""A session: it begins once, and counts its own time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.records.jsonlines import read_lines
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.controller import explore
from kernelgym_train.mcgs.events import SearchEvent, SearchLog
from kernelgym_train.mcgs.finishing import finish
from kernelgym_train.mcgs.resuming import take_past
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.starting import begin
from kernelgym_train.mcgs.task import read_kernel
from kernelgym_train.mcgs.variant import read_variant
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


def rewrite(ended: SearchSession, change: Callable[[str], str]) -> None:
    """Change the text of a closed session's log, whose checksums fit again afterwards."""
    path = ended.folder.events
    text = change("".join(f"{json.dumps(row)}\n" for _, row in read_lines(path)))
    path.unlink()
    with SearchLog.open(path) as log:
        for row in map(json.loads, text.splitlines()):
            del row["crc"], row["number"]
            log.append(row.pop("seconds"), row.pop("event"), row)


@pytest.mark.parametrize("changed", ["../../../../outside", 7, None, ["x"]])
def test_log_whose_events_do_not_fit_is_refused(
    session: Callable[..., SearchSession], tmp_path: Path, changed: object
) -> None:
    first = session(searches.evaluator())
    begin(first)
    explore(first)
    first.close()
    key = next(row["key"] for row in searches.rows(tmp_path) if row["event"] == "proposed")
    rewrite(first, lambda text: text.replace(json.dumps(key), json.dumps(changed)))
    with pytest.raises(UsageError, match="do not fit"):
        session(searches.evaluator())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value", 1e6),
        ("value", "x"),
        ("beside", [1e6]),
        ("build_s", -1e5),
        ("floor_share", "x"),
        ("speedup", 1e-320),
        ("round_s", 1e300),
        ("ms", {"matmul": ["x", 1.0]}),
        ("more", 10**400),
    ],
)
def test_log_with_a_number_out_of_bounds_is_refused(
    session: Callable[..., SearchSession], name: str, value: object
) -> None:
    first = session(searches.evaluator())
    begin(first)
    explore(first)
    first.close()

    def forged(text: str) -> str:
        rows = [json.loads(line) for line in text.splitlines()]
        next(row for row in rows if row["event"] == "judged")[name] = value
        return "".join(f"{json.dumps(row)}\n" for row in rows)

    rewrite(first, forged)
    with pytest.raises(UsageError, match="do not fit"):
        session(searches.evaluator())


@pytest.mark.parametrize(
    ("seconds", "changed"), [(-1e6, {}), (1.0, {"worst_usd": -5.0}), (1.0, {"worst_tokens": "x"})]
)
def test_log_with_a_cost_out_of_bounds_is_refused(
    seconds: float, changed: Mapping[str, object], tmp_path: Path
) -> None:
    start = read_variant(searches.TASK.start)
    asked = {"ask": 0, "node": "n", "move": "m", "digest": "", "repairs": None}
    asked |= {"worst_tokens": 1, "worst_usd": 0.1}
    search = SearchEvent(0, 0.0, "search", {"context": {}})
    take_past(
        searches.empty_state(start), [search, SearchEvent(1, 1.0, "asked", asked)], {}, tmp_path
    )
    forged = SearchEvent(1, seconds, "asked", {**asked, **changed})
    with pytest.raises(UsageError, match="do not fit"):
        take_past(searches.empty_state(start), [search, forged], {}, tmp_path)


@pytest.mark.parametrize(
    "name", ["baseline", "variants", "variants/*", "events.jsonl", "answers", ".", ".."]
)
def test_folder_with_a_symbolic_link_is_refused(
    session: Callable[..., SearchSession], name: str, tmp_path: Path
) -> None:
    first = session(searches.evaluator())
    begin(first)
    explore(first)
    finish(first)
    first.close()
    session(searches.evaluator()).close()  # `best` is a link of the search's own
    path = next((first.folder.path / "variants").iterdir())
    if name != "variants/*":
        path = Path(os.path.normpath(first.folder.path / name))
    aside = tmp_path / "aside"
    path.rename(aside) if path.exists() else aside.mkdir()
    path.symlink_to(aside)
    with pytest.raises(UsageError, match=r"symbolic link.*outdir$"):
        session(searches.evaluator())


def test_kernel_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel.py")
    for path in (tmp_path / "kernel.py", Path("/dev/zero")):
        with pytest.raises(UsageError, match="not a regular file"):
            read_kernel(path, "")
