"""Other projects' forms of kernels, turned into kernel specs.

Contract: `converted` returns the JSON of a spec, which `kernelgym.suites.spec` checks like any
other. What has no counterpart is a `UsageError`, never left out in silence.

Two forms are known:

- **flashinfer-bench** (its ``Definition``, ``Solution`` and ``Workload``): an object with
  ``definition``, ``solution`` and ``workloads``, each an object or the path of its file (workloads:
  a list, or a JSONL file of traces). Each workload is a shape. A list ``hidden`` may name the
  UUIDs of workloads that are hidden shapes.
- **inline contracts**: an object with ``io``, whose ``args`` list tensors (with an ``init`` or with
  ``data``: base64, zlib or not), numbers and constexpr arguments, and ``launch``. Inline data is
  checked against its type and shape before it is inflated, and written as a safetensors file into
  the cache folder.

The classes name the fields of these forms that are used; other fields are left aside.

Not covered: eight-bit floating-point types, TVM bindings, solutions in Python.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import LANGUAGES
from kernelgym.paths import cache_folder
from kernelgym.reading import read
from kernelgym.suites.solution_sources import joined
from kernelgym.suites.spec import DTYPES, Dtype
from kernelgym.suites.spec_files import text_in
from kernelgym.whole_file import write_whole

MOST_INLINE_BYTES = 1 << 30
"""Largest number of bytes of a tensor that is taken from inline data."""
_RANGES = {"bool": (0, 2), "int8": (-128, 128), "uint8": (0, 256)}
"""Bounds of flashinfer-bench's random whole numbers by type, the upper one excluded; other types
have -1024 and 1024."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Tensor(_Form):
    shape: tuple[int | str, ...] | None
    dtype: str


class _Definition(_Form):
    name: str
    axes: dict[str, dict[str, Any]]
    inputs: dict[str, _Tensor]
    outputs: dict[str, _Tensor]
    reference: str
    description: str | None = None


class _Build(_Form):
    language: str
    entry_point: str
    binding: str | None = None
    destination_passing_style: bool = True


class _Source(_Form):
    path: str
    content: str


class _Solution(_Form):
    spec: _Build
    sources: tuple[_Source, ...]


class _Input(_Form):
    type: Literal["random", "scalar", "safetensors"]
    value: Any = None
    path: str = ""
    tensor_key: str = ""


class _Workload(_Form):
    uuid: str
    axes: dict[str, int]
    inputs: dict[str, _Input]


class _Flashinfer(_Form):
    model_config = ConfigDict(extra="forbid")

    definition: Any
    solution: Any
    workloads: Any
    hidden: tuple[str, ...] = ()
    weight: float = 1.0


class _Data(_Form):
    data_b64: str
    dtype: Dtype = "float32"
    shape: tuple[Annotated[int, Field(gt=0)], ...] = ()
    compress: Literal["none", "zlib"] = "none"


class _InlineTensor(_Form):
    data: _Data | None = None
    shape: tuple[int | str, ...] = ()
    dtype: str = "float32"
    init: str | dict[str, Any] | None = None


class _Argument(_Form):
    name: str
    type: Literal["tensor", "int", "float", "bool"] | None = None
    role: str = "input"
    value: Any = None
    is_meta: bool = False
    tensor_spec: _InlineTensor | None = None


class _Launch(_Form):
    grid: dict[Literal["x", "y", "z"], int] | None = None
    num_warps: int | None = None
    num_stages: int | None = None


class _Contract(_Form):
    args: tuple[_Argument, ...]
    launch: _Launch | None = None


class _Inline(_Form):
    io: _Contract
    entry: str
    name: str | None = None
    kind: str | None = None
    kernel_type: str | None = None
    source: str | None = None
    source_code: str | None = None
    reference: Any = None


