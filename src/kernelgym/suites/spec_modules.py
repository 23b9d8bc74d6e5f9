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
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelgym.errors import UsageError
from kernelgym.starting_kernel import NAME as STARTING_NAME
from kernelgym.starting_kernel import START
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
from kernelgym.text_templates import filled


def _filled(template: str, spec: KernelSpec, **values: object) -> str:
    """Return a template of a kernel spec's modules, filled with values."""
    names, held, copied = _constructed(spec), [*spec.inputs], _copied(spec)
    return filled(
        "kernelgym.suites", template, spec=spec, names=names, held=held, copied=copied, **values
    )


def problem_source(spec: KernelSpec, shape: SpecShape, reference: str = "") -> str:
    """Return the module of a problem.

    Args:
        spec: The spec.
        shape: Sizes of the axes, with values of scalars and tensors.
        reference: Source of the problem that the spec names, if it names one; its class stays the
            one that it means by ``Model``, as in ``super(Model, self).__init__()``.
    """
    if not spec.contract.tensors:
        return reference
    run = spec.given_reference.run if spec.given_reference is not None else ""
    held = [*spec.inputs]
    if spec.reference == "start":
        run = f"{STARTING_NAME} = ({spec.kind!r}, {literal(kernel_source(spec))})"
        body = _outline(spec)
    elif reference:
        body = _body(spec, f"_forward({', '.join(['self', *held])})")
    else:
        taken = (n if n in held else f"self.spec_{n}" for n in run_parameters(run))
        body = _body(spec, f"run({', '.join(taken)})")
    scalars = [shape.scalars.get(s.name, s.value) for s in spec.contract.scalars]
    made = list(_inputs(spec, shape))
    return _filled(
        "problem.py.j2",
        spec,
        shape=shape,
        reference=reference,
        run=run,
        call_bytes=spec.call_bytes(shape),
        reads_files=any("_read_tensor(" in value for _, value in made),
        stored=list(DTYPES.items()),
        body=body,
        made=made,
        constructed=repr([*spec.sizes(shape).values(), *scalars]),
    )


def _outline(spec: KernelSpec) -> str:
    """Return statements for the shapes of the outputs, if the kernel itself is the reference."""
    names, held = _constructed(spec), [*spec.inputs]
    outputs = [tensor for tensor in spec.contract.tensors if tensor.role == "output"]
    used = names_used(tuple(size for tensor in outputs for size in tensor.shape))
    lines = [
        f"# Correct means: agrees with {START}. The judge runs {STARTING_NAME} for the",
        "# values of the outputs; what is computed here is their shapes alone.",
        f'if {held[0]}.device.type != "meta":',
        "    raise RuntimeError(",
        f'        "the right outputs are those of {STARTING_NAME}, which the judge runs; "',
        '        "this class gives their shapes alone"',
        "    )",
        *(f"{name} = self.spec_{name}" for name in used if name in names),
        *(f"{tensor.name} = {_empty(tensor, held)}" for tensor in outputs),
        f"return {_one_or_all([*(tensor.name for tensor in outputs), *_copied(spec)])}",
    ]
    return "\n".join(lines)


def kernel_source(spec: KernelSpec) -> str:
    """Return the module of the spec's kernel."""
    if spec.entry == "ModelNew":
        return spec.source
    function, declared = host_function(spec) if spec.is_extension else ("", "")
    callee = f"extension.{function}" if spec.is_extension else spec.entry
    assigned, call = _launch(spec, callee)
    outputs = [tensor.name for tensor in spec.contract.tensors if tensor.role == "output"]
    body = _body(spec, call)
    if spec.returns == "arguments":
        body = f"{call}\nreturn {_one_or_all([*outputs, *_copied(spec)])}"
    return _filled(
        "kernel.py.j2",
        spec,
        source=literal(_extension_source(spec)) if spec.is_extension else "",
        name=f"spec_{hashlib.sha256(spec.name.encode()).hexdigest()[:8]}",
        function=function,
        declaration=declared,
        callee=callee,
        assigned=assigned,
        body=body,
    )


def _launch(spec: KernelSpec, callee: str) -> tuple[dict[str, str], str]:
    """Return the variables that ``forward`` sets before it calls the kernel, and the call."""
    launch, held, tensors = spec.launch, [*spec.inputs], spec.contract.tensors
    first = {name: str(choices[0]) for name, choices in launch.meta.items()}
    made = [t for t in tensors if t.role == "output"] if spec.returns == "arguments" else []
    sized = () if spec.is_global else launch.grid
    used = names_used((*spec.called_with, *sized, *(size for t in made for size in t.shape)))
    sizes = {name: f"self.spec_{name}" for name in _constructed(spec)} | first
    assigned = {name: sizes[name] for name in used if name in sizes}
    if spec.is_global:  # the grid is computed in C++, where meta-parameters are constants
        assigned |= {name: sizes[name] for name in launch_sizes(spec)}
    assigned |= {name: f"{name}.clone()" for name in _copied(spec)}
    assigned |= {tensor.name: _empty(tensor, held) for tensor in made}
    names = [tensor.name for tensor in tensors]
    called = [str(each) if each in names else as_python(each) for each in spec.called_with]
    if spec.is_jit:
        named = [name for name in first if name not in spec.called_with]
        called += [f"{name}={name if name in used else first[name]}" for name in named]
        callee += f"[({', '.join(map(as_python, launch.grid))},)]"
    if spec.is_global:
        called += launch_sizes(spec)
    return assigned, f"{callee}({', '.join(called)})"


