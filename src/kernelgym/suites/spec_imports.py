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

Not covered: eight-bit floating-point types, TVM bindings, several source files, solutions in
Python.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import LANGUAGES
from kernelgym.paths import cache_folder
from kernelgym.suites.spec import DTYPE_BYTES, STORED_DTYPES
from kernelgym.suites.spec_files import text_in

__all__ = ["MOST_INLINE_BYTES", "converted"]

MOST_INLINE_BYTES = 1 << 30
"""The largest tensor that is taken from inline data."""
_RANGES = {"bool": (0, 2), "int8": (-128, 128), "uint8": (0, 256)}
"""What flashinfer-bench draws random inputs of a type from; others from -1024 to 1023."""


def converted(data: Any, path: Path) -> Any:
    """Return a spec's JSON, from a spec or another form.

    Args:
        data: What `json.loads` returned.
        path: The file; paths in it are relative to its folder.

    Raises:
        UsageError: If a form is known, and something in it is not.
    """
    if not isinstance(data, Mapping):
        return data
    if "definition" in data:
        return _from_flashinfer(data, path.parent)
    if "op_type" in data and "outputs" in data:
        raise UsageError(
            "this is a definition of flashinfer-bench, without a kernel; give an object with "
            '"definition", "solution" and "workloads", each an object or the path of its file'
        )
    if "io" in data:
        return _from_inline(data, path)
    return data


