"""`split_row`: shares each row among several programs, where few programs would read long rows.

A function whose program runs loops over a row becomes one function a stage. A stage ends behind
each loop that adds up a sum, or finds a maximum, which is read behind it: every program stores what
it found in its part of the row, and the next stage begins by reading all parts.

Sums are added up in another order. Loops must run over one row each, from 0 in steps of a block,
and hand on sums, maxima and minima alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.loops import (
    TritonLoop,
    assigned,
    assignment,
    loops_of,
    only,
    program_axis,
    reads_descriptors,
)
from kernelgym_train.mcgs.triton.module import (
    JitFunction,
    KernelLaunch,
    TritonModule,
    calls_in,
    found_in,
    is_call,
    programs_of,
)

_PARTS = (16, 64, 4)
_COMBINED_BY = {"maximum": "max", "minimum": "min"}
_NEW = ("partials", "PARTS", "part_begin", "part_end")


@dataclass(frozen=True)
class _Carried:
    """Value that a loop computes and later statements or iterations use."""

    name: str
    by: str
    """Reduction that combines the programs' values: ``sum``, ``max`` or ``min``."""
    is_block: bool
    """Whether the loop keeps a value for each element of a block."""


@triton_move("reassociates", phase=5, weight=2.0)
def split_row(module: TritonModule) -> Iterator[ChangedText]:
    """Share each row among several programs, where few programs would read long rows.

    Yields a function of each stage, with several numbers of programs a row.
    """
    for function in module.functions.values():
        launches = [each for each in module.launches if each.function == function.name]
        loops = loops_of(module, function)
        if len(launches) != 1 or not loops:
            continue
        stages = _stages(module, function, loops)
        if stages is None:
            continue
        for parts in _PARTS:
            text = _split(module, function, launches[0], stages, parts)
            if text is not None:
                yield ChangedText(function.name, f"{parts} programs a row", text)


@dataclass(frozen=True)
class _Stages:
    loops: dict[cst.CSTNode, TritonLoop]
    """Loops by their statement."""
    carried: dict[cst.CSTNode, tuple[_Carried, ...]]
    """Values that each loop computes for later use, by the loop's statement."""


def _stages(
    module: TritonModule, function: JitFunction, loops: tuple[TritonLoop, ...]
) -> _Stages | None:
    """Return the values that a function's loops compute; None if the form is not recognised."""
    by_node: dict[cst.CSTNode, TritonLoop] = {loop.node: loop for loop in loops}
    if len(found_in(function.node, cst.For)) != len(loops) or reads_descriptors(function):
        return None
    if calls_in(function.node, "dot", "atomic_add", "num_programs"):
        return None
    axes = calls_in(function.node, "program_id")
    if any(program_axis(call) != 0 for call in axes) or set(_NEW) & module.names(module.tree):
        return None
    body = list(function.body)
    if not all(each in by_node or only(each) is not None for each in body):
        return None
    for loop in loops:
        bounds = [arg for arg in loop.call.args if arg.keyword is None]
        if loop.node not in body or loop.is_static or loop.start != "0" or len(bounds) != 3:
            return None
        if loop.step not in function.constants or not all(map(only, loop.body)):
            return None
    last = max(place for place, each in enumerate(body) if each in by_node)
    carried = dict[cst.CSTNode, tuple[_Carried, ...]]()
    for place, statement in enumerate(body):
        if statement in by_node:
            found = _handed_on(module, by_node[statement], body[:place], body[place + 1 :])
            if found is None:
                return None
            carried[statement] = found
    # Every program of a row runs what stands between loops, so that nothing may be stored there.
    behind = len(body) if not carried[body[last]] else last
    if any(calls_in(each, "store") for each in body[:behind] if each not in by_node):
        return None
    return _Stages(by_node, carried) if any(carried.values()) else None


def _handed_on(
    module: TritonModule,
    loop: TritonLoop,
    before: Sequence[cst.BaseStatement],
    after: Sequence[cst.BaseStatement],
) -> tuple[_Carried, ...] | None:
    """Return the values that later statements use from a loop; None if one is not a reduction."""
    set_here = set().union(*map(assigned, loop.body))
    handed = set_here & _read_first(module, after)
    kept = set_here & _read_first(module, loop.body)
    found = []
    for name in sorted(handed | kept):
        updates = [each for each in loop.body if name in assigned(each)]
        readers = [each for each in loop.body if name in module.names(each)]
        by = _combined_by(module, updates[0], name) if len(updates) == 1 else ""
        begun = _begun(before, name)
        if not by or readers != updates or begun is None:
            return None
        text = module.text(begun)
        is_block = is_call(begun, "zeros") or is_call(begun, "full")
        if "64" in text or "int" in text or not (is_block or _is_number(begun)):
            return None
        if by == "sum" and not (is_call(begun, "zeros") or re.fullmatch(r"0?\.0*", text)):
            return None
        if is_block and not _is_read_whole(module, after, name, by):
            return None
        if name in handed:
            found.append(_Carried(name, by, is_block))
    return tuple(found)


