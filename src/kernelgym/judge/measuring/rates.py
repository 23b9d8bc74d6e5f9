"""Measures a device: copies, matrix products, launches, a context's start.

Contract: medians over repeated runs, after warm-up, while the device lock is held. On a GPU, the
host's clock surrounds a synchronised batch of calls, so that one launch's cost is not in it.

Does not cover clocks that another program changes meanwhile: they are recorded, before and after.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelgym.judge.device.lock import DeviceLock, lock_name
from kernelgym.judge.stage_clock import StageClock
from kernelgym.paths import cache_folder

_ROUNDS = 5
_COPY_BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}
_SIDE = {"cpu": 1024, "cuda": 8192}
_NARROW_SIDE = {"cpu": 512, "cuda": 8192}
_BATCH = {"cpu": 1, "cuda": 8}


def device_rates(device: str) -> dict[str, Any]:
    """Return measured rates of a device.

    Returns:
        ``context_s``, ``copy_gb_s`` (bytes read and written, in 10^9 a second), ``launch_us`` (one
        small operation of many) and ``matmul_tflops`` by precision, in 10^12 operations a second;
        None for a precision that the device does not multiply in.
    """
    on = torch.device(device)
    started = time.perf_counter()
    torch.zeros(1, device=on).add_(1)
    _wait(on)
    context_s = time.perf_counter() - started
    lock = DeviceLock(cache_folder() / f"{lock_name(device)}.lock", StageClock())
    with lock.exclusive(), torch.no_grad():
        return {
            "context_s": context_s,
            "copy_gb_s": _copy(on),
            "launch_us": _launch(on),
            "matmul_tflops": {name: _matmul(on, name) for name in _precisions(on)},
        }


def _precisions(device: torch.device) -> tuple[str, ...]:
    return ("fp32", "tf32", "fp16", "bf16") if device.type == "cuda" else ("fp32", "bf16")


def _seconds(device: torch.device, call: Callable[[], Any], batch: int) -> float:
    """Return the median seconds of one call."""
    found = []
    call()
    for _ in range(_ROUNDS):
        _wait(device)
        started = time.perf_counter()
        for _ in range(batch):
            call()
        _wait(device)
        found.append((time.perf_counter() - started) / batch)
    return statistics.median(found)


def _copy(device: torch.device) -> float:
    size = _COPY_BYTES[device.type] // 2
    if device.type == "cuda":
        size = min(size, torch.cuda.mem_get_info(device)[0] // 4)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = _seconds(device, lambda: target.copy_(source), _BATCH[device.type])
    return 2 * size / seconds / 1e9


def _launch(device: torch.device) -> float:
    one = torch.zeros(1, device=device)
    return 1e6 * _seconds(device, lambda: one.add_(1), 200)


def _matmul(device: torch.device, precision: str) -> float | None:
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
    kind = kinds.get(precision, torch.float32)
    side = (_NARROW_SIDE if kind in kinds.values() else _SIDE)[device.type]
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        left = torch.randn(side, side, device=device).to(kind)
        right = torch.randn(side, side, device=device).to(kind)
        seconds = _seconds(device, lambda: left @ right, _BATCH[device.type])
    except RuntimeError:  # such as a precision that the device does not have
        return None
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * side**3 / seconds / 1e12


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
