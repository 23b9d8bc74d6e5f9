"""Plain data into typed objects, and messages of what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernelgym
from kernelgym.errors import UsageError
from kernelgym.reading import read, schema
from kernelgym.suites.spec import KernelSpec
from support.specs import SPEC, TRITON_SPEC, changed

SCHEMA = json.loads(
    (Path(kernelgym.__file__).parent / "suites" / "kernel_spec.schema.json").read_text()
)


def test_the_committed_schema_is_the_nouns() -> None:
    assert schema(KernelSpec) == SCHEMA


@pytest.mark.parametrize("spec", [SPEC, TRITON_SPEC])
def test_a_spec_is_read(spec: dict[str, Any]) -> None:
    assert read(KernelSpec, spec).name == "scaled"


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
        ({"contract": []}, "contract is a mapping"),
    ],
)
def test_value_that_does_not_fit_is_refused_by_place(change: dict[str, Any], where: str) -> None:
    spec = changed(SPEC, **change)
    with pytest.raises(UsageError, match=where):
        read(KernelSpec, spec)


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(UsageError, match="a number"):
        read(KernelSpec, changed(SPEC, weight=float("nan")))
