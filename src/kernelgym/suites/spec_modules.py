"""Python modules generated from a kernel spec: one problem for each shape, and one kernel.

Contract: the texts follow from the spec alone. The problem's ``Model`` and the kernel's
``ModelNew`` are constructed with the sizes of all axes and the scalars, and called with the input
tensors, so that one kernel serves each shape and holds no shape's sizes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

from kernelgym.errors import UsageError
from kernelgym.suites.spec import (
    DTYPES,
    Arange,
    Full,
    Init,
    KernelSpec,
    Offsets,
    Ones,
    Permutation,
    Randint,
    Randn,
    Safetensors,
    SpecShape,
    SpecTensor,
    Uniform,
    Zeros,
    names_used,
)
from kernelgym.suites.spec_arithmetic import CPP_FUNCTIONS, as_cpp, as_python, evaluate
from kernelgym.suites.spec_sources import (
    cpp_function,
    declaration,
    parameter_type,
    run_parameters,
)

_READ_TENSOR = '''\
def _read_tensor(path, key, digest):
    """Return a tensor of a safetensors file, whose digest has to be as it was."""
    import hashlib
    import json

    with open(path, "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path} has changed since the spec was read")
    length = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + length])[key]
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    dtype = {
        DTYPES
    }[entry["dtype"]]
    values = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype)
    return values.reshape(entry["shape"])


'''


def _read_tensor_source() -> str:
    """Return `_READ_TENSOR` with the types that files have."""
    rows = [f'"{stored}": torch.{name}' for name, (stored, _) in DTYPES.items()]
    lines = [f"{', '.join(rows[at : at + 4])}," for at in range(0, len(rows), 4)]
    return _READ_TENSOR.replace("DTYPES", "\n        ".join(lines))


def problem_source(spec: KernelSpec, shape: SpecShape, reference: str = "") -> str:
    """Return the module of a problem.

    Args:
        spec: The spec.
        shape: Sizes of the axes, with values of scalars and tensors.
        reference: Source of the problem that the spec names, if it names one.
    """
    contract = spec.contract
    if not contract.tensors:
        return reference
    inputs, outputs = spec.call_bytes(shape)
    head = (
        f"# {spec.name}, {spec.shape_name(shape)}: generated from a kernel spec.\n"
        f"# Bytes of one call: {inputs} of inputs, {outputs} of outputs.\n"
    )
    run = spec.reference.run if spec.reference is not None else ""
    names, held = _constructed(spec), [*spec.inputs]
    constructed: list[float] = [*spec.sizes(shape).values()]
    constructed += [shape.scalars.get(s.name, s.value) for s in contract.scalars]
    copied = [tensor.name for tensor in contract.tensors if tensor.role == "inout"]
    made = _inputs(spec, shape)
    lines = ["import torch", *([] if reference else ["from torch import nn"]), "", ""]
    if any("_read_tensor(" in line for line in made):
        lines += _read_tensor_source().splitlines()
    if reference:
        lines += _adapted(held, copied, spec)
    else:
        lines += ["class Model(nn.Module):", *_constructor(names)]
        called = ", ".join(n if n in held else f"self.spec_{n}" for n in run_parameters(run))
        lines += ["", f"    def forward({', '.join(['self', *held])}):"]
        lines += [f"    {line}" for line in _called(f"run({called})", copied, spec)]
    lines += ["", "", "def get_inputs():", *made]
    lines += [f"    return [{', '.join(held)}]", "", "", "def get_init_inputs():"]
    lines += [f"    return {constructed!r}", ""]
    return head + (reference or run).rstrip() + "\n\n\n" + "\n".join(lines)


def _adapted(held: list[str], copied: list[str], spec: KernelSpec) -> list[str]:
    """Return lines that give a reference's ``Model`` the spec's inputs.

    The class stays the one that the reference's text means by ``Model``, as in
    ``super(Model, self).__init__()``.
    """
    called = ", ".join(["self", *held])
    return [
        "_reference_inputs = get_init_inputs",
        "_construct, _forward = Model.__init__, Model.forward",
        "",
        "",
        "def _constructed(self, *sizes):",
        "    _construct(self, *_reference_inputs())",
        "",
        "",
        f"def _called({called}):",
        *_called(f"_forward({called})", copied, spec),
        "",
        "",
        "Model.__init__, Model.forward = _constructed, _called",
    ]


def _called(call: str, copied: list[str], spec: KernelSpec) -> list[str]:
    """Return lines that call a function on copies."""
    lines = [f"    {name} = {name}.clone()" for name in copied]
    if copied:
        return [*lines, f"    found = {call}", *(line[4:] for line in _returned(spec, copied))]
    return [f"    return {call}"]


def kernel_source(spec: KernelSpec) -> str:
    """Return the module of the spec's kernel."""
    if spec.entry == "ModelNew":
        return spec.source
    contract, launch = spec.contract, spec.launch
    lines: list[str] = []
    if not spec.is_extension:
        lines += [spec.source.rstrip(), "", "", "import torch", "from torch import nn", "", ""]
        callee = spec.entry
    else:
        lines += _extension(spec)
        callee = f"extension.{host_function(spec)[0]}"
    first = {name: choices[0] for name, choices in launch.meta.items()}
    names, held = _constructed(spec), [*spec.inputs]
    lines += ["class ModelNew(nn.Module):"]
    if not contract.tensors:
        lines += ["    def __init__(self, *_):", "        super().__init__()", ""]
        lines += ["    def forward(self, *inputs):", f"        return {callee}(*inputs)", ""]
        return "\n".join(lines)
    lines += [*_constructor(names), "", f"    def forward({', '.join(['self', *held])}):"]
    arguments = spec.called_with
    outputs = [tensor for tensor in contract.tensors if tensor.role == "output"]
    made = outputs if spec.returns == "arguments" else []
    sized = () if spec.is_global else launch.grid
    used = [*arguments, *sized, *(s for t in made for s in t.shape)]
    tensors = [tensor.name for tensor in contract.tensors]
    used_names = names_used(tuple(used))
    for name in used_names:
        if name in first:
            lines += [f"        {name} = {first[name]}"]
        elif name in names:
            lines += [f"        {name} = self.spec_{name}"]
    if spec.is_global:  # the grid is computed in C++, where meta-parameters are constants
        lines += [f"        {n} = self.spec_{n}" for n in launch_sizes(spec) if n not in used_names]
    copied = [tensor.name for tensor in contract.tensors if tensor.role == "inout"]
    lines += [f"        {name} = {name}.clone()" for name in copied]
    for tensor in made:
        lines += [f"        {tensor.name} = {_empty(tensor, held)}"]
    called = [each if each in tensors else as_python(each) for each in arguments]
    if spec.is_jit:
        named = [name for name in first if name not in arguments]
        assigned = names_used(tuple(used))
        called += [f"{name}={name if name in assigned else first[name]}" for name in named]
        grid = ", ".join(as_python(part) for part in launch.grid)
        callee = f"{callee}[({grid},)]"
    if spec.is_global:
        called += launch_sizes(spec)
    call = f"{callee}({', '.join(str(each) for each in called)})"
    if spec.returns == "arguments":
        every = [*(tensor.name for tensor in outputs), *copied]
        lines += [f"        {call}", f"        return {_one_or_all(every)}", ""]
    elif copied:
        lines += [f"        found = {call}", *_returned(spec, copied), ""]
    else:
        lines += [f"        return {call}", ""]
    return "\n".join(lines)


