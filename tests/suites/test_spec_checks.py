"""What does not fit together in a kernel spec is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kernelgym.errors import UsageError
from kernelgym.suites.spec_checks import check_memory
from kernelgym.suites.spec_files import MOST_TENSOR_BYTES, read_spec
from support.specs import CPP, GLOBAL_SPEC, SPEC, TRITON, TRITON_SPEC, WHOLE, changed, written

CASES = [
    ({"reference": None}, r'"reference" is missing.*def run\(x, factor\)'),
    ({"reference": {"run": "def go(x): pass"}}, "no function 'run'"),
    ({"reference": {"run": "def run(x, scale): pass"}}, "'scale', which is not defined"),
    ({"reference": {"run": "def run(factor): pass"}}, "does not take the input 'x'"),
    ({"reference": {"run": "def run(x:"}}, "not valid Python"),
    ({"contract__tensors__0__shape": ["rows", "depth"]}, "'depth', which is not defined"),
    ({"contract__axes__count": {"type": "expr", "expression": "area"}}, "axes before it: rows"),
    (
        {"contract__axes__columns": {"type": "const", "value": 0}},
        r"columns\.value must be at least 1, got 0",
    ),
    ({"contract__tensors__1__role": "input"}, "does not take the input 'y'"),
    ({"contract__tensors__1__init": "zeros"}, "'y' is an output"),
    ({"contract__tensors__0__dtype": "int32"}, "has no init"),
    ({"contract__tensors__0__layout": "channels_last"}, "takes 4 axes"),
    ({"contract__shapes": []}, "contract.shapes is missing"),
    ({"contract__shapes__0__axes": {}}, "no size for the axis 'rows'"),
    ({"contract__shapes__0__axes": {"rows": 0}}, r"rows must be at least 1, got 0"),
    ({"contract__shapes__0__weight": 0.0}, "weight"),
    ({"contract__shapes__1__axes": {"rows": 4}}, "two shapes are 'rows=4'"),
    (
        {"contract__shapes": [{"axes": {"rows": 4}, "role": "hidden"}]},
        "every shape of the contract is hidden",
    ),
    ({"contract__shapes__0__scalars": {"gain": 2}}, "gain"),
    ({"contract__scalars__0__name": "rows"}, "names a axis|names an axis|rename one"),
    ({"source": CPP.replace("torch::Tensor scaled", "void scaled")}, "nothing writes .*'y'.*void"),
    ({"entry": "scale"}, "no function 'scale'"),
    ({"source": "__global__ void scaled(float* x) {}"}, "__global__"),
    ({"returns": "arguments", "arguments": ["x", "factor"]}, "nothing writes the output 'y'"),
    ({"launch": {"grid": ["rows"]}}, "is neither"),
    ({"launch": {"block": [64]}}, "for __global__ kernels"),
    ({"path": "scaled.cpp"}, "both given"),
    ({"source": "", "path": "missing.cpp"}, "cannot read"),
    ({"name": "../up"}, "not a folder's name"),
    ({"version": 2}, "version"),
]
GLOBAL_CASES = [
    ({"launch__grid": []}, "launch.grid is missing"),
    ({"launch__block": []}, "launch.block is missing"),
    ({"launch__block": ["BLOCK", 8]}, "is 2048 threads .*1024 at most"),
    ({"launch__block": ["WIDTH"]}, "'WIDTH', which is not defined"),
    ({"returns": "value"}, "returns nothing"),
    ({"arguments": ["x", "y", "count"]}, "takes 4 arguments, and is given 3: x, y, count"),
    ({"arguments": ["y", "x", "count", "factor"]}, "nothing writes the output 'y'"),
    ({"kind": "cpp"}, '__global__ functions with "kind": "cuda"'),
]
TRITON_CASES = [
    ({"launch__grid": ["count / BLOCK"]}, "is not arithmetic"),
    ({"launch__grid": ["open('x')"]}, "is not arithmetic"),
    ({"launch__grid": ["ceil_div(count, WIDTH)"]}, "'WIDTH', which is not defined"),
    ({"launch__grid": ["count - count"]}, "below 1"),
    ({"launch__grid": []}, "launch.grid is missing"),
    ({"launch__meta__BLOCK": []}, "lists choices"),
    ({"returns": "value"}, "returns nothing"),
    ({"arguments": ["x", "x", "count", "factor"]}, "nothing writes the output 'y'"),
    ({"source": TRITON.replace("at = y", "at = x")}, "nothing writes the output 'y'"),
    ({"arguments": ["x", "y", "total", "factor"]}, "'total', which is not defined"),
]


@pytest.mark.parametrize(
    ("spec", "change", "why"),
    [
        *((SPEC, change, why) for change, why in CASES),
        *((TRITON_SPEC, change, why) for change, why in TRITON_CASES),
        *((GLOBAL_SPEC, change, why) for change, why in GLOBAL_CASES),
    ],
)
def test_bad_specs_are_refused_in_one_line(
    spec: dict[str, Any], change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = written(tmp_path, changed(spec, **change))
    with pytest.raises(UsageError, match=why) as caught:
        read_spec(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"name": ', "null"])
def test_what_is_no_spec_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="spec"):
        read_spec(path)


def test_shapes_beyond_memory_are_refused(tmp_path: Path) -> None:
    spec = read_spec(written(tmp_path, changed(SPEC, contract__shapes__2__axes={"rows": 10**9})))
    with pytest.raises(UsageError, match=r"rows=1000000000.*129.1 GB.*12.0 GB"):
        check_memory(spec, 12 * 10**9, "cpu")
    check_memory(spec, 200 * 10**9, "cpu")


RENAMED = {
    "axis": lambda name: changed(SPEC, contract__axes={**SPEC["contract"]["axes"], name: "var"}),
    "tensor": lambda name: changed(SPEC, contract__tensors__1__name=name),
    "scalar": lambda name: changed(SPEC, contract__scalars=[{"name": name, "value": 1.0}]),
    "meta-parameter": lambda name: changed(SPEC, launch={"meta": {name: [1, 2]}}),
}


@pytest.mark.parametrize("kind", RENAMED)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("self", "generated modules use it"),
        ("torch", "generated modules use it"),
        ("run", "generated modules use it"),
        ("max", "function of the spec's arithmetic"),
        ("rows_µ", "letters of ASCII"),
    ],
)
def test_names_that_modules_use_are_refused(kind: str, name: str, why: str, tmp_path: Path) -> None:
    spec = RENAMED[kind](name)
    with pytest.raises(UsageError, match=rf"{kind} '{name}' (cannot have that name: )?.*{why}"):
        read_spec(written(tmp_path, spec))


def test_words_of_cpp_name_no_constants(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'template' cannot have that name: it is a word of C"):
        read_spec(written(tmp_path, changed(SPEC, launch={"meta": {"template": [1]}})))
    with pytest.raises(UsageError, match="'x' names the entry and a tensor"):
        triton = changed(TRITON_SPEC, entry="x", source=TRITON.replace("scale_kernel", "x"))
        read_spec(written(tmp_path, triton))


NAMES_A_FILE = {
    "source": lambda path: changed(SPEC, source=None, path=path),
    "reference": lambda path: changed(SPEC, reference={"path": path}),
    "problem": lambda path: changed(SPEC, reference={"problem": path}),
    "tensor": lambda path: changed(
        SPEC, contract__tensors__0__init={"kind": "safetensors", "path": path, "key": "a"}
    ),
    "definition": lambda path: changed(WHOLE, definition=path),
    "workloads": lambda path: changed(WHOLE, workloads=path),
}


@pytest.mark.parametrize("kind", NAMES_A_FILE)
def test_files_outside_the_folder_are_refused(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    outside = tmp_path / "secret.py"
    outside.write_text("secret")
    (folder / "link.py").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    for path in ("../secret.py", str(outside), "link.py", "up/secret.py"):
        with pytest.raises(UsageError, match="does not lie in the spec's folder") as found:
            read_spec(written(folder, NAMES_A_FILE[kind](path)))
        assert "secret" not in str(found.value).replace("secret.py", "")
    (folder / "round.py").symlink_to("round.py")
    for path in ("missing.py", "round.py", "a\0.py", "x" * 5000 + ".py"):
        with pytest.raises(UsageError, match="cannot read"):
            read_spec(written(folder, NAMES_A_FILE[kind](path)))


@pytest.mark.parametrize("kind", NAMES_A_FILE)
def test_files_of_a_spec_have_a_largest_size(kind: str, tmp_path: Path) -> None:
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(MOST_TENSOR_BYTES + 1)  # takes no room on the disk
    os.mkfifo(tmp_path / "pipe.py")
    refused = (("large.py", "more than the limit"), ("pipe.py", "the file is not a regular file"))
    for path, why in refused:
        with pytest.raises(UsageError, match=why):
            read_spec(written(tmp_path, NAMES_A_FILE[kind](path)))
    with pytest.raises(UsageError, match="more than the limit"):
        read_spec(tmp_path / "large.py")
