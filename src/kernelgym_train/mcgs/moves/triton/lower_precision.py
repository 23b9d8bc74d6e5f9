"""`lower_precision`: lets tensor cores round floats to TF32, once or in three parts.

In three parts (``tf32x3``), products have most of a float's digits, and infinities become NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.module import TritonModule, calls_in

_PRECISION = ("input_precision", "allow_tf32")


@triton_move("approximate", phase=22, weight=1.0)
def lower_precision(module: TritonModule) -> Iterator[ChangedText]:
    """Let tensor cores round floats to TF32, once or in three parts.

    Yields each precision of each ``tl.dot``.
    """
    for function in module.functions.values():
        for number, call in enumerate(calls_in(function.node, "dot")):
            for precision in ("tf32x3", "tf32"):
                text = module.edited([(call, _with_precision(module, call, precision))])
                if text != module.source:
                    yield ChangedText(f"dot {number + 1} of {function.name}", precision, text)


def _with_precision(module: TritonModule, call: cst.Call, precision: str) -> str:
    """Return a ``tl.dot`` call's text with another precision."""
    texts = []
    for arg in call.args:
        name = arg.keyword.value if arg.keyword is not None else ""
        if name not in _PRECISION:
            texts.append(f"{name}={module.text(arg.value)}" if name else module.text(arg.value))
    return f'tl.dot({", ".join(texts)}, input_precision="{precision}")'
