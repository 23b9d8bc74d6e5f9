"""The text space in shared memory, as Gymnasium's vector environments use it."""

from __future__ import annotations

import copy

import pytest
from gymnasium.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.envs.spaces import KernelText

SPACE = KernelText(12)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)


@given(st.lists(st.tuples(st.integers(0, 2), TEXTS), max_size=8))
def test_shared_text_is_what_was_written_last(writes: list[tuple[int, str]]) -> None:
    memory = create_shared_memory(SPACE, n=3)
    view = read_from_shared_memory(SPACE, memory, n=3)
    expected = ["", "", ""]
    for index, text in writes:
        write_to_shared_memory(SPACE, index, text, memory)
        expected[index] = text
    assert list(view) == expected and copy.deepcopy(view) == tuple(expected)
    assert view[-1] == expected[-1] and view[1:] == tuple(expected[1:])


def test_shared_text_copied_keeps_its_value() -> None:
    memory = create_shared_memory(SPACE, n=1)
    view = read_from_shared_memory(SPACE, memory, n=1)
    write_to_shared_memory(SPACE, 0, "first", memory)
    kept = copy.deepcopy(view)
    write_to_shared_memory(SPACE, 0, "second", memory)
    assert kept == ("first",) and view[0] == "second"


def test_shared_text_too_long_is_refused() -> None:
    memory = create_shared_memory(SPACE, n=2)
    with pytest.raises(ValueError, match="13 characters does not fit"):
        write_to_shared_memory(SPACE, 0, "x" * 13, memory)
    assert read_from_shared_memory(SPACE, memory, n=2)[1] == ""


def test_shared_text_index_beyond_raises() -> None:
    view = read_from_shared_memory(SPACE, create_shared_memory(SPACE, n=2), n=2)
    with pytest.raises(IndexError):
        view[2]
