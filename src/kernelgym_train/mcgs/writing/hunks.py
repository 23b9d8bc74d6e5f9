"""`without_each_hunk`: versions of a changed text that each lack one change. Pure."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence

from kernelgym_train.mcgs.slow_diffs import takes_seconds


def without_each_hunk(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """Yield, for each change of a text, the text without that change; the last change first.

    Where difflib would take long to find the changes, there is one: of all lines.

    Args:
        before: Text without the changes.
        after: Text with all changes.

    Yields:
        (changed lines of `before` in words, digest of the change, text without the change).
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    changes: Sequence[tuple[str, int, int, int, int]]
    if before != after and takes_seconds(old, new, autojunk=False):
        changes = [("replace", 0, len(old), 0, len(new))]
    else:
        changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for kind, i1, i2, j1, j2 in reversed(changes):
        if kind == "equal":
            continue
        change = "".join(["-", *old[i1:i2], "+", *new[j1:j2]])
        digest = hashlib.blake2b(change.encode(), digest_size=8).hexdigest()
        where = f"line {i1 + 1}" if i2 <= i1 + 1 else f"lines {i1 + 1} to {i2}"
        yield where, digest, "".join([*new[:j1], *old[i1:i2], *new[j2:]])
