"""Diffs and changes of texts whose lines repeat so often that difflib would take long."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest

from kernelgym_train.mcgs.files import diff_of
from kernelgym_train.mcgs.slow_diffs import takes_seconds
from kernelgym_train.mcgs.writing.hunks import without_each_hunk

REPEATING = [
    ("a\n" + "x\ny\n" * 500 + "b\n", "a\n" + "y\nx\nx\n" * 333 + "b\n"),
    (
        "".join(f"{i % 101}\n" for i in range(20_000)),
        "".join(f"{i % 103}\n" for i in range(19_999)),
    ),
    ("x\ny\n" * 10_000, "y\nx\nx\n" * 7_000 + "no newline"),
]


@pytest.fixture
def no_difflib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make difflib fail, so that a test ends at once instead of taking minutes."""
    monkeypatch.setattr(difflib, "unified_diff", None)
    monkeypatch.setattr(difflib, "SequenceMatcher", None)


@pytest.mark.parametrize(("before", "after"), REPEATING[1:])
def test_diff_of_repeated_lines_applies(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelgym_train.mcgs.slow_diffs._POPULAR_FROM", 1 << 30)
    monkeypatch.setattr(difflib, "unified_diff", None)
    diff = diff_of(before, after, "x.py")
    (tmp_path / "x.py").write_text(before)
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "x.py").read_text() == after


@pytest.mark.parametrize(("before", "after"), REPEATING)
@pytest.mark.usefixtures("no_difflib")
def test_repeated_lines_are_one_change(before: str, after: str) -> None:
    ((_, _, without),) = without_each_hunk(before, after)
    assert without == before


@pytest.mark.parametrize("autojunk", [True, False])
def test_kernel_of_a_thousand_lines_is_compared_by_difflib(autojunk: bool) -> None:
    lines = [f"x{number} = {number}\n" if number % 3 else "\n" for number in range(1000)]
    assert not takes_seconds(lines, [*lines[:500], "y = 1\n", *lines[500:]], autojunk=autojunk)
