"""Algorithms that choose which move to try next, and at which node.

All choose among the same proposals and see the same results, so that they can be compared:

- `mcgs`: walks from the start by PUCT with priors, and widens a move's ways by its attempts;
- `best_first`: the best node that has a proposal left;
- `at_random`: any node, any move, any proposal.

`kernelgym_train.mcgs.tuning` adds `tpe`; all are listed in `kernelgym_train.mcgs.algorithms`.

Contract: a choice follows from the graph, the proposer and the seed alone. Proposals that repeat a
known state are chosen like others: the caller takes them in and asks again. Pure.

Between choices only `SelectionContext.memo` is kept, which saves time and changes no choice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

from kernelgym_train.mcgs.bottleneck_priors import strongest, weighed_by_bottlenecks
from kernelgym_train.mcgs.graph import GraphNode, Link, SearchGraph
from kernelgym_train.mcgs.proposing import Proposal, Proposer
from kernelgym_train.mcgs.tactics import MoveExperience, last_move
from kernelgym_train.mcgs.trials import SearchTrial
from kernelgym_train.mcgs.variant import Variant

_EXPLORATION = 0.3  # PUCT's c, on values normalised to [0, 1]
_WIDENING, _WIDENING_POWER = 2.0, 0.5
_AMONG_CHILDREN = 0.05
_DISCOUNT = 0.97  # of a value for each move that leads to it


@dataclass(frozen=True, slots=True)
class SearchChoice:
    """Proposal that a search tries next, with the reasons for the choice."""

    node: str
    move: str
    attempt: int
    proposal: Proposal
    links: tuple[Link, ...] = ()
    """Edges of the graph that the selection passed from the start to the node; empty for algorithms
    that walk no graph."""
    scores: tuple[tuple[str, float], ...] = ()
    """(name, score) of the alternatives that the last decision compared: the node's moves with
    their PUCT scores, priors or probabilities, or the tuner's settings with their values."""


@dataclass(frozen=True, slots=True)
class SelectionContext:
    """Everything that the choice of a search's next proposal depends on."""

    graph: SearchGraph
    variants: Mapping[str, Variant]
    """Variants of all states of the search, by key."""
    proposer: Proposer
    seed: int
    history: Sequence[SearchTrial] = ()
    """Results of the search, in the order in which they were recorded."""
    experience: MoveExperience | None = None
    """Success rates of moves, which priors are multiplied by; None to leave priors as they are."""
    shares: Callable[[str], Mapping[str, float]] = lambda key: {}
    """Function that returns the share of each bottleneck of a state; empty if unknown."""
    root_noise: float = 0.0
    """Share of the start's priors that is random, from 0 to 1, for `mcgs`."""
    memo: dict[tuple[str, ...], Any] = field(default_factory=dict, compare=False, repr=False)
    """Cache of computed values that stay valid as results are added. It saves time, and no choice
    depends on it."""

    def moves(self, node: GraphNode) -> tuple[tuple[str, float], ...]:
        """Return the moves that can be made at a node, with their priors."""
        variant = self.variants[node.key]
        priors = self.proposer.priors(variant)
        shares = self.shares(node.key) if priors else {}
        if shares:
            priors = weighed_by_bottlenecks(priors, shares)
        if self.experience is None:
            return priors
        return self.experience.weighed(last_move(variant), priors, strongest(shares))

    def names(self, node: GraphNode) -> tuple[str, ...]:
        """Return the ids of the moves that can be made at a node."""
        key = ("names", node.key)
        if key not in self.memo:
            priors = self.proposer.priors(self.variants[node.key])
            self.memo[key] = tuple(move for move, _ in priors)
        found: tuple[str, ...] = self.memo[key]
        return found

    def untried(self, node: GraphNode, move: str) -> tuple[int, Proposal] | None:
        """Return the first untried proposal of a move, or None; a refused node has none."""
        if node.key in self.graph.failed:
            return None
        tried = self.graph.action(node.key, move).tried
        key = ("untried", node.key, move)
        count, found = self.memo.get(key, (-1, None))
        if count != len(tried):  # numbers are only added
            attempt = next(number for number in range(len(tried) + 1) if number not in tried)
            proposal = self.proposer.propose(self.variants[node.key], move, attempt)
            found = None if proposal is None else (attempt, proposal)
            self.memo[key] = len(tried), found
        first: tuple[int, Proposal] | None = found
        return first

    def is_spent(self, node: GraphNode) -> bool:
        """Return True if no move at a node has a proposal left."""
        if ("spent", node.key) in self.memo:
            return True
        if any(self.untried(node, move) is not None for move in self.names(node)):
            return False
        self.memo["spent", node.key] = True
        return True

    def is_over(self, node: GraphNode) -> bool:
        """Return True if a node and all nodes below it will never have a proposal left."""
        if ("over", node.key) in self.memo:
            return True
        if not self.is_spent(node) or self.graph.expects(node.key):
            return False
        if any(("over", child) not in self.memo for child in _children(self, node)):
            return False
        self.memo["over", node.key] = True
        return True

    def reopen(self) -> None:
        """Reset which nodes count as exhausted, since one of them gets another child."""
        for place in [place for place in self.memo if place[0] == "over"]:
            del self.memo[place]

    def all_untried(self, node: GraphNode, move: str) -> list[tuple[int, Proposal]]:
        """Return every proposal of a move that was not tried yet; a refused node has none."""
        if node.key in self.graph.failed:
            return []
        tried = self.graph.action(node.key, move).tried
        found: list[tuple[int, Proposal]] = []
        attempt = 0
        while (each := self.proposer.propose(self.variants[node.key], move, attempt)) is not None:
            if attempt not in tried:
                found.append((attempt, each))
            attempt += 1
        return found


