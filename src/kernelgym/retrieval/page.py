"""The page that shows entries: each whole and fenced, or left out.

Contract: pure. Entry texts are untrusted: a fence is longer than any run of backticks in its text,
and lone surrogates are replaced before anything is counted. Entries whose kernel holds tags of an
answer never get into an index (`kernelgym.retrieval.entry.unusable`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from kernelgym.languages import language as find_language
from kernelgym.retrieval.entry import NOT_JUDGED, Entry
from kernelgym.tokens import TokenCounter

__all__ = ["fitting_page", "page"]

_RUN = re.compile(r"`{3,}")


def page(entries: Sequence[Entry], language: str) -> str:
    """Return the text that shows entries; empty without any.

    Args:
        entries: The most similar first.
        language: Language of their kernels.
    """
    title = find_language(language).title
    sections: list[str] = []
    for kind, head, shown in (
        ("solution", _SOLVED, _solution),
        ("repair", _REPAIRED, _repair),
        ("speedup", _FASTER, _speedup),
    ):
        some = [entry for entry in entries if entry.kind == kind]
        if some:
            sections.append(head.format(title=title))
            sections += [shown(number, entry) for number, entry in enumerate(some, 1)]
    return "\n\n".join(sections)


_SOLVED = (
    "# Solved problems that resemble yours\n\nEach has a reference and the {title} kernels that "
    "replace it. They solve their own references, not yours: take from them what carries over."
)
_REPAIRED = (
    "# Repairs of kernels that failed like yours\n\nThey are {title} kernels for other problems. "
    "Each has what was said of the kernel that failed, and the change that made it right."
)
_FASTER = (
    "# Kernels that were made faster\n\nThey are {title} kernels for problems that resemble yours. "
    "Each has the change, and the speed beside its reference before and after it."
)


def _solution(number: int, entry: Entry) -> str:
    return (
        f"## Solved problem {number}\n\nReference:\n\n{_fenced(entry.reference)}\n\n"
        f"Its replacement{_judged(entry)}:\n\n{_fenced(entry.kernel)}"
    )


def _repair(number: int, entry: Entry) -> str:
    return (
        f"## Repair {number}\n\nWhat was said:\n\n{_fenced(entry.feedback, 'text')}\n\n"
        f"The change{_judged(entry)}:\n\n{_fenced(_difference(entry), 'diff')}"
    )


def _speedup(number: int, entry: Entry) -> str:
    speeds = "not measured"
    if entry.speed and entry.speed_before:
        (before, *first), (after, *last) = entry.speed_before, entry.speed
        speeds = (
            f"{before:.2f}x ({first[0]:.2f} to {first[1]:.2f}) before, "
            f"{after:.2f}x ({last[0]:.2f} to {last[1]:.2f}) after"
        )
    return (
        f"## Speed-up {number}\n\nSpeed beside its reference: {speeds}.\n\n"
        f"The change{_judged(entry)}:\n\n{_fenced(_difference(entry), 'diff')}"
    )


def _judged(entry: Entry) -> str:
    return ", which was not judged" if entry.verdict == NOT_JUDGED else ""


def _difference(entry: Entry) -> str:
    """Return what changed from the kernel that an entry began with."""
    texts = (entry.before.strip().splitlines(), entry.kernel.strip().splitlines())
    return "\n".join(list(difflib.unified_diff(*texts, lineterm="", n=3))[2:])


def fitting_page(
    entries: Sequence[Entry], language: str, room: int, count: TokenCounter
) -> tuple[str, tuple[Entry, ...], int]:
    """Return a page that fits, what it shows, and its tokens.

    An entry that does not fit by itself is passed over; of the others, the least similar are
    dropped until the page fits.

    Args:
        entries: The most similar first.
        language: Language of their kernels.
        room: Most tokens of the page.
        count: Counts tokens.
    """
    shown = tuple(entry for entry in entries if count(page([entry], language)) <= room)
    while shown:
        text = page(shown, language)
        if (tokens := count(text)) <= room:
            return text, shown, tokens
        shown = shown[:-1]
    return "", (), 0


def _fenced(source: str, kind: str = "python") -> str:
    """Return a text in a fence that nothing in it closes."""
    text = source.strip().encode("utf-8", "replace").decode("utf-8")
    longest = max((len(run) for run in _RUN.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"