def literal(text: str) -> str:
    """Return a string literal that a reader can read."""
    if '"""' in text or text.endswith(('"', "\\")) or "\r" in text or "\0" in text:
        return repr(text)
    return f'{"r" if chr(92) in text else ""}"""{text}"""'


def _extension(spec: KernelSpec) -> list[str]:
    choices = {name: given[0] for name, given in spec.launch.meta.items()}
    text = spec.source if spec.source.startswith("\n") else f"\n{spec.source}"
    constants = "".join(f"\nconstexpr int {name} = {value};" for name, value in choices.items())
    text = f"{constants}{text}".rstrip() + "\n"
    if spec.is_global:
        text += _launcher(spec)
    lines = ["import torch", "from torch import nn"]
    lines += ["from torch.utils.cpp_extension import load_inline", ""]
    flags = ", ".join(json.dumps(flag) for flag in spec.launch.flags)
    name = f"spec_{hashlib.sha256(spec.name.encode()).hexdigest()[:8]}"
    if spec.has_device_code:
        lines += [f"declaration = {json.dumps(host_function(spec)[1])}"]
    lines += [f"source = {literal(text)}", "", "extension = load_inline(", f'    name="{name}",']
    if spec.has_device_code:
        lines += ["    cpp_sources=declaration,", "    cuda_sources=source,"]
    else:
        lines += ["    cpp_sources=source,"]
    lines += [f'    functions=["{host_function(spec)[0]}"],']
    if flags:
        option = "extra_cuda_cflags" if spec.has_device_code else "extra_cflags"
        lines += [f"    {option}=[{flags}],"]
    return [*lines, ")", "", ""]


