"""Counts the work that PyTorch code leaves to torch's own operators.

A `Counter` is a dispatch mode: it sees every operator that reaches the dispatcher from its thread,
from Python or from C++. It adds up the bytes that each kind of operator reads and writes. Renaming
work does not reduce it: ``x * sigmoid(x)`` moves more bytes than ``silu``. A fused operator counts
as the operators that it stands for where that is exact (``addmm``, attention, biased
convolutions), so that neither fusing nor unfusing looks like less work.

- Views, allocations, fills and random draws count nothing. The names of those that do are listed;
  what is called a view counts all the same if its result lies in new memory, and what makes new
  tensors if tensors give its values.
- An operator is torch's if it was registered before any kernel was loaded. One that a kernel
  registers counts nothing, but what runs inside it does. So does what runs inside the handler of a
  tensor's class, and inside an operator of torch that a kernel implements anew.
- Copies and casts are counted apart (`COPIES`), and so are operators that only put tensors together
  (``cat``, ``stack``, ``pad``; `JOINS`).

This module only counts: `kernelgym.judge.evidence` judges. Used on both sides of the trust
boundary: standard library and torch only.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

# `triton/cuda_on_cpu.py` patches `Tensor.device` to say ``cuda`` for tensors on the CPU; this is
# the original getter, which tells the truth.
_device_of = torch._C.TensorBase.device.__get__

ALLOCATIONS = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize".split()
)
COPIES = frozenset(
    "clone copy _to_copy contiguous _copy_from _conj_physical _reshape_copy lift_fresh_copy "
    "pin_memory _pin_memory".split()
)
JOINS = frozenset(
    "cat stack hstack vstack repeat constant_pad_nd reflection_pad1d reflection_pad2d "
    "replication_pad1d replication_pad2d roll flip".split()
)
_FREE = ALLOCATIONS | frozenset(
    "zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill zero "
    "scalar_tensor arange linspace eye rand rand_like randn randn_like randint randint_like "
    "randperm uniform exponential cauchy geometric log_normal random is_pinned record_stream "
    "_local_scalar_dense item is_same_size".split()
)
_MADE_OF_NUMBERS = frozenset(
    "zeros ones full scalar_tensor arange linspace eye rand randn randint randperm".split()
)
"""Free operators that read all of their arguments; other free ones do not read their first."""
_VIEWS = frozenset(
    "lift lift_fresh detach alias set _unsafe_view unsafe_split unsafe_split_with_sizes "
    "unsafe_chunk _reshape_alias".split()
)
"""Operators that return views but do not say so in their schemas."""
_ACCESSORS = frozenset(
    "_values _indices values indices crow_indices col_indices ccol_indices row_indices "
    "detach alias".split()
)
"""Views of tensors without a storage that compute nothing: `select` may add up a sparse tensor."""
_UNREAD = ALLOCATIONS - {"resize"}  # a resize copies the old values
_OVERWRITING = frozenset(("copy_", "fill_", "zero_"))
_RELAID = frozenset(("set_", "set"))  # these only point a tensor at other memory
_LIFTS = frozenset("lift lift_fresh lift_fresh_copy".split())
_SAME = {"sub": "add", "rsub": "add", "div": "mul", "true_divide": "mul", "mean": "sum"}
_SAME |= dict.fromkeys(("_safe_softmax", "_masked_softmax", "_sparse_softmax"), "_softmax")
_SAME |= {"_sparse_log_softmax": "_log_softmax", "conj_physical": "neg"}
# Registered before any kernel is loaded. A namespace tells nothing: a kernel may add to any.
_OF_TORCH = frozenset(torch._C._dispatch_get_all_op_names())
_implementations: dict[str, int] = {}
_NO_KEYS = frozenset(("out",))
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
# Taken here, before a kernel could replace them, or `records.watch_ways_past` wraps them.
_capturing = torch.cuda.is_current_stream_capturing
_record: Any = torch._C._autograd._enable_record_function
_redispatch: Any = torch._C._DispatchOperatorHandle.redispatch_boxed


def remember_implementations() -> None:
    """Record how each operator of torch is implemented, before any kernel is loaded."""
    _implementations.update((name, _implementation(name)) for name in _OF_TORCH)


def _is_torchs(name: str) -> bool:
    """Return True if an operator is torch's: registered before any kernel, or TorchScript's own."""
    return name in _OF_TORCH or not torch._C._dispatch_has_kernel(name)


def computes_alone(name: str) -> bool:
    """Return True if an operator of torch may do work itself, and is not composed of others.

    Those that torch composes of others do none.
    """
    overloads = [each for each in _OF_TORCH if each.partition(".")[0] == name]
    composite = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(overloads) and not all(composite(o, "CompositeImplicitAutograd") for o in overloads)


def _implementation(name: str) -> int:
    """Return a hash of the dispatcher's description of how an operator is implemented.

    Left out is how shapes are inferred: modules of torch that are imported late register that.
    """
    said = torch._C._dispatch_dump(name).splitlines()
    return hash("".join(line for line in said if not line.startswith("Meta")))


def _dispatches(kind: type) -> bool:
    """Return True if tensors of a class handle operators by themselves.

    Those that only stand for others (`FakeTensor`) compute nothing, and need a mode of their own.
    """
    own = getattr(kind, "__torch_dispatch__", None)
    return own is not torch.Tensor.__torch_dispatch__ and kind is not FakeTensor


@dataclass(slots=True)
class OperatorCounts:
    """Work that torch's operators did in a call."""

    bytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Bytes read and written, by kind of operator."""
    moved: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Elements read and written, by kind of operator."""
    products: float = 0.0
    """Floating-point operations of matrix products, convolutions and attention."""
    estimated: float = 0.0
    """Estimated products of unlisted operators whose names suggest products."""
    elements: float = 0.0
    """Elements of all other operators, counted once or twice (`_TWO_A_TIME`)."""

    def add(self, raw: str, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Add an operator that ran, by its name without a namespace."""
        name = raw.removesuffix("_")
        if name in _FREE and not _has_values(name, args, kwargs):
            return
        inputs, outputs = _read(args, kwargs), list(tensors_in(result))
        operands = list(tensors_in(args))
        name = _work_of(name, operands, outputs)
        if name in ("add", "sub", "rsub") and abs(kwargs.get("alpha", 1)) != 1:
            self._move("mul", outputs, 2)
        if name in _PRODUCTS and len(operands) >= 2 and outputs:
            self._add_product(name, args, operands, outputs[0])
            if name == "_addmm_activation":
                activation = "gelu" if kwargs.get("use_gelu") else "relu"
                self._move(activation, outputs[:1], 2)
            return
        if _PRODUCT_LIKE.search(name) and len(operands) >= 2 and outputs:
            self.estimated += _estimated(name, operands, outputs)
        if _DISTANCES.search(name) and operands and outputs:
            # Written out, a program writes, squares and sums each pair's difference.
            self._move("differences", outputs[:1], _WRITTEN_DISTANCE * operands[0].shape[-1])
        self._move(_SAME.get(name, name), (*inputs, *outputs))
        if name not in COPIES and name not in JOINS:
            each = 2 if name in _TWO_A_TIME else 1
            self.elements += each * max(map(_numel, (*inputs, *outputs)), default=0)

    def _move(self, name: str, tensors: Sequence[torch.Tensor], times: float = 1.0) -> None:
        """Add an operator that reads or writes each of some tensors so many times."""
        self.bytes[name] += times * sum(map(_bytes, tensors))
        wide = [each for each in tensors if each.dtype is not torch.bool]
        self.moved[name] += times * sum(_bytes(each) / each.element_size() for each in wide)

    def _add_product(
        self, name: str, args: Any, inputs: list[torch.Tensor], out: torch.Tensor
    ) -> None:
        kind = _PRODUCTS[name]
        if kind == "attention":
            query, key = inputs[0], inputs[1]
            scores = query.numel() // max(1, query.shape[-1]) * key.shape[-2]
            self._move("product", (*inputs[:3], out))
            for step in ("product", "_softmax", "attention_scale"):
                self.bytes[step] += 2 * scores * query.element_size()
                self.moved[step] += 2 * scores
            self.products += 2.0 * scores * (query.shape[-1] + out.shape[-1])
            return
        biased = kind == "biased" or (kind == "convolution" and args[2] is not None)
        # `addmm(bias, a, b)` but `convolution(input, weight, bias)`.
        bias = inputs[0] if kind == "biased" else inputs[2] if biased else None
        left, right = inputs[1:3] if kind == "biased" and len(inputs) > 2 else inputs[:2]
        self._move("product", (left, right, out))
        if bias is not None:
            self._move("add", (bias, out, out))
        if kind == "convolution":
            over = left if len(args) > 6 and args[6] else out  # transposed: inputs are spread
            inner = right.numel() // max(1, right.shape[0])
            self.products += 2.0 * over.numel() * inner
        else:
            # A complex product is four real products, or three and more sums: count three (6
            # operations), and the fourth as estimated.
            each = 6.0 if out.is_complex() else 2.0
            pairs = right.shape[0] if right.dim() == 3 else 1  # `addbmm` returns their sum
            columns = right.numel() / max(1, pairs * left.shape[-1])
            self.products += each * left.numel() * columns
            if out.is_complex():
                self.estimated += 2.0 * left.numel() * columns


def _has_values(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return True if tensors are among the values that a free operator is given."""
    values = args if name in _MADE_OF_NUMBERS else args[1:]
    return name != "is_same_size" and bool(_read(values, kwargs))


def _work_of(name: str, operands: list[torch.Tensor], outputs: list[torch.Tensor]) -> str:
    """Return the name under which an operator's work counts.

    Casts of floats to integers count as ``trunc``, copies from or to negated or conjugated views
    as ``neg``.
    """
    if name == "fill":
        name = "copy"  # of an element of a tensor; numbers from Python are free
    if name in COPIES:
        if name == "_conj_physical" or any(t.is_neg() or t.is_conj() for t in operands):
            return "neg"
        source = operands[-1:] if name == "copy" else operands[:1]
        floats = any(each.is_floating_point() for each in source)
        if floats and outputs and not (outputs[0].is_floating_point() or outputs[0].is_complex()):
            return "trunc"
    return name


class Counter(TorchDispatchMode):  # type: ignore[misc]
    """Adds up the reads, writes and products of torch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False
        """True while the judge's own code runs within a call."""
        self.active = True
        """False between calls: threads that outlive a call stay in this mode."""
        self.on_item: Callable[[int, str], None] | None = None
        """Called with the bytes and the kind of each transfer from a tensor to the host."""
        self.on_lift: Callable[[int], None] | None = None
        """Called with the bytes of each tensor that is made of Python's values."""
        self.host_memory: Any = None
        """A `HostMemory`; learns which tensors operators are about to read and which they wrote."""
        self._handling = False  # an operator runs, and the mode is off meanwhile
        self._within_own = False  # a kernel's own operator runs
        self.reset()

    @contextmanager
    def reentered(self) -> Iterator[None]:
        """Count operators that run inside an operator implemented in Python."""
        if not self._handling:
            yield
            return
        within, self._within_own = self._within_own, True
        self._handling = False
        try:
            with self:
                yield
        finally:
            self._handling, self._within_own = True, within

    def reset(self) -> None:
        """Forget the work counted so far."""
        self.work = OperatorCounts()
        """Work that all operators did."""
        self.captured = OperatorCounts()
        """Work of the operators that a CUDA graph captured; each replay does it again."""
        self.names: dict[str, int] = defaultdict(int)
        """Number of calls of each torch operator, by qualified name."""
        self.handed_over: dict[str, int] = defaultdict(int)
        """Number of calls of each operator that a class of tensors handled, by qualified name."""
        self._unchanged: dict[str, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would make torch import its whole compiler, which takes a second.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count it."""
        kwargs = kwargs or {}
        if self.paused or not self.active:
            if self.active and self.host_memory is not None:
                self.host_memory.meet()  # paused for one thread; this may be another
            return func(*args, **kwargs)
        if any(map(_dispatches, types)):
            if self.host_memory is not None:
                self.host_memory.end()  # the handling of inner tensors is not seen there
            self.handed_over[func._schema.name] += 1
            return NotImplemented  # the tensors' class handles it, and meets this mode inside
        if self._within_own or torch.is_inference_mode_enabled():
            with self:  # inference mode, and what runs below autograd, leave composite ones whole
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        name, own = func._schema.name.partition("::")[2], _is_torchs(func.name())
        lifts, plain = name in _LIFTS, own and self._is_unchanged(func.name())
        touches = lifts or not func.is_view
        if own:
            self.names[func._schema.name] += 1
        host_memory = self.host_memory if touches and name not in _RELAID else None
        if host_memory is not None and not lifts and name not in _UNREAD:
            if name in _OVERWRITING:
                host_memory.reads(tensors_in(args[1:]))  # first: a tensor may be copied to itself
                host_memory.overwrites(args[0])
            host_memory.reads(tensors_in((args, kwargs)))
        handling, self._handling = self._handling, own
        try:
            result = func(*args, **kwargs) if plain else self._through(func, args, kwargs)
        finally:
            self._handling = handling
        if host_memory is not None and own:
            mutates = func._schema.is_mutable or "batch_norm" in name  # its schemas omit it
            written = (args, kwargs, result) if mutates else result
            host_memory.wrote(tensors_in(written))
        with torch._C.DisableTorchFunctionSubclass():  # a class may work when asked for its size
            is_view = func.is_view or name in _VIEWS
            if is_view and name not in _ACCESSORS:
                is_view = _lies_in((args, kwargs), result)
            if own and not is_view:
                self._count(name, args, kwargs, result)
            elif own and lifts:
                self._tell(name, args, kwargs, result)
        self.after(func, result)
        return result

    def _is_unchanged(self, name: str) -> bool:
        """Return True if an operator is implemented as it was before any kernel was loaded."""
        if name not in self._unchanged:
            known = _implementations.get(name)
            self._unchanged[name] = known is None or known == _implementation(name)
        return self._unchanged[name]

    def _through(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that a kernel registered; count torch's operators inside it."""
        given = next(tensors_in((args, kwargs)), None)
        device = "cpu" if given is None else _device_of(given).type
        key = torch._C._parse_dispatch_key(torch._C._dispatch_key_for_device(device))
        within, self._within_own = self._within_own, True
        try:
            with self:  # off while this runs; the operator itself must not meet it again
                keys = torch._C.DispatchKeySet(key)
                return _redispatch(func._handle, keys, *args, **kwargs)
        finally:
            self._within_own = within

    def after(self, func: Any, result: Any) -> None:
        """Do nothing; a subclass may handle each operator and its result here."""

    def _count(self, raw: str, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        self.work.add(raw, args, kwargs, result)
        if is_capturing():
            self.captured.add(raw, args, kwargs, result)
        self._tell(raw.removesuffix("_"), args, kwargs, result)

    def _tell(self, name: str, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Report values that an operator moves between torch and the rest of Python."""
        if name in _LIFTS and self.on_lift is not None:
            self.on_lift(_bytes(args[0]))
        if self.on_item is None:
            return
        if name == "_local_scalar_dense":
            self.on_item(args[0].element_size(), "item")
        elif name in COPIES and any(_device_of(t).type != "cpu" for t in _read(args, kwargs)):
            for tensor in tensors_in(result):
                if _device_of(tensor).type == "cpu":
                    self.on_item(_bytes(tensor), "copies to the host")


def _lies_in(given: Any, result: Any) -> bool:
    """Return True if all tensors of a result lie in memory of the arguments."""
    try:
        held = {tensor.untyped_storage()._cdata for tensor in tensors_in(given)}
        return all(made.untyped_storage()._cdata in held for made in tensors_in(result))
    except (RuntimeError, NotImplementedError):  # sparse and other tensors without a storage
        return False


def _read(args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operator reads, each once."""
    read = {
        id(tensor): tensor
        for value in (args, [v for k, v in kwargs.items() if k not in _NO_KEYS])
        for tensor in tensors_in(value)
    }
    return list(read.values())


def _estimated(name: str, operands: list[torch.Tensor], outputs: list[torch.Tensor]) -> float:
    """Return estimated floating-point operations of a product in an unlisted operator."""
    if name == "convolution_backward":
        grad, _, weight = operands[:3]
        spread = 2.0 * float(grad.numel()) * weight[:1].numel()
        return float(spread * len([out for out in outputs if out.dim() > 1]))
    if "conv" in name and len(operands) > 1 and operands[1].dim() > 2:
        weight = operands[1]
        over = operands[0] if "transpose" in name else outputs[0]
        return float(2 * over.numel() * (weight.numel() // max(1, weight.shape[0])))
    left, right, out = sorted((*operands, *outputs), key=lambda t: -t.numel())[:3]
    # Exact for (m, k) times (k, n); too high for batches of such products.
    return 2.0 * math.sqrt(float(left.numel()) * right.numel() * out.numel())


_PRODUCT_LIKE = re.compile(
    r"linear_|_linear|(^|_)(mm|addmm|bmm|baddbmm|mv)(_|$)|conv(?!ert)|gemm|trilinear|bilinear|cdist"
    r"|euclidean_dist|embedding_bag|attention|(^|_)solve|lstsq"
)
_UNTOLD = re.compile(
    r"rnn(?!_flatten)|lstm(?!_cell)|gru(?!_cell)|transformer|multi_head|mm_plus_mm|conv\w*_run"
    r"|linear_run"
)
_DISTANCES = re.compile(r"cdist|euclidean_dist|pairwise_distance|(^|_)pdist")
_WRITTEN_DISTANCE = 5
# These make a product and a sum for each element.
_TWO_A_TIME = frozenset(("addr", "addcmul", "addcdiv", "lerp"))
_PRODUCTS = dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "linear", "_int_mm"), "plain")
_PRODUCTS |= dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"), "biased")
_PRODUCTS |= dict.fromkeys(
    "convolution _convolution cudnn_convolution mkldnn_convolution".split(), "convolution"
)
_PRODUCTS |= {
    f"_scaled_dot_product_{kind}": "attention"
    for kind in "flash_attention flash_attention_for_cpu efficient_attention cudnn_attention "
    "fused_attention_overrideable".split()
}


def is_untold(name: str) -> bool:
    """Return True if the work of an operator cannot be counted.

    It computes a whole layer, or uses weights that no tensor argument shows.
    """
    return _UNTOLD.search(name) is not None


def is_estimated(name: str) -> bool:
    """Return True if an operator's name suggests products, which are estimated by its shapes."""
    return _PRODUCT_LIKE.search(name) is not None


def is_product(name: str) -> bool:
    """Return True if an operator computes products that are counted or estimated."""
    return name.removesuffix("_") in _PRODUCTS or is_estimated(name)


def is_capturing() -> bool:
    """Return True while a CUDA graph captures what this thread launches."""
    return bool(torch.cuda.is_initialized() and _capturing())


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor's elements take, at most its storage's.

    A sparse tensor takes at least what it holds: before it is coalesced, that may be any number of
    elements at one place.
    """
    size = int(tensor.numel() * tensor.element_size())
    if tensor.layout in _SPARSE:
        return max(size, sum(map(_bytes, _held(tensor))))
    try:
        return min(size, int(tensor.untyped_storage().nbytes()))
    except (RuntimeError, NotImplementedError):  # sparse and other tensors without a storage
        return size


def _numel(tensor: torch.Tensor) -> int:
    """Return the number of a tensor's elements, at least those that it holds."""
    held = _held(tensor) if tensor.layout in _SPARSE else ()
    return max(int(tensor.numel()), *(int(each.numel()) for each in held), 0)


def _held(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that a sparse tensor consists of."""
    _record(False)  # the operators called here are the judge's
    try:
        if tensor.layout is torch.sparse_coo:
            return tensor._values(), tensor._indices()
        if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            return tensor.values(), tensor.crow_indices(), tensor.col_indices()
        return tensor.values(), tensor.ccol_indices(), tensor.row_indices()
    finally:
        _record(True)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists, tuples, dicts and Triton's descriptors."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(getattr(value, "base", None), torch.Tensor):
        yield value.base
