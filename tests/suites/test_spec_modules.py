"""The modules that specs become, run without a judge."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelgym.errors import UsageError
from kernelgym.suites.spec_files import read_spec
from kernelgym.suites.spec_modules import kernel_source, problem_source
from support.specs import CPP, GLOBAL, GLOBAL_SPEC, SPEC, TRITON_SPEC, changed, written

BUILT: list[dict[str, Any]] = []


def module(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(source, "generated", "exec"), names)
    return names


def problem(folder: Path, spec: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found = read_spec(written(folder, spec))
    return module(problem_source(found, found.shapes[index]))


def kernel(
    folder: Path, spec: dict[str, Any], function: Any, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Run a kernel's module with a Python function in place of the built one."""

    def load_inline(**given: Any) -> SimpleNamespace:
        BUILT.append(given)
        return SimpleNamespace(**{given["functions"][0]: function})

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", load_inline)
    return module(kernel_source(read_spec(written(folder, spec))))


def output(names: dict[str, Any], made: dict[str, Any], which: str) -> Any:
    torch.manual_seed(0)
    return names[which](*made["get_init_inputs"]())(*made["get_inputs"]())


def test_a_global_kernel_is_launched_with_its_axes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(x: Any, y: Any, count: int, factor: float, size: int) -> None:
        assert count == size == x.numel()
        y.copy_(x * factor)

    made = problem(tmp_path, SPEC)
    built = kernel(tmp_path, GLOBAL_SPEC, launch, monkeypatch)
    torch.testing.assert_close(output(built, made, "ModelNew"), output(made, made, "Model"))
    text = BUILT[-1]["cuda_sources"]
    assert "constexpr int BLOCK = 256;" in text and GLOBAL.strip() in text
    assert "dim3(BLOCK)" in text and "reinterpret_cast<const float*>(given_0.data_ptr())" in text
    assert "static_cast<int>(given_2), static_cast<float>(given_3)" in text
    assert BUILT[-1]["functions"] == ["launch_scale_kernel"]


def test_a_kernel_that_returns_agrees_with_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = problem(tmp_path, SPEC)
    built = kernel(tmp_path, changed(SPEC, launch={"flags": ["-O2"]}), torch.mul, monkeypatch)
    assert made["get_init_inputs"]() == [4, 8, 32, 1.5]
    assert [tuple(t.shape) for t in made["get_inputs"]()] == [(4, 8)]
    torch.testing.assert_close(output(built, made, "ModelNew"), output(made, made, "Model"))
    assert BUILT[-1]["extra_cflags"] == ["-O2"] and BUILT[-1]["cpp_sources"].strip() == CPP.strip()


def test_an_axis_named_as_an_attribute_of_modules_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(SPEC).replace("rows", "train").replace("columns", "forward")
    made = problem(tmp_path, json.loads(text))
    built = kernel(tmp_path, json.loads(text), torch.mul, monkeypatch)
    assert callable(made["Model"](4, 8, 32, 1.5).train)
    torch.testing.assert_close(output(built, made, "ModelNew"), output(made, made, "Model"))


def test_a_kernel_that_writes_is_handed_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CPP.replace(
        "torch::Tensor scaled(torch::Tensor x_in, double factor)",
        "void scaled(torch::Tensor x_in, torch::Tensor out, int64_t n, double factor)",
    )
    spec = changed(
        SPEC,
        source=source,
        returns="arguments",
        arguments=["x", "y", "count + WIDTH", "factor"],
        launch={"meta": {"WIDTH": [16, 32]}},
        contract__tensors__1__layout="transposed",
    )

    def write(x: torch.Tensor, y: torch.Tensor, n: int, factor: float) -> None:
        assert n == 48 and y.stride() == (1, 4)
        y.copy_(x * factor)

    made = problem(tmp_path, spec)
    built = kernel(tmp_path, spec, write, monkeypatch)
    torch.testing.assert_close(output(built, made, "ModelNew"), output(made, made, "Model"))
    assert "constexpr int WIDTH = 16;" in BUILT[-1]["cpp_sources"]


