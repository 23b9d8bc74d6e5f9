"""`device_lock`: other programs keep a device from timing, across processes, without deadlock."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from kernelgym import UsageError
from kernelgym.judge import device_lock
from kernelgym.judge.device import lock
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.stage_clock import StageClock

HOLDER = """
import sys
from kernelgym.judge import device_lock
with device_lock("cpu", sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def timing_is_free(folder):
    """Whether a worker could time a kernel now."""
    return lock.is_free(folder / "cpu.lock", lock.fcntl.LOCK_EX)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock until it is told to go on."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_lock_of_another_process_excludes_timing(tmp_path, holder):
    worker = DeviceLock(tmp_path / "cpu.lock", StageClock())
    assert not timing_is_free(tmp_path)
    with worker.shared():  # untimed calls run beside it
        pass
    holder.stdin.write("\n")
    holder.stdin.flush()
    with worker.exclusive():
        assert holder.wait(30) == 0, "timing began while the other process held the lock"


def test_lock_of_a_killed_process_is_free(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert timing_is_free(tmp_path)


def test_timing_excludes_a_lock_of_another_process(tmp_path):
    worker = DeviceLock(tmp_path / "cpu.lock", StageClock())
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with worker.exclusive():
        process = subprocess.Popen(
            command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)
    assert process.communicate()[0] == "held\n"


def test_lock_taken_again_passes_a_waiting_timer(tmp_path):
    worker = DeviceLock(tmp_path / "cpu.lock", StageClock())

    def time_a_kernel():
        with worker.exclusive():
            pass

    waiting = threading.Thread(target=time_a_kernel)
    with device_lock("cpu", tmp_path):
        waiting.start()
        while lock.is_free(tmp_path / "cpu.gate", lock.fcntl.LOCK_SH):
            pass  # until the timer waits behind the gate
        with device_lock("cpu", tmp_path):
            assert waiting.is_alive()
        assert not timing_is_free(tmp_path)
    waiting.join(30)
    assert not waiting.is_alive()


def test_lock_is_released_when_the_block_raises(tmp_path):
    with pytest.raises(ZeroDivisionError), device_lock("cpu", tmp_path):
        raise ZeroDivisionError
    assert timing_is_free(tmp_path)


def test_lock_of_an_unknown_device_is_refused(tmp_path):
    with pytest.raises(UsageError, match="'gpu'"), device_lock("gpu", tmp_path):
        pass


def test_lock_of_a_gpu_is_the_workers(tmp_path, monkeypatch):
    found = SimpleNamespace(total_memory=14 << 30, major=9, minor=0, uuid="made-up")
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    monkeypatch.setattr(Accelerator, "canary", lambda _: None)
    monkeypatch.setattr(lock, "find_device", lambda name: name)
    worker = Accelerator("cuda:0", tmp_path).device_lock
    with device_lock("cuda:3", tmp_path), worker.shared_now() as shares:
        assert shares
        assert not lock.is_free(tmp_path / "gpu-made-up.lock", lock.fcntl.LOCK_EX)


def test_folder_of_a_lock_is_made(tmp_path):
    with DeviceLock(tmp_path / "not" / "yet" / "cpu.lock", StageClock()).exclusive():
        assert (tmp_path / "not" / "yet" / "cpu.lock").exists()
