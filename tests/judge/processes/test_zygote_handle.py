"""Processes that stand ready for kernels to come, and the turns at making them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from kernelgym.devices import CudaDevice
from kernelgym.errors import JudgeError, UsageError
from kernelgym.file_lock import Turns
from kernelgym.judge import LocalEvaluator, local
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.processes.candidate_handle import USUAL, CandidateKind
from kernelgym.judge.processes.zygote_handle import Zygote, ZygoteFamily
from kernelgym.judge.stage_clock import StageClock
from kernelgym.judge.worker import worker
from kernelgym.judge.worker.jobs import prepare_ahead
from kernelgym.rulesets import RULESETS
from support.process_tree import children, descendants, wait_gone, worker_of_mine
from support.programs import AFFINE, TRITON

READY = 3


def _standing(worker, least):
    """Return the processes on standby, once there are `least` and none has come for 1 s."""
    deadline, found, since = time.monotonic() + 60.0, set(), time.monotonic()
    while time.monotonic() < deadline:
        now = children(children({worker}))
        if now != found:
            found, since = now, time.monotonic()
        elif len(found) >= least and time.monotonic() - since > 1.0:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{len(found)} processes stand ready, not {least}")


@pytest.fixture
def ready(cache_dir):
    before = descendants(os.getpid())
    with LocalEvaluator(cache_dir=cache_dir, timing=False, standby=READY) as evaluator:
        assert evaluator.evaluate(AFFINE, TRITON).correct
        yield evaluator, worker_of_mine(before)


@pytest.mark.slow
def test_idle_worker_makes_processes_ready_for_the_next_kernel(ready):
    evaluator, worker = ready
    first = _standing(worker, READY)
    assert evaluator.evaluate(AFFINE, TRITON).correct
    second = _standing(worker, READY)
    # A strict verdict takes one of them: a Triton kernel is watched among its judged calls.
    assert len(second) == len(first) and len(first & second) == len(first) - 1


@pytest.mark.slow
def test_all_that_stood_ready_may_be_killed(ready):
    evaluator, worker = ready
    killed = _standing(worker, READY)
    for process in killed:
        os.kill(process, signal.SIGKILL)
    while any(os.path.exists(f"/proc/{process}") for process in killed):
        time.sleep(0.01)  # until the zygote has been told, too
    assert evaluator.evaluate(AFFINE, TRITON).correct


@pytest.mark.slow
def test_they_end_with_the_evaluator(ready):
    evaluator, worker = ready
    standing = _standing(worker, READY)
    evaluator.close()
    wait_gone(standing)


def test_none_is_refused(cache_dir):
    with pytest.raises(UsageError, match="standby must be at least 1, got 0"):
        LocalEvaluator(cache_dir=cache_dir, standby=0)


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


@pytest.mark.slow
def test_nothing_is_made_ahead_until_others_give_the_turns_back(tmp_path):
    before = descendants(os.getpid())
    with LocalEvaluator(cache_dir=tmp_path, timing=False, standby=READY) as evaluator:
        with (
            Turns(tmp_path, "cpu.making", 2).taken(),
            Turns(tmp_path, "cpu.making", 2).taken(),
        ):
            assert evaluator.evaluate(AFFINE, TRITON).correct
            worker = worker_of_mine(before)
            # Verdicts fork the next process of each kind themselves, and no more.
            few = _standing(worker, 1)
            assert evaluator.evaluate(AFFINE, TRITON).correct
            assert len(_standing(worker, 1)) == len(few)
        assert len(_standing(worker, len(few) + 1)) > len(few)


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
        prepare_ahead(worker, ours)
    assert worker.asked == 3


def test_a_job_that_waits_comes_first():
    ours, theirs = socket.socketpair()
    worker = _Idle([True])
    with ours, theirs:
        theirs.send(b"job")
        prepare_ahead(worker, ours)
    assert worker.asked == 0


class _Standing:
    """A process that stands by, or fails to."""

    def __init__(self, fails=""):
        self.fails, self.has_context, self.discarded = fails, False, False
        self.was_asked, self.is_gone = False, False

    def ask_for_context(self):
        self.was_asked = True

    def wait_ready(self, patience_s):
        if self.fails == "ready":
            raise OSError("no such process")

    def wait_for_context(self, patience_s):
        if self.fails == "context":
            raise JudgeError("no memory")
        self.has_context = True

    def ended(self):
        return self.is_gone

    def discard(self):
        self.discarded = True


@pytest.fixture
def zygote(monkeypatch):
    """A zygote for a GPU of which nothing runs; it hands out what stands in `coming`."""
    made = object.__new__(Zygote)
    made._standby, made._wanted, made._on_device, made.coming = {}, {USUAL}, True, []
    made._coming = {}
    monkeypatch.setattr(made, "_spawn", lambda kind: made.coming.pop(0))
    monkeypatch.setattr(made, "wait_ready", lambda: None)
    return made


def test_whoever_fails_to_get_ready_is_discarded_whatever_the_failure(zygote):
    zygote.coming = [failing := _Standing("ready")]
    with pytest.raises(OSError, match="no such process"):
        zygote.add()
    assert failing.discarded and zygote.lacks(1)


def test_one_that_gets_no_context_does_not_stand_by(zygote):
    zygote.coming = [good := _Standing(), bad := _Standing("context")]
    zygote.add()
    zygote.add()
    assert not zygote.lacks(2) and not zygote.is_settled()
    assert not zygote.settle(ahead=True)
    assert bad.discarded and not good.discarded
    assert zygote.is_settled() and zygote.lacks(2) and not zygote.lacks(1)


def test_on_a_device_the_one_after_the_next_starts_its_driver_and_makes_no_context(zygote):
    first, second, third = zygote.coming = [_Standing() for _ in range(3)]
    zygote.replenish()
    assert zygote._standby == {USUAL: [first]} and len(zygote.coming) == 1
    zygote.replenish()  # nothing is missing
    zygote.ask_for_contexts()
    assert first.was_asked and not second.was_asked
    assert zygote.settle() and not second.has_context
    assert zygote.take() is first
    zygote.replenish()
    assert zygote._standby == {USUAL: [second]} and zygote._coming == {USUAL: third}


def test_one_that_fell_before_it_stood_by_is_replaced(zygote):
    zygote.coming = [_Standing(), fallen := _Standing(), other := _Standing(), _Standing()]
    zygote.replenish()
    zygote.take()
    fallen.is_gone = True
    zygote.replenish()
    assert fallen.discarded and zygote._standby == {USUAL: [other]}


def test_process_for_pretrained_weights_is_forked_when_needed_and_none_stands_by(zygote):
    zygote.coming = [wanted := _Standing(), _Standing(), _Standing()]
    assert zygote.take(CandidateKind(weight_bytes=1 << 30)) is wanted
    zygote.replenish()
    assert zygote._standby.keys() == {USUAL}


def test_elsewhere_one_stands_by_and_no_more_are_forked(zygote):
    zygote._on_device, zygote.coming = False, [_Standing(), _Standing()]
    zygote.replenish()
    assert len(zygote.coming) == 1 and not zygote._coming


def _worker(zygote, tmp_path, ready=2):
    made = object.__new__(worker.Worker)
    device_lock = DeviceLock(tmp_path / "lock", StageClock())
    made._standby = ready
    made._accelerator = SimpleNamespace(
        device_lock=device_lock, making=Turns(tmp_path, "making", 1)
    )
    made._processes = SimpleNamespace(
        are_settled=zygote.is_settled,
        lack=zygote.lacks,
        add=lambda _: zygote.add(),
        settle=zygote.settle,
    )
    return made


def _steps(worker):
    taken = 0
    while worker.prepare_ahead():
        taken += 1
    return taken


def test_each_is_forked_and_then_makes_its_context(zygote, tmp_path):
    zygote.coming = [_Standing(), _Standing()]
    worker = _worker(zygote, tmp_path)
    assert _steps(worker) == 4
    assert not zygote.coming and zygote.is_settled()
    assert not worker._accelerator.device_lock.is_shared


def test_where_a_context_cannot_be_made_no_more_are_tried(zygote, tmp_path):
    zygote.coming = [_Standing("context"), _Standing()]
    assert _steps(_worker(zygote, tmp_path)) == 1
    assert len(zygote.coming) == 1


def test_no_context_is_made_while_somebody_is_timed_and_nobody_waits_for_that(zygote, tmp_path):
    zygote.coming = [_Standing()]
    worker = _worker(zygote, tmp_path, ready=1)
    with DeviceLock(tmp_path / "lock", StageClock()).exclusive():
        assert all(worker.prepare_ahead() for _ in range(3))
        assert not zygote.is_settled()
    assert worker.prepare_ahead() and zygote.is_settled()


def test_a_share_that_is_held_already_is_held_now(tmp_path):
    device_lock = DeviceLock(tmp_path / "lock", StageClock())
    with device_lock.shared(), device_lock.shared_now() as held:
        assert held
    assert not device_lock.is_shared
    with device_lock.shared_now() as held:
        assert held and device_lock.is_shared
    assert not device_lock.is_shared


def test_who_waits_to_be_timed_lets_nobody_pass(tmp_path):
    mine, theirs = (DeviceLock(tmp_path / "lock", StageClock()) for _ in range(2))
    with contextlib.ExitStack() as stack:
        stack.enter_context(mine.exclusive())
        with theirs.shared_now() as held:
            assert not held and not theirs.is_shared


@pytest.mark.parametrize(("ready", "fits"), [(1, True), (3, True), (12, False)])
def test_more_than_a_device_can_spare_is_refused(monkeypatch, cache_dir, ready, fits):
    gpu = CudaDevice("A GPU", 80 << 30, (9, 0))
    monkeypatch.setattr(local, "cuda_devices", lambda: (gpu,))
    monkeypatch.setattr("kernelgym.devices.cuda_devices", lambda: (gpu,))
    monkeypatch.setattr(local, "find_device", lambda _: "cuda:0")
    with contextlib.nullcontext() if fits else pytest.raises(UsageError, match=r"44\.0 GiB more"):
        LocalEvaluator("cuda:0", workers=8, standby=ready, cache_dir=cache_dir)


@pytest.fixture
def for_a_gpu(tmp_path):
    limits = RULESETS["strict"].limits
    zygote = Zygote(
        ZygoteFamily(interpreted=False),
        limits,
        (),
        tmp_path,
        "limits",
        "cuda:0",
        tier_is_known=True,
    )
    yield zygote
    zygote.close()


def _has_imported(pid):
    with open(f"/proc/{pid}/maps") as maps:
        return "libtorch_python" in maps.read()


def _cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return [int(field) for field in stat.read().rpartition(")")[2].split()[11:13]]


@pytest.mark.slow
def test_what_forks_for_a_device_waits_until_it_meets_it(for_a_gpu):
    process, deadline = for_a_gpu._process.popen, time.monotonic() + 60.0
    waits, before = False, None
    while not waits and time.monotonic() < deadline and process.poll() is None:
        assert not for_a_gpu.pump(1.0)
        ticks = _cpu_ticks(process.pid)
        waits, before = ticks == before and _has_imported(process.pid), ticks
    assert waits, process.poll()
    for_a_gpu.meet((9, 0), "", "GPU-0", ())
    for_a_gpu.meet((9, 0), "", "GPU-0", ())
    for_a_gpu.wait_ready()
    assert for_a_gpu.tier == "limits"
    assert not for_a_gpu.pump(0.5) and process.poll() is None  # a second message would end it


def test_one_that_ends_before_says_why(for_a_gpu):
    for_a_gpu._process._errors.write(b"ImportError: no torch\n")
    for_a_gpu._process._errors.flush()
    for_a_gpu.meet((9, 0), "", "GPU-0", ())
    os.kill(for_a_gpu._process.popen.pid, signal.SIGKILL)
    with pytest.raises(JudgeError, match="the zygote did not start: ImportError: no torch"):
        for_a_gpu.wait_ready()


def test_it_is_started_before_anything_imports_torch():
    program = (
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "import kernelgym.judge.worker.__main__ as worker\n"
        "from kernelgym.rulesets import RULESETS\n"
        "def seen(*_, **__):\n"
        "    print('torch' in sys.modules)\n"
        "    raise SystemExit\n"
        "subprocess.Popen = seen\n"
        "limits, here = RULESETS['strict'].limits, Path('/nowhere')\n"
        "worker.start_zygote('triton', limits, here, here, 'auto', sys.argv[1])\n"
    )
    for device in ("cpu", "cuda:0"):
        said = subprocess.run(
            [sys.executable, "-c", program, device], capture_output=True, text=True
        )
        assert said.stdout == "False\n", said.stderr
