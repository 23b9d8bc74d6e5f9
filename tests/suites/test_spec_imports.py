"""Other projects' forms as kernel specs."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelgym.errors import UsageError
from kernelgym.suites.spec_files import read_spec
from kernelgym.suites.spec_modules import problem_source
from support.specs import (
    DATA,
    DEFINITION,
    INLINE,
    RANDOM,
    SOLUTION,
    VALUES,
    WHOLE,
    WORKLOADS,
    changed,
    written,
)


def test_a_definition_becomes_a_spec(tmp_path: Path) -> None:
    spec = read_spec(written(tmp_path, WHOLE))
    assert (spec.name, spec.kind, spec.entry, spec.returns) == (
        "scaled_d8",
        "cpp",
        "scaled",
        "value",
    )
    assert spec.arguments == ("x", "ids", "factor")
    assert [(s.name, s.role, s.axes["rows"]) for s in spec.shapes] == [
        ("w2", "tune", 2),
        ("w5", "hidden", 5),
    ]
    names: dict[str, Any] = {}
    exec(problem_source(spec, spec.shapes[1]), names)
    x, ids = names["get_inputs"]()
    assert x.shape == (5, 8) and ids.dtype == torch.int32
    model = names["Model"](*names["get_init_inputs"]())
    assert torch.equal(model(x, ids), x * 2.5)


def test_parts_may_be_files(tmp_path: Path) -> None:
    written(tmp_path, DEFINITION, "definition.json")
    written(tmp_path, SOLUTION, "solution.json")
    rows = "".join(json.dumps(row) + "\n" for row in WORKLOADS)
    (tmp_path / "workloads.jsonl").write_text(rows)
    files = {"definition": "definition.json", "solution": "solution.json"}
    path = written(tmp_path, {**files, "workloads": "workloads.jsonl"}, "whole.json")
    assert len(read_spec(path).shapes) == 2
    with pytest.raises(UsageError, match="without a kernel"):
        read_spec(tmp_path / "definition.json")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"solution__spec__binding": "tvm-ffi"}, "only torch"),
        ({"solution__sources": []}, "'main.cpp' is not among them"),
        ({"definition__inputs__x__dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
        ({"workloads__0__workload__inputs__x": {"type": "magic"}}, "magic"),
        ({"workloads__0__workload__inputs__factor": RANDOM}, "no workload gives the scalar"),
        ({"hidden": ["w9"]}, "w9"),
        ({"solution": None}, "solution is missing"),
        ({"workloads": "missing.jsonl"}, "cannot read"),
        ({"definition__reference": "def go(): pass"}, "no function 'run'"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=why):
        read_spec(written(tmp_path, changed(WHOLE, **change)))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))


def test_inline_tensors_become_files(tmp_path: Path) -> None:
    spec = read_spec(written(tmp_path, INLINE))
    assert spec.launch.grid == (2,) and dict(spec.launch.meta) == {
        "BLOCK": (32,),
        "num_warps": (4,),
    }
    names: dict[str, Any] = {}
    exec(problem_source(spec, spec.shapes[0]), names)
    assert torch.equal(names["get_inputs"]()[0], VALUES)
    (file,) = (tmp_path / "cache" / "spec_tensors").iterdir()
    read_spec(written(tmp_path, INLINE))
    assert [file] == list(file.parent.iterdir())


def test_inline_contracts_need_a_reference(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='"reference" is missing'):
        read_spec(written(tmp_path, changed(INLINE, reference=None)))


BOMB = base64.b64encode(zlib.compress(bytes(1 << 22))).decode()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"data_b64": BOMB, "shape": [2048]}, "more than 8192 bytes"),
        ({"data_b64": BOMB}, "not a base64 text of 256 bytes"),
        ({"shape": [1 << 40]}, "at most"),
        ({"shape": [63]}, "holds more than 252"),
        ({"shape": [65]}, "holds 256 bytes"),
        ({"shape": [-1]}, "above 0"),
        ({"data_b64": "%%%"}, "cannot be read"),
        ({"compress": "none"}, "bytes, and float32"),
        ({"compress": "lzma"}, "lzma"),
        ({"dtype": "float31"}, "float31"),
    ],
)
def test_inline_data_is_capped(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    spec = changed(INLINE, io__args__0__tensor_spec__data={**DATA, **change})
    with pytest.raises(UsageError, match=why):
        read_spec(written(tmp_path, spec))
    assert not (tmp_path / "cache" / "spec_tensors").exists()
