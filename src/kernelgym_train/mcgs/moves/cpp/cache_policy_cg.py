"""`cache_policy_cg`: what is written and not read again goes past the caches.

An innermost loop that only fills neighbouring elements of an output fills a small buffer instead,
which is written by stores that leave no trace in the caches. Where the machine has none, or the
address does not fit, they are plain stores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced, rewritten, with_text_above
from kernelgym_train.mcgs.cpp.loops import (
    Assign,
    Function,
    Let,
    Loop,
    directive_of,
    read_functions,
    walk_loops,
)
from kernelgym_train.mcgs.cpp.proofs import accesses, carried
from kernelgym_train.mcgs.cpp.syntax import identifiers, index_node, text_of, walk
from kernelgym_train.mcgs.cpp.vectors import fresh, stride_along
from kernelgym_train.mcgs.moves.definition import Move, Realisation
from kernelgym_train.mcgs.variant import Variant

__all__ = ["CACHE_POLICY_CG"]

_HELPER = "store_past_caches"
_TEXT = f"""\
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
static inline void {_HELPER}(float* to, const float* from, int64_t count) {{
  int64_t at = 0;
#if defined(__SSE2__)
  for (; at < count && reinterpret_cast<uintptr_t>(to + at) % 16 != 0; ++at) to[at] = from[at];
  for (; at + 4 <= count; at += 4) _mm_stream_ps(to + at, _mm_loadu_ps(from + at));
#endif
  for (; at < count; ++at) to[at] = from[at];
#if defined(__SSE2__)
  _mm_sfence();  // before another thread may read
#endif
}}
"""
_BLOCK = 256
_SIMD = "#pragma omp simd"


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield such stores for each loop that only fills an output."""
    file = variant.file
    if _HELPER in file.cpp:
        return
    for function in read_functions(file.cpp):
        for loop in walk_loops(function.loops):
            store = _store(function, loop)
            if store is None:
                continue
            edits = [(loop.node, _filled(function, loop, store))]
            if loop.pragmas:
                directive = directive_of(loop)
                if directive is None:
                    continue
                edits.append((directive, "\n"))  # it goes to the loop inside
            cpp = with_text_above(replaced(file.cpp, edits), loop.node, _TEXT)
            changed = dataclasses.replace(variant, source=file.with_cpp(cpp).source)
            yield Realisation(loop.name, "streamed", changed)


def _store(function: Function, loop: Loop) -> Assign | None:
    """Return the store of a loop that fills an unread output."""
    if not loop.body or loop.step != 1 or loop.pragmas not in ((), (_SIMD,)):
        return None
    *before, store = loop.body
    if not all(isinstance(each, Let) for each in before):
        return None
    if not isinstance(store, Assign) or store.operator != "=" or carried(loop.body):
        return None
    if (
        store.target.type != "subscript_expression"
        or stride_along(store.target, loop.variable) != 1
    ):
        return None
    if {each.name for each in before if isinstance(each, Let)} & identifiers(store.target):
        return None  # the subscript is not known outside of the loop
    output = function.arrays[text_of(store.target.child_by_field_name("argument"))]
    if output.element != "float":
        return None
    every = accesses(function.loops)
    if any(each.array == output.name and not each.writes for each in every):
        return None
    return store


def _filled(function: Function, loop: Loop, store: Assign) -> str:
    """Return the loop by way of a buffer."""
    taken = {*identifiers(loop.node), *function.arrays, *function.types}
    taken |= {text_of(each) for each in walk(loop.node) if each.type == "identifier"}
    first, end, kept = (
        fresh(wanted, taken) for wanted in (f"{loop.variable}_0", f"{loop.variable}_end", "kept")
    )
    variable, kind = loop.variable, loop.type
    array = text_of(store.target.child_by_field_name("argument"))
    index = index_node(store.target)
    body = loop.node.child_by_field_name("body")
    assert body is not None and index is not None

    def buffered(node: Node) -> str | None:
        return f"{kept}[{variable} - {first}]" if node == store.target else None

    def at_first(node: Node) -> str | None:
        return first if text_of(node) == variable else None

    more = f"{first} + {_BLOCK} < {loop.upper_text}"
    lines = [
        f"for ({kind} {first} = {loop.lower_text}; {first} < {loop.upper_text}; "
        f"{first} += {_BLOCK}) {{",
        f"  const {kind} {end} = {more} ? {first} + {_BLOCK} : {loop.upper_text};",
        f"  float {kept}[{_BLOCK}];",
        *(f"  {each}" for each in loop.pragmas),
        f"  for ({kind} {variable} = {first}; {variable} < {end}; ++{variable}) "
        f"{rewritten(body, buffered)}",
        f"  {_HELPER}(&{array}[{rewritten(index, at_first)}], {kept}, {end} - {first});",
        "}",
    ]
    return ("\n" + " " * loop.node.start_point.column).join(lines)


CACHE_POLICY_CG = Move(
    "cache_policy_cg",
    ("cpp",),
    "exact",
    64,
    0.4,
    "Write results past the caches, so that these keep what is read again.",
    _realise,
    knob="presence",
)