def _read_first(module: TritonModule, body: Sequence[cst.BaseStatement]) -> set[str]:
    """Return the names that statements read before they assign them."""
    read, made = set[str](), set[str]()
    for statement in body:
        if isinstance(statement, cst.For):
            read |= module.names(statement.iter) - made
            inside = statement.body.body
            made |= module.names(statement.target)
            read |= _read_first(module, inside) - made  # type: ignore[arg-type]
            made |= set().union(*map(assigned, inside))
            continue
        found = assignment(statement)
        small = only(statement)
        names = module.names(statement if found is None else found[1])
        if isinstance(small, cst.AnnAssign) and small.value is not None:
            names = module.names(small.value)
        read |= names - made
        made |= assigned(statement)
    return read


def _combined_by(module: TritonModule, statement: cst.BaseStatement, name: str) -> str:
    """Return the reduction that a statement ``name += value`` makes; empty for other statements."""
    small, found = only(statement), assignment(statement)
    if isinstance(small, cst.AugAssign):
        adds = isinstance(small.operator, cst.AddAssign)
        return "sum" if adds and name not in module.names(small.value) else ""
    if found is None:
        return ""
    value = found[1]
    sides: list[cst.BaseExpression] = []
    by = ""
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
        sides, by = [value.left, value.right], "sum"
    for word, reduction in _COMBINED_BY.items():
        if is_call(value, word) and isinstance(value, cst.Call) and len(value.args) == 2:
            sides, by = [arg.value for arg in value.args], reduction
    own = [isinstance(each, cst.Name) and each.value == name for each in sides]
    others = [name in module.names(each) for each in sides]
    return by if sum(own) == 1 and sum(others) == 1 else ""


def _begun(before: Sequence[cst.BaseStatement], name: str) -> cst.BaseExpression | None:
    """Return the value that a name has before a loop; None unless a plain statement assigns it."""
    for statement in reversed(before):
        if isinstance(statement, cst.For):
            if any(name in assigned(each) for each in statement.body.body):
                return None
        elif name in assigned(statement):
            found = assignment(statement)
            return None if found is None else found[1]
    return None


def _is_number(value: cst.BaseExpression) -> bool:
    """Return True for a float literal, ``float("-inf")`` included, or its negation."""
    if isinstance(value, cst.UnaryOperation):
        value = value.expression
    if isinstance(value, cst.Call):
        return isinstance(value.func, cst.Name) and value.func.value == "float"
    return isinstance(value, cst.Float)


def _is_read_whole(
    module: TritonModule, after: Sequence[cst.BaseStatement], name: str, by: str
) -> bool:
    """Return True if later statements only reduce a block, so that its length does not matter."""
    for statement in after:
        found = assignment(statement)
        if found is not None and found[0] == name and name not in module.names(found[1]):
            return True
        for each in (each for each in found_in(statement, cst.Name) if each.value == name):
            call = module.parent(module.parent(each))
            first = isinstance(call, cst.Call) and call.args and call.args[0].value is each
            if not first or not is_call(call, by):
                return False
    return True


