"""The page that shows entries: each whole and fenced, or left out.

Contract: pure. Texts of entries are untrusted: a fence is longer than any run of backticks in its
text, and lone surrogates are replaced before anything is counted. An entry whose kernel is not read
back as itself never gets into an index (`kernelgym.retrieval.entry.unusable`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelgym.languages import language as find_language
from kernelgym.retrieval.entry import NOT_JUDGED, IndexEntry
from kernelgym.tokens import TokenCounter

_RUN = re.compile(r"`{3,}")


def page(entries: Sequence[IndexEntry], language: str) -> str:
    """Return the text that shows entries; empty without any.

    Args:
        entries: The entries, the most similar first.
        language: Language of their kernels.
    """
    if not entries:
        return ""
    sections = [
        "# Solved problems that resemble yours\n\nEach has a reference and the "
        f"{find_language(language).title} kernels that replace it. They solve their own "
        "references, not yours: take from them what carries over."
    ]
    for number, entry in enumerate(entries, 1):
        judged = ", which was not judged" if entry.verdict == NOT_JUDGED else ""
        sections.append(
            f"## Solved problem {number}\n\nReference:\n\n{_fenced(entry.reference)}\n\n"
            f"Its replacement{judged}:\n\n{_fenced(entry.kernel)}"
        )
    return "\n\n".join(sections)


def fitting_page(
    entries: Sequence[IndexEntry], language: str, room: int, count: TokenCounter
) -> tuple[str, tuple[IndexEntry, ...], int]:
    """Return a page that fits, the entries that it shows, and its tokens.

    An entry that does not fit by itself is passed over; of the others, the least similar are
    dropped until the page fits.

    Args:
        entries: The entries, the most similar first.
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


def _fenced(source: str) -> str:
    """Return a source text in a fence that nothing in the text can close."""
    text = source.strip().encode("utf-8", "replace").decode("utf-8")
    longest = max((len(run) for run in _RUN.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{text}\n{fence}"
