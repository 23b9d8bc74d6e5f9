"""Choice among similar entries: those that together show most operators.

Contract: pure. `cover` takes the most similar entry first, then each time the one that shows most
operators of the problem that are not shown yet; of equals, the more similar. `nearest` takes the
most similar. Both return what they took with the most similar first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kernelgym.retrieval.index import Neighbour
from kernelgym.retrieval.operators import operators

__all__ = ["DIVERSITIES", "cover", "nearest"]

Diversity = Callable[[str, Sequence[Neighbour], int], tuple[Neighbour, ...]]


def nearest(reference: str, pool: Sequence[Neighbour], k: int) -> tuple[Neighbour, ...]:
    """Return the first `k` of a pool in order of similarity."""
    return tuple(pool[:k])


def cover(reference: str, pool: Sequence[Neighbour], k: int) -> tuple[Neighbour, ...]:
    """Return `k` entries that together show most of a reference's operators.

    Args:
        reference: Source of the problem asked.
        pool: Entries in order of similarity.
        k: How many at most.
    """
    left = Counter(operators(reference))
    shown = [Counter(operators(neighbour.entry.reference)) for neighbour in pool]
    chosen: list[int] = []
    for _ in range(min(k, len(pool))):
        rest = [place for place in range(len(pool)) if place not in chosen]
        gains = {place: (left & shown[place]).total() for place in rest}
        best = rest[0] if not chosen else max(rest, key=lambda place: (gains[place], -place))
        chosen.append(best)
        left -= shown[best]
    return tuple(pool[place] for place in sorted(chosen))


DIVERSITIES: dict[str, Diversity] = {"cover": cover, "nearest": nearest}
"""Ways to choose among similar entries, by name."""