def _from_flashinfer(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    known = ("definition", "solution", "workloads", "hidden", "weight")
    for name in data:
        if name not in known:
            raise UnknownName("field of the document", name, known)
    definition = _object(data["definition"], folder, "definition")
    solution = _object(_needed(data, "solution", "the document"), folder, "solution")
    workloads = _workloads(_needed(data, "workloads", "the document"), folder)
    build = _mapping(_needed(solution, "spec", "solution"), "solution.spec")
    inputs = _tensors(definition, "inputs")
    outputs = _tensors(definition, "outputs")
    axes = _mapping(_needed(definition, "axes", "definition"), "definition.axes")
    hidden = _list(data.get("hidden", []), "hidden")
    shapes = []
    for workload in workloads:
        name = str(_needed(workload, "uuid", "a workload"))
        shape: dict[str, Any] = {"axes": _needed(workload, "axes", f"workload {name}")}
        shape |= {"name": name, "role": "hidden" if name in hidden else "tune"}
        shape["scalars"], shape["inits"] = {}, {}
        where = f"the inputs of workload {name}"
        for given, entry in _mapping(_needed(workload, "inputs", where), where).items():
            where = f"the input {given!r} of workload {name}"
            match _mapping(entry, where).get("type"):
                case "scalar":
                    shape["scalars"][given] = _needed(entry, "value", where)
                case "safetensors":
                    file = {
                        "path": _needed(entry, "path", where),
                        "key": _needed(entry, "tensor_key", where),
                    }
                    shape["inits"][given] = {"kind": "safetensors", **file}
                case "random":
                    pass
                case kind:
                    types = ("random", "scalar", "safetensors")
                    raise UnknownName(f"type of {where}", kind, types)
        shapes.append(shape)
    for name in hidden:
        if name not in [shape["name"] for shape in shapes]:
            raise UnknownName("hidden workload", name, [shape["name"] for shape in shapes])
    scalars = [name for name, each in inputs.items() if each["shape"] is None]
    missing = [name for name in scalars if not shapes or name not in shapes[0]["scalars"]]
    if missing:
        raise UsageError(f"no workload gives the scalar {missing[0]!r} a value")
    binding = build.get("binding") or "tvm-ffi"
    kind = _word(_needed(build, "language", "solution.spec"), "solution.spec.language")
    language = LANGUAGES.get(kind)
    if language is None:
        raise UnknownName("language of the solution", kind, LANGUAGES)
    entry_point = _word(_needed(build, "entry_point", "solution.spec"), "solution.spec.entry_point")
    if "load_inline" in language.own_kernel.builders and binding != "torch":
        raise UsageError(f"the solution's binding is {binding}; only torch can be built")
    written = build.get("destination_passing_style", True)
    order = [*inputs, *(outputs if written else ())]
    return {
        "name": _needed(definition, "name", "definition"),
        "kind": kind,
        "entry": entry_point.rpartition("::")[2],
        "source": _only_source(solution, entry_point.partition("::")[0]),
        "returns": "arguments" if written else "value",
        "arguments": order,
        "reference": {"run": _needed(definition, "reference", "definition")},
        "weight": data.get("weight", 1.0),
        "description": definition.get("description") or "",
        "contract": {
            "axes": {name: _axis(axis, f"axis {name!r}") for name, axis in axes.items()},
            "tensors": [
                *(_tensor(n, t, "input") for n, t in inputs.items() if t["shape"] is not None),
                *(_tensor(n, t, "output") for n, t in outputs.items()),
            ],
            "scalars": [{"name": n, "value": shapes[0]["scalars"][n]} for n in scalars],
            "shapes": shapes,
        },
    }


def _axis(axis: Any, where: str) -> dict[str, Any]:
    return {name: value for name, value in _mapping(axis, where).items() if value is not None}


def _tensors(definition: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    """Return a definition's inputs or outputs, each with its shape and type."""
    found = {}
    for tensor, given in _mapping(_needed(definition, name, "definition"), name).items():
        where = f"{name}.{tensor}"
        _needed(_mapping(given, where), "shape", where)
        _word(_needed(given, "dtype", where), f"{where}.dtype")
        found[tensor] = given
    return found


def _tensor(name: str, given: Mapping[str, Any], role: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "shape": given["shape"] or [], "dtype": given["dtype"]}
    if role == "input" and "float" not in given["dtype"]:
        least, most = _RANGES.get(given["dtype"], (-1024, 1024))
        made["init"] = {"kind": "randint", "low": least, "high": most}
    return made | {"role": role}


def _only_source(solution: Mapping[str, Any], path: str) -> str:
    given = _list(_needed(solution, "sources", "solution"), "solution.sources")
    sources = [_mapping(each, "each of solution.sources") for each in given]
    if len(sources) != 1 or sources[0].get("path") != path:
        listed = ", ".join(repr(each.get("path")) for each in sources) or "missing"
        raise UsageError(
            f"the solution's sources are {listed:.300}; only {path!r} alone can be built"
        )
    return _word(_needed(sources[0], "content", "solution.sources"), "the source's content")


def _workloads(given: Any, folder: Path) -> list[Mapping[str, Any]]:
    rows = given
    if isinstance(given, str):
        lines = text_in(folder, given).splitlines()
        rows = [_parsed(line, f"{given}, line {n}") for n, line in enumerate(lines, 1) if line]
    if not isinstance(rows, list):
        raise UsageError("workloads is a list, or the path of a JSONL file")
    given = [_mapping(row, "a workload") for row in rows]
    return [_mapping(row.get("workload", row), "a workload") for row in given]


def _object(given: Any, folder: Path, name: str) -> Mapping[str, Any]:
    if isinstance(given, str):
        given = _parsed(text_in(folder, given), given)
    if not isinstance(given, Mapping):
        raise UsageError(f"{name} is an object, or the path of its file")
    return given


def _needed(given: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in given:
        raise UsageError(f"{name} is missing in {where}")
    return given[name]


def _mapping(given: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UsageError(f"{where} is an object with fields, got {given!r:.80}")
    return given


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise UsageError(f"{where} is a list, got {given!r:.80}")
    return given


def _word(given: Any, where: str) -> str:
    if not isinstance(given, str):
        raise UsageError(f"{where} is a text, got {given!r:.80}")
    return given


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no JSON: {error}") from None


def _from_inline(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    contract = _mapping(data["io"], "io")
    tensors: list[dict[str, Any]] = []
    scalars: list[dict[str, Any]] = []
    meta: dict[str, list[int]] = {}
    order: list[str] = []
    for given in _list(_needed(contract, "args", "io"), "io.args"):
        given = _mapping(given, "an argument of io")
        name = str(_needed(given, "name", "an argument of io"))
        if given.get("is_meta"):
            meta[name] = [_needed(given, "value", f"argument {name!r}")]
            continue
        order.append(name)
        if given.get("type") == "tensor":
            spec = _needed(given, "tensor_spec", f"argument {name!r}")
            spec = _mapping(spec, f"the tensor_spec of argument {name!r}")
            tensors.append(_inline_tensor(name, spec, given.get("role", "input")))
        elif given.get("type") in ("int", "float", "bool"):
            scalars.append({"name": name, "value": _needed(given, "value", f"argument {name!r}")})
        else:
            known = ("tensor", "int", "float", "bool")
            raise UnknownName(f"type of argument {name!r}", given.get("type"), known)
    launch = _mapping(contract.get("launch") or {}, "io.launch")
    grid = _mapping(launch.get("grid") or {}, "io.launch.grid")
    sizes = [grid.get(axis, 1) for axis in "xyz"] if grid else []
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    for name in ("num_warps", "num_stages"):
        if launch.get(name) is not None:
            meta[name] = [launch[name]]
    reference = data.get("reference")
    made: dict[str, Any] = {
        "name": data.get("name") or path.stem,
        "kind": data.get("kind") or data.get("kernel_type"),
        "entry": _needed(data, "entry", "the document"),
        "source": data.get("source") or data.get("source_code") or "",
        "returns": "arguments",
        "arguments": order,
        "launch": {"grid": sizes, "meta": meta},
        "contract": {"tensors": tensors, "scalars": scalars},
    }
    return made | ({"reference": reference} if reference else {})


def _inline_tensor(name: str, spec: Mapping[str, Any], role: str) -> dict[str, Any]:
    literal = spec.get("data")
    where = f"tensor {name!r}"
    source = _mapping(literal, f"the data of {where}") if literal is not None else spec
    shape = _list(source.get("shape", []), f"the shape of {where}")
    dtype = _word(source.get("dtype", "float32"), f"the dtype of {where}")
    made: dict[str, Any] = {"name": name, "shape": shape, "dtype": dtype, "role": role}
    if role == "output":
        return made
    if literal is not None:
        return made | {"init": _stored(name, literal, shape, dtype)}
    init = spec.get("init") or {}
    if isinstance(init, str):
        return made | {"init": init}
    init = _mapping(init, f"the init of {where}")
    fields = {"fill_value": "value"}
    kept = {fields.get(k, k): v for k, v in init.items() if v is not None and k != "seed"}
    return made | ({"init": kept} if kept else {})


def _stored(name: str, literal: Mapping[str, Any], shape: list[int], dtype: str) -> dict[str, Any]:
    """Write an inline tensor to the cache folder, and return its init."""
    if dtype not in DTYPE_BYTES:
        raise UnknownName(f"type of tensor {name!r}", dtype, DTYPE_BYTES)
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
        raise UsageError(f"the shape of tensor {name!r} is {shape}; sizes are whole and above 0")
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    if size > MOST_INLINE_BYTES:
        raise UsageError(
            f"tensor {name!r} takes {size} bytes, and inline data {MOST_INLINE_BYTES} at most; "
            "give a safetensors file"
        )
    compress = literal.get("compress", "none")
    if compress not in ("none", "zlib"):
        raise UnknownName(f"compression of tensor {name!r}", compress, ("none", "zlib"))
    text = literal.get("data_b64")
    # zlib adds a few bytes to what it cannot compress; base64 makes four of three.
    if not isinstance(text, str) or len(text) > (size + size // 1000 + 100) * 4 / 3 + 4:
        raise UsageError(f"the data of tensor {name!r} is no base64 text of {size} bytes")
    try:
        raw = base64.b64decode(text, validate=True)
        if compress == "zlib":
            stream = zlib.decompressobj()
            raw = stream.decompress(raw, size + 1)
    except (ValueError, zlib.error) as error:  # no base64, or no ASCII
        raise UsageError(f"the data of tensor {name!r} cannot be read: {error}") from None
    if len(raw) != size:
        more = "more than " if len(raw) > size else ""
        raise UsageError(
            f"the data of tensor {name!r} holds {more}{min(len(raw), size)} bytes, and {dtype} of "
            f"{shape} is {size}"
        )
    header = {name: {"dtype": STORED_DTYPES[dtype], "shape": shape, "data_offsets": [0, size]}}
    encoded = json.dumps(header).encode()
    whole = len(encoded).to_bytes(8, "little") + encoded + raw
    file = cache_folder() / "spec_tensors" / f"{hashlib.sha256(whole).hexdigest()}.safetensors"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{os.getpid()}-{file.name}")
        beside.write_bytes(whole)
        os.replace(beside, file)
    return {"kind": "safetensors", "path": str(file), "key": name}
