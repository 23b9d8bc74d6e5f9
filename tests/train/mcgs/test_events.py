"""The event log: whole lines survive any cut, and damage is seen."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym_train.mcgs.events import SearchLog

FIELDS = [{"value": None, "text": "ü\n"}, {"list": [[1, 2.5]]}, {"nested": {"a": "b"}}]


def written(path: Path) -> bytes:
    with SearchLog.open(path) as log:
        for at, fields in enumerate(FIELDS):
            log.append(at + 0.5, "thing", fields)
    return path.read_bytes()


@settings(max_examples=40)
@given(st.data())
def test_log_cut_anywhere_keeps_its_whole_lines(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        whole = written(path)
        length = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:length])
        kept = sum(found.start() <= length for found in re.finditer(b"\n", whole))
        with SearchLog.open(path) as log:
            assert [event.fields for event in log.past] == FIELDS[:kept]
            for at in range(kept, len(FIELDS)):
                log.append(at + 0.5, "thing", FIELDS[at])
        assert path.read_bytes().rstrip() == whole.rstrip()


def test_log_damaged_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(written(path).replace(b"2.5", b"3.5", 1))
    with pytest.raises(UsageError, match=r"line 2 of .* is damaged"):
        SearchLog.open(path)


def test_log_open_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with SearchLog.open(path), pytest.raises(UsageError, match="is writing the run in"):
        SearchLog.open(path)
    SearchLog.open(path).close()
