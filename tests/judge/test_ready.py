"""Processes that stand ready for kernels to come, and the turns at making them."""

import os
import signal
import socket
import time

import pytest
from process_tree import children, descendants, wait_gone, worker_of_mine
from programs import AFFINE, TRITON

from kernelgym.errors import JudgeError, UsageError
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.turns import Turns
from kernelgym.judge.worker import _prepare_ahead

READY = 3


def _wait_for_standing(worker, count):
    """Return who waits below the zygote of `worker`, once there are so many."""
    deadline, found = time.monotonic() + 60.0, set()
    while time.monotonic() < deadline:
        found = children(children({worker}))
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{len(found)} processes stand ready, not {count}")


@pytest.fixture
def ready(cache_dir):
    before = descendants(os.getpid())
    with LocalEvaluator(cache_dir=cache_dir, timing=False, ready=READY) as evaluator:
        assert evaluator.evaluate(AFFINE, TRITON).correct
        yield evaluator, worker_of_mine(before)


def test_whoever_has_no_kernel_to_judge_makes_processes_ready_for_the_next(ready):
    evaluator, worker = ready
    first = _wait_for_standing(worker, READY)
    assert evaluator.evaluate(AFFINE, TRITON).correct
    second = _wait_for_standing(worker, READY)
    # A strict verdict takes two of them: the kernel's, and the one that is watched.
    assert len(first & second) == READY - 2


def test_all_that_stood_ready_may_be_killed(ready):
    evaluator, worker = ready
    killed = _wait_for_standing(worker, READY)
    for process in killed:
        os.kill(process, signal.SIGKILL)
    wait_gone(killed)
    assert evaluator.evaluate(AFFINE, TRITON).correct


def test_they_end_with_the_evaluator(ready):
    evaluator, worker = ready
    standing = _wait_for_standing(worker, READY)
    evaluator.close()
    wait_gone(standing)


def test_none_is_refused(cache_dir):
    with pytest.raises(UsageError, match="ready must be at least 1, got 0"):
        LocalEvaluator(cache_dir=cache_dir, ready=0)


def test_there_are_so_many_turns_and_they_come_back(tmp_path):
    mine, theirs = Turns(tmp_path, "making", 2), Turns(tmp_path, "making", 2)
    with mine.taken() as first:
        with theirs.taken() as second:
            with mine.taken() as third:
                assert (first, second, third) == (True, True, False)
        with mine.taken() as again:
            assert again


def test_turns_at_other_things_are_others(tmp_path):
    with Turns(tmp_path, "one", 1).taken(), Turns(tmp_path, "other", 1).taken() as other:
        assert other


def test_nothing_is_made_while_others_have_the_turns(tmp_path):
    before = descendants(os.getpid())
    with (
        Turns(tmp_path, "cpu.making", 2).taken(),
        Turns(tmp_path, "cpu.making", 2).taken(),
        LocalEvaluator(cache_dir=tmp_path, timing=False, ready=READY) as evaluator,
    ):
        assert evaluator.evaluate(AFFINE, TRITON).correct
        worker = worker_of_mine(before)
        _wait_for_standing(worker, 1)
        time.sleep(0.5)  # fifty times the pause between two looks
        assert len(children(children({worker}))) == 1
        assert evaluator.evaluate(AFFINE, TRITON).correct


class _Idle:
    """A worker of which nothing but its idle moments is looked at."""

    def __init__(self, steps):
        self.steps, self.asked = steps, 0

    def prepare_ahead(self):
        self.asked += 1
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


@pytest.mark.parametrize("end", [False, JudgeError("no memory"), OSError("no space")])
def test_idle_workers_stop_once_nothing_more_can_be_made(end):
    ours, theirs = socket.socketpair()
    worker = _Idle([True, True, end])
    with ours, theirs:
        _prepare_ahead(worker, ours)
    assert worker.asked == 3


def test_a_job_that_waits_comes_first():
    ours, theirs = socket.socketpair()
    worker = _Idle([True])
    with ours, theirs:
        theirs.send(b"job")
        _prepare_ahead(worker, ours)
    assert worker.asked == 0