Algorithm = Callable[[SelectionContext], SearchChoice | None]
"""Function that chooses a search's next proposal; it returns None if none is left until a result
comes in."""


def stream(*parts: object) -> random.Random:
    """Return a random number generator whose seed is made from the given parts."""
    return random.Random(":".join(str(part) for part in parts))


def mcgs(around: SelectionContext) -> SearchChoice | None:
    """Walk from the start to a move worth another attempt.

    At a node, ``q + c p sqrt(1 + n) / (1 + n_a)`` is highest: q is the best open value that the
    move led to (the node's own value if it led to none), p is the prior, n and n_a count the passes
    of all moves and of this one, with those in flight. A move gets another proposal while it has
    fewer than ``ceil(2 sqrt(n_a + 1))``; otherwise the walk goes on to one of its children.

    A state is open while something is left to try at it or below. Its open value is the highest of
    its own value, if it has a proposal left itself, and of the open values below, each multiplied
    by `_DISCOUNT`. Values are scaled to [0, 1] by the lowest and the highest value seen.
    """
    graph = around.graph
    values = _open_values(around)
    node, links = graph.nodes[graph.start], list[Link]()
    if node.key not in values:
        return None
    own = _scale(graph)
    while True:
        moves = around.moves(node)
        if around.root_noise and node.key == graph.start:
            moves = with_noise(around, moves)
        total = sum(_count(graph, node, move) for move, _ in moves)
        scored: list[tuple[float, float, int, str]] = []
        for order, (move, prior) in enumerate(moves):
            children = graph.action(node.key, move).visits
            below = [values[child] for child in children if child in values]
            if not below and around.untried(node, move) is None:
                continue
            best = _DISCOUNT * max(below) if below else own(node)
            bonus = math.sqrt(1 + total) / (1 + _count(graph, node, move))
            scored.append((best + _EXPLORATION * prior * bonus, prior, -order, move))
        move = max(scored)[3]
        action = graph.action(node.key, move)
        limit = math.ceil(_WIDENING * (action.passes + action.in_flight + 1) ** _WIDENING_POWER)
        found = around.untried(node, move)
        left = [child for child in action.visits if child in values]
        if found is not None and (action.attempts < limit or not left):
            scores = tuple((each[3], each[0]) for each in sorted(scored, reverse=True))
            return SearchChoice(node.key, move, found[0], found[1], tuple(links), scores)
        spread = math.log(1 + _count(graph, node, move))
        child = max(
            left,
            key=lambda key: (
                values[key] + _AMONG_CHILDREN * math.sqrt(spread / (1 + action.visits[key])),
                -graph.nodes[key].created,
            ),
        )
        links.append((node.key, move, child))
        node = graph.nodes[child]


