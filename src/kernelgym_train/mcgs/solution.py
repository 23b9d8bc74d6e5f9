"""`solution_of`: a variant of a kernel spec in the form of flashinfer-bench.

The result is an object with ``definition``, ``solution`` and ``workloads``, which
`kernelgym.suites.spec_imports` reads as a spec again. A Triton kernel is one source; C++ and CUDA
are ``kernel.h``, ``kernel.cpp`` or ``kernel.cu``, and ``main.cpp`` with the binding ``torch``.

No result is made for a spec whose reference is a problem of a suite or its own kernel, that
changes a tensor in place, whose tensors' sizes are arithmetic, or whose axes cannot be told from
its inputs' sizes.
Compiler flags have no place in that form, and stand in the description. Pure.
"""

from __future__ import annotations

from typing import Any

from kernelgym.suites.spec import ConstAxis, ExprAxis, KernelSpec, SpecScalar, VarAxis
from kernelgym.suites.spec_arithmetic import CPP_FUNCTIONS, as_cpp, as_python
from kernelgym.suites.spec_modules import host_function, launch_sizes
from kernelgym.suites.spec_sources import run_parameters
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.source_forms import holds_extension
from kernelgym_train.mcgs.task import SearchTask
from kernelgym_train.mcgs.variant import Variant, steps_in_words

_AUTHOR = "kernelgym"


def solution_of(task: SearchTask, variant: Variant, device: str) -> dict[str, Any] | None:
    """Return flashinfer-bench's definition, solution and workloads of a task.

    Args:
        task: The task.
        variant: The variant.
        device: Name of the device that it was searched on.

    Returns:
        None if flashinfer-bench's format cannot hold the task.
    """
    spec = task.spec
    if spec is None or not spec.contract.tensors:
        return None
    definition, sizes = _definition(spec), _sizes(spec)
    if definition is None or sizes is None:
        return None
    if spec.is_extension:
        if not holds_extension(variant.language, variant.source):
            return None
        sources = _compiled(spec, variant, sizes)
        entry = "main.cpp::run"
    else:
        sources, entry = {"main.py": _python(spec, variant, sizes)}, "main.py::run"
    told = [steps_in_words(variant.applied) or "the start"]
    told += [f"compiler flags: {' '.join(variant.flags)}"] if variant.flags else []
    build: dict[str, Any] = {
        "language": spec.kind,
        "target_hardware": [device],
        "entry_point": entry,
        "dependencies": [],
        "destination_passing_style": _writes(spec),
    }
    if spec.is_extension:
        build["binding"] = "torch"
    return {
        "definition": definition,
        "solution": {
            "name": f"{spec.name}_{_AUTHOR}",
            "definition": spec.name,
            "author": _AUTHOR,
            "description": "; ".join(told),
            "spec": build,
            "sources": [{"path": path, "content": text} for path, text in sources.items()],
        },
        "workloads": _workloads(spec),
        "hidden": [spec.shape_name(shape) for shape in spec.shapes if shape.role == "hidden"],
    }


def _writes(spec: KernelSpec) -> bool:
    return spec.is_extension and spec.returns == "arguments"


def _inputs(spec: KernelSpec) -> list[str]:
    """Return the names of tensors and scalars that a kernel is given, in the order of its call."""
    known = [*spec.inputs, *(scalar.name for scalar in spec.contract.scalars)]
    called = [name for name in spec.called_with if name in known]
    return [str(name) for name in dict.fromkeys((*called, *known))]


def _sizes(spec: KernelSpec) -> dict[str, tuple[str, int]] | None:
    """Return the tensor and dimension that give each variable axis; None if one has none."""
    found: dict[str, tuple[str, int]] = {}
    for tensor in spec.contract.tensors:
        for number, size in enumerate(tensor.shape):
            if tensor.role == "input" and isinstance(size, str):
                found.setdefault(size, (tensor.name, number))
    variable = [name for name, axis in spec.contract.axes.items() if isinstance(axis, VarAxis)]
    return {n: found[n] for n in variable} if set(variable) <= set(found) else None


