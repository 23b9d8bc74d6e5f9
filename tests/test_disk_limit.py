"""What goes from a folder that is over its size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelgym.disk_limit import Entry, over_limit

ENTRIES = st.lists(
    st.builds(
        Entry, st.floats(0, 1e9), st.integers(0, 50), st.uuids().map(str), in_use=st.booleans()
    ),
    max_size=20,
    unique_by=lambda entry: entry.path,
)


def test_entries_within_the_limit_all_stay() -> None:
    assert list(over_limit([Entry(1.0, 60, "a"), Entry(2.0, 40, "b")], 100)) == []


def test_entries_over_the_limit_go_oldest_first() -> None:
    entries = [Entry(3.0, 30, "c"), Entry(1.0, 30, "a"), Entry(2.0, 30, "b"), Entry(4.0, 30, "d")]
    assert [entry.path for entry in over_limit(entries, 100)] == ["a", "b"]


@given(ENTRIES, st.integers(1, 200))
def test_no_more_goes_than_the_limit_asks_for(entries: list[Entry], limit: int) -> None:
    gone = list(over_limit(entries, limit))
    left = sum(entry.size_bytes for entry in entries if entry not in gone)
    assert not any(entry.in_use for entry in gone)
    if left > limit:
        assert all(entry.in_use or entry in gone for entry in entries)
    if gone:
        assert left + gone[-1].size_bytes > 0.8 * limit
