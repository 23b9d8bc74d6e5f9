"""Share of the reference's work that a kernel leaves to torch's operators.

Work is measured by the bytes that operators move, kind by kind, or by floating-point operations
where the reference consists of matrix products. So neither other names for the same work nor a
fused operator in place of several helps.

Not here:
- counting work: `kernelgym.judge.untrusted.watch.operator_work`;
- judging a kernel by its share: `kernelgym.judge.evidence.evidence`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kernelgym.judge.reference.starting import StartingModel
from kernelgym.judge.untrusted.watch.operator_work import (
    COPIES,
    JOINS,
    Counter,
    is_estimated,
    is_untold,
)

_UNKNOWN = 30.0
"""Weight of an operator of unknown cost, such as an FFT, a factorisation or a fused activation, in
multiples of the bytes that it moves."""
_CHEAP = re.compile(
    r"(abs|neg|sign|sgn|add|sub|rsub|mul|div|reciprocal|square|sqrt|rsqrt|exp2?|expm1|log(2|10|1p)?"
    r"|sin|cos|floor|ceil|round|trunc|frac|remainder|fmod|maximum|minimum|fmax|fmin|where|relu"
    r"|threshold|masked_\w+|(eq|ne|lt|le|gt|ge)|isnan|isinf|isfinite|logical_\w+|bitwise_\w+|equal"
    r"|nan_to_num|sum|amax|amin|max|min|any|all|prod|count_nonzero|product|index|index_\w+|gather"
    r"|scatter\w*|take|embedding|tril|triu|diagonal\w*|one_hot|argmax|argmin|nonzero|to_\w+)$"
)
"""Names of operators of torch whose cost is about the bytes that they move."""
_WITHOUT_PRODUCTS = re.compile(
    r"(im2col|col2im|unfold\w*|\w*pool\w*|_?upsample\w*|\w*pad\w*|pixel_\w+|channel_shuffle"
    r"|sort|argsort|topk|kthvalue|median|mode|unique\w*|searchsorted|bucketize|histc|bincount"
    r"|native_dropout|dropout|bernoulli|normal|multinomial|poisson|binomial|cum(max|min|prod)"
    r"|(arc)?(sin|cos|tan)h?|(a|arc)(sin|cos|tan)h?|erf|erfc|erfinv|lgamma|digamma|xlogy|logit|tan"
    r"|allclose|heaviside|hypot|logaddexp2?|std|var|norm|native_norm|cross|frexp|ldexp|log"
    r"|\w+_scatter|put|addr|sinc|clamp_(min|max)|hardshrink|softshrink|softmin|glu|range|complex|polar"
    r"|real|imag|angle|conj\w*|_conj\w*|view_as_\w+|nll_loss\w*|\w+_loss\w*|repeat_interleave"
    r"|tril_indices|triu_indices|trace|aminmax|lcm|gcd|float_power|sigmoid|_to_dense|to_sparse\w*"
    r"|_fake_quantize\w*|quantize_per\w*|dequantize\w*|renorm|\w*(layer|batch|group|rms)_norm\w*)$"
)
"""Names of further operators that sum no products of two tensors' elements."""

_STARTING_WORK = "starting_kernel"
"""Name of an entry, which no operator has, for the work of a problem's starting kernel."""
_LITTLE_WORK = frozenset(("embedding",))
"""Names of operators that are not counted in whole models: they look up rows of a table, all of
which would count as read."""

_OTHERS, _GRADIENTS, _LAYERS = (1.0, 1.0), (1.0, 8.0), (1.0, 100.0)