def literal(text: str) -> str:
    """Return a Python string literal for a text, in a readable form."""
    for quotes in ('"""', "'''"):
        odd = quotes in text or text.endswith((quotes[0], "\\")) or "\r" in text or "\0" in text
        if not odd:
            return f"{'r' if chr(92) in text else ''}{quotes}{text}{quotes}"
    return repr(text)


def _extension_source(spec: KernelSpec) -> str:
    """Return the C++ or CUDA source of the spec's extension."""
    choices = {name: given[0] for name, given in spec.launch.meta.items()}
    text = spec.source if spec.source.startswith("\n") else f"\n{spec.source}"
    constants = "".join(f"\nconstexpr int {name} = {value};" for name, value in choices.items())
    text = f"{constants}{text}".rstrip() + "\n"
    return text + _launcher(spec) if spec.is_global else text


def host_function(spec: KernelSpec) -> tuple[str, str]:
    """Return the name and declaration of the C++ function that Python calls in an extension."""
    if not spec.is_global:
        return spec.entry, declaration(spec.source, spec.entry)
    name = f"launch_{spec.entry}"
    taken = [parameter for parameter, _ in _launch_arguments(spec)]
    taken += [f"int64_t size_{size}" for size in launch_sizes(spec)]
    return name, f"void {name}({', '.join(taken)});"


def launch_sizes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the axes that a ``__global__`` kernel's grid, block and shared memory depend on."""
    launch = spec.launch
    named = names_used((*launch.grid, *launch.block, launch.shared_bytes))
    return tuple(name for name in named if name not in launch.meta)


def _launch_arguments(spec: KernelSpec) -> Iterator[tuple[str, str]]:
    """Yield parameters of the function that launches a ``__global__`` kernel, and its arguments."""
    tensors = [tensor.name for tensor in spec.contract.tensors]
    _, parameters = cpp_function(spec.source, spec.entry)
    for number, (each, text) in enumerate(zip(spec.called_with, parameters, strict=True)):
        kind, name = parameter_type(text), f"given_{number}"
        if each in tensors:
            yield f"torch::Tensor {name}", f"reinterpret_cast<{kind}>({name}.data_ptr())"
        else:
            floating = re.search("float|double|half", kind, re.IGNORECASE)
            yield f"{'double' if floating else 'int64_t'} {name}", f"static_cast<{kind}>({name})"


def _launcher(spec: KernelSpec) -> str:
    """Return the text of a function that launches a ``__global__`` kernel."""
    sizes = {name: f"size_{name}" for name in launch_sizes(spec)}
    launch = spec.launch

    def count(part: int | str) -> str:  # a plain name or number is what a search can change
        plain = isinstance(part, int) or part in launch.meta
        return str(part) if plain else f"static_cast<unsigned>({as_cpp(part, sizes)})"

    return _filled(
        "launcher.cu.j2",
        spec,
        functions=CPP_FUNCTIONS,
        declaration=host_function(spec)[1],
        grid=", ".join(map(count, launch.grid)),
        block=", ".join(map(count, launch.block)),
        shared=count(launch.shared_bytes),
        given=", ".join(argument for _, argument in _launch_arguments(spec)),
    )


def _constructed(spec: KernelSpec) -> list[str]:
    return [*spec.contract.axes, *(scalar.name for scalar in spec.contract.scalars)]


def _copied(spec: KernelSpec) -> list[str]:
    """Return the names of the tensors that a call changes in place, which get copies."""
    return [tensor.name for tensor in spec.contract.tensors if tensor.role == "inout"]


def _body(spec: KernelSpec, call: str) -> str:
    """Return lines of code that return a call's results and the tensors that it changed."""
    if not (copied := _copied(spec)):
        return f"return {call}"
    outputs = [tensor for tensor in spec.contract.tensors if tensor.role == "output"]
    if not outputs:
        return f"found = {call}\nreturn {_one_or_all(copied)}"
    found = "found" if len(outputs) == 1 else "*found"
    return f"found = {call}\nreturn {found}, {', '.join(copied)}"


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


def _inputs(spec: KernelSpec, shape: SpecShape) -> Iterator[tuple[str, str]]:
    """Yield the input tensors of a shape, with expressions that create them."""
    values = spec.sizes(shape)
    for tensor in spec.contract.tensors:
        if tensor.role != "output":
            init = shape.inits.get(tensor.name) or tensor.init or Randn()
            yield tensor.name, _laid_out(_made(tensor, init, values), tensor)


def _made(tensor: SpecTensor, init: Init, values: Mapping[str, int]) -> str:
    """Return a Python expression for the values of a tensor before a call."""
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
                raise UsageError(
                    f"tensor {tensor.name!r}: the last offset would be {whole}; it "
                    "must be at least 0"
                )
            inner = f"torch.randint(0, {whole + 1}, ({max(count - 2, 0)},)).sort().values"
            made = f"torch.cat([torch.tensor([0]), {inner}, torch.tensor([{whole}])])[:{count}]"
            made += f".to(torch.{tensor.dtype})"
        case Safetensors(path=path, key=key):
            digest = _digest(path, key, tensor, sizes)
            made = f"_read_tensor({path!r}, {key!r}, {digest!r})"
    return made


def _digest(path: str, key: str, tensor: SpecTensor, sizes: list[int]) -> str:
    """Return the digest of a safetensors file, after checking that it holds the tensor."""
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
            raise UsageError(
                f"{key!r} in {path} has data_offsets {offsets}, which do not span the {size} bytes "
                "of its shape and dtype; write the file again"
            )
    return hashlib.sha256(data).hexdigest()
