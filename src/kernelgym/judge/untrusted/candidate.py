"""The candidate process: receives inputs, runs the kernel and returns output bytes, nothing else.

It never holds the reference model, the reference's outputs or source, or a verdict. No message it
can send says "correct": the trusted side reads the clock and compares the bytes. The zygote loads
this file by path before it forks: standard library and torch only, plus the files of
`CandidateParts`.

Every request carries a nonce, which the answer repeats. The requests are:

- ``context``: make the CUDA context; on a CUDA device this request comes first;
- ``slots``: map shared memory (from a descriptor) or shared device memory (from a handle);
- ``release``: close shared device memory;
- ``load``: import the source; for a ``target`` launches only compile: ``compiled`` counts them;
- ``construct``: build the model;
- ``state``: copy values of a memory file (from a descriptor) into parameters, by name;
- ``prepare``: lay tensors over the inputs and outputs of the next calls;
- ``go``: make one prepared call per seed; the input values are in place by then. If the calls are
  not timed, the inputs of one of them may be written late, and outputs be overwritten after they
  were copied. On a CUDA device the answer is sent when the whole device has finished;
- ``capture``: record the prepared calls in a CUDA graph, which ``go`` replays;
- ``trace``: watch calls, as `tracer.py` does;
- ``launches``: report the distinct launches of interpreted kernels, as `launch_record.py` does;
- ``front_end``: compile such a report as far as `front_end.py` does. Only a process that was given
  no kernel receives this request;
- ``graph_kernels``: replay the captured graph once and list its kernels, as
  `device_kernels.py` does;
- ``compilation``: report cache misses of `torch.compile`. Only a process that holds the reference
  and was loaded with ``compile`` receives this request.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch

SOURCE_NAME = "kernel.py"

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
# Seeds the CPU only: torch.manual_seed asks every backend and takes 100 times as long.
_seed_all = torch.default_generator.manual_seed
_no_grad = torch.no_grad
_LATE_BYTES = 64 << 10  # of each input of a captured call
_seed_device = torch.cuda.manual_seed


@dataclass(frozen=True, slots=True)
class CandidateParts:
    """Other files of this folder; the zygote loads them before it forks."""

    protocol: ModuleType
    channel: ModuleType
    buffers: ModuleType
    cuda_ipc: ModuleType
    graph_order: ModuleType
    captured_graph: ModuleType
    parameters: ModuleType
    outputs: ModuleType
    unseen: ModuleType
    error_report: ModuleType
    extension_stub: ModuleType
    torch_compile: ModuleType
    triton_tools: ModuleType
    front_end: ModuleType
    as_gpu: Callable[[bool, bool], None]
    """Sets whether the interpreter behaves as a GPU where Triton leaves that open, and whether the
    device ``cuda`` means the CPU."""
    launches: Any
    """This process's `Launches`, from `watch/launches.py`."""
    new_tracer: Callable[[], Any]
    """Makes this process's `Tracer`, from `watch/tracer.py`."""
    untried_configs: Callable[[], int]
    """Returns how many configs of an autotuned kernel no interpreted launch has taken yet."""
    device_kernels: ModuleType
    records: ModuleType
    streams: Any
    """This process's `StreamOrder`, from `triton/stream_order.py`; None without an interpreter."""
    half: ModuleType  # the language's own, from the folder `languages`
    recorder: Any = None
    """This process's `Recorder`, from `triton/launch_record.py`; None without an interpreter."""


