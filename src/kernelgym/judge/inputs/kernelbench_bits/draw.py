"""Run `get_inputs` under a public seed, faster than KernelBench does and with the same results.

KernelBench draws inputs on the CPU, whose generator is serial, and copies them to the device. Here
each large draw from that generator is made elsewhere: on the device where that is known to give the
same bits (`torch.rand` in fp32), on all CPU cores otherwise. The generator is then moved to the
place it would have reached, so small draws, permutations and all else that uses it give the same
values.

Tensors drawn on the device stay there while the code moves or cuts them, or computes with them in
ways that give the same bits on every device (`exact_operators`). Other common operators run on a
CPU copy. If neither is possible (the code changes such a tensor in another way, asks for its
memory, or calls a function that depends on the device), the whole draw starts again, serially.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgym.judge.inputs.kernelbench_bits import mersenne_cpu, mersenne_cuda
from kernelgym.judge.inputs.kernelbench_bits.exact_operators import (
    can_be_sent_back,
    is_exact,
    is_view,
    written_to,
)
from kernelgym.judge.inputs.kernelbench_bits.mersenne import Place
from kernelgym.judge.inputs.kernelbench_bits.sampler_calls import SamplerCall, read_call
from kernelgym.judge.inputs.seeds import seed_all
from kernelgym.judge.tensors import tensors_of

__all__ = ["draw_as_on_cpu"]

_DEVICE_ELEMENTS = 1 << 18  # the CPU draws fewer elements in less time than the launch takes
_TRIES = 2  # on the device, before the draw is made serially
_CPU = torch.device("cpu")
_NUMBER = torch.ops.aten.scalar_tensor.default  # what `x[3] = 7` makes of the 7

DeviceDraw = Callable[[int, Place, torch.device], tuple[torch.Tensor, Place] | None]


class _Unlike(Exception):
    """The problem's code does something that depends on where its tensors lie."""


def draw_as_on_cpu(get_inputs: Callable[[], Any], seed: int, device: torch.device) -> Any:
    """Return what `get_inputs` returns under a seed, bit for bit.

    Tensors may lie on the device.

    Args:
        get_inputs: The problem's function.
        seed: Seeds torch's and Python's generators before the call.
        device: Where the inputs will be used.

    Raises:
        Exception: Whatever the function raises.
    """
    for _ in range(_TRIES):
        seed_all(seed)
        try:
            with _Elsewhere(device, _draw_on_cuda if device.type == "cuda" else None):
                drawn = get_inputs()
            return _as_if_copied(drawn)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # free blocks that torch keeps may be enough for a second try
        except Exception:
            break
    seed_all(seed)
    return get_inputs()


def _draw_on_cuda(
    count: int, place: Place, device: torch.device
) -> tuple[torch.Tensor, Place] | None:
    # `agrees` runs at the first large draw only: most of its time goes into compiling kernels.
    return (
        mersenne_cuda.draw_uniform(count, place, device) if mersenne_cuda.agrees(device) else None
    )


class _Elsewhere(TorchDispatchMode):  # type: ignore[misc]
    """While entered, makes large draws on `device` or on all cores."""

    def __init__(self, device: torch.device, draw: DeviceDraw | None) -> None:
        super().__init__()
        self._device, self._draw = device, draw

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # With True, torch would import its whole compiler to keep torch.compile out of this mode,
        # which takes seconds.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call `func`, or do the same work elsewhere."""
        kwargs = kwargs or {}
        call = read_call(func, args, kwargs)
        if call is not None and (drawn := self._sample(call)) is not None:
            return drawn
        there = [tensor for tensor in tensors_of((args, kwargs)) if self._is_there(tensor)]
        if not there:
            asked = kwargs.get("device")
            aims = self._draw is not None and asked is not None
            if aims and torch.device(asked).type != "cpu" and func is not _NUMBER:
                # The code itself makes a tensor on the device. `_is_there` goes by the device
                # alone, and would take that tensor for one of those drawn here.
                raise _Unlike
            return func(*args, **kwargs)
        written = written_to(func, args, kwargs)
        stays = is_view(func) or is_exact(func, args, kwargs)
        if any(self._is_there(tensor) for tensor in written):
            if not stays:
                raise _Unlike
        elif written:
            stays = False  # the call writes to tensors that lie on the CPU, so it runs there
        if stays:
            return self._run_there(func, args, kwargs)
        if call is None and not can_be_sent_back(func):
            raise _Unlike
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": _CPU}
        return func(*_mapped(args, self._to_cpu), **_mapped(kwargs, self._to_cpu))

    def _sample(self, call: SamplerCall) -> torch.Tensor | None:
        """Return a draw made elsewhere; None if torch should make it."""
        generator = torch.default_generator if call.generator is None else call.generator
        elements = math.prod(call.size)
        if call.is_rand and self._draw is not None and elements >= _DEVICE_ELEMENTS:
            made = self._draw(elements, mersenne_cpu.read_place(generator), self._device)
            if made is not None:
                flat, place = made
                mersenne_cpu.write_place(generator, place)
                return flat.view(call.size)
        if elements < mersenne_cpu.PARALLEL_ELEMENTS:
            return None
        out = torch.empty(call.size, dtype=call.dtype) if call.into is None else call.into
        return out if mersenne_cpu.fill(out, call.sampler, generator) else None

    def _run_there(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*_mapped(args, self._to_device), **_mapped(kwargs, self._to_device))

    def _is_there(self, tensor: torch.Tensor) -> bool:
        return self._draw is not None and tensor.device.type == self._device.type

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        # A tensor without dimensions stays on the CPU: moving it would change type promotion.
        return tensor.to(self._device) if tensor.dim() else tensor

    def _to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(_CPU)


def _mapped(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return move(value)
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, move) for item in value)
    if isinstance(value, dict):
        return {name: _mapped(item, move) for name, item in value.items()}
    return value


def _as_if_copied(drawn: Any) -> Any:
    """Return inputs whose device tensors own their memory, like CPU copies.

    Tensors inside lists and dicts go back to the CPU: code that moves inputs leaves those there.
    """
    if not isinstance(drawn, (list, tuple)):
        return drawn
    seen: set[int] = set()
    found = []
    for value in drawn:
        if not isinstance(value, torch.Tensor):
            value = _mapped(value, lambda tensor: tensor.to(_CPU))
        elif value.device.type != "cpu":
            memory = value.untyped_storage()
            if memory.data_ptr() in seen or memory.nbytes() != value.numel() * value.itemsize:
                value = value.clone()
            seen.add(value.untyped_storage().data_ptr())
        found.append(value)
    return found
