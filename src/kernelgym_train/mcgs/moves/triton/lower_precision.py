"""`lower_precision`: lets tensor cores round floats to TF32, once or in three parts.

In three parts (``tf32x3``), products have most of a float's digits, and infinities become NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.definition import Realisation, search_move
from kernelgym_train.mcgs.triton.module import TritonModule, calls_in, read_module
from kernelgym_train.mcgs.variant import Variant

_PRECISION = ("input_precision", "allow_tf32")


@search_move("approximate", phase=22, weight=1.0, language="triton")
def lower_precision(variant: Variant) -> Iterator[Realisation]:
    """Let tensor cores round floats to TF32, once or in three parts.

    Yields each precision of each ``tl.dot``.
    """
    module = read_module(variant.source)
    for function in module.functions.values():
        for number, call in enumerate(calls_in(function.node, "dot")):
            for precision in ("tf32x3", "tf32"):
                text = module.edited([(call, _with_precision(module, call, precision))])
                if text != variant.source:
                    yield Realisation(
                        f"dot {number + 1} of {function.name}",
                        precision,
                        dataclasses.replace(variant, source=text),
                        "approximate",
                    )


def _with_precision(module: TritonModule, call: cst.Call, precision: str) -> str:
    """Return the text of a dot product with a precision in place of its own."""
    texts = []
    for arg in call.args:
        name = arg.keyword.value if arg.keyword is not None else ""
        if name not in _PRECISION:
            texts.append(f"{name}={module.text(arg.value)}" if name else module.text(arg.value))
    return f'tl.dot({", ".join(texts)}, input_precision="{precision}")'
