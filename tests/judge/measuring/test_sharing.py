"""A device that several measurements share: who holds its lock, and when."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelgym.file_lock import is_free
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.measuring.sharing import alone_on, shared_while_compiling, without_share
from kernelgym.judge.stage_clock import StageClock

Held = Callable[[], str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpu.lock"


@pytest.fixture
def lock(path: Path) -> DeviceLock:
    return DeviceLock(path, StageClock())


@pytest.fixture
def held(path: Path) -> Held:
    """Tells how the lock is held, as another process would find out."""

    def look() -> str:
        if is_free(path, fcntl.LOCK_EX):
            return "free"
        return "shared" if is_free(path, fcntl.LOCK_SH) else "alone"

    return look


def test_what_measures_has_the_device_alone(lock, held) -> None:
    waits: list[str] = []
    measure = alone_on(lock, lambda: waits.append(held()))(held)
    assert measure() == "alone" and held() == "free"
    with lock.shared():
        assert measure() == "alone" and held() == "shared"
    assert waits == ["free", "alone", "shared", "alone"]


def test_calls_within_calls_wait_once(lock, held) -> None:
    alone = alone_on(lock, lambda: None)
    inner = alone(held)
    outer = alone(lambda: (held(), inner(), held()))
    assert outer() == ("alone", "alone", "alone") and held() == "free"


def test_a_failure_gives_the_lock_back(lock, held) -> None:
    def fails() -> None:
        raise ValueError(held())

    with lock.shared():
        with pytest.raises(ValueError, match="alone"):
            alone_on(lock, lambda: None)(fails)()
        assert held() == "shared"
        with pytest.raises(ValueError, match="free"):
            without_share(fails, lock, lambda: None)()
        assert held() == "shared"
    assert held() == "free"


def test_compiling_gives_up_the_share_once(lock, held) -> None:
    inner = without_share(held, lock, lambda: None)
    outer = without_share(lambda: (held(), inner()), lock, lambda: None)
    with lock.shared():
        assert outer() == ("free", "free") and held() == "shared"


@pytest.mark.slow
def test_torch_compiles_while_the_device_is_free(lock, held, monkeypatch) -> None:
    import torch
    from torch._inductor import compile_fx
    from torch._inductor.runtime.benchmarking import benchmarker

    compiling, running = [], []
    whole = compile_fx.compile_fx

    def looked(*args: object, **kwargs: object) -> object:
        compiling.append(held())
        return whole(*args, **kwargs)

    monkeypatch.setattr(compile_fx, "compile_fx", looked)
    before = compile_fx.compile_fx
    run = torch.compile(lambda x: torch.relu(x) * 2.0)
    with shared_while_compiling(lock, lambda: running.append(held())):
        given = run(torch.ones(8))
        running.append(held())
    assert torch.equal(given, 2 * torch.ones(8))
    assert compiling[0] == "free" and set(running) == {"shared"} and held() == "free"
    assert compile_fx.compile_fx is before and "benchmark_gpu" not in vars(benchmarker)