def serve(
    channel: socket.socket, scratch: str, parts: CandidateParts, device: str, shared: str = ""
) -> None:
    """Answer requests until the trusted side closes the channel.

    Args:
        channel: The socket to the trusted side.
        scratch: The folder that this process may write to.
        parts: The other files of this folder.
        device: The device that the candidate runs on.
        shared: A handle of device memory, which this process opens and closes before it answers
            requests: the zygote's trial of a sandbox tier sets it.
    """
    inbox = parts.channel.Inbox(channel, parts.protocol)
    state = _State(scratch, parts, torch.device(device))
    if shared:
        state.make_context()
        state.open(shared, 0)
        state.release([0])
    inbox.send({"standby": True})

    def request_build(arguments: dict[str, Any]) -> dict[str, Any]:
        reply, fds = inbox.build(arguments)  # from any thread, and after a request ended
        return {**reply, "fds": fds}

    while True:
        try:
            request, fds = inbox.request()
        except EOFError:
            return
        reply: dict[str, Any] = {"nonce": request["nonce"]}
        try:
            match request["op"]:
                case "context":
                    state.make_context()
                case "slots":
                    if "memory" in request:
                        state.open(request["memory"], request["arena"])
                    else:
                        state.buffers.map(fds[0], request["bytes"])
                case "release":
                    state.release(request["arenas"])
                case "load":
                    if request["compile"]:
                        parts.torch_compile.begin(scratch, fds)
                    elif device != "cpu" or request["target"]:
                        parts.triton_tools.replace_tools(request_build)
                    state.load(request, request_build)
                case "construct":
                    state.construct(request)
                case "state":
                    at = fds[0], request["bytes"]
                    reply["missing"] = state.replace_state(request["values"], *at, request["later"])
                case "prepare":
                    state.prepare(request["calls"])
                case "go":
                    asked = request.get("late"), request.get("spoil", ()), request["fresh"]
                    reply["results"] = state.go(request["seeds"], request["timed"], *asked)
                    reply["launches"] = state.launched
                    reply["untried"] = parts.untried_configs()
                    if device != "cpu":
                        reply["device_ms"] = state.clock.ms
                case "trace":
                    reply["seen"] = state.trace(request["mode"])
                case "compiled":
                    reply["compiled"] = state.compiled()
                case "launches":
                    if parts.recorder is not None:
                        reply["record"] = parts.recorder.report(state.source_file)
                case "front_end":
                    given = request["record"], request["target"], parts.error_report.describe_error
                    reply["refused"] = parts.front_end.refusals(*given, request["whole"])
                case "capture":
                    how = request["tells"], request["late"], request["change_at"]
                    reply["results"] = state.capture(*how)
                case "graph_kernels":
                    reply["seen"] = state.graph_kernels()
                case "compilation":
                    if request["save"]:
                        parts.torch_compile.save(scratch)
                    reply["misses"] = parts.torch_compile.misses()
                    reply["frames"] = parts.torch_compile.frames()
        except BaseException as error:
            reply["error"] = parts.error_report.describe_error(error, state.source_file)
            reply["error"] |= parts.half.describe_error(error, state.source_file)
        parts.error_report.flush_output()
        inbox.send(reply)


