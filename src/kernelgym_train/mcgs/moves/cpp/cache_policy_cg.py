"""`cache_policy_cg`: writes results that no loop reads again past the caches.

An innermost loop that only fills neighbouring elements of an output fills a small buffer instead,
which is then written by stores that bypass the caches. If the machine has no such stores, or the
address is not aligned, they are plain stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import (
    for_head,
    lines_at,
    replaced,
    rewritten,
    with_text_above,
)
from kernelgym_train.mcgs.cpp.forms import (
    CppAssign,
    CppFunction,
    CppLet,
    CppLoop,
    directive_of,
)
from kernelgym_train.mcgs.cpp.loops import each_loop
from kernelgym_train.mcgs.cpp.proofs import accesses, carried
from kernelgym_train.mcgs.cpp.syntax import identifiers, index_node, text_of
from kernelgym_train.mcgs.cpp.vectors import fresh
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_HELPER = "store_past_caches"
_TEXT = files(__package__).joinpath(f"{_HELPER}.h").read_text("utf-8")
_BLOCK = 256
_SIMD = "#pragma omp simd"


@extension_move("exact", phase=64, weight=0.4)
def cache_policy_cg(cpp: str) -> Iterator[ChangedText]:
    """Write results past the caches, so that these keep what is read again.

    Yields streaming stores for each loop that only fills an output.
    """
    if _HELPER in cpp:
        return
    for function, loop in each_loop(cpp):
        store = _store(function, loop)
        if store is None:
            continue
        edits = [(loop.node, _filled(function, loop, store))]
        if loop.pragmas:
            directive = directive_of(loop)
            if directive is None:
                continue
            edits.append((directive, "\n"))  # the directive moves to the inner loop
        text = with_text_above(replaced(cpp, edits), loop.node, _TEXT)
        yield ChangedText(loop.name, "streamed", text)


def _store(function: CppFunction, loop: CppLoop) -> CppAssign | None:
    """Return the store of a loop that only fills an output that no loop reads; None for others."""
    if not loop.body or loop.step != 1 or loop.pragmas not in ((), (_SIMD,)):
        return None
    *before, store = loop.body
    if not all(isinstance(each, CppLet) for each in before):
        return None
    if not isinstance(store, CppAssign) or store.operator != "=" or carried(loop.body):
        return None
    target = store.target
    if target not in function.elements or function.stride(target, loop.variable) != 1:
        return None
    if set(loop.lets) & identifiers(target):
        return None  # the subscript is not known outside of the loop
    output = function.array_of(target)
    if output.element != "float" or not output.output or function.plain_name(target) is None:
        return None
    every = accesses(function.loops)
    if any(each.array == output.name and not each.writes for each in every):
        return None
    return store


def _filled(function: CppFunction, loop: CppLoop, store: CppAssign) -> str:
    """Return the text of a loop that fills a buffer, then writes it past the caches."""
    taken = function.names(loop)
    first, end, kept = (
        fresh(wanted, taken) for wanted in (f"{loop.variable}_0", f"{loop.variable}_end", "kept")
    )
    variable, kind = loop.variable, loop.wide_type
    array = text_of(store.target.child_by_field_name("argument"))
    index = index_node(store.target)
    assert index is not None

    def buffered(node: Node) -> str | None:
        return f"{kept}[{variable} - {first}]" if node == store.target else None

    def at_first(node: Node) -> str | None:
        return first if text_of(node) == variable else None

    more = f"{first} + {_BLOCK} < {loop.upper_text}"
    lines = [
        f"{for_head(kind, first, loop.lower_text, loop.upper_text, _BLOCK)} {{",
        f"  const {kind} {end} = {more} ? {first} + {_BLOCK} : {loop.upper_text};",
        f"  float {kept}[{_BLOCK}];",
        *(f"  {each}" for each in loop.pragmas),
        f"  {for_head(loop.type, variable, first, end)} {rewritten(loop.body_node, buffered)}",
        f"  {_HELPER}(&{array}[{rewritten(index, at_first)}], {kept}, {end} - {first});",
        "}",
    ]
    return lines_at(loop.column, lines)
