"""Runs `get_inputs` under a public seed, faster than KernelBench does and with the same results.

KernelBench draws inputs on the CPU, whose generator is serial, and copies them to the device. For
inputs on a CUDA device, each large ``torch.rand`` in fp32 is drawn on that device instead, where it
gives the same bits (`mersenne_cuda`). The CPU's generator is then moved to the place it would have
reached, so that all other draws give the same values, too.

Such tensors may be moved, cut, compared, scaled and shifted there: this gives the same bits on
every device. If the problem's code does anything else with them, everything is drawn again, as
KernelBench draws it.

Not covered: samplers other than ``torch.rand``. None of KernelBench's problems draws much by them.

Benchmark: ``python -m benchmarks.judge.speed_paths --part inputs --device cuda:0``. In
``benchmarks/results/judge_h200.json`` a verdict on 6.4 GB of inputs takes 0.5 s; one such draw on
the CPU takes several seconds, and a verdict needs five.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgym.judge.inputs.kernelbench_bits import mersenne_cuda
from kernelgym.judge.inputs.kernelbench_bits.mersenne import GeneratorPlace
from kernelgym.judge.inputs.seeds import seed_all
from kernelgym.judge.tensors import tensors_of

_DEVICE_ELEMENTS = 1 << 18  # the CPU draws fewer elements in less time than the launch takes
_TRIES = 2  # attempts on the device, before the inputs are drawn on the CPU

_ATEN = torch.ops.aten
_RANDS = (_ATEN.rand.default, _ATEN.rand.generator)
_MOVING = frozenset({_ATEN.clone, _ATEN._unsafe_view, _ATEN.tril, _ATEN.triu})
# Operators with one rounding, which IEEE 754 defines for these types.
_COMPUTING = frozenset(
    {
        *(_ATEN.add, _ATEN.mul, _ATEN.neg, _ATEN.rsub, _ATEN.sub),
        *(_ATEN.eq, _ATEN.ge, _ATEN.gt, _ATEN.le, _ATEN.lt, _ATEN.ne),
    }
)
_COMPUTED = frozenset({torch.float32, torch.float64, torch.int32, torch.int64, torch.bool})

DeviceDraw = Callable[
    [int, GeneratorPlace, torch.device], tuple[torch.Tensor, GeneratorPlace] | None
]


class _Unlike(Exception):
    """Inputs drawn on the device may differ from those drawn on the CPU; draw on the CPU."""


def draw_as_on_cpu(get_inputs: Callable[[], Any], seed: int, device: torch.device) -> Any:
    """Return what `get_inputs` returns on the CPU under a seed, bit for bit.

    Tensors may lie on the device.

    Args:
        get_inputs: The problem's function.
        seed: Seeds torch's and Python's generators before the call.
        device: Device on which the inputs will be used.

    Raises:
        Exception: Whatever the function raises.
    """
    for _ in range(_TRIES if device.type == "cuda" else 0):
        seed_all(seed)
        try:
            with _DrawsElsewhere(device, _draw_on_cuda):
                drawn = get_inputs()
            return _with_own_memory(drawn)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # free blocks that torch keeps may be enough for a second try
        except Exception:
            break
    seed_all(seed)
    return get_inputs()


def _draw_on_cuda(
    count: int, place: GeneratorPlace, device: torch.device
) -> tuple[torch.Tensor, GeneratorPlace] | None:
    # `agrees` runs at the first large draw only: most of its time goes into compiling kernels.
    return (
        mersenne_cuda.draw_uniform(count, place, device) if mersenne_cuda.agrees(device) else None
    )


class _DrawsElsewhere(TorchDispatchMode):  # type: ignore[misc]
    """While entered, makes large draws of ``torch.rand`` on `device`."""

    def __init__(self, device: torch.device, draw: DeviceDraw) -> None:
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
        """Call `func`, or draw elsewhere what it would draw."""
        kwargs = kwargs or {}
        if func in _RANDS and (drawn := self._rand(*args, **kwargs)) is not None:
            return drawn
        if torch.device(kwargs.get("device") or "cpu").type != "cpu":
            raise _Unlike  # a tensor that the code makes on the device looks like one drawn there
        given = tensors_of((args, kwargs))
        if any(self._is_there(tensor) for tensor in given):
            if not all(self._is_there(tensor) or not tensor.dim() for tensor in given):
                raise _Unlike
            if not (_is_view(func) or _is_exact(func, args, kwargs)):
                raise _Unlike
        return func(*args, **kwargs)

    def _rand(
        self, size: Any, *, dtype: Any = None, generator: Any = None, **options: Any
    ) -> torch.Tensor | None:
        """Return a draw made on the device; None if torch should make it."""
        dtype = dtype or torch.get_default_dtype()
        elements = math.prod(size)
        if dtype != torch.float32 or elements < _DEVICE_ELEMENTS:
            return None
        if torch.device(options.get("device") or "cpu").type != "cpu" or options.get("pin_memory"):
            return None
        generator = torch.default_generator if generator is None else generator
        made = self._draw(elements, mersenne_cuda.read_place(generator), self._device)
        if made is None:
            return None
        flat, place = made
        mersenne_cuda.write_place(generator, place)
        return flat.view(tuple(size))

    def _is_there(self, tensor: torch.Tensor) -> bool:
        return bool(tensor.device.type == self._device.type)


def _is_view(func: Any) -> bool:
    """Return True if an operator returns a view of an argument, and changes none."""
    aliases = [argument.alias_info for argument in func._schema.arguments]
    found = [alias for alias in aliases if alias is not None]
    return bool(found) and not any(alias.is_write for alias in found)


def _is_exact(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call changes no argument and gives the same bits on every device."""
    packet = func.overloadpacket
    if func._schema.is_mutable or kwargs.get("device") is not None:
        return False
    if packet is _ATEN._to_copy:
        return not args[0].is_floating_point() or kwargs.get("dtype") == torch.bool
    if packet in _MOVING:
        return True
    # A third argument is the factor of an addition, which fuses it with the sum on some devices.
    plain = packet in _COMPUTING and len(args) <= 2 and not kwargs
    return plain and all(tensor.dtype in _COMPUTED for tensor in tensors_of(args))


def _with_own_memory(drawn: Any) -> Any:
    """Return inputs whose device tensors own their memory, like tensors copied from the CPU.

    Raises:
        _Unlike: If a list or dict among the inputs holds device tensors: code that moves inputs to
            the device leaves those where they are.
    """
    seen: set[int] = set()
    found = []
    for value in drawn:
        if not isinstance(value, torch.Tensor):
            if any(tensor.device.type != "cpu" for tensor in tensors_of(value)):
                raise _Unlike
        elif value.device.type != "cpu":
            memory = value.untyped_storage()
            if memory.data_ptr() in seen or memory.nbytes() != value.numel() * value.itemsize:
                value = value.clone()
            seen.add(value.untyped_storage().data_ptr())
        found.append(value)
    return found
