"""Rates and speeds of episodes under the names that curves have, such as ``eval/pass@1``.

A training's evaluations and ``kernelgym eval --tensorboard`` use the same functions, so that equal
names are equal numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome
from kernelgym.benchmark.numbers.rates import fast_p, pass_rate
from kernelgym.benchmark.numbers.speeds import geometric_mean_speedup
from kernelgym.types import Verdict

FAST_PLACES = (1.0, 1.5, 2.0)
"""Values of p of fast_p."""


def pass_metrics(
    name: str, outcomes: Sequence[EpisodeOutcome], ks: Sequence[int], *, intervals: bool = True
) -> dict[str, float]:
    """Return pass@k by first answers and by whole episodes.

    Args:
        name: First part of the metrics' names.
        outcomes: The episodes.
        ks: Values of k; those above a problem's number of episodes are left out.
        intervals: Whether to add both ends of the 95 % intervals.
    """
    found: dict[str, float] = {}
    for k in ks:
        for suffix in ("", "_within"):
            rate = pass_rate(outcomes, k, within=bool(suffix))
            if rate is None:
                continue
            found[f"{name}/pass@{k}{suffix}"] = rate.value
            if intervals:
                found[f"{name}/pass@{k}{suffix}_low"] = rate.low
                found[f"{name}/pass@{k}{suffix}_high"] = rate.high
    return found


def speed_metrics(name: str, best: Sequence[Verdict]) -> dict[str, float]:
    """Return fast_p and mean speedups.

    Args:
        name: First part of the metrics' names.
        best: Verdict of the best turn of each episode; those that are not valid are left out.
    """
    known = [verdict for verdict in best if verdict.valid]
    if not known:
        return {}
    found = {f"{name}/fast_0": fast_p(known, 0.0)}
    if timed := [verdict for verdict in known if verdict.timed]:
        for p in FAST_PLACES:
            found[f"{name}/fast_{p:g}"] = fast_p(known, p)
        found[f"{name}/speedup_geometric_mean"] = geometric_mean_speedup(timed)
        found[f"{name}/speedup_mean"] = sum(verdict.speedup for verdict in timed) / len(timed)
    return found