def _definition(spec: KernelSpec) -> dict[str, Any] | None:
    reference, contract = spec.given_reference, spec.contract
    if reference is None or not reference.run:
        return None
    axes: dict[str, dict[str, Any]] = {}
    for name, axis in contract.axes.items():
        match axis:
            case ConstAxis(value=value):
                axes[name] = {"type": "const", "value": value}
            case VarAxis():
                axes[name] = {"type": "var"}
            case ExprAxis(expression=expression):
                axes[name] = {"type": "expr", "expression": expression}
    given: dict[str, dict[str, Any]] = {}
    for tensor in contract.tensors:
        shape = []
        for size in tensor.shape:
            if isinstance(size, int):
                axes.setdefault(f"size_{size}", {"type": "const", "value": size})
            elif size not in contract.axes:
                return None
            shape.append(f"size_{size}" if isinstance(size, int) else size)
        given[tensor.name] = {"shape": shape, "dtype": tensor.dtype}
        if tensor.role == "inout" or tensor.layout != "contiguous":
            return None
    for scalar in contract.scalars:
        given[scalar.name] = {"shape": None, "dtype": _kind(scalar)[0]}
    names = _inputs(spec)
    taken = run_parameters(reference.run)
    run = reference.run.rstrip() + "\n"
    if list(taken) != names:
        sizes = _sizes(spec) or {}
        axes_taken = [name for name in taken if name not in names]
        if not set(axes_taken) <= set(sizes):
            return None
        called = [f"{n}={n}" if n in names else f"{n}={_size(*sizes[n])}" for n in taken]
        run += f"\n\n_own_run = run\n\n\ndef run({', '.join(names)}):\n"
        run += f"    return _own_run({', '.join(called)})\n"
    outputs = [tensor.name for tensor in contract.tensors if tensor.role == "output"]
    return {
        "name": spec.name,
        "op_type": "custom",
        "description": spec.description,
        "axes": axes,
        "inputs": {name: given[name] for name in names},
        "outputs": {name: given[name] for name in outputs},
        "reference": run,
    }


def _size(tensor: str, number: int) -> str:
    return f"{tensor}.shape[{number}]"


def _kind(scalar: SpecScalar) -> tuple[str, str]:
    """Return a scalar's type in a definition, and in C++."""
    if isinstance(scalar.value, bool):
        return "bool", "bool"
    return ("int64", "int64_t") if isinstance(scalar.value, int) else ("float32", "double")


def _workloads(spec: KernelSpec) -> list[dict[str, Any]]:
    rows = []
    for shape in spec.shapes:
        inputs: dict[str, Any] = {name: {"type": "random"} for name in spec.inputs}
        for scalar in spec.contract.scalars:
            value = shape.scalars.get(scalar.name, scalar.value)
            inputs[scalar.name] = {"type": "scalar", "value": value}
        rows.append({"uuid": spec.shape_name(shape), "axes": dict(shape.axes), "inputs": inputs})
    return rows


def _python(spec: KernelSpec, variant: Variant, sizes: dict[str, tuple[str, int]]) -> str:
    """Return a module whose ``run`` constructs and calls the kernel."""
    lines = [variant.kernel().source.rstrip(), "", "", f"def run({', '.join(_inputs(spec))}):"]
    for name, axis in spec.contract.axes.items():
        match axis:
            case ConstAxis(value=value):
                lines.append(f"    {name} = {value}")
            case VarAxis():
                lines.append(f"    {name} = {_size(*sizes[name])}")
            case ExprAxis(expression=expression):
                lines.append(f"    {name} = {as_python(expression)}")
    held = [*spec.contract.axes, *(scalar.name for scalar in spec.contract.scalars)]
    lines.append(f"    return ModelNew({', '.join(held)})({', '.join(spec.inputs)})")
    return "\n".join(lines) + "\n"


def _compiled(
    spec: KernelSpec, variant: Variant, sizes: dict[str, tuple[str, int]]
) -> dict[str, str]:
    """Return header, kernels and binding."""
    name, declared = host_function(spec)
    unit = "kernel.cu" if spec.has_device_code else "kernel.cpp"
    outputs = [tensor.name for tensor in spec.contract.tensors if tensor.role == "output"]
    scalars = {scalar.name: _kind(scalar)[1] for scalar in spec.contract.scalars}
    taken = [f"{scalars.get(each, 'torch::Tensor')} {each}" for each in _inputs(spec)]
    taken += [f"torch::Tensor {each}" for each in outputs] if _writes(spec) else []
    kind = declared.partition(f" {name}(")[0]
    lines = [f"{kind} run({', '.join(taken)}) {{"]
    for axis_name, axis in spec.contract.axes.items():
        match axis:
            case ConstAxis(value=value):
                text = str(value)
            case VarAxis():
                tensor, number = sizes[axis_name]
                text = f"{tensor}.size({number})"
            case ExprAxis(expression=expression):
                text = as_cpp(expression, {})
        lines.append(f"  [[maybe_unused]] const int64_t {axis_name} = {text};")
    launch = {name: choices[0] for name, choices in spec.launch.meta.items()}
    launch |= dict(variant.launch)
    for meta, value in launch.items():
        lines.append(f"  [[maybe_unused]] const int64_t {meta} = {value};")
    known = [*_inputs(spec), *outputs]
    given = [str(each) if each in known else as_cpp(each, {}) for each in spec.called_with]
    given += launch_sizes(spec) if spec.is_global else ()
    lines += [f"  return {name}({', '.join(given)});", "}", ""]
    lines += ['PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }', ""]
    head = ['#include "kernel.h"', "", "#include <algorithm>", ""]
    if any("spec_" in line for line in lines):
        head += [CPP_FUNCTIONS.rstrip(), ""]
    text = file_of(variant).cpp.strip("\n")
    return {
        "kernel.h": f"#pragma once\n\n#include <torch/extension.h>\n\n{declared}\n",
        unit: f'#include "kernel.h"\n\n{text}\n',
        "main.cpp": "\n".join([*head, *lines]),
    }