def converted(data: Any, path: Path) -> Any:
    """Return a kernel spec as JSON, converted if it is given in another project's form.

    Args:
        data: JSON of the file, as `json.loads` returns it.
        path: The file; paths in it are relative to its folder.

    Raises:
        UsageError: If a form is known, and something in it is not.
    """
    if not isinstance(data, Mapping):
        return data
    if "definition" in data:
        return _from_flashinfer(read(_Flashinfer, data), path.parent)
    if "op_type" in data and "outputs" in data:
        raise UsageError(
            "this is a definition of flashinfer-bench, without a kernel; give an object with "
            '"definition", "solution" and "workloads", each an object or the path of its file'
        )
    if "io" in data:
        return _from_inline(read(_Inline, data), path)
    return data


def _from_flashinfer(given: _Flashinfer, folder: Path) -> dict[str, Any]:
    definition = read(_Definition, _loaded(given.definition, folder), "definition")
    solution = read(_Solution, _loaded(given.solution, folder), "solution")
    shapes = [_shape(each, given.hidden) for each in _workloads(given.workloads, folder)]
    names = [shape["name"] for shape in shapes]
    for name in given.hidden:
        if name not in names:
            raise UnknownName("hidden workload", name, names)
    inputs, outputs, build = definition.inputs, definition.outputs, solution.spec
    scalars = [name for name, each in inputs.items() if each.shape is None]
    missing = [name for name in scalars if not shapes or name not in shapes[0]["scalars"]]
    if missing:
        raise UsageError(f"no workload gives the scalar {missing[0]!r} a value")
    language = LANGUAGES.get(build.language)
    if language is None:
        raise UnknownName("language of the solution", build.language, LANGUAGES)
    if "load_inline" in language.own_kernel.builders and build.binding != "torch":
        raise UsageError(
            f"the solution's binding is {build.binding or 'tvm-ffi'}; only torch can be built"
        )
    file, _, entry = build.entry_point.partition("::")
    written = build.destination_passing_style
    return {
        "name": definition.name,
        "kind": build.language,
        "entry": entry,
        "source": joined({each.path: each.content for each in solution.sources}, file),
        "returns": "arguments" if written else "value",
        "arguments": [*inputs, *(outputs if written else ())],
        "reference": {"run": definition.reference},
        "weight": given.weight,
        "description": definition.description or "",
        "contract": {
            "axes": {
                name: {field: value for field, value in axis.items() if value is not None}
                for name, axis in definition.axes.items()
            },
            "tensors": [
                *(_tensor(n, t, "input") for n, t in inputs.items() if t.shape is not None),
                *(_tensor(n, t, "output") for n, t in outputs.items()),
            ],
            "scalars": [{"name": n, "value": shapes[0]["scalars"][n]} for n in scalars],
            "shapes": shapes,
        },
    }


def _loaded(given: Any, folder: Path) -> Any:
    """Return a part of a document; if the part is a file's path, the content of that file."""
    return _parsed(text_in(folder, given), given) if isinstance(given, str) else given


def _workloads(given: Any, folder: Path) -> list[_Workload]:
    rows = given
    if isinstance(given, str):
        lines = text_in(folder, given).splitlines()
        rows = [_parsed(line, f"{given}, line {n}") for n, line in enumerate(lines, 1) if line]
    if not isinstance(rows, list):
        raise UsageError("workloads is a list, or the path of a JSONL file")
    plain = [row.get("workload", row) if isinstance(row, Mapping) else row for row in rows]
    return [read(_Workload, row, f"workloads[{index}]") for index, row in enumerate(plain)]


def _shape(workload: _Workload, hidden: tuple[str, ...]) -> dict[str, Any]:
    """Return the shape of a kernel spec that a workload describes."""
    inputs = workload.inputs.items()
    return {
        "axes": workload.axes,
        "name": workload.uuid,
        "role": "hidden" if workload.uuid in hidden else "tune",
        "scalars": {name: each.value for name, each in inputs if each.type == "scalar"},
        "inits": {
            name: {"kind": "safetensors", "path": each.path, "key": each.tensor_key}
            for name, each in inputs
            if each.type == "safetensors"
        },
    }


