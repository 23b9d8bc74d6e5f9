"""`without_each_hunk`: versions of a changed text that each lack one change. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from kernelgym_train.mcgs.line_changes import line_changes


def without_each_hunk(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """Yield, for each change of a text, the text without that change; the last change first.

    Args:
        before: Text without the changes.
        after: Text with all changes.

    Yields:
        (changed lines of `before` in words, digest of the change, text without the change).
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for kind, i1, i2, j1, j2 in reversed(line_changes(old, new)):
        if kind == "equal":
            continue
        change = "".join(["-", *old[i1:i2], "+", *new[j1:j2]])
        digest = hashlib.blake2b(change.encode(), digest_size=8).hexdigest()
        where = f"line {i1 + 1}" if i2 <= i1 + 1 else f"lines {i1 + 1} to {i2}"
        yield where, digest, "".join([*new[:j1], *old[i1:i2], *new[j2:]])
