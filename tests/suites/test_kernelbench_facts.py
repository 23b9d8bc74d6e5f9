"""The packaged facts: complete, well-formed, and faithful to the list they were taken from."""

from __future__ import annotations

import pytest

from kernelgym.errors import UnknownName
from kernelgym.hygiene import REASONS
from kernelgym.suites.kernelbench_facts import degenerate, fact, facts


def flagged(reason: str, precision: str) -> set[str]:
    return {
        problem_id.removeprefix("KernelBench/")
        for problem_id in facts()
        if reason in degenerate(problem_id, precision)
    }


def ids(*groups: str) -> set[str]:
    found: set[str] = set()
    for group in groups:
        level, _, numbers = group.partition(" ")
        found |= {f"{level}/{number}" for number in numbers.split()}
    return found


def test_every_problem_has_one_row() -> None:
    counts = {level: 0 for level in (1, 2, 3, 4)}
    for problem_id, entry in facts().items():
        assert problem_id == f"KernelBench/L{entry.level}/{entry.number}"
        assert entry.name.startswith(f"{entry.number}_") and not entry.name.endswith(".py")
        assert entry.family and entry.input_bytes is not None and entry.input_bytes >= 0
        counts[entry.level] += 1
    assert counts == {1: 100, 2: 100, 3: 50, 4: 20}


def test_reasons_and_scopes_are_known() -> None:
    pairs = {pair for entry in facts().values() for pair in entry.reasons}
    untold = {"idle_parameters", "non_finite_output"}  # what only tests find
    assert {reason for reason, _ in pairs} == set(REASONS) - untold
    assert {scope for _, scope in pairs} == {"any", "half", "fp32"}


FP32_CONSTANT = ids("L1 23", "L2 9 23 36 38 42 65 80 83")


def test_fp32_flags() -> None:
    assert flagged("zeros", "fp32") == ids("L1 23 37", "L2 9 23 38 80 83")
    assert flagged("constant", "fp32") == FP32_CONSTANT
    assert flagged("input_independent", "fp32") == FP32_CONSTANT | ids("L3 3 7 11 12 18 28 35")
    assert flagged("identity", "fp32") == ids("L1 19 20 31 32")
    assert flagged("nondeterministic_reference", "fp32") == ids("L2 66")
    assert flagged("broken_reference", "fp32") == ids("L1 95") | {f"L4/{n}" for n in range(1, 21)}
    assert flagged("partial_computation", "fp32") == ids("L1 90")
    assert flagged("analytic", "fp32") == ids("L1 94 96 100")


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_flags_add_to_fp32(precision: str) -> None:
    for reason in set(REASONS) - {"nondeterministic_reference"}:
        assert flagged(reason, "fp32") <= flagged(reason, precision)
    more = {reason: flagged(reason, precision) - flagged(reason, "fp32") for reason in REASONS}
    assert more["zeros"] == ids("L1 39 53", "L2 66 99")
    assert more["constant"] == ids("L1 6 37 39 49 53", "L2 8 45 49 58 64 66 84 89 99", "L3 46 47")
    assert more["input_independent"] == ids(
        "L1 6 37 39 49 53 94 95 96 98",
        "L2 8 10 44 45 49 58 64 66 67 89 91 96 99",
        "L3 4 5 46 47",
    )
    assert more["broken_reference"] == ids("L3 35")
    assert flagged("nondeterministic_reference", precision) == set()


def test_removed_by_metr() -> None:
    removed = {
        level: [e.number for e in facts().values() if e.level == level and e.removed_by_metr]
        for level in (1, 2, 3, 4)
    }
    assert removed[1] == [8, 12, 23, 37, 39, 50, 77, 90, 95, 97]
    assert removed[2] == [
        *(9, 13, 23, 27, 36, 38, 41, 44, 45, 49, 58, 66, 77, 80, 83, 84, 89, 91, 93, 96)
    ]
    assert removed[3] == [3, 5, 7, 11, 12, 18, 28, 32, 34, 35, 45, 46, 47]
    assert removed[4] == []


def test_a_row_in_full() -> None:
    entry = fact("KernelBench/L2/9")
    assert entry is not None
    assert (entry.name, entry.family) == ("9_Matmul_Subtract_Multiply_ReLU", "fused_gemm")
    assert (entry.input_bytes, entry.param_bytes) == (33_600_000, 268_500_000)
    assert (entry.gflop, entry.h100_eager_ms) == (137.44, 2.73)
    assert entry.tested and entry.removed_by_metr
    assert degenerate("KernelBench/L2/9") == ("zeros", "constant", "input_independent")


def test_untested_is_not_the_same_as_sound() -> None:
    entry = fact("KernelBench/L1/41")
    assert entry is not None and not entry.tested and degenerate("KernelBench/L1/41") == ()


def test_unknown_problems_have_no_facts() -> None:
    assert fact("KernelBench/L1/101") is None and degenerate("Synthetic/L1/3") == ()


def test_a_fact_of_another_name_is_not_given_out() -> None:
    assert fact("KernelBench/L1/23", "23_Softmax") is not None
    assert fact("KernelBench/L1/23", "23_MyOwn") is None
    assert degenerate("KernelBench/L1/23", name="23_MyOwn") == ()


def test_unknown_precision() -> None:
    with pytest.raises(UnknownName, match="fp32"):
        degenerate("KernelBench/L1/23", "fp8")
    assert degenerate("KernelBench/L1/19", "own") == degenerate("KernelBench/L1/19", "fp32")
