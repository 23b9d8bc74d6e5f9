"""Changes between texts: those of difflib, and right in bounded time for texts that repeat."""

from __future__ import annotations

import difflib
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_train.mcgs.files import diff_of
from kernelgym_train.mcgs.line_changes import unified_lines
from kernelgym_train.mcgs.writing.hunks import without_each_hunk

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n"]), max_size=30)
REPEATING = [
    ("x\n" * 20_000, "y\n" + "x\n" * 20_000),
    ("x\ny\n" * 10_000, "y\nx\nx\n" * 7_000),
    ("a\n" + "x\ny\n" * 500 + "b\n", "a\n" + "y\nx\nx\n" * 333 + "b\n"),
    (
        "".join(f"{i % 101}\n" for i in range(20_000)),
        "".join(f"{i % 103}\n" for i in range(19_999)),
    ),
]


@given(LINES, LINES)
def test_diff_of_short_texts_is_that_of_difflib(old: list[str], new: list[str]) -> None:
    known = list(difflib.unified_diff(old, new, "a/x", "b/x"))
    assert list(unified_lines(old, new, ("a/x", "b/x"))) == known


@pytest.mark.parametrize(("before", "after"), REPEATING)
def test_diff_of_repeated_lines_takes_seconds_and_applies(
    before: str, after: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    diff = diff_of(before, after, "x.py")
    assert time.monotonic() - began < 10.0
    (tmp_path / "x.py").write_text(before)
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "x.py").read_text() == after


@pytest.mark.parametrize(("before", "after"), REPEATING)
def test_hunks_of_repeated_lines_take_seconds(before: str, after: str) -> None:
    began = time.monotonic()
    found = list(without_each_hunk(before, after))
    assert time.monotonic() - began < 10.0
    assert found and (len(found) > 1 or found[0][2] == before)