def _split(
    module: TritonModule, function: JitFunction, launch: KernelLaunch, stages: _Stages, parts: int
) -> str | None:
    """Return the module with one function a stage; None if the launch is not recognised."""
    line, programs = module.parent(launch.call), programs_of(module, launch)
    if not isinstance(line, cst.Expr) or only(module.parent(line)) is not line or programs is None:
        return None
    made = (
        each.value.value
        for each in launch.given.values()
        if isinstance(each.value, cst.Name)
        and (value := module.bound(each.value.value, launch.call)) is not None
        and re.match(r"torch\.(empty|zeros)(_like)?\(", module.text(value))
    )
    output = next(made, None)
    if output is None:
        return None
    functions = list(_functions(module, function, stages))
    indent, count, buffer = module.indentation(launch.call), f"{output}_rows", f"{output}_partials"
    if {count, buffer, *(each.name for each in functions)} & module.names(module.tree):
        return None
    values = sum(map(len, stages.carried.values()))
    given = ", ".join(module.text(arg).rstrip().rstrip(",") for arg in launch.call.args)
    launched = [
        f"{indent}{count} = {programs}\n",
        f"{indent}{buffer} = torch.empty(\n"
        f"{indent}    {values} * {count} * {parts}, dtype=torch.float32, device={output}.device\n"
        f"{indent})\n",
    ]
    for each in functions:
        grid = f"({count}, {parts if each.in_parts else 1})"
        launched.append(f"{indent}{each.name}[{grid}]({buffer}, {parts}, {given})\n")
    head, end = module.head(function), module.block_span(function.body[-1])[1]
    begin, behind = module.line_span(launch.call)[0], module.block_span(module.parent(line))[1]
    return module.spliced(
        [
            ((head, end), "\n\n".join(each.text for each in functions)),
            ((begin, behind), "".join(launched)),
        ]
    )


@dataclass(frozen=True)
class _Stage:
    name: str
    text: str
    in_parts: bool
    """Whether each program works on a part of a row; if False, one program computes the row."""


def _functions(module: TritonModule, function: JitFunction, stages: _Stages) -> Iterator[_Stage]:
    """Yield the function of each stage."""
    body, carried, done = list(function.body), stages.carried, -1
    numbers = {
        (loop, each.name): number
        for number, (loop, each) in enumerate(
            (loop, each) for loop, some in carried.items() for each in some
        )
    }
    ends = [place for place, each in enumerate(body) if carried.get(each)]
    if ends[-1] < len(body) - 1:
        ends.append(len(body) - 1)
    for stage, end in enumerate(ends):
        name = f"{function.name}_{stage + 1}"
        text, at = _signature(module, function, name), module.line_span(body[0])[0]
        for place, statement in enumerate(body[: end + 1]):
            begin, at = at, module.block_span(statement)[1]
            loop, indent = stages.loops.get(statement), module.indentation(statement)
            values = {numbers[statement, each.name]: each for each in carried.get(statement, ())}
            if loop is None or place > done:
                text += _piece(module, (begin, at), loop)
            if loop is not None and place <= done:
                text += "".join(f"{indent}{_read(n, each)}\n" for n, each in values.items())
            elif place == end:
                text += "".join(f"{indent}{_written(n, each)}\n" for n, each in values.items())
        yield _Stage(name, text, any(each in stages.loops for each in body[done + 1 : end + 1]))
        done = end


def _signature(module: TritonModule, function: JitFunction, name: str) -> str:
    """Return the first lines of a stage's function."""
    first = function.node.params.posonly_params or function.node.params.params
    place = module.span(first[0])[0]
    edits = [
        (module.span(function.node.name), name),
        ((place, place), "partials, PARTS: tl.constexpr, "),
    ]
    return module.spliced(edits, (module.head(function), module.line_span(function.body[0])[0]))


def _piece(module: TritonModule, span: tuple[int, int], loop: TritonLoop | None) -> str:
    """Return the lines of a statement; a loop is limited to the program's part of its row."""
    if loop is None:
        return module.spliced([], span)
    start, end, _ = (arg.value for arg in loop.call.args if arg.keyword is None)
    line = module.line_span(loop.node)[0]
    size = f"tl.cdiv(tl.cdiv({loop.end}, {loop.step}), PARTS) * {loop.step}"
    indent = module.indentation(loop.node)
    bounds = (
        f"{indent}part_begin = tl.program_id(1) * ({size})\n"
        f"{indent}part_end = tl.minimum(part_begin + {size}, {loop.end})\n"
    )
    edits = [
        ((line, line), bounds),
        (module.span(start), "part_begin"),
        (module.span(end), "part_end"),
    ]
    return module.spliced(edits, span)


def _place(number: int) -> str:
    return f"partials + ({number} * tl.num_programs(0) + tl.program_id(0)) * PARTS"


def _written(number: int, value: _Carried) -> str:
    """Return the line that stores a program's partial result."""
    found = f"tl.{value.by}({value.name}, axis=0)" if value.is_block else value.name
    return f"tl.store({_place(number)} + tl.program_id(1), {found})"


def _read(number: int, value: _Carried) -> str:
    """Return the line that loads a row's partial results, combined unless the value is a block."""
    found = f"tl.load({_place(number)} + tl.arange(0, PARTS))"
    return f"{value.name} = {found if value.is_block else f'tl.{value.by}({found}, axis=0)'}"
