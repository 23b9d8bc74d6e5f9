"""What is known of the memory that judging a problem takes, without running anything."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import ProblemError
from kernelgym.judging_memory import SPARE_BYTES, judging_bytes
from kernelgym.suites.kernelbench_facts import facts
from kernelgym.suites.known_memory import check_fits, fitting, needed_bytes
from kernelgym.suites.synthetic.source import make_problem, sizes_of, spec_for
from kernelgym.suites.synthetic.spec import Preset
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Problem

RELU = Problem("KernelBench/L1/19", "KernelBench", 1, "19_ReLU", SAMPLE_PROBLEM.source)


def level(number: int) -> list[Problem]:
    rows = [entry for entry in facts().values() if entry.level == number]
    return [Problem(row.problem_id, "KernelBench", number, row.name, "") for row in rows]


def test_need_of_kernelbench_is_that_of_its_table() -> None:
    row = facts()["KernelBench/L1/19"]
    assert row.input_bytes and row.output_bytes and row.param_bytes is not None
    need = judging_bytes(row.input_bytes, row.output_bytes, row.param_bytes)
    assert needed_bytes(RELU) == need > 26 * 10**9
    assert needed_bytes(dataclasses.replace(RELU, name="19_Own")) is None, "another problem"
    small = needed_bytes(dataclasses.replace(RELU, id="KernelBench/L1/19@small"))
    assert small and small < need // 10, "a small form has facts of its own"
    assert all((needed_bytes(p) or 0) >= SPARE_BYTES for n in (1, 2, 3, 4) for p in level(n))


@given(st.integers(1 << 30, 1 << 36), st.integers(0, 1 << 34))
def test_fitting_problems_grow_with_the_budget(budget: int, more: int) -> None:
    few, many = fitting(level(1), budget), fitting(level(1), budget + more)
    assert set(few) <= set(many) <= set(level(1))
    for problem in level(1):
        if problem in few:
            check_fits(problem, budget, "cpu")
        else:
            with pytest.raises(ProblemError):
                check_fits(problem, budget, "cpu")


@pytest.mark.parametrize(("gigabytes", "count"), [(4, 35), (8, 47), (12, 56), (24, 77), (40, 100)])
def test_level_1_fits_by_so_many(gigabytes: int, count: int) -> None:
    assert len(fitting(level(1), gigabytes * 10**9)) == count


def test_refusal_names_bytes_and_what_to_do() -> None:
    with pytest.raises(ProblemError) as caught:
        check_fits(RELU, 12 * 10**9, "cpu")
    said = str(caught.value)
    assert f"({needed_bytes(RELU)} bytes)" in said and "(12000000000 bytes)" in said
    for way in ("memory_bytes=", "--memory", "judge.memory_bytes", "--sizes small", "device"):
        assert way in said
    large = make_problem(0, "gpu", 2, 23)
    with pytest.raises(ProblemError) as caught:
        check_fits(large, SPARE_BYTES, "cpu")
    assert "small" in str(caught.value) and "--sizes" not in str(caught.value)


def test_what_is_not_known_fits_any_budget() -> None:
    assert needed_bytes(SAMPLE_PROBLEM) is None
    assert fitting([SAMPLE_PROBLEM, RELU], 1) == (SAMPLE_PROBLEM,)
    assert fitting([SAMPLE_PROBLEM, RELU], None) == (SAMPLE_PROBLEM, RELU)
    check_fits(SAMPLE_PROBLEM, 1, "cpu")
    check_fits(RELU, None, "cpu")


def test_knowing_the_need_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert len(fitting(level(1), 12 * 10**9)) == 56


def on_meta(problem: Problem, forward: bool) -> tuple[int, int, int]:
    """Return the bytes of inputs, output and weights as torch has them."""
    import torch

    def size(tensors: Iterable[Any]) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    names: dict[str, Any] = {"__name__": "problem"}
    exec(problem.source, names)
    with torch.device("meta"), torch.no_grad():
        inputs = names["get_inputs"]()
        model = names["Model"](*names["get_init_inputs"]())
        output = [model(*inputs)] if forward else []
    return size(inputs), size(output), size([*model.parameters(), *model.buffers()])


def test_synthetic_sizes_follow_from_the_id() -> None:
    for level, number in itertools.product((1, 2, 3), range(1, 9)):
        spec, found = spec_for(0, "gpu", level, number), sizes_of(f"Synthetic/L{level}/{number}")
        problem = make_problem(0, "gpu", level, number)
        large = sizes_of(problem.id)
        assert found is not None and large is not None and 0 < found[0] < large[0]
        assert large[1] == 4 * spec.elements(spec.out_shape)
        assert (large[2] > 0) == bool(spec.params)
        assert needed_bytes(problem) == judging_bytes(*large)
    assert sizes_of("Synthetic/L9/1") is None


@pytest.mark.slow
@pytest.mark.parametrize("size", ["cpu", "gpu"])
def test_synthetic_inputs_and_weights_are_torchs(size: Preset) -> None:
    for level, number in itertools.product((1, 2, 3), range(1, 9)):
        problem = make_problem(0, size, level, number)
        found = sizes_of(problem.id)
        assert found is not None
        assert on_meta(problem, False) == (found[0], 0, found[2]), problem.id


@pytest.mark.slow
def test_synthetic_outputs_are_torchs() -> None:
    for level, number in itertools.product((1, 2, 3), range(1, 31)):
        spec = spec_for(0, "gpu", level, number)
        if not any(tensor.draw == "index" for tensor in spec.inputs):
            problem = make_problem(0, "gpu", level, number)
            assert on_meta(problem, True) == sizes_of(problem.id), problem.id
