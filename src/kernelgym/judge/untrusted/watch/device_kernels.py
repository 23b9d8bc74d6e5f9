"""Lists the device kernels of a call: times, and what launched them.

The profiler of torch asks CUPTI for every kernel that ran on a CUDA device, those of graphs and
libraries included. A kernel carries the operator inside which it was launched; one that a library
or an extension launched by itself, or that a graph replayed, carries none.

Does not list copies and fills by the device's copy engine. Says nothing if the profiler cannot be
used: without CUPTI, or while the kernel profiles itself.

Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["DeviceKernels"]

_MOST = 200
_MOST_NAME = 1000
_NO_KERNELS = ("Memcpy", "Memset")
_ON_DEVICE: Any = torch._C._autograd.DeviceType.CUDA
_synchronize = torch.cuda.synchronize


class DeviceKernels:
    """Profiles calls; keeps what the last one ran on the device."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str, int, float]] | None = None
        self._named: set[str] = set()

    def call(self, model: Any, arguments: list[Any]) -> Any:
        """Call a model and list its kernels."""
        self._found, self._named = None, set()
        _synchronize()
        running = _begin()
        try:
            return model(*arguments)
        finally:
            if running:
                self._end()

    def launch(self, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a launch; note the name that Triton compiled it under."""
        compiled = launch(*args, **kwargs)
        name = getattr(compiled, "name", None)
        if isinstance(name, str) and len(self._named) < _MOST:
            self._named.add(name[:_MOST_NAME])
        return compiled

    def report(self) -> dict[str, Any]:
        """Return and forget what the last call ran, if it was profiled.

        ``device_kernels`` has the kernel's name, the operator that launched it, the number of
        launches and the sum of their milliseconds, longest first. ``triton_names`` has the names
        of the Triton kernels that were launched.
        """
        found, self._found = self._found, None
        if found is None:
            return {}
        return {"device_kernels": found, "triton_names": sorted(self._named)}

    def _end(self) -> None:
        try:
            _synchronize()
            events = torch._C._autograd._disable_profiler().events()
        except RuntimeError:
            return
        operators: dict[int, str] = {}
        kernels = []
        for event in events:
            if event.device_type() == _ON_DEVICE:
                kernels.append(event)
            elif "::" in event.name():
                operators[event.correlation_id()] = event.name()
        times: dict[tuple[str, str], list[float]] = {}
        for event in kernels:
            if event.name().startswith(_NO_KERNELS):
                continue
            operator = operators.get(event.linked_correlation_id(), "")
            key = event.name()[:_MOST_NAME], operator[:_MOST_NAME]
            times.setdefault(key, []).append(event.duration_ns() * 1e-6)
        listed = [(*key, len(spent), sum(spent)) for key, spent in times.items()]
        listed.sort(key=lambda kernel: -kernel[3])
        self._found = listed[:_MOST]


def _begin() -> bool:
    """Start the profiler; return False if that is impossible."""
    try:
        profiler: Any = torch._C._profiler
        extra = profiler._ExperimentalConfig(profile_all_threads=True)
        kinds = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
        off = [False] * 5  # shapes, memory, stacks, operations, modules
        config = torch.autograd.ProfilerConfig(torch.autograd.ProfilerState.KINETO, *off, extra)
        torch._C._autograd._prepare_profiler(config, kinds)
        torch._C._autograd._enable_profiler(config, kinds)
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True
