"""The search's graph: sound whatever comes in, in whatever order."""

from __future__ import annotations

from graphlib import TopologicalSorter

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym_train.mcgs.graph import SearchGraph

MOVES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.integers(0, 30),  # which node
        st.sampled_from(MOVES),
        st.integers(0, 12),  # which state is proposed
        st.one_of(st.none(), st.floats(-2.0, 3.0)),  # what comes of it
        st.booleans(),  # whether something is dispatched before it settles
    ),
    max_size=40,
)


def played(steps: list[tuple[int, str, int, float | None, bool]]) -> SearchGraph:
    """Return a graph after proposals, each settled at once or when the next one has begun."""
    graph = SearchGraph("start")
    left: list[tuple[str, float | None]] = []
    for attempt, (at, move, state, value, later) in enumerate(steps):
        nodes = list(graph.nodes)
        node, key = nodes[at % len(nodes)], f"s{state}" if state else "start"
        if graph.knows(key):
            graph.repeat(node, move, attempt, key)
        else:
            parents = graph.nodes[node].parents
            links = []
            if parents:
                above = graph.nodes[parents[0]]
                name = next(m for m, a in sorted(above.actions.items()) if node in a.visits)
                links = [(above.key, name, node)]
            graph.dispatch(links, node, move, attempt, key)
            left.append((key, value))
        while left and not later:
            graph.settle(*left.pop(0))
    while left:
        graph.settle(*left.pop(0))
    return graph


def edges(graph: SearchGraph) -> dict[str, set[str]]:
    return {
        node.key: {child for action in node.actions.values() for child in action.visits}
        for node in graph.nodes.values()
    }


@given(STEPS)
@settings(max_examples=60)
def test_graph_has_no_cycle_and_one_node_a_key(steps: list) -> None:
    graph = played(steps)
    tuple(TopologicalSorter(edges(graph)).static_order())
    assert not set(graph.nodes) & graph.failed
    assert not graph.in_flight


@given(STEPS)
@settings(max_examples=60)
def test_attempts_and_passes_are_counted_once(steps: list) -> None:
    graph = played(steps)
    for node in graph.nodes.values():
        for action in node.actions.values():
            assert action.in_flight == 0
            assert action.attempts == len(action.tried)
            assert action.failures <= action.attempts <= action.passes


@given(STEPS)
@settings(max_examples=60)
def test_visits_are_of_ways_and_count_once(steps: list) -> None:
    """What reached a node by one way is no visit of another: each attempt counts at most once."""
    graph = played(steps)
    made = sum(a.attempts for node in graph.nodes.values() for a in node.actions.values())
    first = sum(len(a.visits) for node in graph.nodes.values() for a in node.actions.values())
    assert len(graph.nodes) - 1 <= first <= made
    for node in graph.nodes.values():
        for action in node.actions.values():
            assert sum(action.visits.values()) + action.failures <= action.passes


def test_failure_is_an_attempt_and_no_node() -> None:
    graph = SearchGraph("start")
    graph.dispatch([], "start", "a", 0, "wrong")
    graph.settle("wrong", None)
    action = graph.action("start", "a")
    assert (action.attempts, action.failures, list(graph.nodes)) == (1, 1, ["start"])
    graph.repeat("start", "b", 0, "wrong")
    assert graph.action("start", "b").failures == 1


def test_second_way_to_a_node_is_an_edge_of_its_own() -> None:
    graph = SearchGraph("start")
    for key, value in (("x", 0.5), ("y", 0.2)):
        graph.dispatch([], "start", "a", 0, key)
        graph.settle(key, value)
    graph.dispatch([("start", "a", "x")], "x", "b", 0, "z")
    graph.settle("z", 2.0)
    graph.repeat("y", "b", 0, "z")
    assert graph.nodes["z"].parents == ["x", "y"]
    assert graph.action("x", "b").visits == graph.action("y", "b").visits == {"z": 1}


def test_repeat_in_flight_gets_its_edge_later() -> None:
    graph = SearchGraph("start")
    graph.dispatch([], "start", "a", 0, "x")
    graph.repeat("start", "b", 0, "x")
    graph.settle("x", 1.0)
    assert graph.action("start", "b").visits == {"x": 1}


def test_edge_that_closes_a_cycle_is_refused() -> None:
    graph = SearchGraph("start")
    graph.dispatch([], "start", "a", 0, "x")
    graph.settle("x", 1.0)
    graph.repeat("x", "a", 0, "start")
    graph.repeat("x", "a", 1, "x")
    assert graph.action("x", "a").visits == {} and graph.action("x", "a").attempts == 2
