"""Parts: what is added to the first user message, beside the problem.

Contract: a part is a pure function of problem, turns and `Room`; it returns text, or an `Addition`
that also names the entries that were shown. Two equal parts add the same. A text that takes more
tokens than the room has is left out where the observer has a budget for the whole prompt.

A part may also have a method ``after(problem, turns, room)``, which adds to the message that tells
what became of the last of these turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kernelgym.tokens import TokenCounter
from kernelgym.types import Problem, Turn

__all__ = ["UNLIMITED", "Addition", "Pages", "Part", "Room", "add_parts", "followers"]

UNLIMITED = 1 << 40
"""Tokens of a room without a limit."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a part is told of the prompt that it adds to."""

    language: str
    """Language of the kernels."""
    device: str
    tokens: int
    """Most tokens that the part may take."""
    count: TokenCounter


@dataclass(frozen=True, slots=True)
class Addition:
    """What a part adds."""

    text: str = ""
    """Empty to add nothing."""
    entries: tuple[str, ...] = ()
    """Ids of the entries of an index that the text shows."""
    tokens: int = 0
    """Tokens of the text, where it shows entries."""


Part: TypeAlias = Callable[[Problem, Sequence[Turn], Room], str | Addition]
"""Adds text to the first user message."""


def followers(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return what parts add after an attempt, of those that do."""
    found = (getattr(part, "after", None) for part in parts)
    return tuple(after for after in found if callable(after))


def add_parts(
    parts: Sequence[Part], problem: Problem, turns: Sequence[Turn], room: Room
) -> tuple[Addition, ...]:
    """Return what parts add, the first served first.

    Args:
        parts: The parts; each is told what room is left.
        problem: The problem being solved.
        turns: The turns played so far.
        room: The room of all of them together.
    """
    found: list[Addition] = []
    left = room.tokens
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


class Pages:
    """What parts add to one prompt, in the order it is asked for.

    Args:
        parts: The parts, the first served first.
        problem: The problem being solved.
        turns: The turns played so far.
        room: The room of all that is added.
    """

    def __init__(
        self, parts: Sequence[Part], problem: Problem, turns: Sequence[Turn], room: Room
    ) -> None:
        self._parts, self._problem, self._turns = parts, problem, turns
        self._after = followers(parts)
        self._room = room
        self.added: tuple[Addition, ...] = ()

    def first(self) -> list[str]:
        """Return what is added to the first user message."""
        return [addition.text for addition in self._add(self._parts, self._turns)]

    def after(self, index: int) -> str:
        """Return what is added after an attempt; empty before the first."""
        if index < 0 or not self._after:
            return ""
        added = self._add(self._after, self._turns[: index + 1])
        return "\n\n".join(addition.text for addition in added)

    def _add(self, parts: Sequence[Part], turns: Sequence[Turn]) -> tuple[Addition, ...]:
        room = self._room
        if room.tokens <= 0:
            return ()
        added = add_parts(parts, self._problem, turns, room)
        if room.tokens < UNLIMITED:
            taken = sum(room.count(addition.text) for addition in added)
            self._room = replace(room, tokens=room.tokens - taken)
        self.added += added
        return added
