"""Algorithms that choose which move to try next, and at which node.

All choose among the same proposals and see the same results, so that they can be compared:

- `mcgs`: walks from the start by PUCT with priors, and widens a move's ways by its attempts;
- `best_first`: the best node that has a proposal left;
- `at_random`: any node, any move, any proposal.

More of them are in `kernelgym_train.mcgs.populations` and `kernelgym_train.mcgs.tuning`; all are
listed in `kernelgym_train.mcgs.algorithms`.

Contract: a choice follows from the graph, the proposer and the seed alone. Proposals that repeat a
known state are chosen like others: the caller takes them in and asks again. Pure.

Between choices only `SelectionContext.memo` is kept, which saves time and changes no choice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelgym_train.mcgs.graph import GraphNode, Link, SearchGraph
from kernelgym_train.mcgs.proposing import Proposal, Proposer
from kernelgym_train.mcgs.state import SearchTrial
from kernelgym_train.mcgs.tactics import MoveExperience, last_move
from kernelgym_train.mcgs.variant import Variant

_EXPLORATION = 0.1  # PUCT's c, on values normalised to [0, 1]
_WIDENING, _WIDENING_POWER = 2.0, 0.5
_AMONG_CHILDREN = 0.05


@dataclass(frozen=True, slots=True)
class SearchChoice:
    """The proposal to try next."""

    node: str
    move: str
    attempt: int
    proposal: Proposal
    links: tuple[Link, ...] = ()
    """Edges that the selection passed from the start to the node; empty for algorithms that walk no
    graph."""
    scores: tuple[tuple[str, float], ...] = ()
    """(name, score) of the alternatives that the last decision compared: the node's moves with
    their PUCT scores, priors or probabilities, or the tuner's settings with their values."""


@dataclass(frozen=True, slots=True)
class SelectionContext:
    """Everything that a choice depends on."""

    graph: SearchGraph
    variants: Mapping[str, Variant]
    """Variants of all states, by key."""
    proposer: Proposer
    seed: int
    history: Sequence[SearchTrial] = ()
    """Results, in the order in which they were taken in."""
    experience: MoveExperience | None = None
    """Success rates of moves, which priors are multiplied by; None to leave priors as they are."""
    root_noise: float = 0.0
    """Share of the start's priors that is random, from 0 to 1, for `mcgs` and `auto`."""
    memo: dict[tuple[str, ...], Any] = field(default_factory=dict, compare=False, repr=False)
    """Cache of computed values that stay valid as results are added. It saves time, and no choice
    depends on it."""

    def moves(self, node: GraphNode) -> tuple[tuple[str, float], ...]:
        """Return the moves that can be made at a node, with their priors."""
        variant = self.variants[node.key]
        priors = self.proposer.priors(variant)
        if self.experience is None:
            return priors
        return self.experience.weighed(last_move(variant), priors)

    def names(self, node: GraphNode) -> tuple[str, ...]:
        """Return the moves that can be made at a node."""
        key = ("names", node.key)
        if key not in self.memo:
            priors = self.proposer.priors(self.variants[node.key])
            self.memo[key] = tuple(move for move, _ in priors)
        found: tuple[str, ...] = self.memo[key]
        return found

    def untried(self, node: GraphNode, move: str) -> tuple[int, Proposal] | None:
        """Return the first untried proposal of a move, or None."""
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
        """Return True if no move has a proposal left."""
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

    def all_untried(self, node: GraphNode, move: str) -> list[tuple[int, Proposal]]:
        """Return every proposal of a move that was not tried."""
        tried = self.graph.action(node.key, move).tried
        found: list[tuple[int, Proposal]] = []
        attempt = 0
        while (each := self.proposer.propose(self.variants[node.key], move, attempt)) is not None:
            if attempt not in tried:
                found.append((attempt, each))
            attempt += 1
        return found


Algorithm = Callable[[SelectionContext], SearchChoice | None]
"""A function that chooses the next proposal, or returns None if none is left until a result comes
in."""


def stream(*parts: object) -> random.Random:
    """Return a random number generator that is seeded by the parts."""
    return random.Random(":".join(str(part) for part in parts))


