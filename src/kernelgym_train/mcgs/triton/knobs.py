"""`knobs_of`: numbers of a Triton kernel that can be set: block sizes and launch options.

A number is read from ``triton.Config`` lists, from the arguments of launches, from a name that is
assigned once, and from a parameter's default, whichever the kernel has. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from kernelgym_train.mcgs.kernel_file import added_argument
from kernelgym_train.mcgs.triton.loops import (
    arange_names,
    assignment,
    program_axis,
    reads_descriptors,
)
from kernelgym_train.mcgs.triton.module import (
    JitFunction,
    KernelLaunch,
    TritonModule,
    calls_in,
    found_in,
    integer,
    walk,
)

OPTIONS = {"num_warps": 4, "num_stages": 3, "maxnreg": 0}
"""Default values of a Triton launch's options; 0 stands for no limit."""


@dataclass(frozen=True)
class TritonKnob:
    """A number in a Triton kernel that can be set, such as a block size."""

    function: str
    name: str
    """Name of the number: a parameter of the function, or a launch option (``num_warps``)."""
    value: int | None
    """Value of the number; None if the configurations have several."""
    literals: tuple[cst.CSTNode, ...] = ()
    """Literals in the text that hold the value."""
    calls: tuple[cst.Call, ...] = ()
    """Launches or configurations that need a further argument to set the number."""

    def edits(self, module: TritonModule, value: int) -> list[tuple[tuple[int, int], str]]:
        """Return the text changes that set the number to a value."""
        found = [(module.span(node), str(value)) for node in self.literals]
        for call in self.calls:
            found.append(appended(module, call, f"{self.name}={value}"))
        return found


def appended(module: TritonModule, call: cst.Call, text: str) -> tuple[tuple[int, int], str]:
    """Return the text change that gives a call in a Triton module one more argument."""
    return added_argument(module.source, module.span(call), text)


def knobs_of(module: TritonModule) -> tuple[TritonKnob, ...]:
    """Return every number of a Triton module that can be set, function by function."""
    found: list[TritonKnob] = []
    for function in module.functions.values():
        launches = [each for each in module.launches if each.function == function.name]
        if not launches:
            continue
        for name in function.constants:
            knob = _constant(module, function, launches, name)
            if knob is not None:
                found.append(knob)
        found += [_option(module, function, launches, name) for name in OPTIONS]
    return tuple(found)


def values_of(module: TritonModule, function: str) -> dict[str, int]:
    """Return the values of a Triton function's numbers, except where configurations disagree."""
    return {
        knob.name: knob.value
        for knob in knobs_of(module)
        if knob.function == function and knob.value is not None
    }


def _constant(
    module: TritonModule, function: JitFunction, launches: list[KernelLaunch], name: str
) -> TritonKnob | None:
    """Return the knob of a Triton kernel's constant; None if a change of the text cannot set it."""
    literals: list[cst.CSTNode] = []
    if function.configs and any(name in _config_keys(call) for call in function.configs):
        for call in function.configs:
            literal = _config_keys(call).get(name)
            if integer(literal) is None:
                return None
            assert literal is not None
            literals.append(literal)
    else:
        for launch in launches:
            given = launch.given.get(name)
            value = given.value if given is not None else function.defaults.get(name)
            literal = _literal(module, value, launch.call)
            if literal is None or (literal is value and reads_descriptors(function)):
                return None  # the block of a descriptor would not follow
            in_grid = _in_grid(module, function, launch, name, literal)
            if in_grid is None:
                return None
            literals += [literal, *in_grid]
    values = {integer(literal) for literal in literals}
    once = tuple(dict.fromkeys(literals))
    return TritonKnob(function.name, name, values.pop() if len(values) == 1 else None, once)


