"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym.whole_file import write_whole


def test_write_whole_makes_folders_and_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_whole(path, "first")
    write_whole(path, b"second", sync=True)
    assert path.read_bytes() == b"second"
    assert [each.name for each in path.parent.iterdir()] == ["b.json"]


def test_write_whole_that_fails_leaves_neither_draft_nor_change(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.mkdir()  # a file cannot take the place of a folder
    with pytest.raises(OSError):
        write_whole(path, "text")
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