# What an operator's work costs when it is written out in simpler operators, in multiples of the
# bytes that the operator itself moves: the least (assumed of the reference) and the most (assumed
# of the kernel) in natural programs. Otherwise a kernel that only swaps torch's fused operators for
# written-out ones, or the reverse, would seem to have replaced work.
_WRITTEN_OUT: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("_softmax", "_log_softmax"), (2.5, 5.0)),
    **dict.fromkeys(
        (
            "native_layer_norm",
            "native_group_norm",
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "_batch_norm_with_update",
            "cudnn_batch_norm",
            "_fused_rms_norm",
            "rms_norm",
            "_weight_norm_interface",
        ),
        (3.0, 9.0),
    ),
    **dict.fromkeys(("gelu", "mish", "selu", "elu", "celu"), (1.5, 10.0)),
    **dict.fromkeys(("silu", "softplus", "hardswish", "log_sigmoid_forward"), (1.5, 6.0)),
    **dict.fromkeys(("sigmoid", "tanh", "hardsigmoid", "leaky_relu", "prelu"), (1.0, 5.0)),
    **dict.fromkeys(("hardtanh", "clamp", "logsumexp", "cumsum", "logcumsumexp"), (1.0, 5.0)),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss"), (1.5, 8.0)),
    **dict.fromkeys(("binary_cross_entropy", "linalg_vector_norm", "var", "std"), (1.0, 8.0)),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp", "var_mean", "std_mean"), (1.0, 4.0)),
    **dict.fromkeys(("mkldnn_rnn_layer", "_cudnn_rnn", "lstm", "gru"), (100.0, 100.0)),
    "pow": (1.0, 3.0),
    # Counted with a fused attention; a written-out one may omit it or fold it into the query.
    "attention_scale": (0.0, 3.0),
    # Counted with distances; distances written out as products never compute them.
    "differences": (0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class TorchWork:
    """Work of torch's operators in one call; see `untrusted/watch/operator_work.py`."""

    bytes: dict[str, float]
    products: float
    elements: float
    estimated: float = 0.0
    """Estimated products of the reference's operators, which `products` leaves out; a kernel's are
    in `products`."""
    whole_model: bool = False
    """Whether this is a model of the package transformers. Algebra on its weights, such as a factor
    put into them, saves torch a few per cent of the work without a kernel, and so does leaving out
    a cache: more has to be replaced than in other references."""
    moved: dict[str, float] = dataclasses.field(default_factory=dict)
    """Elements that `bytes` are the bytes of, by kind of operator; may be incomplete."""

    @classmethod
    def of(cls, counter: Counter, model: torch.nn.Module | None = None) -> TorchWork:
        """Return the work that a trusted counter counted in calls of a model."""
        if isinstance(model, StartingModel):
            # What a kernel computes is not known. It reads its inputs and writes its outputs, as an
            # operator that took its place would.
            return cls({_STARTING_WORK: float(model.moved_bytes)}, 0.0, 0.0)
        done = counter.work
        transformers = sys.modules.get("transformers")  # it made its models, so it is imported
        kind = getattr(transformers, "PreTrainedModel", ())
        whole = model is not None and any(isinstance(part, kind) for part in model.modules())
        counted = dict(done.bytes), done.products, done.elements, done.estimated, whole
        return cls(*counted, dict(done.moved))

    def without(self, names: Collection[str]) -> TorchWork:
        """Return the work without the bytes of some kinds of operators."""
        left = {name: moved for name, moved in self.bytes.items() if name not in names}
        return dataclasses.replace(self, bytes=left)

    def __add__(self, other: TorchWork) -> TorchWork:
        bytes_ = {k: self.bytes.get(k, 0.0) + v for k, v in other.bytes.items()}
        moved = {k: self.moved.get(k, 0.0) + v for k, v in other.moved.items()}
        return TorchWork(
            {**self.bytes, **bytes_},
            self.products + other.products,
            self.elements + other.elements,
            self.estimated + other.estimated,
            moved={**self.moved, **moved},
        )

    def as_wide_as(self, other: TorchWork) -> TorchWork:
        """Return the work with elements as wide as in the other's operators of the same names.

        Casts are free: without this, one to a narrower type would halve what follows it. Names
        that the other has not count as its narrowest operator.
        """
        widths = {k: other.bytes[k] / v for k, v in other.moved.items() if v and k in other.bytes}
        others = (v for k, v in widths.items() if k not in COPIES and k not in JOINS)
        least = min(others, default=0.0)
        wide = {k: v * widths.get(k, least) for k, v in self.moved.items()}
        bytes_ = {k: max(v, wide.get(k, 0.0)) for k, v in self.bytes.items()}
        return dataclasses.replace(self, bytes=bytes_)


@contextmanager
def counted(model: torch.nn.Module) -> Iterator[Counter]:
    """Count torch's operator work inside calls of a model, not around them."""
    counter = Counter()
    if isinstance(model, StartingModel):  # its calls of torch only hand tensors to a process
        yield counter
        return
    depths = [0]

    def enter(*_: object) -> None:
        depths[0] += 1
        if depths[0] == 1:
            counter.__enter__()

    def leave(*_: object) -> None:
        if depths[0] == 1:
            counter.__exit__(None, None, None)

    hooks = [
        model.register_forward_pre_hook(enter),
        model.register_forward_hook(leave, always_call=True),
    ]
    try:
        yield counter
    finally:
        for hook in hooks:
            hook.remove()


def torch_share(reference: TorchWork, kernel: TorchWork, *, unknown_is_dear: bool = False) -> float:
    """Return the work a kernel leaves to torch, relative to the reference's.

    Work that both do under the same name counts the same on both sides. The kernel's other work
    counts for the most that it could cost written out, the reference's for the least.

    Args:
        reference: Work of torch's operators in the reference's call.
        kernel: Work of torch's operators in the kernel's calls.
        unknown_is_dear: Whether an operator that the reference has not counts many times the bytes
            that it moves, unless it is known to be cheap.
    """
    dear, kernel = _UNKNOWN if unknown_is_dear else 1.0, kernel.as_wide_as(reference)
    if reference.whole_model:
        reference, kernel = reference.without(_LITTLE_WORK), kernel.without(_LITTLE_WORK)
    total = _worth(reference.bytes, 0)
    if not total:
        # The problem only moves data, so that is the work, and whatever does it counts.
        joined = sum(reference.bytes.get(name, 0.0) for name in JOINS)
        moved = joined or sum(reference.bytes.get(name, 0.0) for name in COPIES)
        return sum(kernel.bytes.values()) / moved if moved else 0.0
    # Joins count nothing beside other work: a kernel that writes parts in place has no join left.
    common = {k: min(v, kernel.bytes.get(k, 0.0)) for k, v in reference.bytes.items()}
    rest = {k: v - common.get(k, 0.0) for k, v in kernel.bytes.items()}
    shares = [(_worth(common, 0) + _worth(rest, 1, dear)) / total]
    # Products inside whole layers of torch (an LSTM, say) are not counted, nor are those that an
    # operator computes in another guise, such as an FFT or an inverse: if the kernel calls one and
    # the reference does not, counted products would miss its work.
    tells = _tells_products if unknown_is_dear else lambda name: not is_untold(name)
    untold = any(not tells(name) and name not in reference.bytes for name in kernel.bytes)
    if reference.products and not untold:
        shares.append((kernel.products + kernel.elements) / reference.products)
    return min(shares)


def _tells_products(name: str) -> bool:
    """Return True if an operator's products are counted, or if it computes no products."""
    if is_untold(name):
        return False
    known = name in COPIES or name in JOINS or name in _WRITTEN_OUT
    return known or is_estimated(name) or bool(_CHEAP.match(name) or _WITHOUT_PRODUCTS.match(name))


def _worth(work: dict[str, float], end: int, unknown: float = 1.0) -> float:
    return sum(
        moved * _WRITTEN_OUT.get(name, _unlisted(name, unknown))[end]
        for name, moved in work.items()
        if name not in COPIES and name not in JOINS
    )


def _unlisted(name: str, unknown: float) -> tuple[float, float]:
    if is_untold(name):
        return _LAYERS
    if "_backward" in name:
        return _GRADIENTS
    return _OTHERS if unknown == 1.0 or _CHEAP.match(name) else (1.0, unknown)
