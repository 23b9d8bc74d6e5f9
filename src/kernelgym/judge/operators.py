"""What a reference consists of: the class of its most error-prone operation.

- ``contraction``: products that are summed (matrix products, convolutions, attention, recurrent
  layers). Honest kernels sum in many orders, in blocks, split over processors, or transformed.
- ``reduction``: sums, means, variances, softmax, norms, scans, averages.
- ``elementwise``: everything else.

Found out by watching one run at the level of ATen, so that it does not matter how a model is
written. It chooses the error factor of a ruleset and decides nothing else.
"""

from __future__ import annotations

import re
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["OPERATIONS", "Watching"]

OPERATIONS = ("elementwise", "reduction", "contraction")
"""From the least to the most error-prone."""

_PATTERNS = {
    "contraction": re.compile(
        r"(^|_)(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|ger|einsum|linear|bilinear|matmul)($|_)"
        r"|convolution|conv\d|attention|lstm|gru|rnn|cdist|fft|linalg|cholesky|solve|inverse"
    ),
    "reduction": re.compile(
        r"(^|_)(sum|nansum|mean|var|std|prod|norm|trace|dist|kl_div|histc)($|_)"
        r"|softmax|logsumexp|logcumsumexp|cumsum|cumprod|_norm|norm_|loss|avg_pool|upsample"
        r"|scatter_add|index_add|scatter_reduce|segment_reduce|embedding_bag|grid_sampler"
    ),
}


class Watching(TorchDispatchMode):
    """While entered, notes which classes of operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.operation = OPERATIONS[0]
        """The most error-prone class so far."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Note `func` and call it."""
        name = func.overloadpacket.__name__
        for operation, pattern in _PATTERNS.items():
            if pattern.search(name):
                self.operation = max(self.operation, operation, key=OPERATIONS.index)
                break
        return func(*args, **(kwargs or {}))
