"""Runs `get_inputs` under a public seed so that nothing but the time it takes is different.

KernelBench draws inputs on the CPU, whose generator is serial, and copies them to the device. Here
each large draw from that generator is made elsewhere: on the device where that is known to give the
same bits (`torch.rand` in fp32), on all cores otherwise; and the generator is put where it would
be. So small draws, permutations and whatever else uses it go on as if nothing had happened.

What is drawn on the device stays there as long as it is moved about, cut, or computed with in ways
that leave no choice of bits (`exact_operators`). Other usual operators are run on a CPU's copy.
What cannot be done so (the code changes such a tensor in another way, asks for its memory, or
calls what depends on the device) makes the whole draw start again, serially.
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

_DEVICE_ELEMENTS = 1 << 18  # fewer are drawn on the CPU sooner than they are asked for
_TRIES = 2  # on the device
_CPU = torch.device("cpu")
_NUMBER = torch.ops.aten.scalar_tensor.default  # what `x[3] = 7` makes of the 7

DeviceDraw = Callable[[int, Place, torch.device], tuple[torch.Tensor, Place] | None]


class _Unlike(Exception):
    """This code does something that would tell where its tensors are."""


def draw_as_on_cpu(get_inputs: Callable[[], Any], seed: int, device: torch.device) -> Any:
    """Return what `get_inputs` returns under a seed, bit for bit; tensors may be on the device.

    Args:
        get_inputs: The problem's function.
        seed: Set on torch's and Python's generators before.
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
            torch.cuda.empty_cache()  # what torch keeps for later may be what was missing
        except Exception:
            break
    seed_all(seed)
    return get_inputs()


def _draw_on_cuda(
    count: int, place: Place, device: torch.device
) -> tuple[torch.Tensor, Place] | None:
    # Tried at the first large draw: most of what it takes is compiling the kernels.
    return (
        mersenne_cuda.draw_uniform(count, place, device) if mersenne_cuda.agrees(device) else None
    )


class _Elsewhere(TorchDispatchMode):  # type: ignore[misc]
    """While entered, large draws from CPU generators are made on `device` or on all cores."""

    def __init__(self, device: torch.device, draw: DeviceDraw | None) -> None:
        super().__init__()
        self._device, self._draw = device, draw

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # To keep torch.compile out of a mode, torch would import all of its compiler: seconds.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call `func`, or do the same elsewhere."""
        kwargs = kwargs or {}
        call = read_call(func, args, kwargs)
        if call is not None and (drawn := self._sample(call)) is not None:
            return drawn
        there = [tensor for tensor in tensors_of((args, kwargs)) if self._is_there(tensor)]
        if not there:
            asked = kwargs.get("device")
            aims = self._draw is not None and asked is not None
            if aims and torch.device(asked).type != "cpu" and func is not _NUMBER:
                raise _Unlike  # a tensor there that is none of ours: we tell them by their device
            return func(*args, **kwargs)
        written = written_to(func, args, kwargs)
        stays = is_view(func) or is_exact(func, args, kwargs)
        if any(self._is_there(tensor) for tensor in written):
            if not stays:
                raise _Unlike
        elif written:
            stays = False  # they are on the CPU, as far as anybody knows
        if stays:
            return self._run_there(func, args, kwargs)
        if call is None and not can_be_sent_back(func):
            raise _Unlike
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": _CPU}
        return func(*_mapped(args, self._to_cpu), **_mapped(kwargs, self._to_cpu))

    def _sample(self, call: SamplerCall) -> torch.Tensor | None:
        """Make a draw elsewhere; None if it is to be made as it is asked for."""
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
        # A single number stays: that it is none of the device's decides how types are promoted.
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
    """Give tensors on a device memory of their own, laid out as a copy from the CPU would be.

    Those inside of lists and the like go back to the CPU: who moves inputs leaves them there.
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
