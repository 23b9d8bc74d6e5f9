"""Whether a device is ours alone is read off how long copies take, and only there."""

import pytest

from kernelgym.judge import accelerator
from kernelgym.judge.accelerator import Accelerator

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
