"""Lists the device kernels of a call: times, and what launched them.

The profiler of torch asks CUPTI for every kernel that ran on a CUDA device, those of graphs and
libraries included. A kernel carries the operator of torch inside which it was launched, if that
operator was counted or ran in one that was. Records that only bear an operator's name, and
operators in threads that are not counted, show by their number: more of that name ran than were
counted. A kernel that a library or an extension launched by itself, or that a graph replayed,
carries none. Kernels that run side by side share the time, so that it adds up to the call's.

Does not list copies and fills by the device's copy engine. Says nothing if the profiler cannot be
used: without CUPTI, or where native code keeps the profiler from starting.

Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

_MOST = 200
_MOST_NAME = 1000
_NO_KERNELS = ("Memcpy", "Memset")
_synchronize = torch.cuda.synchronize  # taken here, before a kernel could replace it


class DeviceKernels:
    """Lists the device kernels that ran in the last watched call.

    Args:
        counter: Counts the operators of torch, a `Counter` of `operator_work.py`.
        records: The module `records.py`.
    """

    def __init__(self, counter: Any, records: ModuleType) -> None:
        self._counter = counter
        self._recorder = records.CallRecorder()
        self._found: dict[str, Any] = {}

    def call(self, model: Any, arguments: list[Any]) -> Any:
        """Call a model and list its kernels, while torch's operators are counted."""
        self._found = {}
        _synchronize()
        self._recorder.begin(device=True)
        self._counter.active = True
        try:
            with self._counter:
                return model(*arguments)
        finally:
            self._counter.active = False
            _synchronize()
            if (record := self._recorder.end()) is not None:
                operators = record.launched_in(self._counter.names)
                self._found = _listed(record.kernels, operators)

    def replayed(self, replay: Callable[[], Any]) -> dict[str, Any]:
        """Replay a graph; return what its kernels were, as `report` does."""
        _synchronize()
        self._recorder.begin(device=True)
        try:
            replay()
        finally:
            _synchronize()
            record = self._recorder.end()
        return {} if record is None else _listed(record.kernels, {})

    def launch(self, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a launch, which the profiler records."""
        return launch(*args, **kwargs)

    def report(self) -> dict[str, Any]:
        """Return and forget what the last call ran, if it was recorded.

        ``device_kernels`` has the kernel's name, the operator that launched it, the number of
        launches and the sum of their milliseconds, longest first; ``device_spans`` the milliseconds
        in which certain kernels of that list ran and no others, by their places in it.
        """
        found, self._found = self._found, {}
        return found


def _listed(events: Iterable[Any], operators: dict[int, str]) -> dict[str, Any]:
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for event in events:
        if event.name().startswith(_NO_KERNELS):
            continue
        operator = operators.get(event.correlation_id(), "")
        key = event.name()[:_MOST_NAME], operator[:_MOST_NAME]
        start = event.start_ns()
        spans.setdefault(key, []).append((start, start + event.duration_ns()))
    kernels = [
        (*key, len(ran), sum(end - start for start, end in ran) * 1e-6)
        for key, ran in spans.items()
    ]
    kernels.sort(key=lambda kernel: -kernel[3])
    listed = kernels[:_MOST]
    together = at_the_same_time([spans[name, operator] for name, operator, *_ in listed])
    return {"device_kernels": listed, "device_spans": [[*each] for each in together.items()]}


def at_the_same_time(spans: list[list[tuple[int, int]]]) -> dict[tuple[int, ...], float]:
    """Return the milliseconds in which exactly certain kernels ran side by side, by their indices.

    Args:
        spans: Starts and ends of each kernel's launches, in nanoseconds.
    """
    changes = [
        (at, by, place)
        for place, ran in enumerate(spans)
        for start, end in ran
        for at, by in ((start, 1), (end, -1))
    ]
    running = [0] * len(spans)
    found: dict[tuple[int, ...], float] = {}
    since = 0
    for at, by, place in sorted(changes):
        active = tuple(number for number, count in enumerate(running) if count)
        if active and at > since:
            found[active] = found.get(active, 0.0) + (at - since) * 1e-6
        running[place] += by
        since = at
    return found
