"""Patches in a model's answer: SEARCH/REPLACE blocks and unified diffs of one file.

Contract: both forms become hunks, which are pairs of old and new lines. The old lines of each hunk
must stand exactly once in the text; spaces at the ends of lines do not count. Line numbers of a
unified diff are used only to choose among several places, and its counts are not read, since models
often get both wrong. A patch is applied whole, or `PatchRefused` says why it is not: no patch
leaves the text as it is without an error. A patch that names another file, or that creates, deletes
or renames one, is refused. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

PatchFault = Literal["malformed", "other_file", "not_found", "ambiguous", "overlap", "no_change"]
"""Kinds of refused patches."""

_SEARCH = re.compile(r"<{5,9} ?SEARCH\b")
_DIVIDER = re.compile(r"={5,9}[ \t]*\Z")
_REPLACE = re.compile(r">{5,9} ?REPLACE\b")
_AT = re.compile(r"@@(?: -(\d{1,9})(?:,\d+)? \+\d+(?:,\d+)? @@)?")  # `int` takes 4,300 digits
_OTHER_KIND = re.compile(
    r"(new file mode|deleted file mode|rename (?:from|to)|copy (?:from|to)|Binary files|"
    r"GIT binary patch|old mode|new mode)\b"
)
_SHOWN_LINES = 4


class PatchRefused(ValueError):
    """A patch that cannot be applied; the message is told to its writer.

    Args:
        kind: Kind of the fault.
        message: Message that says what was found, and what is needed.
    """

    def __init__(self, kind: PatchFault, message: str) -> None:
        super().__init__(message)
        self.kind: PatchFault = kind


@dataclass(frozen=True, slots=True)
class PatchHunk:
    """Change of a patch: old lines and the new lines that replace them."""

    old: tuple[str, ...]
    """Lines of the text to replace, without line ends."""
    new: tuple[str, ...]
    """Lines that replace them, without line ends."""
    line: int = 0
    """Line number, from 1, of the first old line as the patch states it; 0 if it states none."""


def read_patch(text: str, name: str) -> tuple[PatchHunk, ...]:
    """Return the hunks of the patch in a text; none if the text holds no patch.

    SEARCH/REPLACE blocks are taken before a unified diff.

    Args:
        text: Text of an answer.
        name: Name of the file that may be changed.

    Raises:
        PatchRefused: If the patch is cut short, or is for another file.
    """
    lines = text.split("\n")
    return tuple(_blocks(lines)) or tuple(_diff_hunks(lines, name))


def apply_patch(text: str, hunks: Sequence[PatchHunk]) -> str:
    """Return a kernel's text with all hunks of a patch applied.

    Args:
        text: The text.
        hunks: One hunk at least.

    Raises:
        PatchRefused: If old lines stand in the text not at all or at several places, two hunks
            overlap, or nothing changes.
    """
    lines = text.split("\n")
    bare = [line.rstrip() for line in lines]
    places: list[tuple[int, int, tuple[str, ...]]] = []
    for number, hunk in enumerate(hunks, 1):
        start = _place(bare, hunk, f"change {number} of {len(hunks)}")
        before, after = _same_ends(hunk)
        end = start + len(hunk.old) - after
        places.append((start + before, end, hunk.new[before : len(hunk.new) - after]))
    places.sort(key=lambda place: place[:2])
    for (_, end, _), (start, _, _) in itertools.pairwise(places):
        if start < end:
            raise PatchRefused(
                "overlap", f"two changes both replace line {start + 1}; merge them into one"
            )
    for start, end, new in reversed(places):
        lines[start:end] = new
    made = "\n".join(lines)
    if made == text:
        raise PatchRefused("no_change", "the patch changes nothing; change the kernel")
    return made


def _same_ends(hunk: PatchHunk) -> tuple[int, int]:
    """Return how many first and last lines of a hunk are unchanged; the kernel's own lines stay."""
    old, new = ([line.rstrip() for line in lines] for lines in (hunk.old, hunk.new))
    most = min(len(old), len(new))
    before = next((n for n in range(most) if old[n] != new[n]), most)
    most -= before
    after = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    return before, after


