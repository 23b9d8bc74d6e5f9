"""Effects of a C++ function on memory that its caller passes, at one call. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import CppElement, CppLoop, CppPlace, CppSummary
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.proofs import accesses


def elements_of(
    call: Node,
    summary: CppSummary,
    places: Mapping[str, CppPlace],
    values: Mapping[str, Polynomial],
    constants: frozenset[str],
) -> list[CppElement] | None:
    """Return the elements that a call in C++ accesses; None if they lie in memory not passed.

    Args:
        call: The call.
        summary: Effects of the function.
        places: Memory that the passed pointers lead to, by the parameter's name.
        values: Whole numbers that are passed, by the parameter's name.
        constants: Constants of the text.
    """
    fixed = {each: Polynomial.name(each) for each in constants} | dict(values)
    found: list[CppElement] = []
    for access in accesses(summary.body):
        place = places.get(access.array)
        if place is not None:
            index, loops = _moved(access, place, fixed)
            found.append(CppElement(call, place.array, index, access.writes, loops))
        elif access.array not in summary.locals | constants:
            return None
    return found


def _moved(
    access: CppElement, place: CppPlace, fixed: Mapping[str, Polynomial]
) -> tuple[tuple[Polynomial | None, ...], tuple[CppLoop, ...]]:
    """Return an access's subscripts, and the loops around it, in terms of the caller's names."""
    # The function's counters are other variables than those of the loops around the call.
    own = {each.variable: f"{each.variable} of {each.name}" for each in access.loops}
    meant = dict(fixed) | {name: Polynomial.name(new) for name, new in own.items()}
    ends = (end for loop in access.loops for end in (loop.lower, loop.upper))
    if any(each is None or not each.names <= set(meant) for each in (*access.index, *ends)):
        return (None,), ()
    index = tuple(each and each.replaced(meant) for each in access.index)
    if not place.strided and place.dims == 1:
        index = tuple(each and place.offset and each + place.offset for each in index)
    loops = list[CppLoop]()
    for each in access.loops:
        lower, upper = each.lower.replaced(meant), each.upper.replaced(meant)
        if lower is None or upper is None:
            return (None,), ()
        variable = own[each.variable]
        loops.append(dataclasses.replace(each, variable=variable, lower=lower, upper=upper))
    return index, tuple(loops)
