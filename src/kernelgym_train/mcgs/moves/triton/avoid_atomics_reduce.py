"""`avoid_atomics_reduce`: adds programs' sums in a second stage, in place of atomic additions.

Each program stores its sum into a buffer of its own, and a second kernel adds the buffer. This is
done where all programs add one number to the same element of an output that the host made of
zeros, and the number of programs stands in the launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.templates import filled
from kernelgym_train.mcgs.triton.loops import only
from kernelgym_train.mcgs.triton.module import (
    JitFunction,
    KernelLaunch,
    TritonModule,
    calls_in,
    found_in,
    programs_of,
)

_NAME = "add_partial_sums"


@triton_move("reassociates", phase=0, weight=1.5)
def avoid_atomics_reduce(module: TritonModule) -> Iterator[ChangedText]:
    """Add programs' sums in a second stage, in place of atomic additions to one element.

    Yields each function whose programs add to one element, with a second stage.
    """
    if _NAME in module.functions:
        return
    for function in module.functions.values():
        launches = [each for each in module.launches if each.function == function.name]
        atomics = calls_in(function.node, "atomic_add")
        if len(launches) != 1 or len(atomics) != 1 or function.tuned:
            continue
        text = _two_stages(module, function, launches[0], atomics[0])
        if text is not None:
            yield ChangedText(function.name, "two stages", text)


def _two_stages(
    module: TritonModule, function: JitFunction, launch: KernelLaunch, atomic: cst.Call
) -> str | None:
    """Return the Triton module with a sum in two stages; None if the form is not recognised."""
    statement = module.parent(module.parent(atomic))
    if len(atomic.args) != 2 or statement not in function.body:
        return None
    pointer, value = (arg.value for arg in atomic.args)
    if not isinstance(pointer, cst.Name) or pointer.value not in function.parameters:
        return None
    if _uses(function, pointer.value) != 1:
        return None
    given, programs = launch.given.get(pointer.value), programs_of(module, launch)
    if given is None or programs is None or not isinstance(given.value, cst.Name):
        return None
    made = module.bound(given.value.value, launch.call)
    if made is None or not re.match(r"torch\.zeros(_like)?\(", module.text(made)):
        return None
    line = module.parent(launch.call)
    if not isinstance(line, cst.Expr) or only(module.parent(line)) is not line:
        return None
    out, indent = given.value.value, module.indentation(launch.call)
    partials = f"{out}_partials"
    if {partials, f"{out}_programs"} & module.names(module.tree):
        return None
    begin, end = module.line_span(launch.call)[0], module.block_span(module.parent(line))[1]
    count = f"{out}_programs"
    before = (
        f"{indent}{count} = {programs}\n"
        f"{indent}{partials} = torch.empty({count}, dtype={out}.dtype, device={out}.device)\n"
    )
    after = f"{indent}{_NAME}[(1,)]({partials}, {out}, {count}, BLOCK_SUMS=1024)\n"
    head = module.head(function)
    stored = f"tl.store({pointer.value} + tl.program_id(0), {module.text(value)})"
    return module.spliced(
        [
            ((head, head), filled("add_partial_sums.py.j2", name=_NAME) + "\n\n"),
            (module.span(atomic), stored),
            ((begin, begin), before),
            # The grid reads the same number, so that a block size that is set later changes both.
            (module.span(launch.grid), f"({count},)"),
            (module.span(given.value), partials),
            ((end, end), after),
        ]
    )


def _uses(function: JitFunction, name: str) -> int:
    return sum(each.value == name for each in found_in(function.node.body, cst.Name))
