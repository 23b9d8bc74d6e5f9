"""What a reference consists of: the class of its most error-prone operation.

- ``convolution``: honest kernels transform blocks (Winograd), which costs digits.
- ``contraction``: other products that are summed (matrix products, attention, recurrent layers).
  Honest kernels sum in many orders, in blocks, or split over processors.
- ``scan``: running sums and products. torch's own add up in fp64 on the CPU, so that they err by
  less at small elements than any honest kernel that has passed large ones on the way.
- ``reduction``: sums, means, variances, softmax, norms, averages.
- ``elementwise``: everything else.

Found out by watching which of torch's functions one run calls, by their names. It chooses the error
factor of a ruleset and decides nothing else.
"""

from __future__ import annotations

import re
from typing import Any

from torch.overrides import TorchFunctionMode

__all__ = ["OPERATIONS", "Watching"]

OPERATIONS = ("elementwise", "reduction", "scan", "contraction", "convolution")
"""From the least to the most error-prone."""

# A mode at the level of ATen would see more, but costs three seconds of imports.
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


class Watching(TorchFunctionMode):  # type: ignore[misc]
    """While entered, notes which classes of operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.operation = OPERATIONS[0]
        """The most error-prone class so far."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Note `func` and call it."""
        operation = _class_of(getattr(func, "__name__", ""))
        self.operation = max(self.operation, operation, key=OPERATIONS.index)
        return func(*args, **(kwargs or {}))


def _class_of(name: str) -> str:
    name = name.strip("_")
    for operation, pattern in _PATTERNS.items():
        if pattern.search(name):
            return operation
    return OPERATIONS[0]