def host_function(spec: KernelSpec) -> tuple[str, str]:
    """Return the name and the declaration of the C++ function that Python calls."""
    if not spec.is_global:
        return spec.entry, declaration(spec.source, spec.entry)
    name = f"launch_{spec.entry}"
    return name, f"void {name}({', '.join(_taken(spec))});"


def launch_sizes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the axes that a ``__global__`` kernel's grid, block and shared memory depend on."""
    launch = spec.launch
    named = names_used((*launch.grid, *launch.block, launch.shared_bytes))
    return tuple(name for name in named if name not in launch.meta)


def _taken(spec: KernelSpec) -> list[str]:
    """Return the parameters of the generated C++ function that launches a CUDA kernel."""
    tensors = [tensor.name for tensor in spec.contract.tensors]
    _, parameters = cpp_function(spec.source, spec.entry)
    taken = []
    for number, (each, text) in enumerate(zip(spec.called_with, parameters, strict=True)):
        floating = re.search("float|double|half", parameter_type(text), re.IGNORECASE)
        kind = "torch::Tensor" if each in tensors else "double" if floating else "int64_t"
        taken.append(f"{kind} given_{number}")
    return [*taken, *(f"int64_t size_{name}" for name in launch_sizes(spec))]


def _launcher(spec: KernelSpec) -> str:
    """Return the text of a function that launches a ``__global__`` kernel."""
    tensors = [tensor.name for tensor in spec.contract.tensors]
    _, parameters = cpp_function(spec.source, spec.entry)
    given = []
    for number, (each, text) in enumerate(zip(spec.called_with, parameters, strict=True)):
        cast, value = "static_cast", f"given_{number}"
        if each in tensors:
            cast, value = "reinterpret_cast", f"{value}.data_ptr()"
        given.append(f"{cast}<{parameter_type(text)}>({value})")
    sizes = {name: f"size_{name}" for name in launch_sizes(spec)}
    launch = spec.launch

    def count(part: int | str) -> str:  # a plain name or number is what a search can change
        plain = isinstance(part, int) or part in launch.meta
        return str(part) if plain else f"static_cast<unsigned>({as_cpp(part, sizes)})"

    grid, block = (", ".join(map(count, parts)) for parts in (launch.grid, launch.block))
    shared = count(launch.shared_bytes)
    includes = (
        "algorithm",
        "torch/extension.h",
        "c10/cuda/CUDAStream.h",
        "c10/cuda/CUDAException.h",
    )
    lines = ["", *(f"#include <{name}>" for name in includes), "", CPP_FUNCTIONS.rstrip(), ""]
    lines += [f"{host_function(spec)[1].removesuffix(';')} {{"]
    if launch.shared_bytes:
        lines += [
            f"  cudaFuncSetAttribute({spec.entry}, cudaFuncAttributeMaxDynamicSharedMemorySize,",
            f"                       static_cast<int>({shared}));",
        ]
    lines += [
        f"  {spec.entry}<<<dim3({grid}), dim3({block}),",
        f"      {shared}, c10::cuda::getCurrentCUDAStream()>>>(",
        f"      {', '.join(given)});",
        "  C10_CUDA_KERNEL_LAUNCH_CHECK();",
        "}",
        "",
    ]
    return "\n".join(lines)


def _constructed(spec: KernelSpec) -> list[str]:
    return [*spec.contract.axes, *(scalar.name for scalar in spec.contract.scalars)]


def _constructor(names: list[str]) -> list[str]:
    lines = [f"    def __init__({', '.join(['self', *names])}):", "        super().__init__()"]
    return [*lines, *(f"        self.spec_{name} = {name}" for name in names)]


def _returned(spec: KernelSpec, copied: list[str]) -> list[str]:
    """Return lines that return `found` and the tensors that were changed."""
    outputs = [tensor for tensor in spec.contract.tensors if tensor.role == "output"]
    if not outputs:
        return [f"        return {_one_or_all(copied)}"]
    found = "found" if len(outputs) == 1 else "*found"
    return [f"        return {found}, {', '.join(copied)}"]


