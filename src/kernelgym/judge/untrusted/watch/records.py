"""Records what operators of torch a call ran, in all threads, and on a GPU their kernels.

A dispatch mode counts the operators of threads that it was entered in, as long as nothing hides
them from it. torch's profiler records each call of the dispatcher, whoever made it. So an operator
in the records that was not counted did work that nobody weighed: in a thread that C++ started, with
the key of dispatch modes excluded, or in code that ran while the mode handled something else. Marks
at both ends of a record tell whether the profiler was stopped, or started anew, in between.

Starting and ending a record takes one to two milliseconds without a GPU.

Does not see operators in threads that outlive the call, once it has returned, or those that are
called without the dispatcher. `watch_ways_past` notes the functions of torch's Python modules that
run operators without a record, or stop records.

Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

import functools
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

_ON_DEVICE: Any = torch._C._autograd.DeviceType.CUDA
# Taken here, before a kernel could replace them.
_autograd: Any = torch._C._autograd
_prepare: Any = getattr(_autograd, "_prepare_profiler", None)
_enable: Any = getattr(_autograd, "_enable_profiler", None)
_disable: Any = getattr(_autograd, "_disable_profiler", None)
_configuration: Any = torch.autograd.ProfilerConfig
_extra: Any = getattr(getattr(torch._C, "_profiler", None), "_ExperimentalConfig", None)

_Annotation: Any = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)

_OF_TORCH = frozenset(name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names())
"""Names, without overloads, of the operators that were registered before any kernel was loaded."""

Span = tuple[int, int, int, int, str]
"""Event on the host: thread, start and end in nanoseconds, correlation number, and name."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Events that the profiler recorded in a call."""

    named: list[Span]
    """Events of operators in all threads, and annotations that look like operators."""
    calls: list[Span]
    """Events of everything else that ran on the host, such as calls of CUDA's runtime."""
    kernels: list[Any]
    """Events of device kernels."""

    def launched_in(self, counted: Mapping[str, int]) -> dict[int, str]:
        """Return the counted operator that launched each kernel, by the kernel's number.

        A kernel bears the number of the call of CUDA's runtime or driver that launched it. That
        call belongs to the innermost operator that was open in its thread, if that operator was
        counted or ran in one that was.

        Args:
            counted: Number of times that each operator was counted, by its name with its namespace.
        """
        operators = counted_around(self.named, counted)
        known = {number for _, _, _, number, _ in self.named}
        found: dict[int, str] = {}
        around: list[Span] = []
        # Of what starts at the same time, operators come first.
        spans = [(*span[:2], -span[2], 0, span) for span in self.named]
        spans += [(*span[:2], -span[2], 1, span) for span in self.calls if span[3] not in known]
        for thread, start, _, is_call, span in sorted(spans):
            while around and (around[-1][0] != thread or around[-1][2] < start):
                around.pop()
            if not is_call:
                around.append(span)
            elif around and (operator := operators.get(around[-1][3])) is not None:
                found[span[3]] = operator
        return found


class CallRecorder:
    """Records the operators and device kernels of one call at a time, from `begin` to `end`."""

    def __init__(self) -> None:
        self.running = False
        """Whether a record was begun and not ended."""
        self._marks: set[str] = set()

    def begin(self, device: bool = False) -> None:
        """Start to record operators; if `device` is True, also the kernels of a GPU."""
        self.running = _begun(device) or (_stopped() and _begun(device))
        self._marks = set()
        self._mark()

    def end(self) -> CallRecord | None:
        """Stop recording; return the recorded events, or None if recording failed.

        Recording also failed if a mark is lacking, since the kernel stopped the profiler then.
        """
        if not self.running:
            return None
        self.running = False
        self._mark()
        try:
            events = _disable().events()
        except RuntimeError:
            return None
        named: list[Span] = []
        calls: list[Span] = []
        kernels = []
        for event in events:
            if event.device_type() == _ON_DEVICE:
                kernels.append(event)
                continue
            start, name = event.start_ns(), event.name()
            # Only this number of a thread is also known of calls of CUDA's runtime.
            thread, end = event.device_resource_id(), start + event.duration_ns()
            into = named if "::" in name else calls
            into.append((thread, start, end, event.correlation_id(), name))
        # The device has an event for each annotation of the host, which is no kernel.
        annotations = {(number, name) for _, _, _, number, name in (*named, *calls)}
        kernels = [k for k in kernels if (k.correlation_id(), k.name()) not in annotations]
        if not self._marks <= {name for _, _, _, _, name in calls}:
            return None
        return CallRecord(named, calls, kernels)

    def _mark(self) -> None:
        """Make an annotation in the record, by a new name."""
        if _Annotation is not None:
            name = f"mark {secrets.token_hex(8)}"
            self._marks.add(name)
            with _Annotation(name):
                pass


@dataclass(slots=True)
class _Open:
    """Operator that is still running at a moment of the record."""

    thread: int
    end: int
    name: str
    root: str
    """Name of the outermost counted operator around it, itself included; empty without one."""
    is_root: bool
    counted: bool = False
    """Whether a counted operator ran inside it."""


