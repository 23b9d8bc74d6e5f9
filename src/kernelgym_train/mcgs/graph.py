"""`SearchGraph`: states of a search, and the moves between them.

A node is a correct, timed kernel; its value is ln(speedup over the start), which may be measured
again. An action is a move at a node; its attempts lead to nodes, new or known, or fail. Failures
are attempts and carry no value, and a wrong kernel is never a node. A correct kernel that could not
be timed counts as a failure until it is timed.

Contract:

- one node for a key, however many ways lead to it;
- an edge that would close a cycle is refused, so that what lies below a node is well defined;
- visits belong to edges, never to the node they lead to: a node reached by two ways counts for
  each as often as that way was taken;
- nothing depends on the order of hashes, on time or on random numbers.

Pure. Holds keys of states, and no kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Link = tuple[str, str, str]
"""Edge of a search's graph that was passed: (key of the node, id of the move, key of the child)."""


@dataclass(slots=True)
class MoveCounts:
    """Counts of one move at one node of a search's graph."""

    attempts: int = 0
    """Number of proposals, including those without a result and those of a known state."""
    tried: set[int] = field(default_factory=set)
    """Numbers of the move's proposals that were made."""
    failures: int = 0
    in_flight: int = 0
    passes: int = 0
    """Number of attempts that have a result, plus selections that went on through a child."""
    visits: dict[str, int] = field(default_factory=dict)
    """Number of times that this move led to each child, by the child's key."""


@dataclass(slots=True)
class GraphNode:
    """Node of a search's graph: a correct kernel with a time."""

    key: str
    created: int
    """Number of the node in the order in which results were recorded; 0 for the start."""
    value: float
    """Natural logarithm of the speedup over the start."""
    actions: dict[str, MoveCounts] = field(default_factory=dict)
    parents: list[str] = field(default_factory=list)


class SearchGraph:
    """The graph of one search.

    Args:
        start: Key of the start, whose value is 0.
    """

    def __init__(self, start: str) -> None:
        self.nodes: dict[str, GraphNode] = {start: GraphNode(start, 0, 0.0)}
        self.start = start
        self.failed: set[str] = set()
        """Keys of states that were judged and are no node, and of nodes that were refused later."""
        self.pruned: set[str] = set()
        """Keys of states that are not judged, since too little is expected of them."""
        self.twins: dict[str, str] = {}
        """Keys of states whose machine code equals that of an earlier state, with the earlier
        state's key."""
        self.in_flight: dict[str, tuple[tuple[Link, ...], str, str]] = {}
        """Keys of states without a result, each with (edges passed to the node, the node, the
        move)."""
        self._waiting: dict[str, list[tuple[str, str]]] = {}
        self._ways: dict[str, list[tuple[str, str]]] = {}
        """Ways (node, move) that led to failed states, by key."""

    def action(self, node: str, move: str) -> MoveCounts:
        """Return the counts of a move at a node."""
        actions = self.nodes[node].actions
        found = actions.get(move)
        if found is None:
            found = actions[move] = MoveCounts()
        return found

    def knows(self, key: str) -> bool:
        """Return True if a state was judged, or is being judged."""
        judged = key in self.nodes or key in self.failed or key in self.twins
        return judged or key in self.in_flight or key in self.pruned

    def dispatch(self, links: Sequence[Link], node: str, move: str, attempt: int, key: str) -> None:
        """Return True if a state was judged or is being judged."""
        action = self.action(node, move)
        action.attempts += 1
        action.tried.add(attempt)
        for parent, name in [*((each[0], each[1]) for each in links), (node, move)]:
            self.action(parent, name).in_flight += 1
        self.in_flight[key] = (tuple(links), node, move)

    def expects(self, node: str) -> bool:
        """Return True if a node may still get another child."""
        if any(action.in_flight for action in self.nodes[node].actions.values()):
            return True
        return any(node == parent for ways in self._waiting.values() for parent, _ in ways)

    def settle(self, key: str, value: float | None) -> None:
        """Record the value of a judged state; None for a failure."""
        if value is None:
            self.failed.add(key)
        else:
            self.nodes[key] = GraphNode(key, len(self.nodes), value)
        self._land(key, key)

    def join(self, key: str, twin: str) -> None:
        """Record that a state's machine code equals that of an earlier state.

        Args:
            key: Key of the state, which was dispatched.
            twin: Key of the earlier state, which is a node or a failure.
        """
        self.twins[key] = twin
        self._land(key, twin)

    def _land(self, key: str, at: str) -> None:
        """Count a state's result for every move that led to it."""
        links, node, move = self.in_flight.pop(key)
        for parent, name in [*((each[0], each[1]) for each in links), (node, move)]:
            action = self.action(parent, name)
            action.in_flight -= 1
            action.passes += 1
        for parent, name in [(node, move), *self._waiting.pop(key, [])]:
            if at in self.failed:
                self._fail(parent, name, at)
            else:
                self._link(parent, name, at)
        for parent, name, child in links:
            self.action(parent, name).visits[child] += 1

    def repeat(self, node: str, move: str, attempt: int, key: str) -> None:
        """Count a proposal of a known state: an attempt, but no evaluation."""
        action = self.action(node, move)
        action.attempts += 1
        action.tried.add(attempt)
        action.passes += 1
        key = self.twins.get(key, key)
        if key in self.in_flight:
            self._waiting.setdefault(key, []).append((node, move))
        elif key in self.failed:
            self._fail(node, move, key)
        elif key in self.nodes:
            self._link(node, move, key)

    def prune(self, node: str, move: str, attempt: int, key: str) -> None:
        """Count a proposal that is not judged: an attempt, but no evaluation."""
        self.pruned.add(key)
        self.repeat(node, move, attempt, key)

    def revive(self, key: str, value: float) -> None:
        """Add a node for a state that could not be timed at first.

        Args:
            key: Key of the state, which is one of `failed`.
            value: Value of the state.
        """
        self.failed.discard(key)
        self.nodes[key] = GraphNode(key, len(self.nodes), value)
        for parent, name in self._ways.pop(key, []):
            self.action(parent, name).failures -= 1
            self._link(parent, name, key)

    def refuse(self, key: str) -> None:
        """Count a node as a failure; it stays in the graph for the nodes that were made from it."""
        self.failed.add(key)

    def revalue(self, values: Mapping[str, float]) -> None:
        """Replace the values of nodes, which were measured again.

        Args:
            values: New values by key.
        """
        for key, value in values.items():
            self.nodes[key].value = value

    def reaches(self, one: str, other: str) -> bool:
        """Return True if `other` is `one` or can be reached from it."""
        seen, left = {one}, [one]
        while left:
            key = left.pop()
            if key == other:
                return True
            for action in self.nodes[key].actions.values():
                left += action.visits.keys() - seen
                seen |= action.visits.keys()
        return False

    def ranked(self) -> list[GraphNode]:
        """Return the nodes that were not refused, the highest value first, and then the oldest."""
        left = [node for node in self.nodes.values() if node.key not in self.failed]
        return sorted(left, key=lambda node: (-node.value, node.created))

    def _link(self, parent: str, move: str, child: str) -> None:
        """Add an edge unless it would close a cycle, or count it once more."""
        visits = self.action(parent, move).visits
        if child not in visits:
            if self.reaches(child, parent):
                return
            visits[child] = 0
            if parent not in self.nodes[child].parents:
                self.nodes[child].parents.append(parent)
        visits[child] += 1

    def _fail(self, parent: str, move: str, key: str) -> None:
        """Count a failure for a move that led to a failed state."""
        self.action(parent, move).failures += 1
        self._ways.setdefault(key, []).append((parent, move))