def _tensor(name: str, given: _Tensor, role: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "shape": given.shape or (), "dtype": given.dtype}
    if role == "input" and "float" not in given.dtype:
        least, most = _RANGES.get(given.dtype, (-1024, 1024))
        made["init"] = {"kind": "randint", "low": least, "high": most}
    return made | {"role": role}


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from None


def _from_inline(given: _Inline, path: Path) -> dict[str, Any]:
    arguments = [each for each in given.io.args if not each.is_meta]
    launch = given.io.launch or _Launch()
    meta = {each.name: [each.value] for each in given.io.args if each.is_meta}
    for name in ("num_warps", "num_stages"):
        if (value := getattr(launch, name)) is not None:
            meta[name] = [value]
    sizes = [launch.grid.get(axis, 1) for axis in ("x", "y", "z")] if launch.grid else []
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    made: dict[str, Any] = {
        "name": given.name or path.stem,
        "kind": given.kind or given.kernel_type,
        "entry": given.entry,
        "source": given.source or given.source_code or "",
        "returns": "arguments",
        "arguments": [each.name for each in arguments],
        "launch": {"grid": sizes, "meta": meta},
        "contract": {
            "tensors": [_inline_tensor(each) for each in arguments if each.type == "tensor"],
            "scalars": [
                {"name": each.name, "value": each.value}
                for each in arguments
                if each.type != "tensor"
            ],
        },
    }
    return made | ({"reference": given.reference} if given.reference else {})


def _inline_tensor(argument: _Argument) -> dict[str, Any]:
    given = argument.tensor_spec
    if given is None:
        raise UsageError(f"tensor_spec is missing in argument {argument.name!r}")
    source = given.data or given
    made: dict[str, Any] = {"name": argument.name, "role": argument.role}
    made |= {"shape": source.shape, "dtype": source.dtype}
    if argument.role == "output":
        return made
    if given.data is not None:
        return made | {"init": _stored(argument.name, given.data)}
    init = given.init
    if isinstance(init, dict):
        renamed = {"fill_value": "value"}
        init = {renamed.get(k, k): v for k, v in init.items() if v is not None and k != "seed"}
    return made | ({"init": init} if init else {})


def _stored(name: str, literal: _Data) -> dict[str, Any]:
    """Write a tensor given inline to the cache folder, and return the init that names the file."""
    stored, item_bytes = DTYPES[literal.dtype]
    size = math.prod(literal.shape) * item_bytes
    if size > MOST_INLINE_BYTES:
        raise UsageError(
            f"tensor {name!r} takes {size} bytes, and inline data {MOST_INLINE_BYTES} at most; "
            "give a safetensors file"
        )
    # zlib adds a few bytes to what it cannot compress; base64 makes four of three.
    if len(literal.data_b64) > (size + size // 1000 + 100) * 4 / 3 + 4:
        raise UsageError(f"the data of tensor {name!r} is not a base64 text of {size} bytes")
    try:
        raw = base64.b64decode(literal.data_b64, validate=True)
        if literal.compress == "zlib":
            raw = zlib.decompressobj().decompress(raw, size + 1)
    except (ValueError, zlib.error) as error:  # no base64, or no ASCII
        raise UsageError(f"the data of tensor {name!r} cannot be read: {error}") from None
    shape = list(literal.shape)
    if len(raw) != size:
        more = "more than " if len(raw) > size else ""
        raise UsageError(
            f"the data of tensor {name!r} holds {more}{min(len(raw), size)} bytes, and "
            f"{literal.dtype} of {shape} is {size}"
        )
    header = {name: {"dtype": stored, "shape": shape, "data_offsets": [0, size]}}
    encoded = json.dumps(header).encode()
    whole = len(encoded).to_bytes(8, "little") + encoded + raw
    file = cache_folder() / "spec_tensors" / f"{hashlib.sha256(whole).hexdigest()}.safetensors"
    if not file.exists():
        write_whole(file, whole)
    return {"kind": "safetensors", "path": str(file), "key": name}
