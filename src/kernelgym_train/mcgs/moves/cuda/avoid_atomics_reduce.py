"""`avoid_atomics_reduce`: adds the values of a warp before an atomic addition to one place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import children, identifiers, text_of, walk
from kernelgym_train.mcgs.cuda.elements import CudaElements, elements_of
from kernelgym_train.mcgs.cuda.text import read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move
from kernelgym_train.mcgs.templates import filled


@extension_move("reassociates", phase=12, weight=2.0, language="cuda")
def avoid_atomics_reduce(cpp: str) -> Iterator[ChangedText]:
    """Add the values of a warp or a block first, and to memory once.

    Yields one addition a warp, then one a block, for each kernel that adds floats so.
    """
    text = read_cuda(cpp)
    for name, kernel in text.kernels.items():
        launch, found = text.only_launch(name), elements_of(text, kernel)
        if launch is None or found is None or len(launch.block) != 1:
            continue
        threads, added = text.value(launch.block[0]), _addition(found)
        # All lanes of a warp take part, so that a block has whole warps.
        if added is None or threads is None or threads % 32:
            continue
        place, value = added
        for choice in ("a warp", "a block"):
            values = {"found": found, "choice": choice, "place": place, "value": value}
            body = filled("avoid_atomics_reduce.cu.j2", text=text_of, **values).strip()
            yield ChangedText(name, choice, replaced(cpp, [(kernel.body, body)]))


def _addition(found: CudaElements) -> tuple[Node, Node] | None:
    """Return target and value of the atomic addition that ends a CUDA kernel's body; or None."""
    last = found.body[-1]
    calls = [
        each
        for statement in found.body
        for each in walk(statement)
        if re.match(r"atomic|__shfl|__sync", text_of(each.child_by_field_name("function")))
    ]
    if len(calls) != 1 or last.type != "expression_statement" or children(last) != calls:
        return None
    given = calls[0].child_by_field_name("arguments")
    terms = [] if given is None else children(given)
    if text_of(calls[0].child_by_field_name("function")) != "atomicAdd" or len(terms) != 2:
        return None
    place, value = terms
    pointers = {n for n in identifiers(place) if n in found.kernel.pointers}
    one_place = not identifiers(place) - pointers and len(pointers) == 1
    elements = {found.kernel.pointers[n].element for n in pointers}
    names = "partial" in text_of(found.kernel.node)
    return (place, value) if one_place and elements == {"float"} and not names else None
