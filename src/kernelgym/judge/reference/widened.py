"""Runs a model in fp64 although its code names narrower types.

A model in fp16 or bf16 often converts by name (``x.float()``, ``.to(torch.bfloat16)``). In its
fp64 twin such a conversion would mix types, or round where the true value is not rounded.

Not covered: types that are named by text (``x.type("torch.HalfTensor")``), and samplers that draw
in the type of another tensor (`torch.randn_like`), whose numbers then differ from the model's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NARROW = frozenset((torch.float16, torch.bfloat16, torch.float32))
_CONVERSIONS = frozenset((torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16))


class Widened(TorchFunctionMode):  # type: ignore[misc]
    """While entered, floating-point work on tensors is done in fp64."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call `func` with fp64 in place of narrower types."""
        kwargs = kwargs or {}
        if func in _CONVERSIONS:
            return args[0].double()
        if any(isinstance(value, torch.Tensor) for value in args):
            args = tuple(_wide(value) for value in args)
            kwargs = {name: _wide(value) for name, value in kwargs.items()}
            return func(*args, **kwargs)
        # Without a tensor it makes one: drawn in its own type, since the model drew it so.
        made = func(*args, **kwargs)
        narrow = isinstance(made, torch.Tensor) and made.dtype in _NARROW
        return made.double() if narrow else made


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value
