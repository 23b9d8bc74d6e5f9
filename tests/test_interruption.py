"""SIGTERM acts as Ctrl-C does, and is remembered for the exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernelgym.interruption import ended_by_sigterm


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["taken", "ignored"])
def ctrl_c(request: pytest.FixtureRequest) -> Iterator[Any]:
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


def test_sigterm_raises_keyboard_interrupt_and_code_is_143(ctrl_c: Any) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_sigterm() as code, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert code.value == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is ctrl_c


def test_ctrl_c_code_stays_130(ctrl_c: Any) -> None:
    with ended_by_sigterm() as code, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert code.value == 130


def test_sigterm_twice_within_a_second_counts_once() -> None:
    asked: list[int] = []
    with ended_by_sigterm():
        before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGINT, before)
    assert asked == [signal.SIGINT]


def test_sigterm_inside_asyncio_cancels_the_main_task(ctrl_c: Any) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # what is left is written
            ended.append("written")
            raise

    with ended_by_sigterm() as code, pytest.raises(KeyboardInterrupt):
        asyncio.run(work())
    assert (ended, code.value) == (["written"], 143)


def test_outside_the_main_thread_signals_stay_as_they_are() -> None:
    found: list[Any] = []

    def look() -> None:
        with ended_by_sigterm():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]
