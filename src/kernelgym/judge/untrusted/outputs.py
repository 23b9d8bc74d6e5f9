"""Copies, describes and overwrites a kernel's output.

A description holds structure, types and shapes, which bytes do not show. The trusted side compares
the bytes itself. Loaded by path in the untrusted process: torch only.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
_copy, _fill = torch.Tensor.copy_, torch.Tensor.fill_
_as_strided, _view = torch.Tensor.as_strided, torch.Tensor.view
_move, _address = ctypes.memmove, torch.Tensor.data_ptr
_is_neg, _is_conj = torch.Tensor.is_neg, torch.Tensor.is_conj
_SERIAL_BYTES = 4 << 20  # beyond that, several threads copy faster
_inference_mode = torch.inference_mode
_LARGE = 1 << 16
_SPARSE_STEPS = 1021, 4099
_CACHES = "transformers.cache_utils"
_dict_of, _mro_of = type.__dict__["__dict__"].__get__, type.__dict__["__mro__"].__get__
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def export(output: Any, places: list[torch.Tensor]) -> Any:
    """Copy a kernel's output tensors to `places` in order; return a description without values."""
    if (  # the common case first: this copy is timed
        type(output) is torch.Tensor
        and len(places) == 1
        and output.shape == places[0].shape
        and output.dtype == places[0].dtype
        and output.layout == torch.strided
        and output.device == places[0].device
        and output.is_contiguous()
    ):
        size, lazy = places[0].nbytes, _is_neg(output) or _is_conj(output)
        if size <= _SERIAL_BYTES and output.device.type == "cpu" and not lazy:
            # torch copies with several threads, which on a busy host wait 1 ms for each other.
            _move(_address(places[0]), _address(output), size)
        else:
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
    """Return an output with its tensors copied."""
    kind = type(output)
    if issubclass(kind, torch.Tensor):
        return output.clone() if kind is torch.Tensor else output
    if (items := _sequence_items(output)) is not None:
        return [copied(item) for item in items]
    if issubclass(kind, dict):
        return {key: copied(item) for key, item in dict.items(output)}
    return output


def tensors_in(output: Any) -> list[torch.Tensor]:
    """Return an output's tensors, in the order in which `describe` visits them."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> dict[str, Any]:
        found.append(tensor)
        return {}

    describe(output, note)
    return found


def overwrite(output: Any, which: Iterable[bool], below: Callable[[int], int]) -> None:
    """Overwrite tensors of an output with NaN, or with a number that is almost always wrong.

    A caller may do so with an output that it owns. A kernel that returns the same memory again,
    and relies on what earlier calls left there, is then wrong. Of large tensors mostly few elements
    are overwritten, which are drawn in secret: a kernel may look at samples, and write what it
    left out only if they changed.

    Args:
        output: The output.
        which: Whether to overwrite each of its tensors.
        below: Draws a secret number below the given one.
    """
    for tensor, wanted in zip(tensors_in(output), which, strict=False):
        if wanted and tensor.numel() and tensor.layout == torch.strided:
            steps = tensor.stride()
            # Elements of an expanded tensor share memory and cannot be written one by one.
            sizes = [1 if step == 0 else n for n, step in zip(tensor.shape, steps, strict=True)]
            with _inference_mode():  # a tensor made in inference mode can be written there only
                alone = _as_strided(tensor, sizes, steps)
                if alone.numel() > _LARGE and alone.is_contiguous():
                    alone = _sample(alone, below)
                if tensor.is_floating_point() or tensor.is_complex():
                    _fill(alone, float("nan"))
                else:
                    _fill(_view(alone, _INTEGERS[tensor.element_size()]), 0x5A)


def _sample(tensor: torch.Tensor, below: Callable[[int], int]) -> torch.Tensor:
    """Return a view of some elements of a contiguous tensor, drawn in secret, or of all."""
    if not below(8):
        return tensor
    least, most = _SPARSE_STEPS
    step = least + below(most - least + 1)
    first = below(step)
    count = (tensor.numel() - 1 - first) // step + 1
    return _as_strided(tensor, (count,), (step,), tensor.storage_offset() + first)


def overlap(outputs: list[Any]) -> bool:
    """Return True if tensors of two outputs share memory."""
    spans = []
    for number, output in enumerate(outputs):
        for tensor in tensors_in(output):
            if tensor.numel() and tensor.layout == torch.strided:
                pairs = zip(tensor.shape, tensor.stride(), strict=True)
                last = sum((n - 1) * step for n, step in pairs)
                start = tensor.data_ptr()
                spans.append((start, start + (last + 1) * tensor.element_size(), number))
    end, owner = 0, -1
    for start, stop, number in sorted(spans):
        if start < end and number != owner:
            return True
        if stop > end:
            end, owner = stop, number
    return False


def _sequence_items(value: Any) -> Any:
    """Return an iterator over a list or tuple, otherwise None.

    It bypasses the ``__iter__`` of a subclass: a kernel's own class could otherwise compute its
    output here, outside the timed and watched call.
    """
    if issubclass(type(value), list):
        return list.__iter__(value)
    if issubclass(type(value), tuple):
        return tuple.__iter__(value)
    return _cache_items(value) if _dict_of(type(value)).get("__module__") == _CACHES else None


def _cache_items(value: Any) -> Any:
    """Return an iterator over the parts of a transformers cache, otherwise None.

    They are each layer's keys and values, or the two caches of an encoder-decoder.
    """
    held = _fields_of(value)
    if "self_attention_cache" in held:
        return iter([held["self_attention_cache"], held.get("cross_attention_cache")])
    layers = held.get("layers")
    if type(layers) is not list:
        return None
    fields = [_fields_of(layer) for layer in layers]
    return iter([[each.get("keys"), each.get("values")] for each in fields])


def _fields_of(value: Any) -> dict[str, Any]:
    """Return an object's own attributes, without running code of its class."""
    for kind in _mro_of(type(value)):
        fields = _dict_of(kind).get("__dict__")
        if fields is not None:
            return fields.__get__(value) if type(fields) is types.GetSetDescriptorType else {}
    return {}


def _key(key: Any) -> str:
    plain = type(key) in (str, int, float, bool, type(None))
    return str(key) if plain else f"a {type(key).__name__}"


def describe(output: Any, visit_tensor: Callable[[torch.Tensor], dict[str, Any] | None]) -> Any:
    """Return an output's structure, types, shapes and `visit_tensor`'s answer for each tensor."""
    # An inner function that calls itself would be a reference cycle, and keep what `visit_tensor`
    # holds, such as large outputs, until Python's cycle collector runs, many calls later.
    kind = type(output)
    if issubclass(kind, torch.Tensor):
        if kind not in (torch.Tensor, torch.nn.Parameter):
            return {"other": f"a {kind.__name__}, which is not a plain torch.Tensor"}
        place = visit_tensor(output)
        if place is None:
            return {"other": f"a tensor on {output.device} with layout {output.layout}"}
        said = [str(output.dtype).removeprefix("torch."), list(output.shape)]
        return {"tensor": [*said, place] if place else said}
    if (items := _sequence_items(output)) is not None:
        return {"sequence": [describe(item, visit_tensor) for item in items]}
    if issubclass(kind, dict):
        pairs = dict.items(output)
        return {"mapping": [[_key(key), describe(item, visit_tensor)] for key, item in pairs]}
    if output is None or kind is bool:
        return {"scalar": output}
    if issubclass(kind, (int, float)):
        plain = int.__int__(output) if issubclass(kind, int) else float.__float__(output)
        return {"scalar": plain}
    return {"other": f"a {kind.__name__}"}
