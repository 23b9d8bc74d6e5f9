"""Whether a device is ours alone is read off how long copies take; and what of it is rationed."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from kernelgym.devices import CONTEXT_BYTES
from kernelgym.errors import ProblemError
from kernelgym.judge.device import accelerator
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judging_memory import SPARE_BYTES, kernel_bytes
from support.programs import AFFINE

GIB = 1 << 30
USUAL_MS = 2 * accelerator._PROBED_BYTES / 4e12 * 1e3


@pytest.fixture
def device(tmp_path, monkeypatch):
    made = Accelerator("cpu", tmp_path)
    made.on_cuda, made._bandwidth = True, 4e12
    monkeypatch.setattr(accelerator.time, "sleep", lambda _: None)
    return made


def copies(monkeypatch, device, *rounds):
    """Let copies take so many times what they usually do, round after round."""
    left = list(rounds)
    monkeypatch.setattr(device, "_copy_ms", lambda *_: [left.pop(0) * USUAL_MS] * 3)
    return left


@pytest.mark.parametrize("pace", [0.9, 1.0, 1.2])
def test_at_full_pace_it_is_ours(monkeypatch, device, pace):
    copies(monkeypatch, device, pace)
    assert device.is_ours()


def test_a_hiccup_is_waited_out(monkeypatch, device):
    left = copies(monkeypatch, device, 2.0, 1.5, 1.0, 9.0)
    assert device.is_ours() and left == [9.0]


def test_at_half_pace_somebody_else_is_at_work(monkeypatch, device):
    copies(monkeypatch, device, *[2.0] * accelerator._PROBES)
    assert not device.is_ours()


def test_the_cpu_is_not_asked(tmp_path):
    assert Accelerator("cpu", tmp_path).is_ours()


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that computes nothing, but has so much memory."""
    found = SimpleNamespace(total_memory=14 * GIB, major=9, minor=0, uuid="made-up")
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    monkeypatch.setattr(Accelerator, "canary", lambda _: None)
    return found


@pytest.mark.parametrize("spare", [0, 6])
def test_what_processes_that_stand_ready_take_is_not_rationed(gpu, tmp_path, spare):
    device = Accelerator("cuda:0", tmp_path, spare_contexts=spare)
    assert device._memory_budget.total_bytes == 13 * GIB - spare * CONTEXT_BYTES


def test_problem_above_the_memory_budget_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "input_bytes", lambda _: 6 * GIB)
    Accelerator("cpu", tmp_path, memory_bytes=13 * GIB).check_room(AFFINE)
    Accelerator("cpu", tmp_path).check_room(AFFINE)  # nothing was asked for
    with pytest.raises(ProblemError, match=r"at least 14\.0 GB .* budget on 'cpu' is 14\.0 GB"):
        Accelerator("cpu", tmp_path, memory_bytes=13 * GIB - 1).check_room(AFFINE)


def test_budget_of_a_gpu_counts_beside_its_own_memory(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "input_bytes", lambda _: 3 * GIB)
    Accelerator("cuda:0", tmp_path, memory_bytes=7 * GIB).check_room(AFFINE)
    with pytest.raises(ProblemError, match="the memory budget on 'cuda:3'"):
        Accelerator("cuda:0", tmp_path, "cuda:3", memory_bytes=6 * GIB).check_room(AFFINE)


def test_a_problem_must_fit_beside_them(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "input_bytes", lambda _: 6 * GIB)
    Accelerator("cuda:0", tmp_path, spare_contexts=2).check_room(AFFINE)
    with pytest.raises(ProblemError, match=r"at least 14\.0 GB .* has 13\.4 GB for it"):
        Accelerator("cuda:0", tmp_path, spare_contexts=3).check_room(AFFINE)


def test_room_of_a_round_counts_each_kernel_and_a_starting_kernel(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "input_bytes", lambda _: GIB >> 4)
    monkeypatch.setattr(accelerator, "output_bytes", lambda _: GIB >> 5)
    device, wanted = Accelerator("cuda:0", tmp_path), []
    monkeypatch.setattr(
        device._memory_budget, "taken", lambda size: wanted.append(size) or nullcontext()
    )
    for kernels in (1, 3):
        with device.room(AFFINE, kernels):
            pass
    monkeypatch.setattr(accelerator, "starting_kernel", lambda _: object())
    with device.room(AFFINE):
        pass
    assert wanted == [kernel_bytes(GIB >> 4, GIB >> 5, kernels) for kernels in (1, 3, 2)]
    assert wanted[1] - wanted[0] == 2 * ((GIB >> 4) + 4 * (GIB >> 5) + SPARE_BYTES)
