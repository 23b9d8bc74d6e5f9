"""`change_block_sizes`: cuts loops into blocks, and changes how threads share a loop.

Two forms. Of two loops that may change places, the inner one is cut into blocks, and the loop over
blocks becomes the outermost, so that the elements that a block reads stay in the caches. Or a loop
that runs on all cores gets another schedule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import for_head, lines_at, replaced
from kernelgym_train.mcgs.cpp.forms import (
    CppFunction,
    CppLoop,
    directive_of,
    only_inner,
    walk_loops,
)
from kernelgym_train.mcgs.cpp.loops import read_functions
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cpp.vectors import fresh
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_BLOCKS = (64, 32, 128, 256)
_SCHEDULES = ("schedule(dynamic, 1)", "schedule(static, 8)", "schedule(dynamic, 16)")
_PLAIN = re.compile(r"#pragma omp parallel for(?: num_threads\(\d+\))?")


@extension_move("exact", phase=33, weight=0.7)
def change_block_sizes(cpp: str) -> Iterator[ChangedText]:
    """Cut a loop into blocks that fit a cache, or give threads other shares of a loop.

    Yields block sizes for each nest of two loops, then schedules.
    """
    for function in read_functions(cpp):
        for loop in walk_loops(function.loops):
            inner = _inner(function, loop)
            if inner is not None:
                for block in _BLOCKS:
                    text = _blocked(function, loop, inner, block)
                    changed = replaced(cpp, [(loop.node, text)])
                    yield ChangedText(loop.name, f"blocks of {block}", changed)
        for loop in function.loops:
            directive = directive_of(loop)
            if len(loop.pragmas) != 1 or not _PLAIN.fullmatch(loop.pragmas[0]):
                continue
            if directive is not None:
                plain = loop.pragmas[0]
                for schedule in _SCHEDULES:
                    new = text_of(directive).replace(plain, f"{plain} {schedule}")
                    changed = replaced(cpp, [(directive, new)])
                    yield ChangedText(f"{loop.name} threads", schedule, changed)


def _inner(function: CppFunction, loop: CppLoop) -> CppLoop | None:
    """Return the inner of two loops if the loop over its blocks may be the outermost; or None."""
    inner = only_inner(loop)
    if inner is None or inner.step != 1 or any("collapse" in each for each in loop.pragmas):
        return None
    # The loop over blocks evaluates these bounds even if the other loop runs zero times.
    if loop.variable in inner.bounds or not inner.has_plain_bounds:
        return None
    if inner.type not in ("int64_t", "std::int64_t", "int", "long"):
        return None
    both = (loop, inner)
    return inner if all(has_independent_iterations(function, each) for each in both) else None


def _blocked(function: CppFunction, loop: CppLoop, inner: CppLoop, block: int) -> str:
    taken, kind = function.names(loop), inner.wide_type
    first, end = (fresh(f"{inner.variable}_{part}", taken) for part in ("0", "end"))
    body = text_of(inner.body_node)
    lines = [
        f"{for_head(kind, first, inner.lower_text, inner.upper_text, block)} {{",
        f"  const {kind} {end} = std::min<{kind}>({first} + {block}, {inner.upper_text});",
        f"  {loop.head} {{",
        f"    {for_head(inner.type, inner.variable, first, end)} {body}",
        "  }",
        "}",
    ]
    return lines_at(loop.column, lines)
