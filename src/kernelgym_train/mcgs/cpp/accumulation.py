"""`Accumulation`: a loop over elements, each of which is a sum over an inner loop.

::

    for (j ...) {
      float total = START;
      for (k ...) { total += TERM; }
      output[INDEX] = RESULT;         // may name total
    }

Contract: `read_accumulation` returns an accumulation only if elements are independent of each
other, the inner
loop's bounds do not depend on the element, ``total`` has the output's type, and TERM reads no
output. So the elements can be computed in any order, and several at once. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym_train.mcgs.cpp.forms import CppArray, CppAssign, CppFunction, CppLet, CppLoop
from kernelgym_train.mcgs.cpp.proofs import accesses, has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import identifiers, text_of


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Parts of a loop that this module recognises: an elementwise loop around a sum over terms."""

    elements: CppLoop
    total: CppLet
    terms: CppLoop
    add: CppAssign
    store: CppAssign
    output: CppArray


def read_accumulation(function: CppFunction, loop: CppLoop) -> Accumulation | None:
    """Return a loop's parts if it is an accumulation; None otherwise."""
    if len(loop.body) != 3 or loop.step != 1:
        return None
    total, terms, store = loop.body
    if not (
        isinstance(total, CppLet) and isinstance(terms, CppLoop) and isinstance(store, CppAssign)
    ):
        return None
    if terms.pragmas or terms.step != 1 or len(terms.body) != 1:
        return None
    (add,) = terms.body
    if not isinstance(add, CppAssign) or add.operator not in ("+=", "-="):
        return None
    if text_of(add.target) != total.name or total.name in identifiers(add.value):
        return None
    if store.operator != "=" or store.target not in function.elements:
        return None
    output = function.array_of(store.target)
    if output.element != total.type or loop.variable in terms.bounds:
        return None
    if any(each.array == output.name and not each.writes for each in accesses(loop.body)):
        return None
    if terms.variable in identifiers(store.target) | identifiers(store.value):
        return None
    if not has_independent_iterations(function, loop):
        return None
    return Accumulation(loop, total, terms, add, store, output)
