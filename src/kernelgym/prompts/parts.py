"""Parts: functions that add text to the first user message, beside the problem.

Contract: a part is a pure function of problem, turns and `Room`; it returns text, or an `Addition`
that also names the entries that were shown. Two equal parts add the same. A text that takes more
tokens than the room has is left out where the observer has a budget for the whole prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelgym.tokens import TokenCounter
from kernelgym.types import Problem, Turn

UNLIMITED = 1 << 40
"""Number of tokens that stands for no limit."""


@dataclass(frozen=True, slots=True)
class Room:
    """Facts that a part is given about the prompt: language, device, and the tokens left."""

    language: str
    """Language of the kernels."""
    device: str
    """Device that kernels run on."""
    tokens: int
    """Largest number of tokens that the part may take."""
    count: TokenCounter
    """Counter of tokens."""


@dataclass(frozen=True, slots=True)
class Addition:
    """Text that a part adds to the prompt."""

    text: str = ""
    """Text that is added; empty to add nothing."""
    entries: tuple[str, ...] = ()
    """Ids of the entries of an index that the text shows."""
    tokens: int = 0
    """Number of tokens of the text, if it shows entries of an index."""


Part: TypeAlias = Callable[[Problem, Sequence[Turn], Room], str | Addition]
"""Function that returns text for the first user message of a prompt, such as retrieved examples."""


def add_parts(
    parts: Sequence[Part], problem: Problem, turns: Sequence[Turn], room: Room
) -> tuple[Addition, ...]:
    """Return the texts that parts add to a prompt; earlier parts get their room first.

    Args:
        parts: The parts; each is told what room is left.
        problem: The problem being solved.
        turns: The turns played so far.
        room: The room of all of them together.
    """
    found: list[Addition] = []
    left = room.tokens
    if left <= 0:
        return ()
    for part in parts:
        given = part(problem, turns, Room(room.language, room.device, left, room.count))
        added = Addition(given) if isinstance(given, str) else given
        if not added.text:
            continue
        if room.tokens < UNLIMITED:
            taken = room.count(added.text)
            if taken > left:
                continue
            left -= taken
        found.append(added)
    return tuple(found)
