"""Times the custom launches of a call, by the device's clock on a CUDA device.

On a CUDA device the call starts after an idle pause of about 10 ms, so that the host has made all
launches before the device begins: the result is the device's time, not Python's.

It does not see launches

- on streams other than the current one;
- within CUDA graphs.

The report decides nothing; it is feedback to the kernel's author. Loaded by path in the untrusted
process: standard library and torch only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

_HEAD_START_CYCLES = 20_000_000  # about 10 ms
_NAMED = 16


class LaunchTimes:
    """Times the custom launches of calls; keeps those of the last call."""

    def __init__(self) -> None:
        self._launch_times: list[tuple[str, Any, Any]] = []
        self._whole: tuple[Any, Any] | None = None
        self._within = False

    def call(self, model: Any, arguments: list[Any]) -> Any:
        """Call a model and time it."""
        self._launch_times, self._whole = [], None
        if torch.cuda.is_initialized():
            torch.cuda._sleep(_HEAD_START_CYCLES)
        begun = _now()
        result = model(*arguments)
        self._whole = begun, _now()
        return result

    def launch(self, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a launch and time it, with the launches nested in it."""
        if self._within or (torch.cuda.is_initialized() and _capturing()):
            return launch(*args, **kwargs)
        self._within, begun = True, _now()
        try:
            return launch(*args, **kwargs)
        finally:
            self._launch_times.append((_name_of(launch), begun, _now()))
            self._within = False

    def report(self) -> dict[str, Any]:
        """Return and forget the last call's times, in all and by kernel.

        For each kernel's name: the number of launches and the sum of their milliseconds. The
        kernels with the largest sums come first.
        """
        if self._whole is None:
            return {}
        launch_times: dict[str, list[float]] = {}
        for name, *span in self._launch_times:
            launch_times.setdefault(name, []).append(_between_ms(*span))
        found = [(name, [len(times), sum(times)]) for name, times in launch_times.items()]
        found.sort(key=lambda kernel: -kernel[1][1])
        whole, self._whole = self._whole, None
        return {"call_ms": _between_ms(*whole), "kernels": found[:_NAMED]}


_capturing = torch.cuda.is_current_stream_capturing


def _now() -> Any:
    if not torch.cuda.is_initialized():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between_ms(begun: Any, ended: Any) -> float:
    if isinstance(begun, float):
        return float(ended - begun) * 1e3
    ended.synchronize()
    return float(begun.elapsed_time(ended))


def _name_of(launch: Any) -> str:
    """Return the name of the kernel, operator or extension function that was launched."""
    for bound in (*getattr(launch, "args", ())[:1], launch):
        name = getattr(getattr(bound, "fn", bound), "__name__", "")
        if isinstance(name, str) and name:
            return name[:80]
    return "kernel"
