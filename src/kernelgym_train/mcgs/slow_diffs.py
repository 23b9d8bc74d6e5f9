"""`takes_seconds`: whether difflib would take long to compare two texts. Pure.

difflib takes 14 s for two texts of 1,000 lines that repeat two lines, and a model may write such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_MOST_STEPS = 300_000_000  # at most 9 s
_POPULAR_FROM, _POPULAR_SHARE = 200, 100  # difflib's rule for lines that `autojunk` passes over


def takes_seconds(old: Sequence[str], new: Sequence[str], *, autojunk: bool) -> bool:
    """Return True if difflib may take more than a few seconds: its steps are bounded from above.

    Args:
        old: Lines before the changes.
        new: Lines after the changes.
        autojunk: Whether lines that stand often in a long text are not looked for.
    """
    found = Counter(new)
    if autojunk and len(new) >= _POPULAR_FROM:
        most = len(new) // _POPULAR_SHARE + 1
        found = Counter({line: count for line, count in found.items() if count <= most})
    # Pairs of equal lines, at most once for each block that is found.
    return sum(found[line] for line in old) * min(len(old), len(new)) > _MOST_STEPS