class _State:
    def __init__(self, scratch: str, parts: CandidateParts, device: torch.device) -> None:
        self.source_file = os.path.join(scratch, SOURCE_NAME)
        self._parts, self._device = parts, device
        self._unseen = parts.unseen.Unseen
        self.clock: Any = None  # of a CUDA device
        self.buffers = parts.buffers.Buffers(parts.cuda_ipc, parts.outputs.describe, device)
        self._export, self._copied = parts.outputs.export, parts.outputs.copied
        self._overwrite = partial(parts.outputs.overwrite, below=parts.unseen.below)
        self._launches, self._new_tracer = parts.launches, parts.new_tracer
        self._streams = parts.streams
        self._parameters = parts.parameters.NewParameters(parts.buffers.views_of_file)
        self.launched = 0  # launches of custom kernels in the last calls
        self.compiled: Callable[[], int] = lambda: 0  # for a GPU that is not there
        self._in_graph = 0
        self._tracer: Any = None
        self._entry: Any = None
        self._compiles = False
        self._model: Any = None
        self._calls: list[tuple[list[Any], list[torch.Tensor] | None]] = []
        self._graph: Any = None
        self._graph_results: list[Any] | None = None
        self._kept: list[Any] = []  # outputs of the last window, which the trusted side reads
        self._compared = 1  # calls of the largest window whose outputs were compared
        self._copies = False  # whether outputs lie in memory that cannot be read after a window
        if device.type == "cuda":
            # Takes as long as making a context, but makes nothing on the device: doing it now
            # saves that time under the device lock.
            ctypes.CDLL("libcuda.so.1").cuInit(0)

    def make_context(self) -> None:
        """Make this process's CUDA context."""
        torch.cuda.set_device(self._device)
        self._touched = torch.zeros(1, device=self._device)
        self.clock = self._parts.unseen.Clock()
        self.clock.finish()

    def open(self, handle: str, number: int) -> None:
        """Open one of the trusted side's allocations on the device."""
        self._forget_calls()
        self.buffers.open(handle, number)

    def release(self, numbers: list[int]) -> None:
        """Close shared allocations on the device."""
        self._forget_calls()
        self.buffers.release(numbers)

    def _forget_calls(self) -> None:
        self._calls, self._graph, self._kept = [], None, []

    def load(self, request: dict[str, Any], request_build: Any) -> None:
        """Import the source as a module and look up its entry class."""
        if self._device.type == "cuda" and not request["tf32"]:
            # A kernel may leave parts to torch: its fp32 operators compute in fp32, as they do in
            # the reference.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._parts.as_gpu(request["as_gpu"], request["cuda_on_cpu"])
        if request["records"] and self._parts.recorder is not None:
            self._parts.recorder.begin()
        self._parts.extension_stub.replace_extension_builds(request_build)
        self._launches.count_extensions()
        self.compiled = self._parts.half.begin(request_build, request["target"])
        with open(self.source_file, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(request["source"])
        spec = importlib.util.spec_from_file_location("kernel", self.source_file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look modules up there
        spec.loader.exec_module(module)
        self._entry, self._compiles = getattr(module, request["entry"], None), request["compile"]
        if not isinstance(self._entry, type):
            raise AttributeError(f"the module defines no class {request['entry']}")

    def construct(self, request: dict[str, Any]) -> None:
        """Build the model under the seed that the reference was built under."""
        arguments = [self.buffers.decode(value) for value in request["args"]]
        _seed_all(request["seed"])
        random.seed(request["seed"])
        with _no_grad():
            self._model = self._entry(*arguments)
        if isinstance(self._model, torch.nn.Module):
            cast = request["dtype"]  # empty: parameters keep the types that the kernel made them in
            self._model.to(self._device, getattr(torch, cast) if cast else None)
            if self._compiles:
                self._model.compile()  # in place: parameters keep their names
        if not callable(self._model):
            raise TypeError(f"{request['entry']} is not callable: it needs a forward method")

    def replace_state(self, values: list[Any], fd: int, size: int, later: bool) -> list[str]:
        """Copy values of a memory file into parameters by name; return the names not found.

        Args:
            values: Pairs of a name and a region of the file.
            fd: Its descriptor.
            size: Its size in bytes.
            later: Whether to copy them before the next call with late inputs instead.
        """
        self._parameters.receive(values, fd, size)
        return [] if later else self._parameters.copy_to(self._model)

    def prepare(self, calls: list[dict[str, Any]]) -> None:
        """Lay tensors over the next calls' buffers; values arrive later.

        Calls without places for outputs belong to a window on a device: the trusted side reads
        their outputs where they lie.
        """
        self._graph, self._calls = None, []
        for call in calls:
            arguments, regions = map(self.buffers.decode, call["args"]), call["outputs"]
            places = None if regions is None else [self.buffers.view(each) for each in regions]
            self._calls.append((list(arguments), places))

    def go(
        self,
        seeds: list[int],
        timed: bool,
        late: int | None = None,
        spoil: Sequence[bool] = (),
        fresh: bool = False,
    ) -> list[Any] | None:
        """Make one prepared call per seed; return a description of each output.

        Outputs are copied to their places. Without places, on a device, the trusted side reads
        each output where it lies, so that no copy is timed. A window that replays a captured graph
        returns the descriptions that `capture` kept, or None if it kept none.

        Args:
            seeds: Seeds set before the calls.
            timed: Whether the calls are timed.
            late: Index of a call whose inputs are written late, on the current stream; None for
                no call. In a captured graph the inputs of all calls are: before each call, after
                the one before it.
            spoil: Whether to overwrite each of an output's tensors once it was copied; empty to
                overwrite none. Of a graph, and of a single call that is read where its output
                lies, the last window's outputs are overwritten before: no copy of a large one may
                fit.
            fresh: Whether to fill memory that the calls will allocate with wrong values, so that
                elements which a kernel leaves unwritten are noticed.
        """
        before = self._launches.count
        replayed, held = self._graph is not None and bool(seeds), None
        single = len(seeds) == 1 and self._calls[0][1] is None and not self._copies
        with self._unseen():
            if spoil and (replayed or single):
                for number in range(len(self._kept)):  # no variable may hold the last output
                    self._overwrite(self._kept[number], spoil)
                spoil = ()
            if late is not None and not replayed:
                held = self._held_back(self._calls[late][0], few=len(seeds) > 1)
                held.hold()
            # Last: what is allocated after this, as by `_held_back`, takes some of that memory.
            self._parts.buffers.fill_fresh(fresh, self._device, self._calls)
        if self._device.type == "cpu":
            with _no_grad():
                found = self._run(seeds, held, late, spoil)
            self.launched = self._launches.count - before
            return found
        with self._unseen():
            if replayed and late is not None:
                self._parameters.arrive(self._model)
                self._graph.hold_back()
            self._touched.add_(1)  # so that an empty window, too, switches to this context
        self.clock.begin(lead=timed or replayed)
        results: list[Any] = []
        if replayed:
            self._graph.replay(late is not None)
        else:
            results = self._run(seeds, held, late, spoil)
        self.clock.end()
        if self._kept and not replayed:
            self.buffers.forget_freed_blocks()
        self.launched = self._in_graph if replayed else self._launches.count - before
        if replayed:
            return self._graph_results
        return results or self._kept_outputs()

    def _held_back(self, arguments: list[Any], **how: Any) -> Any:
        return self._parts.buffers.HeldBack(arguments, self._parts.unseen.below, self.clock, **how)

    def _exported(self, seed: int, arguments: list[Any], places: Any, spoil: Sequence[bool]) -> Any:
        """Make one call, and copy its output to its places; return its description."""
        output = self._call(seed, arguments)
        with self._unseen():
            said = self._export(output, places)
            if spoil:
                self._overwrite(output, spoil)
        return said

    def _run(
        self, seeds: list[int], held: Any, late: int | None, spoil: Sequence[bool]
    ) -> list[Any]:
        """Make the prepared calls; return descriptions of outputs that have places.

        Outputs without places are kept. They are copied if the kernel returns memory that a later
        call writes to, or that no other process can open. This is found out in the first window of
        a size, in which both the outputs and copies of them are kept.
        """
        compares = len(seeds) > self._compared
        copies = self._copies or compares or bool(spoil)
        self._kept, results, outputs = [], [], []
        with _no_grad():
            for number, (seed, (arguments, places)) in enumerate(
                zip(seeds, self._calls, strict=False)
            ):
                if number == late and held is not None:
                    with self._unseen():
                        self._parameters.copy_to(self._model)
                        held.write()
                if places is not None:
                    results.append(self._exported(seed, arguments, places, spoil))
                    continue
                output = self._call(seed, arguments)
                with self._unseen():
                    self._kept.append(self._copied(output) if copies else output)
                    if spoil:
                        self._overwrite(output, spoil)
                if spoil:
                    continue
                if compares:
                    outputs.append(output)
        if outputs:
            self._compared = len(seeds)
            shares = self._parts.outputs.overlap(outputs)
            self._copies |= shares or self._located(outputs) is None
        return results

    def _kept_outputs(self) -> list[Any]:
        """Return descriptions of the kept outputs; copy them if no other process can open them."""
        found = self._located(self._kept)
        if found is None:
            self._copies, self._kept = True, [self._copied(output) for output in self._kept]
            self.clock.finish()
            found = [self.buffers.locate(output) for output in self._kept]
        return found

    def _located(self, outputs: list[Any]) -> list[Any] | None:
        """Return descriptions of outputs where they lie.

        None if no other process can open their memory, such as that of cudaMallocAsync.
        """
        try:
            return [self.buffers.locate(output) for output in outputs]
        except self._parts.cuda_ipc.DriverError:
            return None

    def _call(self, seed: int, arguments: list[Any]) -> Any:
        _seed_all(seed)
        if self._device.type == "cuda":
            _seed_device(seed)
        if self._streams is not None:
            self._streams.begin_call()
        model, tracer = self._model, self._tracer
        output = model(*arguments) if tracer is None else tracer.call(model, arguments)
        if self._streams is not None:
            self._streams.end_call()
        return output

    def trace(self, mode: str) -> Any:
        """Change the tracer's mode; return what it saw since the last change.

        The first request must come before any kernel code is loaded. After ``end`` no watcher
        intercepts launches any more, so that timed windows hold the kernel alone.
        """
        if mode == "end":
            self._launches.watcher = self._tracer = None
            return {}
        if self._tracer is None:
            self._tracer = self._new_tracer()
        return self._tracer.mode(mode)

    def capture(self, tells: bool, late: bool, change_at: int) -> list[Any]:
        """Capture all prepared calls, in order, in one CUDA graph.

        Args:
            tells: True to describe the outputs again in the answer to every window.
            late: Whether the graph may be asked for with inputs that are written late.
            change_at: Index of the call before which parameters that were replaced by name change
                in the graph; below 0 if they do not.

        Returns:
            A description of each output, with its place on the device.
        """
        self.buffers.forget_blocks()  # torch frees memory before it captures
        before = self._launches.count
        self._kept = []
        arguments = [each for each, _ in self._calls]
        self._parameters.stage(self._model if change_at >= 0 else None)
        hold = partial(self._held_back, few=True, most_bytes=_LATE_BYTES)
        with self._unseen():
            held = [hold(each) for each in arguments] if late else ()
        try:
            graph = self._parts.captured_graph.CapturedGraph(
                [partial(self._keep, n == change_at, each) for n, each in enumerate(arguments)],
                self._parts.graph_order,
                held,
            )
        finally:
            # What a kernel made of parameters in the capture holds no values yet.
            self._parameters.change()
        results = [self.buffers.locate(output) for output in self._kept]
        self._graph_results = results if tells else None
        self._graph, self._in_graph = graph, self._launches.count - before
        return results

    def _keep(self, changed: bool, arguments: list[Any]) -> None:
        if changed:
            self._parameters.change()
        output = self._model(*arguments)
        self._kept.append(self._copied(output) if self._copies else output)

    def graph_kernels(self) -> dict[str, Any]:
        """Return what the kernels of the captured graph are; empty without one.

        None of the candidate's code on the host runs meanwhile: it cannot tell that it is watched.
        """
        if self._graph is None:
            return {}
        lister = self._parts.device_kernels.DeviceKernels(None, self._parts.records)
        return dict(lister.replayed(self._graph.replay))
