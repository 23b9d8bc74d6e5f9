"""Hunks: a text without one of the changes that made it.

For kernels that were written whole, so that no rule can take a step back.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator

__all__ = ["without_each_hunk"]


def without_each_hunk(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """Yield a text without each of its changes, from the last.

    Args:
        before: The text that the changes were made to.
        after: The text with all of them.

    Yields:
        (where: lines of `before`, a digest of the change, the text without it).
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, i1, i2, j1, j2 in reversed(matcher.get_opcodes()):
        if kind == "equal":
            continue
        change = "".join(["-", *old[i1:i2], "+", *new[j1:j2]])
        digest = hashlib.blake2b(change.encode(), digest_size=8).hexdigest()
        where = f"line {i1 + 1}" if i2 <= i1 + 1 else f"lines {i1 + 1} to {i2}"
        yield where, digest, "".join([*new[:j1], *old[i1:i2], *new[j2:]])
