"""Times one reference in one setting, in a process made for it.

Contract:
- A trial is one call. On a GPU, CUDA events time it, and the L2 cache is flushed before it; on the
  CPU, the monotonic clock does. Inputs are drawn once; all calls run without gradients.
- A compiled model's outputs are compared with the eager ones first: a model that computes something
  else is not timed.
- The device lock is held alone while trials run, and shared by every other use of the device, so
  that several references can be measured at once: compiling one disturbs no trials of another
  (`kernelgym.judge.measuring.sharing`).

Does not cover deadlines and the process (`kernelgym.judge.measuring.process`).
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelgym.judge.device.l2_cache import L2Cache
from kernelgym.judge.device.lock import DeviceLock, lock_name
from kernelgym.judge.inputs.seeds import seed_all
from kernelgym.judge.measuring.sharing import shared_while_compiling
from kernelgym.judge.problem_code import names_of
from kernelgym.judge.stage_clock import StageClock
from kernelgym.judge.tensors import tensors_of
from kernelgym.paths import cache_folder
from kernelgym.reference_time import TimeSetting
from kernelgym.types import Problem

_SEED = 42
_WARM_UP = 5
_LEAST_TRIALS = 3
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}
"""Relative and absolute tolerance of compiled outputs against eager ones, by type; it is 1e-2 for
other types and with TF32."""


def time_reference(
    problem: Problem, setting: TimeSetting, device: str, trials: int, seconds: float
) -> dict[str, Any]:
    """Return a reference's times in ms, or why there are none.

    Args:
        problem: The problem; its code is run.
        setting: Mode, precision and TF32.
        device: ``cpu`` or a GPU's name in this process.
        trials: Calls to time.
        seconds: Most seconds that trials take; three are run in any case.
    """
    on = torch.device(device)
    torch.backends.cuda.matmul.allow_tf32 = setting.tf32 == "on"
    torch.backends.cudnn.allow_tf32 = setting.tf32 != "off"
    names = names_of(problem.source, problem.id)
    seed_all(_SEED)
    drawn = names["get_inputs"]()
    seed_all(_SEED)
    model = names["Model"](*names["get_init_inputs"]())
    clock = StageClock()
    lock = DeviceLock(cache_folder() / f"{lock_name(device)}.lock", clock)

    def call(run: Callable[..., Any]) -> Any:
        seed_all(_SEED)
        with torch.no_grad():
            return run(*inputs)

    wait = functools.partial(_wait, on)
    eager = setting.mode == "eager"
    with lock.shared() if eager else shared_while_compiling(lock, wait):
        inputs = [_moved(value, setting, on) for value in drawn]
        del drawn
        model = model.to(on)
        if setting.precision != "own":
            model = model.to(_DTYPES[setting.precision])
        wanted = [each.clone() for each in tensors_of(call(model))]
        operations = _operations(lambda: call(model))
        clock.read()
        started = time.monotonic()
        run = _compiled(model, setting.mode)
        for _ in range(2):
            given = [each.clone() for each in tensors_of(call(run))]
        _wait(on)
        compile_s = time.monotonic() - started - clock.read().queue_s
        difference = _difference(given, wanted, setting)
        del wanted, given
    if difference:
        return {"message": f"{setting.mode} computes something else than eager: {difference}"}
    with lock.exclusive(), torch.no_grad():
        times = _trials(run, inputs, on, trials, seconds)
    return {
        "mean": statistics.fmean(times),
        "std": statistics.stdev(times),
        "min": min(times),
        "max": max(times),
        "median": statistics.median(times),
        "trials": len(times),
        "operations": operations,
        "compile_s": 0.0 if eager else compile_s,
    }


def _operations(call: Callable[[], Any]) -> float:
    """Return the floating-point operations of one call, as far as torch counts them."""
    counter = FlopCounterMode(display=False)
    try:
        with counter:
            call()
    except Exception:  # the same call went through without the counter
        return 0.0
    return float(counter.get_total_flops())


def _moved(value: Any, setting: TimeSetting, device: torch.device) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    narrow = setting.precision != "own" and value.is_floating_point()
    return value.to(device, _DTYPES[setting.precision] if narrow else value.dtype)


def _compiled(model: torch.nn.Module, mode: str) -> Callable[..., Any]:
    if mode == "eager":
        return cast("Callable[..., Any]", model)
    from torch._inductor import config

    # Random layers must draw the same numbers as in eager mode, or their outputs would differ.
    config.fallback_random = True
    given = {"backend": "cudagraphs"} if mode == "cudagraphs" else {"mode": mode}
    return cast("Callable[..., Any]", torch.compile(model, **given))


def _difference(given: list[torch.Tensor], wanted: list[torch.Tensor], setting: TimeSetting) -> str:
    """Return the difference between compiled and eager outputs in words; empty if there is none."""
    if len(given) != len(wanted):
        return f"{len(given)} outputs for {len(wanted)}"
    for ours, theirs in zip(given, wanted, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"{list(ours.shape)} {ours.dtype} for {list(theirs.shape)} {theirs.dtype}"
        allowed = 1e-2 if setting.tf32 != "off" else _TOLERANCE.get(theirs.dtype, 1e-2)
        if not torch.allclose(ours, theirs, rtol=allowed, atol=allowed, equal_nan=True):
            largest = (ours.double() - theirs.double()).abs().max().item()
            return f"largest absolute difference {largest:.3g}"
    return ""


def _trials(
    run: Callable[..., Any], inputs: list[Any], device: torch.device, trials: int, seconds: float
) -> list[float]:
    """Return the milliseconds of each timed call of a reference."""
    for _ in range(_WARM_UP):
        run(*inputs)
    _wait(device)
    cache = L2Cache(device) if device.type == "cuda" else None
    times: list[float] = []
    deadline = time.monotonic() + seconds
    while len(times) < trials and (len(times) < _LEAST_TRIALS or time.monotonic() < deadline):
        if cache is None:
            started = time.perf_counter()
            run(*inputs)
            times.append(1e3 * (time.perf_counter() - started))
            continue
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        cache.flush()
        begin.record()
        run(*inputs)
        end.record()
        _wait(device)
        times.append(begin.elapsed_time(end))
    return times


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
