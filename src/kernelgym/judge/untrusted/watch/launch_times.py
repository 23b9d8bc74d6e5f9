"""What the custom launches of a call take of its time, by the device's own clock where it has one.

On a CUDA device an idle pause goes before the call, so that the host has launched everything by
the time that the device begins: what is measured is the device, not Python. Launches on other
streams than the current one, and those within CUDA graphs, are not seen.

Loaded by path in the untrusted process: standard library and torch only. What it reports decides
nothing; it is told to whoever wrote the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["LaunchTimes"]

_HEAD_START_CYCLES = 20_000_000  # about 10 ms
_NAMED = 16


class LaunchTimes:
    """Times one call after another; remembers the last."""

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
        """Make a launch and time it; one within another belongs to that."""
        if self._within or (torch.cuda.is_initialized() and _capturing()):
            return launch(*args, **kwargs)
        self._within, begun = True, _now()
        try:
            return launch(*args, **kwargs)
        finally:
            self._launch_times.append((_name_of(launch), begun, _now()))
            self._within = False

    def report(self) -> dict[str, Any]:
        """Return the time of the last call and that of its custom kernels, and forget both.

        By name: how many launches, and their milliseconds together; the longest first.
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
    """Return the name of a Triton function, an operator or a function of an extension."""
    for bound in (*getattr(launch, "args", ())[:1], launch):
        name = getattr(getattr(bound, "fn", bound), "__name__", "")
        if isinstance(name, str) and name:
            return name[:80]
    return "kernel"
