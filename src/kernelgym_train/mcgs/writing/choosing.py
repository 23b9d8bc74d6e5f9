"""Choices of a search with a writer: rules or writer, and the state and move to request.

Contract: a choice follows from what the search knows. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelgym_train.mcgs.bottleneck_priors import strongest
from kernelgym_train.mcgs.selection import SelectionContext
from kernelgym_train.mcgs.tactics import last_move
from kernelgym_train.mcgs.writing.asks import PREFIX, RULES, WRITER, AskLog

_RECENT = 0.95  # weight of a result for each later result of the same arm
_HOPED = 0.05  # ln of the speedup that an untried arm is expected to gain an attempt
_EXPLORATION = 1.0
_EFFORT = 0.03  # ln of the speedup that a state must be ahead for each request spent on it
_UNREAD = 2.0  # factor for a move that the rules cannot make at a state


def better_arm(results: Sequence[tuple[str, float, float]], in_flight: Sequence[str] = ()) -> str:
    """Return the next proposer: `RULES` (rewrite rules) or `WRITER` (such as a language model).

    That is the arm whose proposals gained more speed per second, or that was tried too seldom.

    An upper confidence bound (Auer and others, Machine Learning 47, 2002) on the ratio of
    discounted gains and seconds. Each arm is tried first; the writer before the rules.

    Args:
        results: (arm, gain in ln over the best so far, seconds) of each attempt, in their order.
        in_flight: Arms of the attempts without a result, which count as tried.
    """
    everywhere = sum(seconds for *_, seconds in results) / max(1, len(results))
    rates: dict[str, tuple[float, int]] = {}
    for arm in (WRITER, RULES):
        mine = [(gain, seconds) for each, gain, seconds in results if each == arm]
        waiting = in_flight.count(arm)
        if not mine and not waiting:
            return arm
        weights = [_RECENT ** (len(mine) - 1 - place) for place in range(len(mine))]
        typical = sum(seconds for _, seconds in mine) / len(mine) if mine else everywhere
        gained = _HOPED + sum(w * gain for w, (gain, _) in zip(weights, mine, strict=True))
        took = typical + sum(w * seconds for w, (_, seconds) in zip(weights, mine, strict=True))
        rates[arm] = gained / max(took, 1e-9), len(mine) + waiting
    highest = max(rate for rate, _ in rates.values())
    spread = math.log(1 + len(results) + len(in_flight))

    def bound(arm: str) -> float:
        rate, count = rates[arm]
        return rate / highest + _EXPLORATION * math.sqrt(spread / count)

    return max((WRITER, RULES), key=bound)


def choose_ask(
    around: SelectionContext, asks: AskLog, weights: Mapping[str, float]
) -> tuple[str, str]:
    """Return the state and the move to ask a writer for.

    The fastest state is asked for, where each request at a state and each step that led to it count
    as if it were 3 % slower. A move counts for more if it gained before, and if the rules
    cannot make it at the state; for less the more it was asked for there.

    Args:
        around: Knowledge of the search.
        asks: Requests so far.
        weights: Weights of the moves that may be asked for, by id without `PREFIX`.
    """
    nodes = around.graph.ranked()
    effort = {
        node.key: len(asks.at(node.key)) + len(around.variants[node.key].applied) for node in nodes
    }
    node = max(nodes, key=lambda node: (node.value - _EFFORT * effort[node.key], -node.created))
    ruled = set(around.names(node))
    priors = tuple(
        (f"{PREFIX}{move}", weight * (1.0 if move in ruled else _UNREAD))
        for move, weight in weights.items()
    )
    if around.experience is not None:
        total = sum(weight for _, weight in priors)
        normal = tuple((move, weight / total) for move, weight in priors)
        limit = strongest(around.shares(node.key))
        priors = around.experience.weighed(last_move(around.variants[node.key]), normal, limit)
    tried = [ask.move for ask in asks.at(node.key)]
    move, _ = max(priors, key=lambda each: each[1] / (1 + tried.count(each[0])))
    return node.key, move
