"""Lists the device kernels of a call: times, and what launched them.

The profiler of torch asks CUPTI for every kernel that ran on a CUDA device, those of graphs and
libraries included. A kernel carries the operator of torch inside which it was launched, if that
operator was counted or ran in one that was. Records that only bear an operator's name, and
operators in threads that are not counted, show by their number: more of that name ran than were
counted. A kernel that a library or an extension launched by itself, or that a graph replayed,
carries none.

Does not list copies and fills by the device's copy engine. Says nothing if the profiler cannot be
used: without CUPTI, or where native code keeps the profiler from starting.

Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

__all__ = ["DeviceKernels", "counted_around"]

_MOST = 200
_MOST_NAME = 1000
_NO_KERNELS = ("Memcpy", "Memset")
_ON_DEVICE: Any = torch._C._autograd.DeviceType.CUDA
# Taken here, before a kernel could replace them.
_synchronize = torch.cuda.synchronize
_autograd: Any = torch._C._autograd
_prepare: Any = getattr(_autograd, "_prepare_profiler", None)
_enable: Any = getattr(_autograd, "_enable_profiler", None)
_disable: Any = getattr(_autograd, "_disable_profiler", None)
_configuration: Any = torch.autograd.ProfilerConfig
_extra: Any = getattr(getattr(torch._C, "_profiler", None), "_ExperimentalConfig", None)


class DeviceKernels:
    """Profiles calls; keeps what the last one ran on the device.

    Args:
        counter: Counts the operators of torch, a `Counter` of `operator_work.py`.
    """

    def __init__(self, counter: Any) -> None:
        self._counter = counter
        self._found: list[tuple[str, str, int, float]] | None = None
        self._named: set[str] = set()

    def call(self, model: Any, arguments: list[Any]) -> Any:
        """Call a model and list its kernels, while torch's operators are counted."""
        self._found, self._named = None, set()
        _synchronize()
        running = _begin() or (_stopped() and _begin())
        self._counter.active = True
        try:
            with self._counter:
                return model(*arguments)
        finally:
            self._counter.active = False
            if running:
                self._end(self._counter.names)

    def launch(self, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a launch; note its compiled name, if it has one."""
        compiled = launch(*args, **kwargs)
        for name in (getattr(compiled, "name", None), getattr(launch, "compiled_name", None)):
            if isinstance(name, str) and len(self._named) < _MOST:
                self._named.add(name[:_MOST_NAME])
        return compiled

    def report(self) -> dict[str, Any]:
        """Return and forget what the last call ran, if it was profiled.

        ``device_kernels`` has the kernel's name, the operator that launched it, the number of
        launches and the sum of their milliseconds, longest first. ``compiled_names`` has the names
        of the kernels that were launched and that Triton or NVRTC compiled.
        """
        found, self._found = self._found, None
        if found is None:
            return {}
        return {"device_kernels": found, "compiled_names": sorted(self._named)}

    def _end(self, counted: Mapping[str, int]) -> None:
        try:
            _synchronize()
            events = _disable().events()
        except RuntimeError:
            return
        named, kernels = [], []
        for event in events:
            if event.device_type() == _ON_DEVICE:
                kernels.append(event)
            elif "::" in event.name():
                start = event.start_ns()
                end = start + event.duration_ns()
                thread = event.start_thread_id()
                named.append((thread, start, end, event.correlation_id(), event.name()))
        operators = counted_around(named, counted)
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


def counted_around(
    named: Iterable[tuple[int, int, int, int, str]], counted: Mapping[str, int]
) -> dict[int, str]:
    """Return operators that were counted, or ran in one, by number.

    Args:
        named: Threads, starts and ends in nanoseconds, numbers and names of what ran.
        counted: How often each operator was counted, by its name with its namespace.
    """
    outermost: dict[int, str] = {}
    names: dict[int, str] = {}
    runs: Counter[str] = Counter()
    around: list[tuple[int, int, str]] = []  # threads, ends, outermost counted operators
    for thread, _, end, number, name in sorted(named, key=lambda o: (o[0], o[1], -o[2])):
        while around and (around[-1][0] != thread or around[-1][1] < end):
            around.pop()
        root = around[-1][2] if around else ""
        if not root and name in counted:
            root = name
            runs[name] += 1
        around.append((thread, end, root))
        outermost[number], names[number] = root, name
    return {
        number: names[number]
        for number, root in outermost.items()
        if root and runs[root] <= counted[root]
    }


def _stopped() -> bool:
    """Stop a profiler that the kernel left on, if any."""
    try:
        _disable()
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True


def _begin() -> bool:
    """Start the profiler; return False if that is impossible."""
    try:
        extra = _extra(profile_all_threads=True)
        kinds = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
        off = [False] * 5  # shapes, memory, stacks, operations, modules
        config = _configuration(torch.autograd.ProfilerState.KINETO, *off, extra)
        _prepare(config, kinds)
        _enable(config, kinds)
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True