def _scale(graph: SearchGraph) -> Callable[[GraphNode], float]:
    """Return the function that scales a node's own value to [0, 1]."""
    values = [node.value for node in graph.ranked()]
    low, span = min(values), (max(values) - min(values)) or 1.0
    return lambda node: (node.value - low) / span


def _open_values(around: SelectionContext) -> dict[str, float]:
    """Return the values of all states that can be reached from the start and have moves left.

    Without recursion: a search may be deeper than Python's stack.
    """
    nodes, own = around.graph.nodes, _scale(around.graph)
    children = {key: _children(around, node) for key, node in nodes.items()}
    found: dict[str, float] = {}
    for key in TopologicalSorter(children).static_order():  # children first
        if around.is_over(nodes[key]):
            continue
        below = [_DISCOUNT * found[child] for child in children[key] if child in found]
        if not around.is_spent(nodes[key]):
            below.append(own(nodes[key]))
        if below:
            found[key] = max(below)
    return found


def best_first(around: SelectionContext) -> SearchChoice | None:
    """Return the likeliest untried move of the best node that has a proposal left.

    A move's share falls with its attempts.
    """
    for node in around.graph.ranked():
        scored = []
        for order, (move, prior) in enumerate(around.moves(node)):
            found = around.untried(node, move)
            if found is not None:
                attempts = around.graph.action(node.key, move).attempts
                scored.append((prior / (1 + attempts), -order, move, found))
        if scored:
            _, _, move, (attempt, proposal) = max(scored, key=lambda each: each[:2])
            scores = tuple((each[2], each[0]) for each in scored)
            return SearchChoice(node.key, move, attempt, proposal, (), scores)
    return None


def at_random(around: SelectionContext) -> SearchChoice | None:
    """Try a random proposal of a random node."""
    nodes = sorted(around.graph.nodes.values(), key=lambda node: node.created)
    made = sum(action.attempts for node in nodes for action in node.actions.values())
    numbers = stream(around.seed, "random", made)
    for node in numbers.sample(nodes, len(nodes)):
        moves = [move for move, _ in around.moves(node)]
        for move in numbers.sample(moves, len(moves)):
            if left := around.all_untried(node, move):
                attempt, proposal = numbers.choice(left)
                scores = tuple((name, 1.0 / len(moves)) for name in sorted(moves))
                return SearchChoice(node.key, move, attempt, proposal, (), scores)
    return None


def with_noise(
    around: SelectionContext, moves: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """Return priors mixed with random ones, the same in each selection.

    As AlphaZero does at the root (Silver and others, Science 362, 2018), with numbers from a
    Dirichlet distribution whose parameters add up to 10.
    """
    drawn = {
        move: stream(around.seed, "root noise", move).gammavariate(10.0 / len(moves), 1.0)
        for move, _ in moves
    }
    total, share = sum(drawn.values()) or 1.0, around.root_noise
    return tuple((move, (1.0 - share) * p + share * drawn[move] / total) for move, p in moves)


def _count(graph: SearchGraph, node: GraphNode, move: str) -> int:
    action = graph.action(node.key, move)
    return action.passes + action.in_flight


def _children(around: SelectionContext, node: GraphNode) -> list[str]:
    actions = [node.actions[move] for move in around.names(node) if move in node.actions]
    return [child for action in actions for child in action.visits]