def mcgs(around: SelectionContext) -> SearchChoice | None:
    """Walk from the start to a move worth another attempt.

    At a node, ``q + c p sqrt(1 + n) / (1 + n_a)`` is highest: q is the best value that the move
    led to (the node's own value before it led anywhere), scaled to [0, 1]; p is the prior, n and
    n_a count the passes of all moves and of this one, with those in flight. A move gets another
    proposal while it has fewer than ``ceil(2 sqrt(n_a + 1))``; otherwise the walk goes on to one
    of its children.
    """
    graph = around.graph
    values = [node.value for node in graph.nodes.values()]
    low, high = min(values), max(values)
    span = high - low or 1.0
    closed: dict[str, bool] = {}
    node, links = graph.nodes[graph.start], list[Link]()
    if _is_closed(around, node, closed):
        return None
    while True:
        moves = around.moves(node)
        if around.root_noise and node.key == graph.start:
            moves = with_noise(around, moves)
        total = sum(_count(graph, node, move) for move, _ in moves)
        scored: list[tuple[float, float, int, str]] = []
        for order, (move, prior) in enumerate(moves):
            if not _is_open(around, node, move, closed):
                continue
            children = graph.action(node.key, move).visits
            best = max((graph.nodes[child].best for child in children), default=node.value)
            bonus = math.sqrt(1 + total) / (1 + _count(graph, node, move))
            score = (best - low) / span + _EXPLORATION * prior * bonus
            scored.append((score, prior, -order, move))
        move = max(scored)[3]
        action = graph.action(node.key, move)
        limit = math.ceil(_WIDENING * (action.passes + action.in_flight + 1) ** _WIDENING_POWER)
        found = around.untried(node, move)
        below = [
            child for child in action.visits if not _is_closed(around, graph.nodes[child], closed)
        ]
        if found is not None and (action.attempts < limit or not below):
            scores = tuple((each[3], each[0]) for each in sorted(scored, reverse=True))
            return SearchChoice(node.key, move, found[0], found[1], tuple(links), scores)
        spread = math.log(1 + _count(graph, node, move))
        child = max(
            below,
            key=lambda key: (
                (graph.nodes[key].best - low) / span
                + _AMONG_CHILDREN * math.sqrt(spread / (1 + action.visits[key])),
                -graph.nodes[key].created,
            ),
        )
        links.append((node.key, move, child))
        node = graph.nodes[child]


def best_first(around: SelectionContext) -> SearchChoice | None:
    """Return the likeliest untried move of the best node that has a proposal left."""
    return likeliest(around, around.graph.ranked())


def likeliest(around: SelectionContext, nodes: Iterable[GraphNode]) -> SearchChoice | None:
    """Return the likeliest move of the first node that has one left.

    A move's share falls with its attempts.
    """
    for node in nodes:
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


def _is_open(around: SelectionContext, node: GraphNode, move: str, closed: dict[str, bool]) -> bool:
    """Return True if something is left to try by a move."""
    if around.untried(node, move) is not None:
        return True
    children = around.graph.action(node.key, move).visits
    return any(not _is_closed(around, around.graph.nodes[child], closed) for child in children)


def _is_closed(around: SelectionContext, node: GraphNode, closed: dict[str, bool]) -> bool:
    """Return True if nothing is left at a node or below.

    Without recursion: a search may be deeper than Python's stack.

    Args:
        around: Everything that the choice depends on.
        node: The node.
        closed: Results for other nodes by key; results of this call are added.
    """
    nodes = around.graph.nodes
    stack: list[tuple[str, list[str]]] = []
    if node.key not in closed:
        stack.append((node.key, _below(around, node, closed)))
    while stack:
        key, left = stack[-1]
        if key in closed:
            stack.pop()
        elif not left:
            closed[key] = True
            around.is_over(nodes[key])  # kept for the next selections, if it is
        elif left[-1] not in closed:
            child = nodes[left[-1]]
            stack.append((child.key, _below(around, child, closed)))
        elif closed[left[-1]]:
            left.pop()
        else:
            closed[key] = False
    return closed[node.key]


def _below(around: SelectionContext, node: GraphNode, closed: dict[str, bool]) -> list[str]:
    """Return the children that decide whether a node has anything left to try.

    Returns no children if the node itself has something left, which is then added to `closed`, or
    if it will never have anything left.
    """
    if around.is_over(node):
        return []
    if not around.is_spent(node):
        closed[node.key] = False
        return []
    return _children(around, node)


def _children(around: SelectionContext, node: GraphNode) -> list[str]:
    actions = [node.actions[move] for move in around.names(node) if move in node.actions]
    return [child for action in actions for child in action.visits]
