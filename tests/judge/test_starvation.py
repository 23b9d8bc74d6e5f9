"""Limits on a busy host: what other programs take extends them, what a process does itself not."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge import starvation
from kernelgym.judge.compiling import compiler_process
from kernelgym.judge.compiling.compiler_process import BuildLimit
from kernelgym.judge.starvation import PATIENCE, HostTooBusy, Starvation, missed_s, thread_times

_S = 10**9


class _Scripted:
    """A clock and the times of threads, which the test moves on."""

    def __init__(self) -> None:
        self.now, self.threads = 100.0, {"1": (0.0, 0.0)}

    def pass_by(self, wall_s, *shares):
        """Let time pass; each thread runs and waits for its shares of it."""
        self.now += wall_s
        for number, (ran, waited) in enumerate(shares, 1):
            before = self.threads.get(str(number), (0.0, 0.0))
            self.threads[str(number)] = (before[0] + ran * wall_s, before[1] + waited * wall_s)

    def read(self, pids):
        return {name: (int(r * _S), int(w * _S)) for name, (r, w) in self.threads.items()}

    def starvation(self, limit_s=10.0, processors=2):
        return Starvation(limit_s, self.read, lambda: self.now, processors)


def _missed(wall_s, processors, *shares):
    scripted = _Scripted()
    before = scripted.read(())
    scripted.pass_by(wall_s, *shares)
    return missed_s(before, scripted.read(()), wall_s, processors)


def test_missed_time_of_a_process_that_sleeps_or_runs_alone_is_none():
    assert _missed(10.0, 2, (0.0, 0.0)) == 0.0
    assert _missed(10.0, 2, (1.0, 0.0)) == pytest.approx(0.0)
    assert _missed(10.0, 2, (0.5, 0.0)) == pytest.approx(0.0)


def test_missed_time_of_a_starved_thread_is_its_wait():
    assert _missed(10.0, 2, (0.3, 0.7)) == pytest.approx(7.0)
    assert _missed(10.0, 2, (0.3, 0.2)) == pytest.approx(2.0)  # it slept for the rest


def test_missed_time_of_threads_that_wait_for_each_other_is_none():
    """Eight threads of one process on two processors: nothing else takes these."""
    assert _missed(10.0, 2, *[(0.25, 0.75)] * 8) == pytest.approx(0.0)


def test_missed_time_of_many_threads_beside_others_is_the_processors_they_lack():
    assert _missed(10.0, 2, *[(0.125, 0.875)] * 8) == pytest.approx(5.0)


_SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda s: (s[0], (1 - s[0]) * s[1]))


@given(st.lists(_SHARES, max_size=6), st.integers(1, 8), st.floats(0.1, 100.0))
def test_missed_time_lies_within_the_interval(shares, processors, wall_s):
    assert 0.0 <= _missed(wall_s, processors, *shares) <= wall_s


def test_starvation_of_a_process_that_gets_a_third_triples_its_limit():
    scripted = _Scripted()
    counted = scripted.starvation(limit_s=10.0)
    counted.begin(1)
    limit, waited = 10.0, 0.0
    while waited < limit:
        scripted.pass_by(0.5, (1 / 3, 2 / 3))
        waited += 0.5
        limit += counted.more_s()
    assert waited == pytest.approx(30.0, abs=1.5)
    counted.blame_host("it")  # its own time is over


def test_starvation_beyond_patience_is_the_hosts_fault():
    scripted = _Scripted()
    counted = scripted.starvation(limit_s=10.0)
    counted.begin(1)
    for _ in range(200):
        scripted.pass_by(0.5, (0.05, 0.95))
        counted.more_s()
    assert counted.missed_s == pytest.approx((PATIENCE - 1.0) * 10.0)
    with pytest.raises(HostTooBusy, match="kept a build from the processors for 40 s"):
        counted.blame_host("a build")


def test_starvation_of_a_process_that_used_up_its_limit_is_its_own_fault():
    """Threads pinned to one of 64 processors look starved; the time that they ran shows."""
    scripted = _Scripted()
    counted = scripted.starvation(limit_s=10.0, processors=64)
    counted.begin(1)
    for _ in range(200):
        scripted.pass_by(0.5, *[(1 / 64, 63 / 64)] * 64)
        counted.more_s()
    assert counted.missed_s == pytest.approx(40.0)
    counted.blame_host("it")


def test_starvation_counts_nothing_where_the_system_hides_times():
    counted = Starvation(10.0, lambda pids: {}, lambda: 0.0, 2)
    counted.begin(1)
    assert counted.more_s(at_once=True) == counted.more_s(at_once=True) == 0.0


def test_build_limit_grows_by_what_other_programs_take(monkeypatch):
    scripted = _Scripted()
    clock = SimpleNamespace(monotonic=lambda: scripted.now)
    monkeypatch.setattr(compiler_process, "time", clock)
    limit = BuildLimit(10.0)
    limit.starvation = scripted.starvation()
    limit.starvation.add(1)
    scripted.pass_by(11.0, (0.2, 0.8))
    assert not limit.is_over()
    scripted.pass_by(11.0, (1.0, 0.0))
    assert limit.is_over()


def test_thread_times_of_descendants_are_counted():
    child = "import time; sum(range(10**6)); print(1, flush=True); time.sleep(60)"
    shell = ["/bin/sh", "-c", f"{sys.executable} -S -c '{child}' & wait"]
    with subprocess.Popen(shell, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        folder = f"/proc/{process.pid}/task"
        own, tree = thread_times(folder), starvation._tree_times([process.pid])
        subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=True)
    assert len(own) == 1 and own.keys() < tree.keys()
    assert thread_times(folder) == {} and thread_times("/proc/self/task")
