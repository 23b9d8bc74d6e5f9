"""Ctrl-C: answered at once, even while the main thread is inside a library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernelgym_train.run.interrupts import Activity, Interrupts


def program(body: str) -> subprocess.Popen[str]:
    """Start a program under `Interrupts`, and wait until it has printed ``ready``."""
    head = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from kernelgym_train.run.interrupts import Activity, Interrupts\n"
        "activity = Activity()\n"
        "activity.now = 'sampling answers of step 3'\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", head + body], text=True, **pipes)  # type: ignore[call-overload]
    assert process.stdout.readline() == "ready\n"
    return process  # type: ignore[no-any-return]


# A lock of the C library's, taken twice: the main thread runs no Python until it is freed.
INSIDE = """
import ctypes
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
with Interrupts(activity, Path("runs/one")) as interrupts:
    with interrupts.finishing_steps() as asked:
        print("ready", flush=True)
        libc.pthread_mutex_lock(mutex)
"""


def test_ctrl_c_is_answered_inside_a_library() -> None:
    with program(INSIDE) as process:
        process.send_signal(signal.SIGINT)
        said = process.stderr.readline()
        assert "interrupted while sampling answers of step 3: this step is finished" in said
        assert "Ctrl-C again stops at once" in said and "runs/one" in said
        process.kill()


@pytest.mark.slow
def test_second_ctrl_c_ends_a_run_that_is_stuck() -> None:
    with program(INSIDE) as process:
        for expected in ("this step is finished", "stopping now"):
            process.send_signal(signal.SIGINT)
            assert expected in process.stderr.readline()
        assert process.wait(30) == 130


def test_first_ctrl_c_sets_the_event_and_second_raises(tmp_path: Path) -> None:
    said: list[str] = []
    answered = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        answered.set()

    before = signal.getsignal(signal.SIGINT)
    with Interrupts(Activity(), tmp_path, say) as interrupts:
        with interrupts.finishing_steps() as asked:
            os.kill(os.getpid(), signal.SIGINT)
            assert asked.wait(30) and answered.wait(30)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                threading.Event().wait(30)
    assert signal.getsignal(signal.SIGINT) is before
    assert ["stops at once" in line for line in said] == [True, False]


def test_ctrl_c_outside_of_steps_raises_at_once() -> None:
    said: list[str] = []
    activity = Activity()
    with pytest.raises(KeyboardInterrupt), Interrupts(activity, None, said.append):
        with activity.during("loading the model"):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(30)
    assert said == ["interrupted while loading the model: stopping now"]


def test_activity_is_restored_after_an_error() -> None:
    activity = Activity()
    with pytest.raises(ValueError), activity.during("loading the model"):
        raise ValueError
    with activity.during("saving"):
        assert activity.now == "saving"
    assert activity.now == "starting"


def test_another_thread_leaves_signals_alone() -> None:
    before, found = signal.getsignal(signal.SIGINT), []

    def enter() -> None:
        with Interrupts(Activity()) as interrupts, interrupts.finishing_steps():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [before]
