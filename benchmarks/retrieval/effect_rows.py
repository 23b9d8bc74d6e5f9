"""What the arms of the benchmark of retrieval's effect came to: rates and gains.

Contract: pure functions of what was kept of episodes. Intervals are 95 % ones over problems; those
of several seeds are over the problems of all, and say nothing of seeds that were not run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelgym.benchmark.numbers.intervals import bootstrap_interval, cluster_rate

__all__ = ["ALL", "PAIRS", "effect_rows", "gain_rows"]

ALL = "all"
"""Stands for the seeds together."""
PAIRS = (
    ("first", "none"),
    ("adaptive", "none"),
    ("adaptive", "first"),
    ("first", "first_asked_without"),
    ("first_asked_without", "none"),
)
"""Arms that are compared: one, and the one that it is held against."""
MEASURES = ("first", "solved")

Episodes = Sequence[Mapping[str, Any]]
"""Of each: problem, whether the first answer and any is right, reward, and what was read."""
Arms = Mapping[str, Mapping[str, Episodes]]
"""By arm and table."""


def effect_rows(seeds: Mapping[int, Arms]) -> list[dict[str, Any]]:
    """Return a row for each arm and table, of each seed and of all together."""
    return [
        {"arm": arm, "seed": seed, "table": name, **_rates(episodes)}
        for arm, seed, name, episodes in _cells(seeds)
        if episodes
    ]


def gain_rows(seeds: Mapping[int, Arms]) -> list[dict[str, Any]]:
    """Return what arms gain over others, paired by problem; negative where they lose."""
    cells = {(arm, seed, name): episodes for arm, seed, name, episodes in _cells(seeds)}
    found = []
    for (arm, seed, name), measure in itertools.product(cells, MEASURES):
        for against in (base for other, base in PAIRS if other == arm):
            mine, theirs = (
                _by_problem(cells.get((which, seed, name), ()), measure) for which in (arm, against)
            )
            both = [mine[key] - theirs[key] for key in mine.keys() & theirs.keys()]
            if not both:
                continue
            rows = np.asarray(sorted(both))[:, None]
            low, high = bootstrap_interval(rows, lambda drawn: drawn.mean(axis=-2)[..., 0])
            about = {"arm": arm, "against": against, "seed": seed, "table": name}
            numbers = {"gain": float(rows.mean()), "low": low, "high": high}
            found.append({**about, "measure": measure, "problems": len(both), **numbers})
    return found


def _cells(seeds: Mapping[int, Arms]) -> Iterable[tuple[str, int | str, str, Episodes]]:
    """Yield (arm, seed, table, episodes), those of all seeds together last."""
    together: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for seed, arms in sorted(seeds.items()):
        for arm, tables in arms.items():
            for name, episodes in tables.items():
                yield arm, seed, name, episodes
                # A problem of another seed is another cluster, whatever its id.
                mine = [{**one, "problem": f"{seed}/{one['problem']}"} for one in episodes]
                together.setdefault((arm, name), []).extend(mine)
    for (arm, name), episodes in together.items():
        yield arm, ALL, name, episodes


def _rates(episodes: Episodes) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in episodes:
        groups.setdefault(one["problem"], []).append(one)

    def rate(having: str, among: str = "") -> Any:
        """Return the rate of episodes that have something, among those that have another."""
        some = [
            [one for one in group if not among or one[among] is not None]
            for group in groups.values()
        ]
        return cluster_rate([(sum(bool(one[having]) for one in g), len(g)) for g in some])

    def mean(name: str) -> float | None:
        values = [one[name] for one in episodes if one[name] is not None]
        return float(np.mean(values)) if values else None

    solved, first, retry = rate("solved"), rate("first"), rate("solved", "tokens2")
    return {
        "n": len(episodes),
        "problems": len(groups),
        "solve_rate": solved.value,
        "low": solved.low,
        "high": solved.high,
        "first": {"value": first.value, "low": first.low, "high": first.high},
        "retry": retry and {"value": retry.value, "low": retry.low, "high": retry.high},
        "retried": sum(one["tokens2"] is not None for one in episodes),
        "reward": mean("reward"),
        "prompt_tokens": mean("tokens1"),
        "prompt_tokens_2": mean("tokens2"),
        "shown": mean("shown1"),
        "shown_2": mean("shown2"),
        "verbatim": mean("verbatim"),
    }


def _by_problem(episodes: Episodes, measure: str) -> dict[str, float]:
    groups: dict[str, list[bool]] = {}
    for one in episodes:
        groups.setdefault(one["problem"], []).append(bool(one[measure]))
    return {problem: float(np.mean(values)) for problem, values in groups.items()}
