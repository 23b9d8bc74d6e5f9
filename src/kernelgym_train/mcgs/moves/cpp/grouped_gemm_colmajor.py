"""`grouped_gemm_colmajor`: copies an operand into the order in which it is used.

Applies to elements that are each a sum over an inner loop. An input whose elements for neighbouring
terms lie side by side is copied so that those of neighbouring sums do, or the other way round. The
computation is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.accumulation import Accumulation, read_accumulation
from kernelgym_train.mcgs.cpp.editing import for_head, replaced, rewritten, with_lines_above
from kernelgym_train.mcgs.cpp.forms import CppArray, CppFunction, CppLoop, inner_loops
from kernelgym_train.mcgs.cpp.loops import read_functions
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.proofs import accesses, is_guarded
from kernelgym_train.mcgs.cpp.syntax import identifiers, root_of, text_of, walk
from kernelgym_train.mcgs.cpp.vectors import fresh
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move


@dataclass(frozen=True, slots=True)
class _Operand:
    """An input of a sum over products, read as a whole rectangle, which a copy may reorder."""

    name: str
    """Name of the operand's pointer."""
    array: CppArray
    outer: CppLoop
    """Loop over the rows of the reordered copy."""
    inner: CppLoop
    """Loop along which the elements of the reordered copy are contiguous."""
    choice: str


@extension_move("exact", phase=15, weight=1.0)
def grouped_gemm_colmajor(cpp: str) -> Iterator[ChangedText]:
    """Copy an operand of a product so that elements that are used together lie together.

    Yields a copy of each operand whose elements lie side by side along the other loop.
    """
    for function in read_functions(cpp):
        for outermost in function.loops:
            for around, found in _accumulations(function, outermost, ()):
                for operand in _operands(function, around, found):
                    text = _copied(cpp, outermost, around, found, operand)
                    target = f"{found.elements.name} {operand.name}"
                    yield ChangedText(target, operand.choice, text)


def _accumulations(
    function: CppFunction, loop: CppLoop, around: tuple[CppLoop, ...]
) -> Iterator[tuple[tuple[CppLoop, ...], Accumulation]]:
    """Yield the loops over elements that are sums, each with the loops around it."""
    found = read_accumulation(function, loop)
    if found is not None and around:
        yield around, found
    for inner in inner_loops(loop):
        yield from _accumulations(function, inner, (*around, loop))


def _operands(
    function: CppFunction, around: tuple[CppLoop, ...], found: Accumulation
) -> Iterator[_Operand]:
    """Yield the inputs of a sum that are read as a rectangle, by both of its loops."""
    columns, terms = found.elements, found.terms
    loops = {each.variable for each in (*around, columns, terms)}
    bounds = (*(each.lower for each in around), *(each.upper for each in around))
    bounds += (columns.upper, terms.upper)
    if any(bound.names & loops for bound in bounds):
        return
    if columns.lower.constant != 0 or terms.lower.constant != 0:
        return
    # A name that a loop's body declares does not exist before the loops.
    if any(not bound.names <= set(function.types) for bound in bounds):
        return
    read = {
        name: function.elements[each]
        for each in walk(found.add.value)
        if each in function.elements and (name := function.plain_name(each)) in function.types
        if not is_guarded(each, found.add.value)
    }
    written = {each.array for each in accesses(function.loops) if each.writes}
    if not all(function.arrays[each].output for each in written):
        return  # the operand may be the same memory
    for name, element in sorted((name, each) for name, each in read.items() if name is not None):
        array, index = function.arrays[element.array], element.flat
        texts = {text_of(each) for each in _elements(found.elements.node, name)}
        if array.name in written or not array.tensor or len(texts) != 1 or index is None:
            continue
        for side, across, choice in (
            (columns, terms, "elements side by side"),
            (terms, columns, "terms side by side"),
        ):
            stride = index.coefficient(side.variable)
            if stride is None or stride.names & loops or stride.constant in (0, 1):
                continue
            if not stride.names <= set(function.types):
                continue
            if index == stride * Polynomial.name(side.variable) + Polynomial.name(across.variable):
                yield _Operand(name, array, across, side, choice)


def _elements(node: Node, array: str) -> Iterator[Node]:
    """Yield the subscript expressions of an array within an expression or statement."""
    for each in walk(node):
        if each.type == "subscript_expression":
            if text_of(each.child_by_field_name("argument")) == array:
                yield each


def _copied(
    cpp: str,
    outermost: CppLoop,
    around: tuple[CppLoop, ...],
    found: Accumulation,
    operand: _Operand,
) -> str:
    """Return the C++ text in which the loops read a copy of an operand."""
    outer, inner, array = operand.outer, operand.inner, operand.array
    taken = identifiers(root_of(outermost.node))
    tensor, packed, outer_size, inner_size, p, q = (
        fresh(f"{operand.name}_{part}", taken)
        for part in ("packed_tensor", "packed", "outer", "inner", "p", "q")
    )
    at = {outer.variable: p, inner.variable: q}
    element = next(_elements(found.add.value, operand.name))

    def renamed(node: Node) -> str | None:
        return at.get(text_of(node)) if node.type == "identifier" else None

    # If the loops around do not run, the input may have no elements.
    runs = " && ".join(
        f"({each.lower_text}) < ({each.upper_text})" for each in (*around, outer, inner)
    )
    lines = [
        f"const int64_t {outer_size} = {runs} ? ({outer.upper_text}) : 0;",
        f"const int64_t {inner_size} = {runs} ? ({inner.upper_text}) : 0;",
        f"auto {tensor} = torch::empty({{{outer_size}, {inner_size}}}, {array.name}.options());",
        f"{array.element}* {packed} = {tensor}.data_ptr<{array.element}>();",
        f"{for_head('int64_t', p, '0', outer_size)} {{",
        f"  {for_head('int64_t', q, '0', inner_size)} {{",
        f"    {packed}[{p} * {inner_size} + {q}] = {rewritten(element, renamed)};",
        "  }",
        "}",
    ]
    new = f"{packed}[{outer.variable} * {inner_size} + {inner.variable}]"

    def used(node: Node) -> str | None:
        return new if text_of(node) == text_of(element) else None

    text = replaced(cpp, [(found.elements.node, rewritten(found.elements.node, used))])
    return with_lines_above(text, [(outermost.node, lines)])