def counted_around(named: Iterable[Span], counted: Mapping[str, int]) -> dict[int, str]:
    """Return the operators that were counted, or ran inside one that was, by number.

    Args:
        named: Events of operators that ran.
        counted: Number of times that each operator was counted, by its name with its namespace.
    """
    return _swept(named, counted)[0]


def uncounted(
    named: Iterable[Span], counted: Mapping[str, int], handed_over: Mapping[str, int] | None = None
) -> set[str]:
    """Return the names of operators that ran neither inside a counted operator nor around one.

    Args:
        named: Events of operators that ran.
        counted: Number of times that each operator was counted, by its name with its namespace.
        handed_over: Number of times that a class of tensors handled an operator in torch's place.
    """
    _, lone, loose = _swept(named, counted)
    known = handed_over or {}
    return {name for name in lone if loose[name] > known.get(name, 0)}


def watch_ways_past(note: Callable[[str], None]) -> None:
    """Have functions that run operators without a record, or stop records, call `note` first.

    Honest kernels need none of them. They are called by name from anywhere, so they are replaced
    wherever torch keeps them.

    Args:
        note: Function that is called with the function's name.
    """

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            note(name)
            return function(*args, **kwargs)

        return call

    name = "_enable_record_function"
    switch: Any = getattr(_autograd, name)
    noted_switch = noted(name, switch)
    for module in [m for path, m in list(sys.modules.items()) if path.startswith("torch")]:
        if vars(module).get(name) is switch:
            setattr(module, name, noted_switch)
    fetch = "_dispatch_get_computed_kernel_for_dispatch_key"
    if (fetched := getattr(torch._C, fetch, None)) is not None:

        def kernel_of(name: str, *args: Any) -> Any:
            if name.partition(".")[0] in _OF_TORCH:
                note(name)
            return fetched(name, *args)

        setattr(torch._C, fetch, kernel_of)
    handle: Any = torch._C._DispatchOperatorHandle
    boxed = handle.redispatch_boxed

    def redispatch_boxed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (name := self.schema().name) in _OF_TORCH:
            note(name)
        return boxed(self, *args, **kwargs)

    handle.redispatch_boxed = redispatch_boxed
    overload: Any = torch._ops.OpOverload

    def by_key(self: Any) -> Any:
        call, name = self.__dict__["_op_dk"], self._schema.name
        # torch itself composes operators of others by it (`OpOverload.decompose`).
        asked_by_torch = sys._getframe(1).f_code.co_filename == torch._ops.__file__
        return noted(name, call) if name in _OF_TORCH and not asked_by_torch else call

    def set_by_key(self: Any, call: Any) -> None:
        self.__dict__["_op_dk"] = call

    overload._op_dk = property(by_key, set_by_key)


def _swept(
    named: Iterable[Span], counted: Mapping[str, int]
) -> tuple[dict[int, str], set[str], Counter[str]]:
    """Return operators inside counted ones, lone operators, and calls outside, as three tables."""
    outermost: dict[int, tuple[str, str]] = {}
    runs: Counter[str] = Counter()
    lone: set[str] = set()
    loose: Counter[str] = Counter()  # calls in no counted operator, by name
    around: list[_Open] = []

    def leave() -> None:
        left = around.pop()
        loose[left.name] += not left.root
        if not left.root and not left.counted:
            lone.add(left.name)
        elif around and around[-1].thread == left.thread:
            around[-1].counted = True

    for thread, _, end, number, name in sorted(named, key=lambda o: (o[0], o[1], -o[2])):
        while around and (around[-1].thread != thread or around[-1].end < end):
            leave()
        within = around[-1] if around else None
        root = within.root if within is not None else ""
        if within is not None and within.is_root and name != root:
            lone.add(name)  # torch calls the operator itself there, and the judge is not recorded
            loose[name] += 1
        is_root = not root and name in counted
        if is_root:
            root = name
            runs[name] += 1
        around.append(_Open(thread, end, name, root, is_root))
        outermost[number] = root, name
    while around:
        leave()
    for name, count in runs.items():
        if count > counted[name]:
            lone.add(name)
            loose[name] += count - counted[name]
    inside = {
        number: name
        for number, (root, name) in outermost.items()
        if root and runs[root] <= counted[root]
    }
    return inside, lone, loose


def _stopped() -> bool:
    """Stop a profiler that the kernel left on, if any."""
    try:
        _disable()
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True


def _begun(device: bool) -> bool:
    """Start the profiler; return False if that is impossible."""
    try:
        extra = _extra(profile_all_threads=True)
        kinds = {torch.profiler.ProfilerActivity.CPU}
        if device:
            kinds.add(torch.profiler.ProfilerActivity.CUDA)
        off = [False] * 5  # shapes, memory, stacks, operations, modules
        config = _configuration(torch.autograd.ProfilerState.KINETO, *off, extra)
        _prepare(config, kinds)
        _enable(config, kinds)
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True
