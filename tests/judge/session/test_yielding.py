"""Whoever waits to time a kernel does not wait for one that compiles, builds or hangs."""

import contextlib
import dataclasses
import fcntl
import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kernelgym import file_lock
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.device import accelerator
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.device.recent_kills import RecentKills
from kernelgym.judge.processes import threads as threads_of
from kernelgym.judge.processes.threads import Threads
from kernelgym.judge.session.yielding import Yielding
from kernelgym.judge.stage_clock import StageClock
from kernelgym.rulesets import RULESETS
from kernelgym.types import Job, Status
from support.programs import AFFINE, CPP, TIGHT, doing
from support.timed_verdicts import timed_verdict


class Obedient:
    """A candidate that notes what it is told."""

    def __init__(self, stands=True):
        self.stands, self.told = stands, []
        self.stood_s = self.device_blocked_s = 0.0

    def halt(self, patience_s):
        self.told.append("halt")
        return self.stands

    def resume(self):
        self.told.append("resume")


@pytest.fixture
def device_locks(tmp_path):
    """Two workers' views of one device's lease."""
    return [DeviceLock(tmp_path / "device.lock", StageClock()) for _ in range(2)]


@contextlib.contextmanager
def timing_waits(device_lock):
    """Have another thread wait for the lease alone; yields whether it has had it."""
    had = threading.Event()

    def take():
        with device_lock.exclusive():
            had.set()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield had
    finally:
        thread.join()


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_others_must_not_be_timed_beside_is_ended_before_they_are_let_go_first(device_locks):
    mine, others = device_locks
    order = []
    mine.before_release = lambda: order.append(("settled", mine.is_shared, is_free(others)))
    with mine.shared():
        with Yielding(Obedient(), mine).answering(), mine.released():
            order.append(("released", mine.is_shared, is_free(others)))
        assert mine.is_shared
    assert order == [("settled", True, False), ("released", False, True)]


