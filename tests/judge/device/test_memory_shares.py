"""Memory is rationed: never more is held than there is, and who waits for much gets it."""

import multiprocessing
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.device.memory_shares import MemoryBudget

TOTAL = 1600


@pytest.fixture
def memory_budget(tmp_path):
    return MemoryBudget(tmp_path, "gpu", TOTAL)


@given(st.integers(0, 10 * TOTAL))
def test_parts_hold_what_is_wanted_as_far_as_there_is_room(tmp_path_factory, wanted):
    parts = MemoryBudget(tmp_path_factory.getbasetemp(), "gpu", TOTAL).parts(wanted)
    assert 1 <= parts <= 16
    assert parts * 100 >= min(wanted, TOTAL) and (parts - 1) * 100 < max(1, wanted)


def test_never_more_is_held_than_there_is(memory_budget):
    held, most, lock = [0], [0], threading.Lock()

    def work(wanted):
        for _ in range(5):
            with memory_budget.taken(wanted):
                with lock:
                    held[0] += memory_budget.parts(wanted)
                    most[0] = max(most[0], held[0])
                time.sleep(0.001)
                with lock:
                    held[0] -= memory_budget.parts(wanted)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in (1, 3, 5, 7, 9, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 9 < most[0] <= 16 and held[0] == 0


def test_what_fits_beside_another_need_not_wait(memory_budget):
    with memory_budget.taken(1000), memory_budget.taken(600):
        pass


def test_who_wants_everything_waits_until_all_is_back_and_is_not_overtaken(memory_budget):
    order, started = [], threading.Event()

    def everything():
        started.set()
        with memory_budget.taken(TOTAL):
            order.append("everything")

    def little():
        with memory_budget.taken(100):
            order.append("little")

    with memory_budget.taken(200):
        first = threading.Thread(target=everything)
        first.start()
        started.wait()
        time.sleep(0.05)
        second = threading.Thread(target=little)
        second.start()
        time.sleep(0.05)
        assert order == []
    first.join()
    second.join()
    assert order == ["everything", "little"]


def _take_and_die(folder, ready):
    with MemoryBudget(folder, "gpu", TOTAL).taken(TOTAL):
        ready.set()
        time.sleep(60)


def test_parts_come_back_when_their_holder_is_killed(tmp_path, memory_budget):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_take_and_die, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(60)
    holder.kill()
    holder.join()
    with memory_budget.taken(TOTAL):
        pass


def test_an_error_inside_gives_the_parts_back(memory_budget):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError), memory_budget.taken(TOTAL):
        raise ValueError
    with memory_budget.taken(TOTAL):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
