"""The class of a reference's most error-prone operation.

- ``convolution``: honest kernels transform blocks (Winograd), which costs digits.
- ``contraction``: other products that are summed (matrix products, attention, recurrent layers).
  Honest kernels sum in many orders, in blocks, or split over processors.
- ``scan``: running sums and products. On the CPU, torch's own scans add up in fp64. After large
  elements, they therefore err by less at small ones than any honest kernel.
- ``reduction``: sums, means, variances, softmax, norms, averages.
- ``elementwise``: everything else.

`OperatorWatch` finds the class from the names of the torch functions that one run calls. The class
chooses a ruleset's error factors and the variant of ``spiked`` inputs, and decides nothing else.
Whether elements are ranked decides on ``clustered`` inputs, whether they are multiplied along an
axis on ``balanced`` ones, and whether values that are not finite are treated apart on inputs that
hold some.
"""

from __future__ import annotations

import re
from typing import Any

from torch.overrides import TorchFunctionMode

OPERATIONS = ("elementwise", "reduction", "scan", "contraction", "convolution")
"""Classes of operations, from the least to the most error-prone."""

# Names of torch functions. A dispatch mode, at the level of ATen, would see more operators, but
# entering one costs three seconds of imports.
_PATTERNS = {
    "convolution": re.compile(r"(^|_)conv(olution|_transpose)?(\d|_|$)"),
    "contraction": re.compile(
        r"(^|_)(r?matmul|mm|bmm|addmm|baddbmm|addbmm|mv|addmv|v?dot|inner|outer|ger|addr|kron"
        r"|einsum|tensordot|multi|(bi)?linear|lstm|gru|rnn|cdist|transformer|fft\w*|i?rfft\w*"
        r"|inv|inverse|solve\w*|cholesky\w*|lstsq|matrix)($|_)|attention"
    ),
    "scan": re.compile(r"(^|_)(log)?cum(sum|prod|sumexp|ulative_trapezoid)($|_)"),
    "reduction": re.compile(
        r"(^|_)(nan)?(sum|mean|var|std|prod|norm|trace|dist|similarity|distance|entropy|trapezoid"
        r"|kl_div|bincount|histc|cov|corrcoef)($|_)|softmax|logsumexp"
        r"|loss|avg_pool|interpolate|upsample|scatter_add|scatter_reduce|index_add|index_reduce"
        r"|segment_reduce|embedding_bag|grid_sample|lp_pool|normalize"
    ),
}
_NONFINITE = re.compile(
    r"(^|_)nan(_to_num|sum|mean|median|quantile)|(^|_)is(nan|(pos|neg)?inf|finite)"
)
_MULTIPLIES = re.compile(r"(^|_)(cum)?prod($|_)")
_RANKS = re.compile(r"(^|_)(arg|m)?sort($|_)|topk|kthvalue|median|quantile")


class OperatorWatch(TorchFunctionMode):  # type: ignore[misc]
    """While entered, notes the most error-prone class of operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.operation = OPERATIONS[0]
        """Most error-prone class of the operations so far."""
        self.ranks = False
        """Whether a function sorted, or picked elements by their rank."""
        self.ties_differ = False
        """Whether a sort or pick by rank leaves the order of equal elements open."""

        self.multiplies = False
        """Whether a function took products along an axis."""
        self.asks_finite = False
        """Whether a function treated values that are not finite differently."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Note `func` and call it."""
        name = getattr(func, "__name__", "")
        operation = _class_of(name)
        self.asks_finite = self.asks_finite or bool(_NONFINITE.search(name))
        self.multiplies = self.multiplies or bool(_MULTIPLIES.search(name))
        if _RANKS.search(name):
            self.ranks = True
            self.ties_differ = self.ties_differ or (kwargs or {}).get("stable") is not True
        self.operation = max(self.operation, operation, key=OPERATIONS.index)
        return func(*args, **(kwargs or {}))


def _class_of(name: str) -> str:
    name = name.strip("_")
    for operation, pattern in _PATTERNS.items():
        if pattern.search(name):
            return operation
    return OPERATIONS[0]