def _option(
    module: TritonModule, function: JitFunction, launches: list[KernelLaunch], name: str
) -> TritonKnob:
    """Return the knob of a Triton launch's option, such as ``num_warps``."""
    if function.configured and not function.configs:
        return TritonKnob(function.name, name, None)  # set by configurations that are not seen
    given = [(call, _keyword(call, name)) for call in function.configs] or [
        (launch.call, launch.given[name].value if name in launch.given else None)
        for launch in launches
    ]
    literals = [_literal(module, value, call) for call, value in given if value is not None]
    if None in literals:
        return TritonKnob(function.name, name, None)  # computed: nothing can be set
    calls = tuple(call for call, value in given if value is None)
    values = {integer(each) for each in literals} | ({OPTIONS[name]} if calls else set())
    known = values.pop() if len(values) == 1 else None
    once = tuple(each for each in dict.fromkeys(literals) if each is not None)
    return TritonKnob(function.name, name, known, once, calls)


def _literal(
    module: TritonModule, value: cst.BaseExpression | None, at: cst.CSTNode
) -> cst.Integer | None:
    """Return the literal that gives a value, through names that are assigned once.

    Args:
        module: The module.
        value: The value, or None.
        at: Node that reads the value.
    """
    for _ in range(3):
        if isinstance(value, cst.Integer):
            return value
        if not isinstance(value, cst.Name):
            return None
        value = module.bound(value.value, at)
    return None


def _in_grid(
    module: TritonModule,
    function: JitFunction,
    launch: KernelLaunch,
    name: str,
    literal: cst.Integer,
) -> list[cst.CSTNode] | None:
    """Return the literals by which a Triton grid divides for a block size: ``cdiv(n, 128)``.

    None if the grid would not follow the block size, or if it cannot be told whether a literal
    stands for this block size or for another one.
    """
    grids: list[cst.BaseExpression] = [launch.grid]
    axes: dict[cst.CSTNode, int] = {}
    found: list[cst.CSTNode] = []
    follows = False
    for grid in grids:  # grows by the names that are found
        if isinstance(grid, cst.Tuple):
            axes |= {node: a for a, each in enumerate(grid.elements) for node in walk(each)}
        follows |= any(each.evaluated_value == name for each in found_in(grid, cst.SimpleString))
        for each in sorted(module.names(grid)):
            bound = module.bound(each, launch.call)
            follows |= bound is literal
            if bound is not None and bound not in grids:
                grids.append(bound)
    blocks = _blocks_by_axis(module, function)
    for call in (call for grid in grids for call in calls_in(grid, "cdiv")):
        divisor = call.args[-1].value
        if integer(divisor) != integer(literal) or divisor is literal:
            continue
        known = blocks.get(axes.get(call, -1))
        if known is None and len(set(function.constants) & set(arange_names(function))) > 1:
            return None
        if known in (None, name):
            found.append(divisor)
    return found if found or follows or name not in blocks.values() else None


def _blocks_by_axis(module: TritonModule, function: JitFunction) -> dict[int, str]:
    """Return the constant that ``tl.program_id`` is multiplied by, for each axis of the grid."""
    ids: dict[str, int] = {}
    for statement in function.body:
        made = assignment(statement)
        if made is not None and (axis := program_axis(made[1])) is not None:
            ids[made[0]] = axis
    found: dict[int, str] = {}
    for node in found_in(function.node, cst.BinaryOperation):
        if not isinstance(node.operator, cst.Multiply):
            continue
        for one, two in ((node.left, node.right), (node.right, node.left)):
            at = ids.get(one.value) if isinstance(one, cst.Name) else program_axis(one)
            if at is not None and isinstance(two, cst.Name) and two.value in function.constants:
                found[at] = two.value
    return found


def _config_keys(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Return the values of parameters in a ``triton.Config``, by name."""
    first = call.args[0].value if call.args else None
    if not isinstance(first, cst.Dict):
        return {}
    return {
        str(each.key.evaluated_value): each.value
        for each in first.elements
        if isinstance(each, cst.DictElement) and isinstance(each.key, cst.SimpleString)
    }


def _keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
    return next(
        (arg.value for arg in call.args if arg.keyword is not None and arg.keyword.value == name),
        None,
    )