def _place(lines: Sequence[str], hunk: PatchHunk, which: str) -> int:
    """Return the index of the line where a hunk's old lines begin."""
    old = [line.rstrip() for line in hunk.old]
    if not any(old):
        raise PatchRefused(
            "malformed",
            f"{which} names no line of the kernel that it changes; repeat at least one line that "
            "stands beside the change",
        )
    found = [
        start
        for start in range(len(lines) - len(old) + 1)
        if lines[start] == old[0] and lines[start : start + len(old)] == old
    ]
    if len(found) == 1:
        return found[0]
    if hunk.line - 1 in found:
        return hunk.line - 1
    shown = "\n".join(hunk.old[:_SHOWN_LINES])
    if not found:
        raise PatchRefused(
            "not_found",
            f"{which} is for lines that do not stand in the kernel, which begin with:\n{shown}\n"
            "Copy the lines exactly as they stand there, with their indentation",
        )
    at = ", ".join(str(start + 1) for start in found[:_SHOWN_LINES])
    raise PatchRefused(
        "ambiguous",
        f"{which} is for lines that stand at {len(found)} places of the kernel (lines {at}), which "
        f"begin with:\n{shown}\nRepeat more of the lines around the change, so that one place is "
        "left",
    )


def _blocks(lines: Sequence[str]) -> Iterator[PatchHunk]:
    """Yield the SEARCH/REPLACE blocks of an answer."""
    left = iter(lines)
    for line in left:
        if not _SEARCH.match(line.strip()):
            continue
        old = _until(left, _DIVIDER, "=======")
        new = _until(left, _REPLACE, ">>>>>>> REPLACE")
        yield PatchHunk(tuple(old), tuple(new))


def _until(lines: Iterator[str], end: re.Pattern[str], shown: str) -> list[str]:
    found = list[str]()
    for line in lines:
        if end.match(line.strip()):
            return found
        found.append(line)
    raise PatchRefused("malformed", f"a SEARCH block has no line {shown}; write the block whole")


def _diff_hunks(lines: Sequence[str], name: str) -> Iterator[PatchHunk]:
    """Yield the hunks of a unified diff."""
    inside, hunk, at = False, list[str](), 0
    for number, line in enumerate(lines):
        follows = lines[number + 1] if number + 1 < len(lines) else ""
        is_head = line.startswith("--- ") and follows.startswith("+++ ")
        if is_head or line.startswith("diff --git "):
            yield from _made(hunk, at)
            inside, hunk = False, []
            if is_head:
                _check_names(line, follows, name)
        elif _OTHER_KIND.match(line) and not inside:
            if _is_in_diff(lines[max(0, number - 4) : number]):
                raise PatchRefused(
                    "other_file", f"a patch may only change lines of {name}; it has {line[:60]!r}"
                )
        elif (found := _AT.match(line)) is not None:
            yield from _made(hunk, at)
            inside, hunk, at = True, [], int(found[1] or 0)
        elif inside and (not line or line[0] in " +-\t"):
            hunk.append(line)
        elif inside and not line.startswith("\\"):
            yield from _made(hunk, at)
            inside, hunk = False, []
    yield from _made(hunk, at)


def _made(lines: list[str], at: int) -> Iterator[PatchHunk]:
    """Yield a hunk made of a unified diff's lines, if it changes anything."""
    while lines and not lines[-1]:  # the empty line between the diff and what follows it
        lines = lines[:-1]
    # Of an empty context line, some models leave out the space; of others, a tab takes its place.
    old = tuple(line[line[:1] in " -" :] for line in lines if not line.startswith("+"))
    new = tuple(line[line[:1] in " +" :] for line in lines if not line.startswith("-"))
    if old != new:
        yield PatchHunk(old, new, at)


def _check_names(before: str, after: str, name: str) -> None:
    """Refuse a diff that names another file than `name`."""
    for line in (before, after):
        told = line[4:].partition("\t")[0].strip().strip('"')
        plain = told.removeprefix("a/").removeprefix("b/").removeprefix("./")
        if plain != name:
            raise PatchRefused(
                "other_file", f"a patch may only change {name}, and this one names {told!r:.80}"
            )


def _is_in_diff(lines: Sequence[str]) -> bool:
    """Return True if one of the lines is the header of a file's diff."""
    return any(line.startswith(("diff --git ", "--- ")) for line in lines)
