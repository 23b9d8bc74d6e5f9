"""What a kernel's process watches, for evidence: its custom launches, and torch's share.

A `Tracer` is in one of four modes while calls are made. ``record`` counts the launches of
custom kernels, how many of them did something, and what torch's operators did (`operator_work.py`).
``ablate`` makes the same calls with the custom kernels taken out: Triton and NVRTC launches are
skipped, what functions of extensions return or change is overwritten, and memory fresh from the
allocator is filled with NaN. ``profile`` times the custom launches
(`launch_times.py`). ``off`` watches nothing.

Custom kernels are launches of Triton kernels, of NVRTC kernels (`torch.cuda._compile_kernel`), and
calls of functions and operators of extensions built through `torch.utils.cpp_extension`. What
crosses to the host's side of Python is counted too (`host_transfers.py`), and on the CPU what was
written to memory past torch and interpreted kernels (`host_memory.py`). Not seen: torch operators
in threads that C++ started, or called past the dispatcher. `torch.compile` returns its argument
unchanged here: what it generates is no custom kernel.

Loaded by path in the untrusted process: standard library, torch and triton only. All of it can
be undone by code in the same process, so it decides about honest kernels and lazy ones, and is
no boundary against hostile ones.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

__all__ = ["Tracer"]


class Tracer:
    """Watches one process from `begin` on, which comes before any kernel code; then set `mode`s.

    Made before a fork, it costs the children nothing that they would all do alike.

    Args:
        launches: The process's `Launches`, of `launches.py`.
        host_transfers: The module `host_transfers.py`.
        operator_work: The module `operator_work.py`.
        host_memory: The module `host_memory.py`.
        prints: The module `fingerprint.py`.
        launch_times: The module `launch_times.py`.
    """

    def __init__(
        self,
        launches: Any,
        host_transfers: ModuleType,
        operator_work: ModuleType,
        host_memory: ModuleType,
        prints: ModuleType,
        launch_times: ModuleType,
    ) -> None:
        self._fingerprint, self._poison = prints.fingerprint, prints.poison
        self._without_numbers = prints.without_numbers
        self._tensors_in = operator_work.tensors_in
        self._mode = "off"
        self._inside = False
        self._by_address: set[str] = set()  # functions that take no tensors and return nothing
        self._compiled = self._captured = self._hidden = False
        self._counter = _poisoning(operator_work, prints.poison)
        self._counter.active = False
        self._launches = self._working = 0
        self._launch_times = launch_times.LaunchTimes()
        self._host_transfers = host_transfers.HostTransfers(self._counts, prints.fingerprint)
        self._counter.on_item, self._counter.on_lift = (
            self._host_transfers.add,
            self._host_transfers.lifted,
        )
        self._host_memory = host_memory.HostMemory(prints.fingerprint, self._host_transfers.written)
        self._counter.host_memory, self._existing = self._host_memory, host_memory.existing
        self._of_process = launches
        self.begun = False
        """Whether it watches."""
        _replace_compile(self)
        _leave_copies_out(self)
        _watch_python_operators(self)
        _watch_threads(self)

    def begin(self) -> Tracer:
        """Watch from now on; returns the tracer."""
        self.begun, self._of_process.watcher = True, self
        self._host_transfers.begin()
        return self

    def rest(self) -> None:
        """Watch nothing until it begins anew, as if nothing had been seen."""
        self.mode("off")
        self.begun, self._of_process.watcher = False, None
        self._of_process.count = 0
        self._by_address.clear()
        self._compiled = self._captured = self._hidden = False
        self._host_transfers.rest()

    def mode(self, mode: str) -> dict[str, Any]:
        """Change the mode; return what was seen since the last change."""
        counter = self._counter
        report = {
            "launches": self._launches,
            "working": self._working,
            "compiled": self._compiled,
            "captured": self._captured,
            "hidden": self._hidden,
            "bytes": dict(counter.bytes),
            "products": counter.products + counter.estimated,
            "elements": counter.elements,
            "crossed": self._host_transfers.bytes,
            "host_transfers": sorted(self._host_transfers.ways),
            "library": self._host_transfers.library,
            **self._launch_times.report(),
        }
        counter.reset()
        self._host_transfers.reset()
        self._launches = self._working = 0
        self._mode = mode
        counter.poisoning = mode == "ablate"
        return report

    def call(self, model: Any, arguments: list[Any]) -> Any:
        """Call a model in the present mode."""
        if self._mode == "off":
            return model(*arguments)
        if self._mode == "profile":
            self._inside = True
            try:
                return self._launch_times.call(model, arguments)
            finally:
                self._inside = False
        before = self._quietly(self._host_transfers.prints)
        if self._mode == "record" and not torch.cuda.is_initialized():
            self._quietly(lambda: self._host_memory.begin(self._existing(model)))
        self._inside = self._counter.active = True
        try:
            with self._counter:
                result = model(*arguments)
            self._quietly(lambda: self._host_memory.reads(self._tensors_in(result)))
            return result
        finally:
            self._inside = self._counter.active = False
            self._host_memory.end()
            given = list(self._tensors_in(arguments))
            self._quietly(lambda: self._host_transfers.compare(before, given))

    def inside(self) -> bool:
        """Say whether a call is being made."""
        return self._inside

    def unseen_replay(self) -> None:
        """Note the replay of a CUDA graph that was captured outside of calls."""
        self._hidden = self._hidden or self._counts()

    def _counts(self) -> bool:
        """Say whether what happens now is the kernel's, in a call that is recorded."""
        return self._inside and self._mode == "record" and not self._counter.paused

    def boundary(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function of an extension: count it, or poison all that it gives."""
        if not self._inside:
            return function(*args, **kwargs)
        if self._mode == "record":
            self._host_memory.end()  # native code may write wherever it likes, at any time
            return self._recorded(function, args, kwargs)
        if self._mode == "profile":
            return self._launch_times.launch(function, args, kwargs)
        given = list(self._tensors_in((args, kwargs)))
        if not given and getattr(function, "__name__", "") in self._by_address:
            return None
        before = self._prints(given)
        result = function(*args, **kwargs)
        after = self._prints(given)
        changed = given
        if before is not None and after is not None:
            changed = [t for t, a, b in zip(given, before, after, strict=True) if a != b]
        for tensor in (*changed, *self._tensors_in(result)):
            self._quietly(functools.partial(self._poison, tensor))
        return self._without_numbers(result)

    def launch(self, launch: Callable[..., Any], args: Any, kwargs: Any, skip: Any = None) -> Any:
        """Launch a kernel: count it, or skip it (through `skip`, if there is more to do)."""
        if not self._inside:
            return launch(*args, **kwargs)
        if self._mode == "record":
            return self._recorded(launch, args, kwargs)
        if self._mode == "profile":
            return self._launch_times.launch(launch, args, kwargs)
        return None if skip is None else skip()

    def _recorded(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._captured = self._captured or _capturing()
        given = list(self._tensors_in((args, kwargs)))
        self._quietly(lambda: self._host_memory.reads(given))
        try:
            return self._looked_at(call, args, kwargs, given)
        finally:
            self._quietly(lambda: self._host_memory.wrote(given))

    def _looked_at(
        self, call: Callable[..., Any], args: Any, kwargs: Any, given: list[torch.Tensor]
    ) -> Any:
        """Make a call, and note whether it did something."""
        if self._working:  # one that works is enough, and prints of large tensors take time
            result = call(*args, **kwargs)
            self._launches += 1
            return result
        before = self._prints(given)
        result = call(*args, **kwargs)
        self._launches += 1
        if result is None and not given:
            self._by_address.add(getattr(call, "__name__", ""))
        self._working += before is None or self._works(given, before, result)
        return result

    def _works(self, given: list[Any], before: list[Any], result: Any) -> bool:
        """Say whether a call gave more than copies of what it was given."""
        after = self._prints(given)
        returned = list(self._tensors_in(result))
        given_back = self._prints(returned)
        if after is None or given_back is None:
            return True
        known = set(before)
        new = [b for a, b in zip(before, after, strict=True) if a != b] + given_back
        # Without any tensor there is nothing to compare: pointers were passed as numbers.
        return any(mark not in known for mark in new) or not (given or returned)

    def _prints(self, tensors: list[torch.Tensor]) -> list[Any] | None:
        """Return a fingerprint of each tensor's values; None where reading them is not allowed."""
        if _capturing():
            return None
        prints: list[Any] | None = self._quietly(lambda: [*map(self._fingerprint, tensors)])
        return prints

    def reentering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return an operator's implementation that is watched inside."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._counter.reentered():
                result = function(*args, **kwargs)
            self._quietly(lambda: self._host_memory.reads(self._tensors_in(result)))
            return result

        return call

    def uncounted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose use of torch is not the kernel's."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            was, self._counter.paused = self._counter.paused, True
            try:
                return function(*args, **kwargs)
            finally:
                self._counter.paused = was

        return call

    def _quietly(self, work: Callable[[], Any]) -> Any:
        """Do work of ours that is not the kernel's; None if these tensors do not allow it."""
        try:
            with torch.no_grad():
                return self.uncounted(work)()
        except (RuntimeError, NotImplementedError):
            return None


def _poisoning(operator_work: ModuleType, poison: Callable[[torch.Tensor], None]) -> Any:
    class Poisoning(operator_work.Counter):  # type: ignore[name-defined, misc]
        """A counter that can fill memory fresh from the allocator."""

        poisoning = False

        def after(self, func: Any, result: Any) -> None:
            """Fill what an allocating operator returned."""
            if self.poisoning:
                name = func._schema.name.rpartition("::")[2].removesuffix("_")
                if name in operator_work.ALLOCATIONS:
                    for tensor in operator_work.tensors_in(result):
                        poison(tensor)

    return Poisoning()


def _capturing() -> bool:
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _replace_compile(tracer: Tracer) -> None:
    module: Any = torch.nn.Module
    own, own_in_place = torch.compile, module.compile

    @functools.wraps(own)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not tracer.begun:
            return own(model, *args, **kwargs)
        tracer._compiled = True
        return (lambda given: given) if model is None else model

    @functools.wraps(own_in_place)
    def compile_module(self: Any, *args: Any, **kwargs: Any) -> None:
        if not tracer.begun:
            return own_in_place(self, *args, **kwargs)  # type: ignore[no-any-return]
        tracer._compiled = True
        return None

    torch.compile = compile
    module.compile = compile_module


def _leave_copies_out(tracer: Tracer) -> None:
    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is not None:
        for name in ("_init_args_hst", "_restore_args_dev"):  # copies to the host and back
            own = getattr(interpreter.GridExecutor, name)
            setattr(interpreter.GridExecutor, name, tracer.uncounted(own))


def _watch_python_operators(tracer: Tracer) -> None:
    """Operators implemented in Python: what they do inside is counted, not what they are called."""
    library: Any = torch.library.Library
    implement = library.impl

    def implemented(self: Any, name: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        if callable(function):
            function = tracer.reentering(function)
        return implement(self, name, function, *args, **kwargs)

    library.impl = implemented


def _watch_threads(tracer: Tracer) -> None:
    """Dispatch modes are a thread's own: enter ours in every thread that Python starts.

    Also in those started before a call: they may do their work while one is made.
    """
    import _thread

    thread: Any = threading.Thread
    run, start = thread._bootstrap_inner, _thread.start_new_thread

    def started(self: Any) -> None:
        with tracer._counter:
            return run(self)  # type: ignore[no-any-return]

    def start_new_thread(function: Any, args: Any, kwargs: Any = None) -> int:
        def counted() -> None:
            with tracer._counter:
                function(*args, **(kwargs or {}))

        return start(counted, ())

    thread._bootstrap_inner = started
    _thread.start_new_thread = start_new_thread