def is_free(device_lock):
    """Say whether somebody could have the lease alone."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock.locked(device_lock._path, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True


def test_the_lease_tells_its_sharer_that_another_waits(device_locks):
    mine, others = device_locks
    assert not mine.is_wanted()
    with mine.shared():
        assert mine.is_shared and not mine.is_wanted()
        with others.shared():
            assert not mine.is_wanted(), "company is no reason to go"
        with timing_waits(others) as had:
            until(mine.is_wanted)
            assert not had.is_set()
            with mine.released():
                assert not mine.is_shared
                until(had.is_set)
            assert mine.is_shared
    assert not mine.is_shared and not mine.is_wanted()


def test_a_share_within_a_share_ends_with_the_outer_one(device_locks):
    mine, others = device_locks
    with contextlib.ExitStack() as waiting:
        with mine.shared():
            had = waiting.enter_context(timing_waits(others))
            until(mine.is_wanted)
            with mine.shared():
                assert mine.is_shared, "who holds a share does not stand at the gate again"
            assert mine.is_shared and not had.is_set()
        until(had.is_set)
    assert not mine.is_shared


def test_a_candidate_at_work_is_halted_while_another_kernel_is_timed(device_locks):
    mine, others = device_locks
    candidate = Obedient()
    yielding = Yielding(candidate, mine)
    with mine.shared(), timing_waits(others) as had, yielding.answering():
        until(mine.is_wanted)
        until(yielding.yield_device)
        assert had.is_set() and mine.is_shared
        assert others.is_halfway(), "what it has launched may go on upon the device"
    assert candidate.told == ["halt", "resume"] and candidate.stood_s > 0
    assert not others.is_halfway()


@pytest.mark.parametrize("device_blocked_s", [0.0, 0.3, 1000.0])
def test_its_deadline_is_not_put_off_while_the_device_is_kept_busy(device_locks, device_blocked_s):
    mine, others = device_locks
    candidate = Obedient()
    yielding = Yielding(candidate, mine)
    put_off = []

    def find_it_busy():
        with others.exclusive():
            time.sleep(0.4)
            if device_blocked_s:
                others.note_device_blocked(device_blocked_s)

    waiting = threading.Thread(target=find_it_busy)
    with mine.shared(), yielding.answering():
        waiting.start()
        until(mine.is_wanted)
        until(lambda: put_off.append(yielding.yield_device()) or candidate.told)
    waiting.join()
    assert candidate.told == ["halt", "resume"]
    assert candidate.stood_s >= 0.4 and candidate.device_blocked_s == device_blocked_s
    assert sum(put_off) == pytest.approx(max(0.0, candidate.stood_s - device_blocked_s))
    assert (sum(put_off) > 0.0) == (device_blocked_s < 1.0)


def test_what_others_wait_in_vain_while_it_builds_is_counted(device_locks):
    mine, others = device_locks
    candidate = Obedient()
    yielding = Yielding(candidate, mine)
    with mine.shared(), yielding.answering(), yielding.clear(), others.exclusive():
        others.note_device_blocked(7.0)
    assert candidate.device_blocked_s == 7.0
    assert candidate.stood_s < 5.0, "building is not standing still"


def test_looks_in_vain_that_follow_each_other_are_one_wait(device_locks):
    mine, others = device_locks
    mine.note_device_blocked(0.0)
    begun = time.monotonic()
    time.sleep(0.2)
    others.note_device_blocked(0.01)
    assert 0.2 <= mine.device_blocked_s() <= time.monotonic() - begun + 0.05
    assert others.since_device_blocked_s() < 5.0


@pytest.mark.parametrize("text", ["", "1.0", "x y", "\x00" * 9])
def test_a_damaged_note_of_waits_says_nothing(device_locks, text):
    mine, others = device_locks
    mine._blocked_file.write_text(text)
    assert others.device_blocked_s() == 0.0 and others.since_device_blocked_s() == math.inf
    others.note_device_blocked(2.0)
    assert mine.device_blocked_s() == 2.0


def test_only_looking_at_a_busy_device_is_in_vain(tmp_path, monkeypatch):
    device, device_lock = (
        Accelerator("cpu", tmp_path),
        DeviceLock(tmp_path / "cpu.lock", StageClock()),
    )
    paces, told = [False, False, True], []

    def is_ours():
        told.append(device_lock.device_blocked_s())
        return paces.pop(0)

    monkeypatch.setattr(device, "is_ours", is_ours)
    with device.quiet(20.0):
        assert 0.0 == told[0] < told[1] < told[2] == device_lock.device_blocked_s()
    assert device_lock.device_blocked_s() == told[2]


def test_it_is_not_halted_for_nobody_nor_at_once(device_locks):
    mine, others = device_locks
    candidate = Obedient()
    yielding = Yielding(candidate, mine)
    with mine.shared(), yielding.answering():
        time.sleep(0.06)
        assert yielding.yield_device() == 0.0
        with timing_waits(others), yielding.answering():
            until(mine.is_wanted)
            assert yielding.yield_device() == 0.0, "it has only just gone on"
            until(yielding.yield_device)
    assert candidate.told == ["halt", "resume"]


def test_one_that_does_not_stand_still_keeps_the_lease(device_locks):
    mine, others = device_locks
    yielding = Yielding(Obedient(stands=False), mine)
    with contextlib.ExitStack() as waiting:  # left last
        with mine.shared():
            had = waiting.enter_context(timing_waits(others))
            until(mine.is_wanted)
            with yielding.answering(), yielding.clear():
                assert mine.is_shared and not had.is_set()


def test_a_build_keeps_nobody_from_timing(device_locks):
    mine, others = device_locks
    candidate = Obedient()
    yielding = Yielding(candidate, mine)
    with mine.shared(), yielding.answering(), yielding.clear(), timing_waits(others) as had:
        until(had.is_set)
        assert candidate.told == ["halt"]
    assert candidate.told == ["halt", "resume"]


def test_without_a_lease_nothing_is_halted(device_locks):
    for device_lock in (None, device_locks[0]):  # none, and one that is not held
        candidate = Obedient()
        yielding = Yielding(candidate, device_lock)
        with yielding.answering(), yielding.clear():
            time.sleep(0.06)
            assert yielding.yield_device() == 0.0
        assert candidate.told == []


@pytest.mark.slow
def test_a_kernel_that_hangs_keeps_nobody_from_being_timed(tmp_path):
    hangs = doing("while True:\n    pass")
    rules = dataclasses.replace(RULESETS["strict"], limits=dataclasses.replace(TIGHT, run_s=8.0))
    with LocalEvaluator(ruleset=rules, workers=2, cache_dir=tmp_path) as evaluator:
        assert timed_verdict(evaluator, AFFINE, CPP).timing is not None  # built, and all is warm
        order = [
            (index, verdict)
            for index, verdict in evaluator.evaluate_iter([Job(AFFINE, hangs), Job(AFFINE, CPP)])
        ]
    assert [index for index, _ in order] == [1, 0]
    assert order[0][1].timing is not None
    assert order[1][1].status is Status.TIMEOUT


def test_the_device_is_waited_for_while_halted_kernels_finish_there(tmp_path, monkeypatch):
    device = Accelerator("cpu", tmp_path)
    monkeypatch.setattr(accelerator, "_SHARED_PATIENCE_S", 0.0)
    paces = [False, False, False, True]
    monkeypatch.setattr(device, "is_ours", lambda: paces.pop(0))
    with (
        DeviceLock(tmp_path / "cpu.lock", StageClock()).halfway(),
        device.quiet(20.0) as ours,
    ):
        assert ours and not paces


def test_others_work_while_a_busy_device_is_waited_for(tmp_path, monkeypatch):
    device = Accelerator("cpu", tmp_path)
    other = DeviceLock(tmp_path / "cpu.lock", StageClock())
    worked = threading.Event()

    def work():
        with other.shared():
            worked.set()

    thread = threading.Thread(target=work)

    def is_ours():
        if thread.ident is None:
            thread.start()
        return worked.is_set()

    monkeypatch.setattr(device, "is_ours", is_ours)
    with device.quiet(20.0) as ours:
        assert ours
    thread.join()


@pytest.mark.parametrize("halfway", [False, True])
def test_a_device_that_stays_busy_is_given_up(tmp_path, monkeypatch, halfway):
    device = Accelerator("cpu", tmp_path)
    monkeypatch.setattr(device, "is_ours", lambda: False)
    monkeypatch.setattr(accelerator, "_SHARED_PATIENCE_S", 0.1)
    device_lock = DeviceLock(tmp_path / "cpu.lock", StageClock())
    with device_lock.halfway() if halfway else contextlib.nullcontext(), device.quiet(0.3) as ours:
        assert not ours


def test_looks_at_a_busy_device_are_apart(tmp_path, monkeypatch):
    looks = []
    devices = [Accelerator("cpu", tmp_path) for _ in range(3)]

    def is_ours():
        looks.append(time.monotonic())
        return False

    def wait(device):
        with device.quiet(2.5) as ours:
            assert not ours

    for device in devices:
        monkeypatch.setattr(device, "is_ours", is_ours)
    with DeviceLock(tmp_path / "cpu.lock", StageClock()).halfway():
        waiting = [threading.Thread(target=wait, args=(device,)) for device in devices]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
    own = len(devices) * accelerator._OWN_LOOKS
    late = [late - early for early, late in zip(looks[own - 1 :], looks[own:], strict=False)]
    assert late and min(late) >= accelerator._LOOKS_APART_S, "whoever stands still pays for each"


@pytest.mark.parametrize(("killed", "least_s"), [(0, 0.5), (1, 0.9), (1000, 1.5)])
def test_patience_begins_anew_when_a_kernel_is_killed_but_not_for_ever(
    tmp_path, monkeypatch, killed, least_s
):
    monkeypatch.setattr(accelerator, "_SHARED_PATIENCE_S", 0.5)
    device, looks = Accelerator("cpu", tmp_path), []

    def is_ours():
        looks.append(time.monotonic())
        if len(looks) <= killed:
            time.sleep(0.4)
            device.recent_kills.note()
        return False

    monkeypatch.setattr(device, "is_ours", is_ours)
    with device.quiet(0.5) as ours:
        assert not ours
    assert time.monotonic() - looks[0] >= least_s


def test_patience_begins_at_the_first_look(tmp_path, monkeypatch):
    device, other = Accelerator("cpu", tmp_path), DeviceLock(tmp_path / "cpu.lock", StageClock())
    monkeypatch.setattr(accelerator, "_SHARED_PATIENCE_S", 0.2)
    paces, held = [False, True], threading.Event()
    monkeypatch.setattr(device, "is_ours", lambda: paces.pop(0))

    def time_another():
        with other.exclusive():
            held.set()
            time.sleep(0.5)

    thread = threading.Thread(target=time_another)
    thread.start()
    until(held.is_set)
    with device.quiet(20.0) as ours:
        assert ours
    thread.join()


def test_kernels_are_tried_again_one_at_a_time_on_a_free_device(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "_LOOKS_APART_S", 0.01)
    first, second = (Accelerator("cpu", tmp_path) for _ in range(2))
    busy = [True, True, False]
    monkeypatch.setattr(first, "is_kept_busy", lambda: busy.pop(0))
    monkeypatch.setattr(second, "is_kept_busy", lambda: False)
    order = []

    def try_again():
        with second.second_chance(20.0):
            order.append("second")

    with first.second_chance(20.0):
        assert not busy
        thread = threading.Thread(target=try_again)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_second_chance_is_given_though_the_device_stays_busy(tmp_path, monkeypatch):
    device = Accelerator("cpu", tmp_path)
    monkeypatch.setattr(accelerator, "_LOOKS_APART_S", 0.01)
    monkeypatch.setattr(device, "is_ours", lambda: False)
    begun = time.monotonic()
    with device.second_chance(0.2):
        assert time.monotonic() - begun >= 0.2


@pytest.fixture(params=["by its clock", "by its files"])
def spinning(request):
    """The threads of a process, two of which never rest."""
    program = "from threading import Thread\ndef spin():\n while True: pass\n"
    program += "Thread(target=spin).start(); spin()"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        threads = Threads(process.pid)
        if request.param == "by its files":
            threads._clock = 1 << 20  # no such clock, as on kernels that lend none
        until(lambda: threads.count() == 2)
        yield threads
        threads.close()
        process.kill()


def test_threads_are_halted_and_let_go_on(spinning):
    until(lambda: spinning._run_ns() > 0)
    assert spinning.halt(5.0)
    before = spinning._run_ns()
    time.sleep(0.05)
    assert spinning._run_ns() == before
    assert spinning.resume()
    until(lambda: spinning._run_ns() > before)


def test_who_ran_while_it_was_halted_is_found_out(spinning):
    assert spinning.halt(5.0)
    before = spinning._run_ns()
    spinning._signal(signal.SIGCONT)  # somebody else's
    until(lambda: spinning._run_ns() > before + 5_000_000)
    assert not spinning.resume()


def test_a_thread_is_not_halted_before_it_has_left_the_processor(spinning, monkeypatch):
    """Nothing that its clock is told late, of before, is held against it."""
    here, late = set(os.listdir(spinning._folder)), []

    def read(path, read=threads_of.read_small):
        if path.endswith("wchan") and len(late) < 50:
            late.append(path)
            return b"0"
        return read(path)

    monkeypatch.setattr(threads_of, "read_small", read)
    monkeypatch.setattr(threads_of, "_LEAVES_S", 60.0)
    monkeypatch.setattr(spinning, "_run_ns", lambda: len(late))
    spinning._tells = True
    assert spinning.halt(5.0)
    assert {path.split("/")[-2] for path in late} == here
    assert spinning._ran_ns == 50


def test_where_nobody_is_told_of_that_a_clock_that_stands_still_will_do(spinning, monkeypatch):
    def read(path, read=threads_of.read_small):
        return b"0" if path.endswith("wchan") else read(path)

    monkeypatch.setattr(threads_of, "read_small", read)
    spinning._tells = True
    assert spinning.halt(5.0)
    assert not spinning._tells
    before = spinning._run_ns()
    time.sleep(0.05)
    assert spinning._run_ns() == before
    assert spinning.resume()


def test_clock_and_files_tell_the_same_time(spinning):
    assert spinning.halt(5.0)
    clock, told = spinning._clock, []
    for spinning._clock in (clock, 1 << 20):
        told.append(spinning._run_ns())
    assert told[0] == told[1] > 0


def test_another_workers_hang_is_known_and_ones_own_is_no_excuse(tmp_path, monkeypatch):
    recent_kills, begun = RecentKills(tmp_path, "gpu-0"), time.time()
    recent_kills.note()
    assert not recent_kills.others_since(begun, 0.0)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert recent_kills.others_since(begun, 0.0)
    assert not recent_kills.others_since(time.time() + 1, 0.0)
    assert not RecentKills(tmp_path, "gpu-1").others_since(begun, 0.0)
