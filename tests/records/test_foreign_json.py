"""Numbers that are not finite in other programs' JSON are read as missing, and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.records.foreign_json import read_foreign_json

values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(values)
def test_read_foreign_json_any_data_returns_plain_json(
    tmp_path_factory: pytest.TempPathFactory, data: object
) -> None:
    path = tmp_path_factory.mktemp("json") / "theirs.json"
    path.write_text(json.dumps(data))
    found, notes = read_foreign_json(path, "data", "restore it")
    json.dumps(found, allow_nan=False)
    assert bool(notes) == ("NaN" in path.read_text() or "Infinity" in path.read_text())
    assert notes or found == data


def test_read_foreign_json_infinity_names_file_and_entry(tmp_path: Path) -> None:
    path = tmp_path / "eval_results.json"
    path.write_text('{"19": [{"runtime": Infinity, "metadata": {"max": [1.0, NaN, 1e999]}}]}')
    found, notes = read_foreign_json(path, "results", "restore it")
    assert found == {"19": [{"runtime": None, "metadata": {"max": [1.0, None, None]}}]}
    assert notes == (
        "eval_results.json: entry 19[0].runtime is Infinity; it is read as missing",
        "eval_results.json: entry 19[0].metadata.max[1] is NaN; it is read as missing",
        "eval_results.json: entry 19[0].metadata.max[2] is Infinity; it is read as missing",
    )


def test_read_foreign_json_many_odd_numbers_counts_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps([float("nan")] * 9))
    assert read_foreign_json(path, "data", "restore it")[1][-1] == (
        "theirs.json: 4 more numbers are not finite; they are read as missing"
    )


@pytest.mark.parametrize("text", ["", "{", "\udcff", "[" * 100_000])
def test_read_foreign_json_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "theirs.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"theirs\.json is not JSON .*; restore it"):
        read_foreign_json(path, "data", "restore it")
