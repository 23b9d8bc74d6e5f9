"""`kernelgym runs`: the list, one run's status, and the request to end."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym.benchmark.run_states import read_states
from kernelgym.cli.runs import _table
from kernelgym.records.jsonlines import append_line
from kernelgym.records.run_lock import LOCK_FILE

HOLDS = """
import sys, time
from pathlib import Path
from kernelgym.interruption import ended_by_sigterm
from kernelgym.records.run_lock import RunLock

with ended_by_sigterm(), RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a training that was interrupted after 2 of 6 steps."""
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("optimiser:\n  steps: 6\n")
    append_line(folder / "events.jsonl", {"event": "interrupted"})
    append_line(folder / "metrics.jsonl", {"step": 1, "reward/mean": 0.5})
    return tmp_path / "runs"


@pytest.fixture
def running(place: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the run's lock until it is interrupted."""
    # A shell that runs the tests in the background has them, and so their children, ignore Ctrl-C.
    argv = [sys.executable, "-c", HOLDS, str(place / "one")]
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize("asked", [(), ("list",)])
def test_list_names_state_step_and_figures(asked: tuple[str, ...], run: Any, place: Path) -> None:
    code, out, _ = run("runs", *asked, place)
    head, row = out.splitlines()
    assert code == 0 and head.split() == ["run", "kind", "state", "step", "figures", "changed"]
    assert row.split()[:6] == [
        str(place / "one"),
        "training",
        "interrupted",
        "2/6",
        "reward",
        "0.5",
    ]
    code, out, _ = run("runs", *asked, place, "--json")
    assert code == 0 and json.loads(out)[0]["state"] == "interrupted"


def test_list_without_runs_says_so(run: Any, tmp_path: Path) -> None:
    assert run("runs", tmp_path)[:2] == (0, f"no runs below {tmp_path}\n")


def test_stop_ends_a_running_run_as_ctrl_c(run: Any, place: Path, running: Any) -> None:
    code, out, _ = run("runs", "status", place / "one")
    assert code == 0 and f"running (process {running.pid} on" in out
    code, out, _ = run("runs", "stop", place / "one")
    assert code == 0 and f"asked process {running.pid} on" in out
    assert running.wait(30) == 130
    code, _, err = run("runs", "stop", place / "one")
    assert code == 2 and "is not running: interrupted" in err


def test_stop_of_another_hosts_run_says_where_it_runs(run: Any, place: Path) -> None:
    held = {"pid": 77, "host": "node-7.cluster", "since": "2026-01-01T00:00:00Z"}
    (place / "one" / LOCK_FILE).write_text(json.dumps(held))
    code, _, err = run("runs", "stop", place / "one")
    assert code == 2 and err.count("\n") == 1
    assert "is written by process 77 on node-7.cluster; stop it on that host" in err


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (("stopp",), "did you mean stop?"),
        (("stop",), "takes the folder of one run"),
        (("stop", "."), "there is no run in"),
        (("watch", "."), "needs a terminal"),
        (("watch", ".", "--json"), "--json needs"),
    ],
)
def test_wrong_use_is_a_usage_error(asked: Any, error: str, run: Any, folder: Path) -> None:
    code, _, err = run("runs", *asked)
    assert code == 2 and error in err and err.count("\n") == 1


def test_watched_table_counts_running_runs(place: Path, running: Any) -> None:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=120).print(_table(read_states(place)))
    assert "1 of 1 runs are running" in out.getvalue() and "2/6" in out.getvalue()
