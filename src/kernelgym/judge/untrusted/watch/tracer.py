"""Watches a kernel's calls for evidence: its custom launches and the work it leaves to torch.

While calls are made, a `Tracer` is in one of five modes:

- ``record`` counts the launches of custom kernels, how many of them did something, and the work of
  torch's operators (`operator_work.py`);
- ``ablate`` makes the same calls without the custom kernels: it skips Triton and NVRTC launches,
  overwrites what functions of extensions return or change, and fills new memory from the allocator
  with NaN;
- ``device`` lists the device kernels that ran, a GPU's alone (`device_kernels.py`);
- ``profile`` times the custom launches (`launch_times.py`);
- ``off`` watches nothing.

A custom launch is a launch of a Triton kernel or of an NVRTC kernel
(`torch.cuda._compile_kernel`), or a call of a function or operator of an extension built through
`torch.utils.cpp_extension`. The tracer also counts values that move between torch and the rest of
Python (`host_transfers.py`) and, on the CPU, writes to memory made by neither torch nor an
interpreted kernel (`host_memory.py`). `torch.compile` returns its argument unchanged while a tracer
watches: generated code is no custom kernel.

It names operators that ran where they are not counted, as in threads that C++ started
(`records.py`), but sees none that are called without the dispatcher.

Loaded by path in the untrusted process: standard library, torch and triton only. Code in the same
process can undo everything here. The tracer therefore decides about honest and lazy kernels; it is
no security boundary against hostile ones.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

_MOST_POINTERS = 4096  # in one tensor; more numbers are data
_LOWEST = 1 << 16  # no memory is mapped below
_MOST_NAMES = 200
_MOST_LETTERS = 1000


class Tracer:
    """Watches the calls that one process makes.

    Call `begin` before any kernel code is loaded, then set modes with `mode`. A tracer made before
    a fork saves every child the work of making one.

    Args:
        launches: The process's `Launches`, from `launches.py`.
        host_transfers: The module `host_transfers.py`.
        operator_work: The module `operator_work.py`.
        host_memory: The module `host_memory.py`.
        prints: The module `fingerprint.py`.
        launch_times: The module `launch_times.py`.
        records: The module `records.py`.
        device_kernels: The module `device_kernels.py`.
    """

    def __init__(
        self,
        launches: Any,
        host_transfers: ModuleType,
        operator_work: ModuleType,
        host_memory: ModuleType,
        prints: ModuleType,
        launch_times: ModuleType,
        records: ModuleType,
        device_kernels: ModuleType,
    ) -> None:
        self._fingerprint, self._poison = prints.fingerprint, prints.poison
        self._without_numbers = prints.without_numbers
        self._tensors_in, self._capturing = operator_work.tensors_in, operator_work.is_capturing
        self._mode = "off"
        self._inside = False
        self._by_address: set[str] = set()  # functions that take no tensors and return nothing
        self._compiled = self._captured = self._hidden = False
        self._counter = _poisoning(operator_work, prints.poison)
        self._counter.active = False
        self._launches = self._working = 0
        self._profilers = {
            "profile": launch_times.LaunchTimes(),
            "device": device_kernels.DeviceKernels(self._counter, records),
        }
        self._recorder, self._find_uncounted = records.CallRecorder(), records.uncounted
        self._of_torch = operator_work.computes_alone
        self._uncounted: set[str] | None = set()
        self._past_records: set[str] = set()
        self._handed: set[str] = set()
        self._computing = host_transfers.computing
        self._records = True
        self._compiled_names: set[str] = set()
        self._host_transfers = host_transfers.HostTransfers(self._counts, prints.fingerprint)
        self._counter.on_item, self._counter.on_lift = (
            self._host_transfers.add,
            self._host_transfers.lifted,
        )
        self._host_memory = host_memory.HostMemory(prints.fingerprint, self._host_transfers.written)
        self._counter.host_memory, self._existing = self._host_memory, host_memory.existing
        self._of_process = launches
        self.begun = False
        """True from `begin` until `rest`."""
        _replace_compile(self)
        _leave_copies_out(self)
        _watch_python_operators(self)
        _watch_threads(self)
        records.watch_ways_past(self._past_records.add)

    def begin(self, records: bool = True) -> Tracer:
        """Start to watch; return this tracer.

        Args:
            records: Whether recorded calls name operators that were not counted. The profiler
                starts a thread for it, after which no process may be forked.
        """
        self.begun, self._of_process.watcher, self._records = True, self, records
        self._host_transfers.begin()
        return self

    def rest(self) -> None:
        """Stop watching until `begin` and forget everything seen."""
        self.mode("off")
        self.begun, self._of_process.watcher = False, None
        self._of_process.count = 0
        self._by_address.clear()
        self._compiled_names.clear()
        self._past_records.clear()
        self._handed.clear()
        self._compiled = self._captured = self._hidden = False
        self._host_transfers.rest()

    def mode(self, mode: str) -> dict[str, Any]:
        """Change the mode; return the report since the last change."""
        counter, uncounted = self._counter, self._uncounted
        report = {
            "launches": self._launches,
            "working": self._working,
            "compiled": self._compiled,
            "captured": self._captured,
            "hidden": self._hidden,
            **_counted(counter.work),
            "in_graphs": _counted(counter.captured) if counter.captured.bytes else None,
            "crossed": self._host_transfers.bytes,
            "host_transfers": sorted(self._host_transfers.ways),
            "library": self._host_transfers.library,
            "uncounted": None
            if uncounted is None
            else sorted(uncounted | self._past_records)[:_MOST_NAMES],
            "handed": sorted(self._handed)[:_MOST_NAMES],
            "compiled_names": sorted(self._compiled_names),
            **self._profilers["profile"].report(),
            **self._profilers["device"].report(),
        }
        counter.reset()
        self._host_transfers.reset()
        self._launches = self._working = 0
        self._uncounted = set()
        self._mode = mode
        counter.poisoning = mode == "ablate"
        return report

    def call(self, model: Any, arguments: list[Any]) -> Any:
        """Call a model in the current mode."""
        if self._mode == "off":
            return model(*arguments)
        if (profiler := self._profilers.get(self._mode)) is not None:
            self._inside = True
            try:
                return profiler.call(model, arguments)
            finally:
                self._inside = False
        before = self._quietly(self._host_transfers.prints)
        if self._mode == "record" and not torch.cuda.is_initialized():
            self._quietly(lambda: self._host_memory.begin(self._existing(model)))
        if self._mode == "record" and self._records:
            self._quietly(self._recorder.begin)
        self._inside = self._counter.active = True
        try:
            with self._counter:
                result = model(*arguments)
            self._end_record()
            self._quietly(lambda: self._host_memory.reads(self._tensors_in(result)))
            return result
        finally:
            self._inside = self._counter.active = False
            self._end_record()
            self._host_memory.end()
            given = list(self._tensors_in(arguments))
            self._quietly(lambda: self._host_transfers.compare(before, given))

    def _end_record(self) -> None:
        """Record which operators of torch ran in a recorded call without being counted."""
        if self._mode != "record" or not self._recorder.running:
            return
        record = self._quietly(self._recorder.end)
        if record is None or self._uncounted is None:
            self._uncounted = None
            return
        counter = self._counter
        lone = self._find_uncounted(record.named, counter.names, counter.handed_over)
        self._uncounted |= {name for name in lone if self._of_torch(name)}

    def inside(self) -> bool:
        """Return True while a watched call runs."""
        return self._inside

    def is_skipping(self) -> bool:
        """Return True if launches are skipped at this moment."""
        return self._inside and self._mode == "ablate"

    def unseen_replay(self) -> None:
        """Record that a CUDA graph was replayed whose capture no watched call saw."""
        self._hidden = self._hidden or self._counts()

    def _counts(self) -> bool:
        """Return True if a kernel is running in a recorded call at this moment."""
        return self._inside and self._mode == "record" and not self._counter.paused

    def boundary(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call an extension's function and count it; when ablating, overwrite its results."""
        names = self._computing((args, kwargs))
        self._handed.update(name[:_MOST_LETTERS] for name in names)
        if not self._inside:
            return function(*args, **kwargs)
        if self._mode == "record":
            self._host_memory.end()  # native code may write anywhere, at any time
            return self._recorded(function, args, kwargs)
        if (profiler := self._profilers.get(self._mode)) is not None:
            return profiler.launch(function, args, kwargs)
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
        """Launch a kernel and count it, or skip it and return `skip()`; note its compiled name."""
        made = self._launched(launch, args, kwargs, skip)
        named = (getattr(made, "name", None), getattr(launch, "compiled_name", None))
        for name in (*named, *getattr(launch, "compiled_names", ())):
            if isinstance(name, str) and len(self._compiled_names) < _MOST_NAMES:
                self._compiled_names.add(name[:_MOST_LETTERS])
        return made

    def launch_of_a_library(self, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Launch an installed package's Triton kernel, counted as an operator of unknown cost."""
        if self._counts():
            self._quietly(lambda: self._counter.work.add("triton_kernel", args, kwargs, None))
        return launch(*args, **kwargs)

    def _launched(self, launch: Callable[..., Any], args: Any, kwargs: Any, skip: Any) -> Any:
        if not self._inside:
            return launch(*args, **kwargs)
        if self._mode == "record":
            return self._recorded(launch, args, kwargs)
        if (profiler := self._profilers.get(self._mode)) is not None:
            return profiler.launch(launch, args, kwargs)
        return None if skip is None else skip()

    def _recorded(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._captured = self._captured or self._capturing()
        given = list(self._tensors_in((args, kwargs)))
        given += self._quietly(lambda: [*self._pointed_to(given)]) or ()
        self._quietly(lambda: self._host_memory.reads(given))
        try:
            return self._looked_at(call, args, kwargs, given)
        finally:
            self._quietly(lambda: self._host_memory.wrote(given))

    def _pointed_to(self, given: list[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Yield the tensors whose addresses a launch is given as integers.

        A kernel for a group of matrices takes arrays of pointers; its output is only there.
        """
        if self._capturing():
            return  # reading a value would end the capture
        addresses: set[int] = set()
        for tensor in given:
            if tensor.dtype in (torch.int64, torch.uint64) and tensor.numel() <= _MOST_POINTERS:
                addresses.update(value for value in tensor.flatten().tolist() if value > _LOWEST)
        if addresses:
            for tensor in self._existing(None):
                if tensor.layout is torch.strided and tensor.data_ptr() in addresses:
                    yield tensor

    def _looked_at(
        self, call: Callable[..., Any], args: Any, kwargs: Any, given: list[torch.Tensor]
    ) -> Any:
        """Make a call; note whether it changed a tensor or returned new values."""
        if self._working:  # one is enough: fingerprints of large tensors are slow
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
        """Return True if a call returned or wrote more than copies of its arguments."""
        after = self._prints(given)
        returned = list(self._tensors_in(result))
        given_back = self._prints(returned)
        if after is None or given_back is None:
            return True
        known = set(before)
        new = [b for a, b in zip(before, after, strict=True) if a != b] + given_back
        # Without any tensor nothing can be compared: pointers were passed as numbers.
        return any(mark not in known for mark in new) or not (given or returned)

    def _prints(self, tensors: list[torch.Tensor]) -> list[Any] | None:
        """Return each tensor's fingerprint; None during a graph capture or if unreadable."""
        if self._capturing():
            return None
        prints: list[Any] | None = self._quietly(lambda: [*map(self._fingerprint, tensors)])
        return prints

    def reentering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an operator's implementation so that operators inside it are counted."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._counter.reentered():
                result = function(*args, **kwargs)
            self._quietly(lambda: self._host_memory.reads(self._tensors_in(result)))
            return result

        return call

    def uncounted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its use of torch is not counted."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            was, self._counter.paused = self._counter.paused, True
            try:
                return function(*args, **kwargs)
            finally:
                self._counter.paused = was

        return call

    def _quietly(self, work: Callable[[], Any]) -> Any:
        """Run the judge's own work without counting it; return None if torch refuses it."""
        try:
            with torch.no_grad():
                return self.uncounted(work)()
        except (RuntimeError, NotImplementedError):
            return None


def _poisoning(operator_work: ModuleType, poison: Callable[[torch.Tensor], None]) -> Any:
    class Poisoning(operator_work.Counter):  # type: ignore[name-defined, misc]
        """Counter of operators that can also fill newly allocated memory with wrong values."""

        poisoning = False

        def after(self, func: Any, result: Any) -> None:
            """Fill the tensors that an allocating operator returned with wrong values."""
            if self.poisoning:
                name = func._schema.name.rpartition("::")[2].removesuffix("_")
                if name in operator_work.ALLOCATIONS:
                    for tensor in operator_work.tensors_in(result):
                        poison(tensor)

    return Poisoning()


def _counted(counts: Any) -> dict[str, Any]:
    return {
        "bytes": dict(counts.bytes),
        "moved": dict(counts.moved),
        "products": counts.products + counts.estimated,
        "elements": counts.elements,
    }


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
    """Count the operators inside of operators that are implemented in Python."""
    library: Any = torch.library.Library
    implement = library.impl

    def implemented(self: Any, name: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        if callable(function):
            function = tracer.reentering(function)
        return implement(self, name, function, *args, **kwargs)

    library.impl = implemented


def _watch_threads(tracer: Tracer) -> None:
    """Enter the counter's dispatch mode in every thread that Python starts.

    A dispatch mode holds for one thread only. Threads started before a call enter it too: they may
    do the call's work while it runs.
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
