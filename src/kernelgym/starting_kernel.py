"""Problems whose right outputs are those of a starting kernel.

A kernel spec with ``"reference": "start"`` makes problems whose module holds the spec's own kernel
as text, under the name `NAME`. The judge runs that kernel in a sandboxed process, as it runs a
candidate, and compares the outputs of other kernels with its outputs. The module's ``Model``
computes the shapes and types of the outputs alone, which the spec lists.

Correct then means: agrees with the starting kernel. A mistake of that kernel is what is right.
"""

from __future__ import annotations

import ast
import functools

from kernelgym.types import Kernel, Problem

NAME = "STARTING_KERNEL"
"""Name in a problem's module: a pair of the kernel's language and its source."""
BASELINE = "start"
"""Value of `Timing.baseline` if the reference's time is that of the starting kernel."""
START = "the starting kernel"
"""Words for the standard of correct outputs on a problem with a starting kernel."""


def starting_kernel(problem: Problem) -> Kernel | None:
    """Return a problem's starting kernel, whose outputs are the right ones; None if it has none."""
    return kernel_in(problem.source)


def standard_of(problem: Problem) -> str:
    """Return what a correct kernel agrees with: ``the reference`` or ``the starting kernel``."""
    return "the reference" if starting_kernel(problem) is None else START


def meaning_of_correct(problem: Problem) -> str:
    """Return what a correct verdict says, such as ``agrees with the starting kernel``."""
    return f"agrees with {standard_of(problem)}"


@functools.lru_cache(maxsize=256)
def kernel_in(source: str) -> Kernel | None:
    """Return the starting kernel that a problem's module names; None if it names none."""
    if NAME not in source:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [NAME]:
            match node.value:
                case ast.Tuple(elts=[ast.Constant(value=str(kind)), ast.Constant(value=str(text))]):
                    return Kernel(text, kind)
    return None
