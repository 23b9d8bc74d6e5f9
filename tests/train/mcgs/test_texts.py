"""`TextProposer`: texts without one of their changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search.texts import without_each_hunk

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "  d\n"]), max_size=12).map("".join)


@given(LINES, LINES)
def test_taking_all_hunks_gives_the_text_before(before: str, after: str) -> None:
    text, steps = after, 0
    while found := list(without_each_hunk(before, text)):
        text, steps = found[0][2], steps + 1
        assert steps <= 30
    assert text == before


@given(LINES, LINES)
def test_each_hunk_is_one_change_less(before: str, after: str) -> None:
    found = list(without_each_hunk(before, after))
    assert (not found) == (before == after)
    for where, digest, text in found:
        assert text != after and where.startswith("line") and len(digest) == 16


def test_hunk_says_where_it_was() -> None:
    before, after = "one\ntwo\nthree\nfour\n", "one\n2\n3\nfour\nfive\n"
    found = list(without_each_hunk(before, after))
    assert [(where, text) for where, _, text in found] == [
        ("line 5", "one\n2\n3\nfour\n"),
        ("lines 2 to 3", "one\ntwo\nthree\nfour\nfive\n"),
    ]
