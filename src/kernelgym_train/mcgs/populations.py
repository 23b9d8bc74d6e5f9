"""Beam search, simulated annealing and evolution, as algorithms of a search.

Contract: as of `kernelgym_train.mcgs.selection`. If an algorithm's own rule finds nothing left to
try, it goes on with the best node that has a proposal left.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from kernelgym_train.mcgs.graph import GraphNode
from kernelgym_train.mcgs.selection import (
    SearchChoice,
    SelectionContext,
    at_random,
    best_first,
    likeliest,
    stream,
)

_WIDTH, _ROUND = 4, 6  # states of a beam; attempts at each before it may leave
_HOT, _COLD, _COOLING = 0.5, 0.02, 0.95  # temperatures in ln of the speedup, and per result
_POPULATION, _TOURNAMENT = 16, 4


def beam(around: SelectionContext) -> SearchChoice | None:
    """Try the moves of the best four states in turns.

    Of states with the same set of applied moves only the best is taken before those of other sets.
    A state leaves the beam, for the next ones, after `_ROUND` attempts.
    """
    seen: dict[tuple[str, ...], int] = {}
    ranked: list[tuple[int, int, int, GraphNode]] = []
    for order, node in enumerate(around.graph.ranked()):
        moves = tuple(sorted({step.move for step in around.variants[node.key].applied}))
        same = seen[moves] = seen.get(moves, -1) + 1
        ranked.append((_attempts(node) // _ROUND, same, order, node))
    ranked.sort(key=lambda each: each[:3])
    still_open = (each for each in ranked if _is_open(around, each[3]))
    members = list(itertools.islice(still_open, _WIDTH))
    members.sort(key=lambda each: (_attempts(each[3]), each[2]))
    return likeliest(around, (each[3] for each in members))


def anneal(around: SelectionContext) -> SearchChoice | None:
    """Walk from state to state, and accept slower states less and less often.

    Simulated annealing (Kirkpatrick and others, Science 220, 1983): a result with a value lower by
    d is accepted with probability exp(-d / T). T falls with each result.
    """
    # Results are only added, so a walk goes on from where the last one ended.
    seen, current, value = around.memo.get(("anneal",), (0, around.graph.start, 0.0))
    for number, tried in enumerate(around.history[seen:], seen):
        if tried.value is None:
            continue
        heat = max(_COLD, _HOT * _COOLING**number)
        lower = value - tried.value
        if lower > 0:
            drawn = stream(around.seed, "anneal", number).random()
            if drawn >= math.exp(-lower / heat):
                continue
        current, value = tried.key, tried.value
    around.memo["anneal",] = len(around.history), current, value
    made = sum(action.attempts for action in around.graph.nodes[current].actions.values())
    return _any(around, [around.graph.nodes[current]], made) or best_first(around)


def evolution(around: SelectionContext) -> SearchChoice | None:
    """Change the best of four states that are drawn from the sixteen youngest.

    Regularised evolution (Real and others, AAAI 2019): of the last `_POPULATION` states a few are
    drawn, and the best of them gets a child. States leave by age, so that a state with a lucky
    measurement does not stay.
    """
    nodes = sorted(around.graph.nodes.values(), key=lambda node: node.created)
    if len(nodes) < _POPULATION // 2:
        return at_random(around)
    made = sum(_attempts(node) for node in nodes)
    numbers = stream(around.seed, "evolution", made)
    young = [node for node in nodes[-_POPULATION:] if _is_open(around, node)]
    drawn = numbers.sample(young, min(_TOURNAMENT, len(young)))
    parents = sorted(drawn, key=lambda node: (-node.value, node.created))
    return _any(around, parents, made) or best_first(around)


def _attempts(node: GraphNode) -> int:
    return sum(action.attempts for action in node.actions.values())


def _is_open(around: SelectionContext, node: GraphNode) -> bool:
    return any(around.untried(node, move) is not None for move, _ in around.moves(node))


def _any(around: SelectionContext, nodes: Sequence[GraphNode], made: int) -> SearchChoice | None:
    """Return a random proposal of the first node that has one left."""
    for node in nodes:
        left = [
            (move, attempt, proposal)
            for move, _ in around.moves(node)
            for attempt, proposal in around.all_untried(node, move)
        ]
        if left:
            move, attempt, proposal = stream(around.seed, node.key, made).choice(left)
            counts = Counter(name for name, _, _ in left)
            scores = tuple((name, count / len(left)) for name, count in counts.items())
            return SearchChoice(node.key, move, attempt, proposal, (), scores)
    return None
