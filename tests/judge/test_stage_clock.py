"""Stages add up, do not overlap, and count waiting apart."""

import contextlib
import time

import pytest

from kernelgym.judge.stage_clock import StageClock


@pytest.fixture
def now(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


def test_a_stage_within_another_stops_the_outer_ones_clock(now):
    clock = StageClock()
    with clock.stage("check"):
        now[0] += 1.0
        with clock.stage("build"):
            now[0] += 10.0
        now[0] += 2.0
    now[0] += 100.0
    stages = clock.read()
    assert (stages.check_s, stages.build_s, stages.total_s) == (3.0, 10.0, 13.0)


def test_only_entering_is_waiting(now):
    @contextlib.contextmanager
    def lock():
        now[0] += 5.0
        yield
        now[0] += 7.0

    clock = StageClock()
    with clock.stage("timing"), clock.waiting(lock()):
        now[0] += 1.0
    stages = clock.read()
    assert (stages.queue_s, stages.timing_s) == (5.0, 8.0)


def test_an_error_ends_its_stage_and_reading_begins_anew(now):
    clock = StageClock()
    with pytest.raises(ValueError), clock.stage("load"):
        now[0] += 1.0
        raise ValueError
    now[0] += 1.0
    with clock.stage("load"):
        now[0] += 1.0
    assert clock.read().load_s == 2.0
    assert clock.read().total_s == 0.0


def test_a_stage_that_is_not_one_is_an_error():
    clock = StageClock()
    with pytest.raises(KeyError), clock.stage("lunch"):
        pass


def test_stages_of_two_kernels_judged_together_are_shared_out(now):
    clock = StageClock()
    with clock.stage("build"):
        now[0] += 3.0
    stages = clock.read(2)
    assert (stages.build_s, stages.total_s) == (1.5, 1.5)
