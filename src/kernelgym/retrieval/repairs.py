"""Repairs of kernels that failed alike, and speed-ups of similar problems.

Contract: pure. `similar_repairs` ranks repairs by what was said of the kernel that failed, most of
all; its category and its kernel count a little. Numbers in what was said do not count: they are
those of one run. `similar_speedups` ranks speed-ups by the problem, as a search does, and leaves
out those of another kind of device, and those whose intervals overlap. Both leave out what would
give the problem's answer away, as every search does.

``benchmarks.retrieval.repairs`` compares keys by how often a repair of the same defect is found.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.index import Index, Neighbour
from kernelgym.types import Problem

__all__ = ["is_faster", "similar_repairs", "similar_speedups"]

_DIMENSION = 512
_CATEGORY, _KERNEL = 0.15, 0.1
"""What an equal category and an equal kernel add to the cosine of two feedbacks."""
_DIGITS = 9
_WORD = re.compile(r"[A-Za-z_]+|[^\w\s]")
"""Numbers are passed over."""


def similar_repairs(
    index: Index,
    problem: Problem,
    k: int,
    *,
    feedback: str,
    category: str = "",
    kernel: str = "",
    same_problem: bool = False,
) -> tuple[Neighbour, ...]:
    """Return repairs of kernels that failed alike, the most similar first.

    Args:
        index: Where they are looked for.
        problem: The problem asked.
        k: How many at most.
        feedback: What was said of the kernel that failed.
        category: The category of that.
        kernel: Source of that kernel.
        same_problem: Exclude nothing.
    """
    places = index.allowed(problem, ("repair",), same_problem=same_problem)
    if not len(places) or k < 1:
        return ()
    every, said, kernels = _rows(index)
    own = np.searchsorted(every, places)
    scores = said[own] @ _vector(feedback) + _KERNEL * (kernels[own] @ _vector(kernel))
    entries = [index.entries[place] for place in places]
    if category:
        scores += np.array([_CATEGORY * (entry.category == category) for entry in entries])
    return _ranked(entries, scores, k)


def similar_speedups(
    index: Index, problem: Problem, k: int, *, device: str, same_problem: bool = False
) -> tuple[Neighbour, ...]:
    """Return speed-ups of similar problems, the most similar first.

    Args:
        index: Where they are looked for.
        problem: The problem asked.
        k: How many at most.
        device: Device that kernels are for.
        same_problem: Exclude nothing.
    """
    kind = device.partition(":")[0]
    all_of_them = sum(entry.kind == "speedup" for entry in index.entries)
    found = index.search(problem, all_of_them, kinds=("speedup",), same_problem=same_problem)
    fitting = [n for n in found.neighbours if n.entry.device == kind and is_faster(n.entry)]
    return tuple(fitting[:k])


def is_faster(entry: Entry) -> bool:
    """Return True if a speed-up's intervals do not overlap."""
    return bool(entry.speed and entry.speed_before) and entry.speed[1] > entry.speed_before[2]


def _ranked(entries: Sequence[Entry], scores: NDArray[np.float64], k: int) -> tuple[Neighbour, ...]:
    rounded = [round(float(score), _DIGITS) for score in scores]
    order = sorted(range(len(entries)), key=lambda i: (-rounded[i], entries[i].id))
    return tuple(Neighbour(entries[i], rounded[i]) for i in order[:k])


@lru_cache(maxsize=16)
def _rows(index: Index) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return places of repairs, and vectors of feedback and kernel."""
    every = np.flatnonzero([entry.kind == "repair" for entry in index.entries])
    entries = [index.entries[place] for place in every]
    said = [_vector(entry.feedback) for entry in entries]
    kernels = [_vector(entry.before) for entry in entries]
    empty = np.zeros((0, _DIMENSION))
    return every, np.array(said or empty), np.array(kernels or empty)


@lru_cache(maxsize=4096)
def _vector(text: str) -> NDArray[np.float64]:
    """Return a text's words and pairs, hashed; of length 1."""
    words = _WORD.findall(text)
    counts = Counter([*words, *map(" ".join, itertools.pairwise(words))])
    row = np.zeros(_DIMENSION)
    for feature, count in counts.items():
        place, sign = _slot(feature)
        row[place] += sign * math.sqrt(count)
    length = float(np.sqrt((row * row).sum()))
    row = row / length if length else row
    row.flags.writeable = False
    return row


@lru_cache(maxsize=65_536)
def _slot(feature: str) -> tuple[int, float]:
    number = int.from_bytes(
        hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )
    return (number >> 1) % _DIMENSION, 1.0 if number & 1 else -1.0