def _one_or_all(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _empty(tensor: SpecTensor, inputs: list[str]) -> str:
    sizes = ", ".join(as_python(size) for size in tensor.shape)
    where = f", device={inputs[0]}.device" if inputs else ""
    shape = f"({sizes},)" if tensor.shape else "()"
    return _laid_out(f"torch.empty({shape}, dtype=torch.{tensor.dtype}{where})", tensor)


def _laid_out(value: str, tensor: SpecTensor) -> str:
    match tensor.layout:
        case "transposed":
            return f"{value}.transpose(-1, -2).contiguous().transpose(-1, -2)"
        case "channels_last":
            return f"{value}.contiguous(memory_format=torch.channels_last)"
    return value


def _inputs(spec: KernelSpec, shape: SpecShape) -> list[str]:
    """Return lines that make a shape's input tensors."""
    values, lines = spec.sizes(shape), []
    for tensor in spec.contract.tensors:
        if tensor.role != "output":
            init = shape.inits.get(tensor.name) or tensor.init or Randn()
            lines.append(f"    {tensor.name} = {_laid_out(_made(tensor, init, values), tensor)}")
    return lines


def _made(tensor: SpecTensor, init: Init, values: Mapping[str, int]) -> str:
    """Return an expression for a tensor's values at first."""
    sizes = [evaluate(size, values) for size in tensor.shape]
    shape, kind = repr(tuple(sizes)), f"dtype=torch.{tensor.dtype}"
    count = math.prod(sizes)
    match init:
        case Randn(mean=mean, std=std):
            made = f"torch.randn({shape}, {kind})"
            if (mean, std) != (0.0, 1.0):
                made = f"({made} * {std!r} + {mean!r})"
        case Uniform(low=low, high=high):
            made = f"torch.empty({shape}, {kind}).uniform_({low!r}, {high!r})"
        case Zeros():
            made = f"torch.zeros({shape}, {kind})"
        case Ones():
            made = f"torch.ones({shape}, {kind})"
        case Full(value=value):
            made = f"torch.full({shape}, {value!r}).to(torch.{tensor.dtype})"
        case Arange(start=start, step=step):
            made = f"(torch.arange({count}) * {step!r} + {start!r}).reshape({shape})"
            made += f".to(torch.{tensor.dtype})"
        case Randint(low=low, high=high):
            least, most = evaluate(low, values), evaluate(high, values)
            if least >= most:
                raise UsageError(f"tensor {tensor.name!r}: randint from {least} to {most} is empty")
            made = f"torch.randint({least}, {most}, {shape}).to(torch.{tensor.dtype})"
        case Permutation():
            made = f"torch.rand({shape}).argsort(-1).to(torch.{tensor.dtype})"
        case Offsets(total=total):
            whole = evaluate(total, values)
            if whole < 0:
                raise UsageError(f"tensor {tensor.name!r}: offsets up to {whole} are none")
            inner = f"torch.randint(0, {whole + 1}, ({max(count - 2, 0)},)).sort().values"
            made = f"torch.cat([torch.tensor([0]), {inner}, torch.tensor([{whole}])])[:{count}]"
            made += f".to(torch.{tensor.dtype})"
        case Safetensors(path=path, key=key):
            digest = _digest(path, key, tensor, sizes)
            made = f"_read_tensor({path!r}, {key!r}, {digest!r})"
    return made


def _digest(path: str, key: str, tensor: SpecTensor, sizes: list[int]) -> str:
    """Return a safetensors file's digest, if it holds the tensor."""
    try:
        data = Path(path).read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read the safetensors file {path}: {error}") from None
    entry = header.get(key) if isinstance(header, dict) else None
    if not isinstance(entry, dict):
        known = header if isinstance(header, dict) else ()
        listed = ", ".join(repr(name) for name in [*known][:10] if name != "__metadata__")
        raise UsageError(f"{path} holds no tensor {key!r}; it holds {listed or 'none'}")
    stored, item_bytes = DTYPES[tensor.dtype]
    if (entry.get("dtype"), entry.get("shape")) != (stored, sizes):
        raise UsageError(
            f"{key!r} in {path} is {entry.get('dtype')} of {entry.get('shape')}, and tensor "
            f"{tensor.name!r} is {stored} of {sizes}"
        )
    size = math.prod(sizes) * item_bytes
    match entry.get("data_offsets"):
        case [int() as begin, int() as end] if 0 <= begin == end - size:
            if 8 + length + end > len(data):
                raise UsageError(f"{path} ends before {key!r} does")
        case offsets:
            raise UsageError(f"{key!r} in {path} lies at {offsets}, and takes {size} bytes")
    return hashlib.sha256(data).hexdigest()
