"""What a candidate's process does with a kernel's output: copies it out, and describes it.

A description says structure, types and shapes; the trusted side compares bytes, and takes from it
what bytes do not show. Loaded by path in the untrusted process: torch only.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["copied", "describe", "export"]

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach it.
_copy = torch.Tensor.copy_


def export(output: Any, places: list[torch.Tensor]) -> Any:
    """Copy the tensors of `output` to `places` in order; return a description without values."""
    if (  # the common case first: this runs while the clock does
        type(output) is torch.Tensor
        and len(places) == 1
        and output.shape == places[0].shape
        and output.dtype == places[0].dtype
        and output.layout == torch.strided
        and output.device == places[0].device
        and output.is_contiguous()
    ):
        _copy(places[0], output)
        return "fits"
    remaining = iter(places)

    def copy_out(tensor: torch.Tensor) -> dict[str, Any]:
        place = next(remaining, None)
        if (
            place is not None
            and tensor.shape == place.shape
            and tensor.dtype == place.dtype
            and tensor.layout == torch.strided
            and tensor.device == place.device
        ):
            _copy(place, tensor)
        return {"strides": list(tensor.stride())} if tensor.layout == torch.strided else {}

    return describe(output, copy_out)


def copied(output: Any) -> Any:
    """Return an output with copies of its tensors."""
    if isinstance(output, torch.Tensor):
        return output.clone() if type(output) is torch.Tensor else output
    if isinstance(output, (list, tuple)):
        return [copied(item) for item in output]
    if isinstance(output, dict):
        return {key: copied(item) for key, item in output.items()}
    return output


def describe(output: Any, visit_tensor: Any) -> Any:
    """Describe an output: structure, types and shapes, and what `visit_tensor` says of each."""

    def visit(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            kind = type(value).__name__
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                return {"other": f"a {kind}, which is not a plain torch.Tensor"}
            place = visit_tensor(value)
            if place is None:
                return {"other": f"a tensor on {value.device} with layout {value.layout}"}
            said = [str(value.dtype).removeprefix("torch."), list(value.shape)]
            return {"tensor": [*said, place] if place else said}
        if isinstance(value, (list, tuple)):
            return {"sequence": [visit(item) for item in value]}
        if isinstance(value, dict):
            return {"mapping": [[str(key), visit(item)] for key, item in value.items()]}
        if value is None or isinstance(value, (bool, int, float)):
            return {"scalar": value}
        return {"other": f"a {type(value).__name__}"}

    return visit(output)
