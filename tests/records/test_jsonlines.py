"""Lines of JSON: appended in groups, found by their place, brought into another order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import (
    append_line,
    append_lines,
    index_lines,
    line_at,
    read_lines,
    reorder_lines,
)

TEXTS = st.text(alphabet=st.characters(codec=None), max_size=20)


def rows_of(path: Path) -> list[dict[str, object]]:
    return [row for _, row in read_lines(path)]


@given(texts=st.lists(TEXTS, min_size=1, max_size=8), sync=st.booleans())
def test_lines_are_found_by_their_place(
    texts: list[str], sync: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    append_lines(path, ({"n": n, "text": text} for n, text in enumerate(texts)), sync=sync)
    found = index_lines(path, lambda row: row["n"])
    # JSON takes a high surrogate before a low one for one character.
    kept = [json.loads(json.dumps(text)) for text in texts]
    assert [line_at(path, found[n])["text"] for n in range(len(texts))] == kept
    assert reorder_lines(path, [found[n] for n in reversed(range(len(texts)))]) == len(texts)
    assert [row["text"] for row in rows_of(path)] == kept[::-1]


@pytest.mark.parametrize("text", ["notes", "a\nb", "[1", "\x00"])
def test_file_that_ends_in_no_object_is_not_appended_to_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match="its last line is not a JSON object"):
        append_lines(path, [{"key": 1}])
    assert path.read_text() == text


def test_last_of_two_lines_with_a_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_lines(path, [{"key": 1, "v": 1}, {"key": 2, "v": 2}, {"key": 1, "v": 3}])
    found = index_lines(path, lambda row: row["key"])
    assert line_at(path, found[1])["v"] == 3 and len(found) == 2
    assert index_lines(tmp_path / "none.jsonl", lambda row: row["key"]) == {}


def test_cut_line_is_left_out_and_then_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_lines(path, [{"key": 1}, {"key": 2}])
    path.write_bytes(path.read_bytes()[:-4])
    assert list(index_lines(path, lambda row: row["key"])) == [1]
    append_line(path, {"key": 3})
    assert rows_of(path) == [{"key": 1}, {"key": 3}]


def test_whole_last_line_without_an_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"key": 1}\n{"key": 2}')
    found = index_lines(path, lambda row: row["key"])
    reorder_lines(path, [found[2], found[1]])
    assert rows_of(path) == [{"key": 2}, {"key": 1}]


def test_line_without_its_key_is_refused_by_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_lines(path, [{"key": 1}, {"other": 2}])
    with pytest.raises(UsageError, match=r"a\.jsonl, line 2: not a line of its kind: 'key'"):
        index_lines(path, lambda row: row["key"])
    with pytest.raises(UsageError, match="no line begins at byte 3"):
        line_at(path, 3)
