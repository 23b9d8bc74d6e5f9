"""`single_pass_row`: keeps a whole row in registers, instead of reading it in blocks several times.

Every loop of the function runs over one range in steps of one block size. The block size becomes
the next power of two of the range, and each loop is left with its body, which is run once.
Statements that repeat an earlier one, such as loads of the same elements, are left out. The masks
of the loops stay, so that what lies behind the row is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.knobs import appended, knobs_of
from kernelgym_train.mcgs.triton.loops import (
    TritonLoop,
    assigned,
    assignment,
    loops_of,
    only,
    reads_descriptors,
    statements,
)
from kernelgym_train.mcgs.triton.module import (
    JitFunction,
    KernelLaunch,
    TritonModule,
    calls_in,
    found_in,
    walk,
)

_WARPS = (8, 4, 16, 2)


@triton_move("reassociates", phase=5, weight=4.0, tried_first=True)
def single_pass_row(module: TritonModule) -> Iterator[ChangedText]:
    """Keep a whole row in registers, instead of reading it in blocks several times.

    Yields a function without loops, with several numbers of warps.
    """
    for function in module.functions.values():
        launches = [each for each in module.launches if each.function == function.name]
        loops = loops_of(module, function)
        if len(launches) != 1 or function.tuned or not loops or calls_in(function.node, "dot"):
            continue
        size = _size(module, function, loops, launches[0])
        if size is None or reads_descriptors(function):
            continue
        edits = [
            _block(module, launches[0], loops[0].step, size),
            *_straight(module, function, loops),
        ]
        warps = next(
            knob
            for knob in knobs_of(module)
            if (knob.function, knob.name) == (function.name, "num_warps")
        )
        for number in _WARPS if warps.literals or warps.calls else ():
            text = module.spliced([*edits, *warps.edits(module, number)])
            yield ChangedText(function.name, f"{number} warps", text)


def _size(
    module: TritonModule,
    function: JitFunction,
    loops: tuple[TritonLoop, ...],
    launch: KernelLaunch,
) -> str | None:
    """Return a Triton launch's expression for the length of a row; None if not recognised."""
    block, end = loops[0].step, loops[0].end
    if len(found_in(function.node, cst.For)) != len(loops):
        return None
    for loop in loops:
        if loop.is_static or (loop.start, loop.end, loop.step) != ("0", end, block):
            return None
        if loop.node not in function.body or len(found_in(loop.node, cst.For)) > 1:
            return None
        if any(loop.variable in assigned(each) for each in statements(function.body)):
            return None
        if any(isinstance(each, cst.Continue | cst.Break) for each in walk(loop.node)):
            return None
        for call in calls_in(loop.node, "load", "store"):
            if not any(
                arg.keyword is not None and arg.keyword.value == "mask" for arg in call.args
            ):
                return None
    given = launch.given.get(end)
    if block not in function.constants or end not in function.parameters or given is None:
        return None
    if re.search(rf"\b{block}\b", _grid_text(module, launch)):
        return None
    if block not in launch.given and block not in function.defaults:
        return None
    return module.text(given.value)


def _grid_text(module: TritonModule, launch: KernelLaunch) -> str:
    """Return the text of a Triton launch's grid, through a name that is assigned once."""
    grid = launch.grid
    if isinstance(grid, cst.Name):
        grid = module.bound(grid.value, launch.call) or grid
    return module.text(grid)


def _block(
    module: TritonModule, launch: KernelLaunch, block: str, size: str
) -> tuple[tuple[int, int], str]:
    """Return the edit of a Triton launch that sets the block size."""
    value = f"triton.next_power_of_2({size})"
    if block in launch.given:
        return module.span(launch.given[block].value), value
    return appended(module, launch.call, f"{block}={value}")


class _Repeats:
    """Finds statements that repeat an earlier one, in the order in which they run.

    A value is known by its text, by how often each name that it reads was assigned before and, if
    it loads, by the number of stores before.
    """

    def __init__(self, module: TritonModule) -> None:
        self._module = module
        self._versions: dict[str, int] = {}
        self._made: dict[tuple[str, ...], tuple[str, int]] = {}
        self._stores = 0

    def is_repeat(self, statement: cst.BaseStatement) -> bool:
        """Take in a statement; return True if its name already has the value that it assigns."""
        found = assignment(statement)
        if found is None:
            self._change(statement)
            return False
        name, value = found
        names = self._module.names(value)
        loads = bool(calls_in(value, "load", "atomic_add"))
        key = (
            re.sub(r"\s+", " ", self._module.text(value)),
            *(f"{each}:{self._versions.get(each, 0)}" for each in sorted(names)),
            str(self._stores if loads else 0),
        )
        if self._made.get(key) == (name, self._versions.get(name, 0)):
            return True
        self._versions[name] = self._versions.get(name, 0) + 1
        if name not in names:
            self._made[key] = (name, self._versions[name])
        return False

    def _change(self, statement: cst.BaseStatement) -> None:
        """Take in a statement that may change any name in it."""
        self._stores += bool(calls_in(statement, "store", "atomic_add"))
        small = only(statement)
        changed = self._module.names(statement)
        if isinstance(small, cst.AugAssign):
            changed = self._module.names(small.target)
        elif isinstance(small, cst.Expr):
            changed = set()
        for name in changed:
            self._versions[name] = self._versions.get(name, 0) + 1


def _straight(
    module: TritonModule, function: JitFunction, loops: tuple[TritonLoop, ...]
) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the statements of a Triton function, loops replaced by their bodies, no repeats."""
    repeats, heads = _Repeats(module), {loop.node: loop for loop in loops}
    for outer in function.body:
        if outer not in heads:
            repeats.is_repeat(outer)
            continue
        loop = heads[outer]  # type: ignore[index]
        indent = module.indentation(loop.node)
        lines = [f"{indent}{loop.variable} = 0\n"]
        for statement in loop.body:
            start, end = module.block_span(statement)
            if not repeats.is_repeat(statement):
                text = module.source.encode()[start:end].decode()
                # Lines that are indented less lie inside of brackets, and stay as they are.
                old = module.indentation(statement)
                lines.append(re.sub(f"^{old}", indent, text, flags=re.M))
        yield module.block_span(loop.node), "".join(lines)