def test_what_is_changed_in_place_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = changed(
        SPEC,
        contract__tensors__0__role="inout",
        reference={"run": "def run(x, factor):\n    x.mul_(factor)\n    return x + 1"},
    )

    def write(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.mul_(factor) + 1

    made = problem(tmp_path, spec)
    built = kernel(tmp_path, spec, write, monkeypatch)
    inputs = made["get_inputs"]()
    before = inputs[0].clone()
    results = [
        names[which](4, 8, 32, 1.5)(*inputs)
        for names, which in ((made, "Model"), (built, "ModelNew"))
    ]
    assert torch.equal(inputs[0], before)
    for mine, right in zip(*results, strict=True):
        torch.testing.assert_close(mine, right)


def test_triton_is_launched_by_the_grid(tmp_path: Path) -> None:
    source = kernel_source(read_spec(written(tmp_path, TRITON_SPEC)))
    launch = "scale_kernel[((-(-count // BLOCK)),)](x, y, count, factor, BLOCK=BLOCK, num_warps=4)"
    assert launch in source and "y = torch.empty((rows, columns,)" in source
    assert "1237" not in source and "31" not in source


@pytest.mark.parametrize(
    ("tensor", "holds"),
    [
        ({"init": {"kind": "randn", "mean": 5.0, "std": 0.1}}, lambda t: 4.5 < t.mean() < 5.5),
        ({"init": {"kind": "uniform", "low": 2, "high": 3}}, lambda t: 2 <= t.min() <= t.max() < 3),
        ({"init": "zeros"}, lambda t: not t.any()),
        ({"init": "ones"}, lambda t: bool((t == 1).all())),
        ({"init": {"kind": "full", "value": 2.5}}, lambda t: bool((t == 2.5).all())),
        ({"init": {"kind": "arange", "start": 1, "step": 2}}, lambda t: t[1, 0] == 17),
        (
            {"init": {"kind": "randint", "high": "rows"}, "dtype": "int32"},
            lambda t: t.dtype == torch.int32 and 0 <= t.min() and t.max() < 4,
        ),
        (
            {"init": "permutation", "dtype": "int64"},
            lambda t: bool((t.sort(-1).values == torch.arange(8)).all()),
        ),
        (
            {
                "init": {"kind": "offsets", "total": "count"},
                "dtype": "int32",
                "shape": ["rows + 1"],
            },
            lambda t: t[0] == 0 and t[-1] == 32 and bool((t.diff() >= 0).all()) and len(t) == 5,
        ),
        (
            {"init": {"kind": "randint", "high": 2}, "dtype": "bool"},
            lambda t: t.dtype is torch.bool,
        ),
        ({"dtype": "bfloat16"}, lambda t: t.dtype is torch.bfloat16),
        ({"layout": "transposed"}, lambda t: t.stride() == (1, 4)),
    ],
)
def test_inputs_hold_what_the_spec_says(tensor: dict[str, Any], holds: Any, tmp_path: Path) -> None:
    whole = {"name": "x", "shape": ["rows", "columns"], **tensor}
    (found,) = problem(tmp_path, changed(SPEC, contract__tensors__0=whole))["get_inputs"]()
    assert holds(found)


def safetensors_file(folder: Path, values: torch.Tensor) -> Path:
    header = json.dumps(
        {"a": {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, values.nbytes]}}
    ).encode()
    path = folder / "tensors.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.numpy().tobytes())
    return path


def test_a_tensor_is_read_from_its_file(tmp_path: Path) -> None:
    values = torch.arange(32.0).reshape(4, 8)
    path = safetensors_file(tmp_path, values)
    init = {"kind": "safetensors", "path": path.name, "key": "a"}
    spec = changed(SPEC, contract__shapes__0__inits={"x": init})
    made = problem(tmp_path, spec)
    assert torch.equal(made["get_inputs"]()[0], values)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="has changed"):
        made["get_inputs"]()


def test_a_tensor_of_other_sizes_is_refused(tmp_path: Path) -> None:
    path = safetensors_file(tmp_path, torch.zeros(3, 8))
    init = {"kind": "safetensors", "path": path.name, "key": "a"}
    with pytest.raises(UsageError, match=r"F32 of \[3, 8\].*F32 of \[4, 8\]"):
        problem(tmp_path, changed(SPEC, contract__shapes__0__inits={"x": init}))
