"""The lock of a run's folder: one holder, who it is, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgym.errors import UsageError
from kernelgym.records.run_lock import LOCK_FILE, RunLock, read_lock

HOLDS = """
import sys
from pathlib import Path
from kernelgym.records.run_lock import RunLock

lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_held_lock_names_its_holder_and_refuses_another(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        holder, held = read_lock(tmp_path)
        assert held and holder is not None and holder.is_here
        assert (holder.pid, holder.host) == (os.getpid(), socket.gethostname())
        with pytest.raises(UsageError, match=rf"process {os.getpid()} on .* another outdir"):
            RunLock(tmp_path, "outdir")
    assert read_lock(tmp_path) == (None, False)
    RunLock(tmp_path).close()


def test_lock_of_a_killed_process_is_free_and_names_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        holder, held = read_lock(tmp_path)
        assert held and holder is not None and holder.pid == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert read_lock(tmp_path) == (holder, False)
    with RunLock(tmp_path):
        assert read_lock(tmp_path)[1]


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"pid": 3}'])
def test_lock_file_without_a_holder_names_none(content: str, tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text(content)
    assert read_lock(tmp_path) == (None, False)


def test_reading_makes_no_lock_file(tmp_path: Path) -> None:
    assert read_lock(tmp_path) == (None, False)
    assert not list(tmp_path.iterdir())
