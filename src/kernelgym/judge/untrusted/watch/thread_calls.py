"""Records torch's operators in threads other than the calling one.

A dispatch mode holds for one thread, so the tracer sees no operator in a thread that C++ started
(``std::thread``, OpenMP, ``at::parallel_for``). torch's profiler can record all threads. It costs
about a millisecond a call, and is used only for extensions that both start threads and name
operators.

Does not see operators in threads that outlive the call, once it has returned, or those that are
called without the dispatcher.

Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["ThreadCalls"]

_OPERATORS = ("aten::", "mkldnn::", "mkl::", "onednn::", "quantized::")
_MARK = "kernelgym: the calling thread"
_MOST_NAMES = 50


class ThreadCalls:
    """The operators of other threads, from `begin` to `end`.

    Attributes:
        names: What ran in other threads in all calls so far; None if a call was not recorded.
    """

    def __init__(self) -> None:
        self.names: set[str] | None = set()
        self._running = False

    def begin(self) -> None:
        """Start to record all threads."""
        try:
            profiler: Any = torch._C._profiler
            extra = profiler._ExperimentalConfig(profile_all_threads=True)
            kinds = {torch.profiler.ProfilerActivity.CPU}
            off = [False] * 5  # shapes, memory, stacks, operations, modules
            config = torch.autograd.ProfilerConfig(torch.autograd.ProfilerState.KINETO, *off, extra)
            torch._C._autograd._prepare_profiler(config, kinds)
            torch._C._autograd._enable_profiler(config, kinds)
        except (AttributeError, TypeError, RuntimeError):
            self.names = None  # a torch without it, or the kernel profiles itself
            return
        self._running = True

    def end(self) -> None:
        """Stop recording; add what ran in other threads."""
        if not self._running:
            return
        self._running = False
        try:
            with torch.autograd.profiler.record_function(_MARK):
                pass
            events = torch._C._autograd._disable_profiler().events()
        except RuntimeError:
            self.names = None
            return
        own = {event.start_thread_id() for event in events if event.name() == _MARK}
        if self.names is None or len(own) != 1:
            self.names = None
            return
        for event in events:
            if event.start_thread_id() not in own and event.name().startswith(_OPERATORS):
                if len(self.names) < _MOST_NAMES:
                    self.names.add(event.name())
