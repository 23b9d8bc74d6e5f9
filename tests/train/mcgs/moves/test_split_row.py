"""`split_row`: rows shared among programs, and functions that are no such rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import Variant, read_variant
from support.triton_kernels import TRITON_KERNELS, wrong_ones

RANGE = read_variant(TRITON_KERNELS["row_range"][1])
SOFTMAX = read_variant(TRITON_KERNELS["softmax"][1])


def split(source: str, number: int = 0) -> str:
    """Return the text after the move; empty if it is not proposed."""
    start = Variant(source, "triton")
    made = RuleProposer(start).propose(start, "split_row", number)
    return "" if made is None else made.variant.source


def test_rows_are_shared_and_combined(tmp_path: Path) -> None:
    for name, start in (("row_range", RANGE), ("softmax", SOFTMAX)):
        texts = [split(start.source, number) for number in range(3)]
        assert all(texts) and not split(start.source, 3)
        assert wrong_ones(name, texts, tmp_path) == {}


def test_each_stage_ends_behind_a_loop_that_hands_on_a_value() -> None:
    text = split(RANGE.source)
    assert list(read_module(text).functions) == [
        "range_kernel_1",
        "range_kernel_2",
        "range_kernel_3",
    ]
    launches = [line.strip() for line in text.splitlines() if "[(y_rows" in line]
    grids = [line.partition("](")[0].partition("[")[2] for line in launches]
    assert grids == ["(y_rows, 16)", "(y_rows, 16)", "(y_rows, 1)"]
    assert text.count("Distances from the mean") == 2 and "4 * y_rows * 16" in text
    assert "tl.store(partials + (1 * tl.num_programs(0)" in text


def test_split_rows_are_not_split_again() -> None:
    assert not split(split(RANGE.source))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total = 0.0", "total = 1.0"),
        ("total = 0.0", "total = 0"),
        ("total += tl.sum", "total -= tl.sum"),
        ("total += tl.sum(x, axis=0)", "total = total * 2 + tl.sum(x, axis=0)"),
        ("total += tl.sum(x, axis=0)", "total += tl.sum(x, axis=0) * low"),
        ("    middle = ", "    tl.store(y_ptr + row, total)\n    middle = "),
        ("    middle = total / n_cols", "    middle = x / n_cols"),
        ("    middle = ", "    if n_cols == 0:\n        return\n    middle = "),
        ("row = tl.program_id(0)", "row = tl.program_id(0) + tl.program_id(1)"),
        ("row = tl.program_id(0)", "row = tl.num_programs(0) - tl.program_id(0) - 1"),
        ("range(0, n_cols, BLOCK):", "range(BLOCK, n_cols, BLOCK):"),
        ("tl.max(high, axis=0)", "tl.sum(high, axis=0)"),
        ("dtype=tl.float32)", "dtype=tl.float64)"),
        ("range_kernel[(rows,)]", "range_kernel[(rows, 1)]"),
        ("range_kernel[(rows,)](x, y, x.shape[1])", "return range_kernel[(rows,)](x, y, 9)"),
        ("y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)", "y = self.y"),
        ("tl.store(y_ptr", "tl.atomic_add(y_ptr"),
        ("y_ptr, n_cols, BLOCK", "partials, n_cols, BLOCK"),
    ],
)
def test_other_functions_are_not_split(old: str, new: str) -> None:
    source = RANGE.source.replace(old, new)
    if "partials" in new:
        source = source.replace("y_ptr", "partials")
    assert source != RANGE.source
    assert not split(source)
