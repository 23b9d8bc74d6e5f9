"""The process that runs a candidate: it is given inputs and hands back bytes, nothing else.

It never holds the reference model, its outputs, its source or a verdict, and no message it can
send says "correct": the trusted side looks at the clock and at the bytes. Loaded by path after a
fork from the zygote: standard library and torch only (plus `hooks.py` and `wire.py` beside it).

Every request carries a nonce that its answer repeats. Requests: ``slots`` (with a descriptor of
shared memory), ``load``, ``construct``, ``prepare`` (where the inputs of calls lie), ``go`` (make
so many of them; the values lie there by then).
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import random
import socket
from types import ModuleType
from typing import Any

import torch

__all__ = ["serve"]

SOURCE_NAME = "kernel.py"

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
_copy = torch.Tensor.copy_
# Seeds the CPU only, and 100 times faster than torch.manual_seed, which asks every backend.
_seed_all = torch.default_generator.manual_seed
_no_grad = torch.no_grad


def serve(channel: socket.socket, scratch: str, hooks: Any, wire: ModuleType) -> None:
    """Answer requests until the channel closes. Returns only at its end."""
    decoder = wire.Decoder()
    state = _State(scratch, hooks)

    def request_build(arguments: dict[str, Any]) -> dict[str, Any]:
        wire.send(channel, {"build": arguments})
        reply, fds = wire.receive(channel, decoder, max_fds=1)
        return {**reply, "fds": fds}

    while True:
        try:
            request, fds = wire.receive(channel, decoder, max_fds=1)
        except EOFError:
            return
        reply: dict[str, Any] = {"nonce": request["nonce"]}
        try:
            match request["op"]:
                case "slots":
                    state.map(fds[0], request["bytes"])
                case "load":
                    state.load(request, request_build)
                case "construct":
                    state.construct(request)
                case "prepare":
                    state.prepare(request["calls"])
                case "go":
                    hooks.fill_fresh_memory(not request["timed"])
                    reply["results"] = state.go(request["seeds"])
                    reply["launches"] = hooks.launches
        except BaseException as error:
            reply["error"] = hooks.describe_error(error, state.source_file)
        hooks.flush_output()
        wire.send(channel, reply)


class _State:
    def __init__(self, scratch: str, hooks: Any) -> None:
        self.source_file = os.path.join(scratch, SOURCE_NAME)
        self._hooks = hooks
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._entry: Any = None
        self._model: Any = None
        self._calls: list[tuple[list[Any], list[torch.Tensor]]] = []

    def map(self, fd: int, size: int) -> None:
        """Map the trusted side's buffers."""
        self._memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(fd)

    def load(self, request: dict[str, Any], request_build: Any) -> None:
        """Import the source as a module and look its entry class up."""
        self._hooks.launches = 0  # the zygote made one to warm up
        self._hooks.replace_extension_builds(request_build)
        with open(self.source_file, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(request["source"])
        spec = importlib.util.spec_from_file_location("kernel", self.source_file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._entry = getattr(module, request["entry"], None)
        if not isinstance(self._entry, type):
            raise AttributeError(f"the module defines no class {request['entry']}")

    def construct(self, request: dict[str, Any]) -> None:
        """Build the model under the seed the reference was built under."""
        arguments = [self._decode(value) for value in request["args"]]
        _seed_all(request["seed"])
        random.seed(request["seed"])
        with _no_grad():
            self._model = self._entry(*arguments)
        if isinstance(self._model, torch.nn.Module):
            self._model.to(getattr(torch, request["dtype"]))
        if not callable(self._model):
            raise TypeError(f"{request['entry']} is not callable: it needs a forward method")

    def prepare(self, calls: list[dict[str, Any]]) -> None:
        """Lay tensors over the buffers of calls to come; their values come later."""
        self._calls = [
            (
                [self._decode(value) for value in call["args"]],
                [self._view(region) for region in call["outputs"]],
            )
            for call in calls
        ]

    def go(self, seeds: list[int]) -> list[Any]:
        """Make one prepared call per seed; copy its output to its place and describe it."""
        results = []
        with _no_grad():
            for (arguments, outputs), seed in zip(self._calls, seeds, strict=False):
                _seed_all(seed)
                results.append(_export(self._model(*arguments), outputs))
        return results

    def _decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, body),) = value.items()
        match kind:
            case "tensor":
                return self._view(body)
            case "list":
                return [self._decode(item) for item in body]
            case "tuple":
                return tuple(self._decode(item) for item in body)
            case "dict":
                return {key: self._decode(item) for key, item in body}
            case "dtype":
                return getattr(torch, body)
        raise ValueError(f"unknown kind of value {kind!r}")

    def _view(self, region: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, region["dtype"])
        if region["count"] == 0:
            return torch.empty_strided(region["shape"], region["strides"], dtype=dtype)
        # A storage of exactly this tensor, so that reading past it can be noticed.
        flat = torch.frombuffer(
            self._memory, dtype=dtype, count=region["count"], offset=region["offset"]
        )
        return flat.as_strided(region["shape"], region["strides"])


def _export(output: Any, places: list[torch.Tensor]) -> Any:
    """Copy the tensors of `output` to `places` in order; return a description without values."""
    if (  # the common case first: this runs while the clock does
        type(output) is torch.Tensor
        and len(places) == 1
        and output.shape == places[0].shape
        and output.dtype == places[0].dtype
        and output.layout == torch.strided
    ):
        _copy(places[0], output)
        return "fits"
    remaining = iter(places)

    def visit(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            kind = type(value).__name__
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                return {"other": f"a {kind}, which is not a plain torch.Tensor"}
            place = next(remaining, None)
            if (
                place is not None
                and value.shape == place.shape
                and value.dtype == place.dtype
                and value.layout == torch.strided
                and value.device == place.device
            ):
                _copy(place, value)
            return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape)]}
        if isinstance(value, (list, tuple)):
            return {"sequence": [visit(item) for item in value]}
        if isinstance(value, dict):
            return {"mapping": [[str(key), visit(item)] for key, item in value.items()]}
        if value is None or isinstance(value, (bool, int, float)):
            return {"scalar": value}
        return {"other": f"a {type(value).__name__}"}

    return visit(output)
