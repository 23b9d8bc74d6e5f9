"""The search's files: a diff is what git applies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelgym_train.mcgs.files import diff_of


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1\nb = 2\n", "a = 1\nb = 3\n"),
        ("a = 1\nb = 2", "a = 1\nb = 3"),
        ("a = 1\nb = 2", "a = 1\nb = 2\n"),
        ("a = 1\nb = 2\n", "a = 2\nb = 2"),
        ("a = '\f'\nb = '\x1c'\nc = 1", "a = '\f'\nb = '\x1c'\nc = 2\n"),
        ("a = 1\r\nb = 2\r\n", "a = 1\r\nb = 3\r\n"),
    ],
)
def test_diff_is_applied_by_git(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel_module.py"
    path.write_bytes(before.encode())
    diff = tmp_path / "candidate.diff"
    diff.write_bytes(diff_of(before, after).encode())
    subprocess.run(["git", "apply", str(diff)], cwd=tmp_path, check=True)
    assert path.read_bytes() == after.encode()
