"""Shares a device among references that are measured at the same time.

Contract: within `shared_while_compiling` the device lock is shared, so no other process times
anything meanwhile. While Inductor compiles it is released: compiling takes minutes, and the
processor only. What Inductor measures to choose between kernels runs with the lock held alone, or
another reference's work would decide the choice.

Does not cover the processor's cores: a caller that measures several references at once leaves
enough of them idle.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from kernelgym.judge.device.lock import DeviceLock

_MEASURES = ("benchmark_gpu", "benchmark_gpu_with_cuda_graph")
"""Names of Inductor's functions that time a kernel on the device, some of which call others."""


@contextlib.contextmanager
def shared_while_compiling(lock: DeviceLock, wait: Callable[[], object]) -> Iterator[None]:
    """Share the device for the block, except while Inductor compiles.

    Args:
        lock: The device's lock, as this thread has it.
        wait: Waits for what this process has launched on the device.
    """
    from torch._inductor import compile_fx
    from torch._inductor.runtime.benchmarking import benchmarker

    with contextlib.ExitStack() as stack:
        stack.enter_context(lock.shared())
        whole = compile_fx.compile_fx
        stack.callback(setattr, compile_fx, "compile_fx", whole)
        compile_fx.compile_fx = without_share(whole, lock, wait)
        alone = alone_on(lock, wait)
        for name in _MEASURES:
            if (measure := getattr(benchmarker, name, None)) is not None:
                # An attribute of the object hides its class's, until it is removed.
                stack.callback(vars(benchmarker).pop, name, None)
                setattr(benchmarker, name, alone(measure))
        yield


def without_share(
    work: Callable[..., Any], lock: DeviceLock, wait: Callable[[], object]
) -> Callable[..., Any]:
    """Return a function that gives up this thread's share of the lock while it runs."""

    @functools.wraps(work)
    def worked(*args: Any, **kwargs: Any) -> Any:
        if not lock.is_shared:  # an inner call
            return work(*args, **kwargs)
        wait()
        with lock.released():
            return work(*args, **kwargs)

    return worked


def alone_on(
    lock: DeviceLock, wait: Callable[[], object]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper for functions that need the device alone.

    A wrapped function that calls another waits once.

    Args:
        lock: The device's lock, as this thread has it; a share is given up meanwhile.
        wait: Waits for what this process has launched on the device.
    """
    held = False

    def wrapped(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def worked(*args: Any, **kwargs: Any) -> Any:
            nonlocal held
            if held:
                return work(*args, **kwargs)
            wait()
            with lock.released() if lock.is_shared else contextlib.nullcontext(), lock.exclusive():
                held = True
                try:
                    return work(*args, **kwargs)
                finally:
                    held = False
                    wait()

        return worked

    return wrapped
