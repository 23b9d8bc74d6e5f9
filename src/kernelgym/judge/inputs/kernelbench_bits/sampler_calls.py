"""Recognise calls of torch's samplers that draw from a CPU generator.

Covered: `rand`, `randn`, `randint`, `rand_like`, `randn_like`, `uniform_`, `normal_` and `random_`,
which take one word or two for each element. `read_call` returns None for all other calls, for
complex types and for unusual layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["SamplerCall", "read_call"]

_ATEN = torch.ops.aten


@dataclass(frozen=True, slots=True)
class SamplerCall:
    """One draw from a CPU generator."""

    size: tuple[int, ...]
    dtype: torch.dtype
    sampler: Callable[[torch.Tensor, torch.Generator], Any]
    """Makes the same draw into an existing tensor."""
    generator: torch.Generator | None
    """The generator; None for torch's default one."""
    into: torch.Tensor | None = None
    """The tensor that the call fills; None for a new one."""
    is_rand: bool = False
    """Whether the call returns a new tensor of fp32 numbers from [0, 1)."""


def read_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SamplerCall | None:
    """Return the draw that an operator call makes; None if unknown."""
    reader = _READERS.get(func)
    if reader is None:
        return None
    call: SamplerCall | None = reader(*args, **kwargs)
    if call is None or call.dtype.is_complex:
        return None
    if call.generator is not None and call.generator.device.type != "cpu":
        return None
    return call


def _uniform(low: float = 0.0, high: float = 1.0) -> Callable[..., Any]:
    return lambda tensor, generator: tensor.uniform_(low, high, generator=generator)


def _normal(mean: float = 0.0, std: float = 1.0) -> Callable[..., Any]:
    return lambda tensor, generator: tensor.normal_(mean, std, generator=generator)


def _integers(*bounds: int) -> Callable[..., Any]:
    return lambda tensor, generator: tensor.random_(*bounds, generator=generator)


def _new(
    size: Sequence[int],
    sampler: Callable[..., Any],
    dtype: torch.dtype | None,
    generator: torch.Generator | None,
    options: dict[str, Any],
    is_rand: bool = False,
) -> SamplerCall | None:
    device, layout = options.get("device"), options.get("layout")
    if options.get("pin_memory") or layout not in (None, torch.strided):
        return None
    if device is not None and torch.device(device).type != "cpu":
        return None
    dtype = dtype or torch.get_default_dtype()
    is_rand = is_rand and dtype == torch.float32
    return SamplerCall(tuple(size), dtype, sampler, generator, is_rand=is_rand)


def _rand(size: Any, *, dtype: Any = None, generator: Any = None, **options: Any) -> Any:
    return _new(size, _uniform(), dtype, generator, options, is_rand=True)


def _randn(size: Any, *, dtype: Any = None, generator: Any = None, **options: Any) -> Any:
    return _new(size, _normal(), dtype, generator, options)


def _randint(*args: Any, dtype: Any = torch.int64, generator: Any = None, **options: Any) -> Any:
    *bounds, size = args
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    return _new(size, _integers(low, high), dtype or torch.int64, generator, options)


def _rand_like(tensor: torch.Tensor, *, dtype: Any = None, **options: Any) -> Any:
    return _like(_rand, tensor, dtype, options)


def _randn_like(tensor: torch.Tensor, *, dtype: Any = None, **options: Any) -> Any:
    return _like(_randn, tensor, dtype, options)


def _like(
    factory: Callable[..., Any], tensor: torch.Tensor, dtype: Any, options: dict[str, Any]
) -> Any:
    layout = options.pop("memory_format", None)
    usual = layout in (None, torch.preserve_format, torch.contiguous_format)
    if not usual or not tensor.is_contiguous():
        return None
    return factory(tensor.shape, dtype=dtype or tensor.dtype, **options)


def _fills(sampler: Callable[..., Callable[..., Any]]) -> Callable[..., Any]:
    def read(tensor: torch.Tensor, *numbers: Any, generator: Any = None, **named: Any) -> Any:
        if named or tensor.device.type != "cpu" or any(number is None for number in numbers):
            return None
        size = tuple(tensor.shape)
        return SamplerCall(size, tensor.dtype, sampler(*numbers), generator, tensor)

    return read


_READERS: dict[Any, Callable[..., Any]] = {
    _ATEN.rand.default: _rand,
    _ATEN.rand.generator: _rand,
    _ATEN.randn.default: _randn,
    _ATEN.randn.generator: _randn,
    _ATEN.randint.default: _randint,
    _ATEN.randint.low: _randint,
    _ATEN.randint.generator: _randint,
    _ATEN.randint.low_generator: _randint,
    _ATEN.rand_like.default: _rand_like,
    _ATEN.randn_like.default: _randn_like,
    _ATEN.uniform_.default: _fills(_uniform),
    _ATEN.normal_.default: _fills(_normal),
    _ATEN.random_.default: _fills(_integers),
    _ATEN.random_.to: _fills(_integers),
    getattr(_ATEN.random_, "from"): _fills(_integers),
}
