"""JSON into dataclasses, and the schema that says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernelgym
from kernelgym.errors import UsageError
from kernelgym.suites.json_records import read_record, schema_of
from kernelgym.suites.spec import KernelSpec
from support.specs import SPEC, TRITON_SPEC, changed

SCHEMA = json.loads(
    (Path(kernelgym.__file__).parent / "suites" / "kernel_spec.schema.json").read_text()
)


def accepts(schema: dict[str, Any], data: Any) -> bool:
    """Return True if a schema accepts data, as far as `schema_of` writes schemas."""
    if "$ref" in schema:
        return accepts(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], data)
    if "anyOf" in schema:
        return any(accepts(each, data) for each in schema["anyOf"])
    if "enum" in schema:
        return not isinstance(data, bool) and data in schema["enum"]
    match schema["type"]:
        case "object":
            if not isinstance(data, dict):
                return False
            known, rest = schema.get("properties", {}), schema["additionalProperties"]
            return set(schema.get("required", ())) <= set(data) and all(
                accepts(known.get(name, rest), each) if name in known or rest else False
                for name, each in data.items()
            )
        case "array":
            return isinstance(data, list) and all(accepts(schema["items"], e) for e in data)
        case "null":
            return data is None
        case kind:
            fitting = {"string": str, "integer": int, "number": int | float, "boolean": bool}[kind]
            return isinstance(data, fitting) and (kind == "boolean" or not isinstance(data, bool))


def test_the_committed_schema_is_the_nouns() -> None:
    assert schema_of(KernelSpec) == SCHEMA


@pytest.mark.parametrize("spec", [SPEC, TRITON_SPEC])
def test_the_schema_accepts_specs(spec: dict[str, Any]) -> None:
    assert accepts(SCHEMA, spec)
    assert read_record(KernelSpec, spec).name == "scaled"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"kind": "fortran"}, "kind"),
        ({"entry": None}, "entry is missing"),
        ({"grid": [1]}, "grid"),
        ({"contract__tensors__0__dtype": "float31"}, r"contract.tensors\[0\].dtype"),
        ({"contract__tensors__0__init": "gauss"}, r"contract.tensors\[0\].init"),
        ({"contract__tensors__0__init": {"mean": 1}}, "init.kind is missing"),
        ({"contract__tensors__0__shape": "rows"}, "is a list"),
        ({"contract__shapes__0__weight": "much"}, "weight is a number"),
        ({"contract__shapes__0__axes": {"rows": 4.5}}, "axes.rows is a whole number"),
        ({"contract__allow_approximate": 1}, "true or false"),
        ({"contract__scalars__0__value": "x"}, "value is"),
        ({"contract": []}, "contract is an object"),
    ],
)
def test_what_the_schema_refuses_is_refused(change: dict[str, Any], where: str) -> None:
    spec = changed(SPEC, **change)
    assert not accepts(SCHEMA, spec)
    with pytest.raises(UsageError, match=where):
        read_record(KernelSpec, spec)


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(UsageError, match="a number"):
        read_record(KernelSpec, changed(SPEC, weight=float("nan")))
