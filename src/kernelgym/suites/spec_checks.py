"""Checks that a kernel spec's parts fit together, before anything runs.

Contract: `check_spec` raises a `UsageError` in one line that names the part: an axis that is not
defined, an output that nothing writes, a grid that is not arithmetic, a reference that is missing
(with the line to add), shapes whose sizes are no sizes. `check_memory` refuses shapes beyond a
memory budget.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable

from kernelgym.errors import UnknownName, UsageError
from kernelgym.judging_memory import in_gigabytes, judging_bytes
from kernelgym.suites.spec import (
    ExprAxis,
    KernelSpec,
    SpecShape,
    SpecTensor,
    VarAxis,
    names_used,
)
from kernelgym.suites.spec_arithmetic import FUNCTIONS, evaluate, names_in
from kernelgym.suites.spec_sources import cpp_function, run_parameters, unwritten_by_triton

_GENERATED = frozenset(
    {"self", "super", "torch", "nn", "run", "Model", "ModelNew", "extension", "found", "sizes"}
)
_CPP = frozenset(
    """
    alignas alignof asm auto bool break case catch char char8_t char16_t char32_t class concept
    const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept nullptr operator private protected public
    register reinterpret_cast requires return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while
    """.split()
)
_MOST_THREADS = 1024
_RUN = "import torch\\n\\ndef run({}):\\n    return ..."


def check_spec(spec: KernelSpec) -> None:
    """Check that a spec's parts fit together.

    Raises:
        UsageError: If they do not.
    """
    _check_names(spec)
    _check_axes(spec)
    _check_tensors(spec)
    _check_reference(spec)
    _check_shapes(spec)
    _check_launch(spec)
    _check_arguments(spec)
    _check_outputs(spec)


def check_memory(spec: KernelSpec, budget: int, device: str) -> None:
    """Check that each shape can be judged.

    Args:
        spec: The spec.
        budget: Largest number of bytes that judging a kernel may take.
        device: Device that the message names.

    Raises:
        UsageError: If a shape takes more.
    """
    for shape in spec.shapes:
        needed = judging_bytes(*spec.call_bytes(shape))
        if needed > budget:
            raise UsageError(
                f"shape {spec.shape_name(shape)!r} of {spec.name!r} takes {in_gigabytes(needed)} "
                f"to judge, and the memory budget on {device!r} is {in_gigabytes(budget)}; make "
                "the shape smaller"
            )


def _is_name(text: str) -> bool:
    """Return True if a text can name a variable in generated modules."""
    plain = text.isascii() and text.isidentifier() and not text.startswith("_")
    return plain and not keyword.iskeyword(text)


def _check_names(spec: KernelSpec) -> None:
    contract = spec.contract
    kinds = {
        "axis": contract.axes,
        "tensor": [tensor.name for tensor in contract.tensors],
        "scalar": [scalar.name for scalar in contract.scalars],
        "meta-parameter": spec.launch.meta,
    }
    seen: dict[str, str] = {}
    for kind, names in kinds.items():
        for name in names:
            if not _is_name(name):
                raise UsageError(
                    f"{kind} {name!r:.80} is not a name; letters of ASCII, digits and _ are, and a "
                    "letter comes first"
                )
            if (why := _taken(spec, kind, name)) is not None:
                raise UsageError(f"{kind} {name!r} cannot have that name: {why}; rename it")
            if name in seen:
                raise UsageError(f"{name!r} names a {seen[name]} and a {kind}; rename one")
            seen[name] = kind
    if not _is_name(spec.entry):
        raise UsageError(f"entry {spec.entry!r:.80} is not a function's name")
    if not spec.is_extension and (spec.entry in seen or spec.entry in ("torch", "nn")):
        what = seen.get(spec.entry, "module of torch's")
        raise UsageError(f"{spec.entry!r} names the entry and a {what}; rename one")


def _taken(spec: KernelSpec, kind: str, name: str) -> str | None:
    """Return why modules generated from a kernel spec, or C++, cannot use a name."""
    if name in _GENERATED:
        return "the generated modules use it themselves"
    if name in FUNCTIONS:
        return "it is a function of the spec's arithmetic"
    if kind == "meta-parameter" and spec.is_extension and name in _CPP:
        return "it is a word of C++"
    return None


def _check_axes(spec: KernelSpec) -> None:
    before: list[str] = []
    for name, axis in spec.contract.axes.items():
        if isinstance(axis, ExprAxis):
            _check_known(names_in(axis.expression), before, f"axis {name!r}", "axes before it")
        before.append(name)


def _check_known(used: Iterable[str], known: Iterable[str], where: str, what: str) -> None:
    known = list(known)
    for name in used:
        if name not in known:
            raise UsageError(
                f"{where} uses {name!r}, which is not defined; {what}: {', '.join(known) or 'none'}"
            )


def _check_tensors(spec: KernelSpec) -> None:
    contract = spec.contract
    for tensor in contract.tensors:
        where = f"tensor {tensor.name!r}"
        for size in tensor.shape:
            _check_known(names_in(size), contract.axes, f"the shape of {where}", "axes")
        rank = len(tensor.shape)
        if tensor.layout == "transposed" and rank < 2:
            raise UsageError(f"{where} is transposed, which takes 2 axes or more; it has {rank}")
        if tensor.layout == "channels_last" and rank != 4:
            raise UsageError(f"{where} is channels_last, which takes 4 axes; it has {rank}")
        if tensor.role == "output":
            if tensor.init is not None:
                raise UsageError(f"{where} is an output, and has an init; leave it out")
            continue
        if tensor.init is None and "float" not in tensor.dtype:
            raise UsageError(
                f"{where} of type {tensor.dtype} has no init; give one, such as "
                '"init": {"kind": "randint", "high": 100}'
            )
        _check_init(spec, tensor, tensor.init, where)
    for shape in contract.shapes:
        for name, init in shape.inits.items():
            if name not in spec.inputs:
                raise UnknownName("input tensor in a shape's inits", name, spec.inputs)
            (found,) = (tensor for tensor in contract.tensors if tensor.name == name)
            _check_init(spec, found, init, f"tensor {name!r}")


def _check_init(spec: KernelSpec, tensor: SpecTensor, init: object, where: str) -> None:
    for attribute in ("low", "high", "total"):
        value = getattr(init, attribute, 0)
        if isinstance(value, int | str):
            used = names_in(value)
            _check_known(used, spec.contract.axes, f"the init of {where}", "axes")
    kind = getattr(init, "kind", "randn")
    if kind in ("randn", "uniform") and "float" not in tensor.dtype:
        raise UsageError(f"{where} of type {tensor.dtype} cannot be {kind}; give randint")
    if kind == "offsets" and (len(tensor.shape) != 1 or "int" not in tensor.dtype):
        raise UsageError(f"{where} holds offsets, which are whole numbers along one axis")
    if kind == "permutation" and not tensor.shape:
        raise UsageError(
            f"{where} is a permutation, which needs one axis at least; the tensor has none"
        )


def _check_reference(spec: KernelSpec) -> None:
    contract, reference = spec.contract, spec.given_reference
    inputs = [*spec.inputs, *(scalar.name for scalar in contract.scalars)]
    if spec.reference == "start":
        if not spec.inputs or all(tensor.role == "input" for tensor in contract.tensors):
            raise UsageError(
                '"reference": "start" needs an input and an output in contract.tensors: list what '
                "the kernel reads, and with the role output what it returns or writes"
            )
        return
    if reference is None or not (reference.run or reference.problem):
        run = _RUN.format(", ".join(inputs) or "x")
        raise UsageError(
            f'"reference" is missing, which says what is right; add the line "reference": '
            f'{{"run": "{run}"}}, or "reference": {{"problem": "ID or FILE"}}; '
            '"reference": "start" takes the spec\'s own kernel as right'
        )
    if reference.problem:
        if not contract.tensors and (contract.axes or contract.scalars or contract.shapes):
            raise UsageError(
                "the contract has axes, scalars or shapes, and no tensors; list the tensors, or "
                "leave the contract to the problem"
            )
        return
    if not contract.tensors:
        raise UsageError(
            "contract.tensors is missing; list what the kernel reads and writes, such as "
            '{"name": "x", "shape": ["rows"]}, {"name": "y", "shape": ["rows"], "role": "output"}'
        )
    taken = run_parameters(reference.run)
    known = [*inputs, *contract.axes]
    _check_known(taken, known, "the reference's run", "inputs and axes")
    if unread := [name for name in spec.inputs if name not in taken]:
        raise UsageError(f"the reference's run does not take the input {unread[0]!r}")


def _check_shapes(spec: KernelSpec) -> None:
    contract = spec.contract
    variable = [name for name, axis in contract.axes.items() if isinstance(axis, VarAxis)]
    if variable and not contract.shapes:
        raise UsageError(
            f"contract.shapes is missing, which gives {', '.join(variable)} sizes; add the line "
            f'"shapes": [{{"axes": {{"{variable[0]}": 1024}}}}]'
        )
    scalars = [scalar.name for scalar in contract.scalars]
    names: set[str] = set()
    for shape in contract.shapes:
        name = spec.shape_name(shape)
        if name in names:
            raise UsageError(f"two shapes are {name!r}; leave one out, or name them")
        if not re.fullmatch(r"[!-~]{1,200}", name) or set(name) & set("/#,"):
            raise UsageError(
                f"a shape's name cannot be {name!r:.220}; take letters of ASCII, "
                "digits and signs, 200 at "
                "most, and leave out spaces and / # ,"
            )
        names.add(name)
        _check_shape(spec, shape, variable, scalars)
    if not any(shape.timed for shape in spec.shapes):
        raise UsageError(
            "every shape of the contract is hidden; give one the role tune, so that its time counts"
        )


def _check_shape(
    spec: KernelSpec, shape: SpecShape, variable: list[str], scalars: list[str]
) -> None:
    where = f"shape {spec.shape_name(shape)!r}"
    for axis in shape.axes:
        if axis not in variable:
            raise UnknownName(f"variable axis of {where}", axis, variable)
    for axis in variable:
        if axis not in shape.axes:
            raise UsageError(f"{where} gives no size for the axis {axis!r}")
    for scalar in shape.scalars:
        if scalar not in scalars:
            raise UnknownName(f"scalar of {where}", scalar, scalars)
    values = spec.sizes(shape)
    for axis, size in values.items():
        if size < 1:
            raise UsageError(f"axis {axis!r} is {size} at {where}; a size is 1 or more")
    for tensor in spec.contract.tensors:
        for each in tensor.shape:
            if evaluate(each, values) < 1:
                raise UsageError(f"{each!r} of tensor {tensor.name!r} is not a size at {where}")


def _check_launch(spec: KernelSpec) -> None:
    launch = spec.launch
    known = [*spec.contract.axes, *launch.meta]
    for name, parts in (("grid", launch.grid), ("block", launch.block)):
        if len(parts) > 3:
            raise UsageError(f"launch.{name} has {len(parts)} parts; 3 at most: x, y and z")
        _check_known(names_used(parts), known, f"launch.{name}", "axes and meta-parameters")
    _check_known(names_in(launch.shared_bytes), known, "launch.shared_bytes", "axes")
    for name, choices in launch.meta.items():
        if not choices or len(set(choices)) < len(choices):
            raise UsageError(f"launch.meta.{name} lists choices, each once, and one at least")
    first = {name: choices[0] for name, choices in launch.meta.items()}
    for shape in spec.shapes:
        values, where = spec.sizes(shape) | first, f"at shape {spec.shape_name(shape)!r}"
        for name, parts in (("grid", launch.grid), ("block", launch.block)):
            for part in parts:
                if evaluate(part, values) < 1:
                    raise UsageError(f"launch.{name} {part!r} is below 1 {where} of the spec")
        threads = math.prod(evaluate(part, values) for part in launch.block)
        if threads > _MOST_THREADS:
            raise UsageError(
                f"launch.block is {threads} threads {where}; a block has {_MOST_THREADS} at most"
            )
    if spec.is_jit and not launch.grid:
        raise UsageError(
            f"launch.grid is missing: {spec.entry!r} is launched by a grid, such as "
            '"launch": {"grid": ["ceil_div(n, BLOCK)"], "meta": {"BLOCK": [1024]}}'
        )
    if spec.is_global and not (launch.grid and launch.block):
        missing = "block" if launch.grid else "grid"
        raise UsageError(
            f"launch.{missing} is missing: {spec.entry!r} is a __global__ kernel; give the launch, "
            'such as "launch": {"grid": ["ceil_div(n, BLOCK)"], "block": ["BLOCK"], "meta": '
            '{"BLOCK": [256]}}, or name a function that launches it'
        )
    if launch.grid and not (spec.is_jit or spec.is_global):
        raise UsageError(
            f"launch.grid is for functions of @triton.jit, and for __global__ functions with "
            f'"kind": "cuda"; {spec.entry!r} is neither'
        )
    if (launch.block or launch.shared_bytes) and not spec.is_global:
        raise UsageError(
            f"launch.block and launch.shared_bytes are for __global__ kernels, and {spec.entry!r} "
            "is none"
        )
    for flag in launch.flags:
        if not re.fullmatch(r"[!-~][ -~]*", flag):
            raise UsageError(f"{flag!r:.80} in launch.flags is not a compiler flag")
    if launch.flags and not spec.is_extension:
        raise UsageError("launch.flags are a C++ compiler's, and the kernel is in Python")


def _check_arguments(spec: KernelSpec) -> None:
    contract = spec.contract
    given = [*(t.name for t in contract.tensors), *(s.name for s in contract.scalars)]
    known = [*contract.axes, *spec.launch.meta]
    for each in spec.arguments:
        if each not in given:
            _check_known(names_in(each), known, "arguments", "tensors and scalars alone, axes")


def _check_outputs(spec: KernelSpec) -> None:
    contract = spec.contract
    if not contract.tensors or spec.entry == "ModelNew":
        return
    outputs = [tensor.name for tensor in contract.tensors if tensor.role != "input"]
    if not outputs:
        raise UsageError(
            "no tensor is an output; give the one that the kernel writes the role output"
        )
    handed = [str(each) for each in spec.called_with]
    if not spec.is_extension:
        if spec.is_jit and spec.returns != "arguments":
            raise UsageError(f'{spec.entry!r} returns nothing; add the line "returns": "arguments"')
        silent = unwritten_by_triton(spec.source, spec.entry, handed) if spec.is_jit else []
        never = [name for name in outputs if name in silent]
    else:
        kind, parameters = cpp_function(spec.source, spec.entry)
        if "__global__" in kind and not spec.is_global:
            raise UsageError(f'{spec.entry!r} is a __global__ kernel; give "kind": "cuda"')
        if spec.is_global and spec.returns != "arguments":
            raise UsageError(f'{spec.entry!r} returns nothing; add the line "returns": "arguments"')
        if spec.is_global and len(parameters) != len(handed):
            raise UsageError(
                f"{spec.entry!r} takes {len(parameters)} arguments, and is given {len(handed)}: "
                f"{', '.join(handed)}; list them in arguments"
            )
        if spec.returns == "value" and kind == "void":
            raise UsageError(
                f"nothing writes the output {outputs[0]!r}: {spec.entry!r} returns void; let it "
                'return its outputs, or add the line "returns": "arguments"'
            )
        constant = [i for i, text in enumerate(parameters) if _is_constant_pointer(text)]
        never = [handed[i] for i in constant if i < len(handed) and handed[i] in outputs]
    if spec.returns == "arguments":
        never += [name for name in outputs if name not in handed]
    if never:
        raise UsageError(
            f"nothing writes the output {never[0]!r}: {spec.entry!r} takes "
            "it as a pointer to const, or not at all; hand it over in arguments, "
            "writable"
        )


def _is_constant_pointer(parameter: str) -> bool:
    # One pattern with .* would try each const anew: a square of a long text.
    found = re.search(r"\bconst\b", parameter)
    return found is not None and "*" in parameter[found.end() :]
