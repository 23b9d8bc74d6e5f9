"""Which calls of a captured graph lack a dependency on earlier ones."""

from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.untrusted.graph_order import gaps


def reached(edges, start):
    """Return the nodes that cannot begin before a node has ended."""
    found, new = set(), {start}
    while new:
        new = {later for earlier, later in edges if earlier in new} - found
        found |= new
    return found


@st.composite
def graphs(draw):
    """Draw calls of a graph and edges, which lead to later nodes only."""
    sizes = draw(st.lists(st.integers(0, 4), max_size=6))
    total, calls = 0, []
    for size in sizes:
        calls.append(list(range(total, total + size)))
        total += size
    pairs = [(a, b) for b in range(total) for a in range(b)]
    return calls, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@given(graphs())
def test_calls_with_the_missing_dependencies_run_one_after_the_other(graph):
    calls, edges = graph
    whole = [*edges]
    for gap in gaps(calls, edges):
        whole += [(end, first) for end in gap.ends for first in gap.firsts]
    for number, nodes in enumerate(calls):
        for node in nodes:
            assert {late for later in calls[number + 1 :] for late in later} <= reached(whole, node)


def test_calls_of_one_stream_have_no_gaps():
    calls = [[0, 1], [2], [], [3, 4]]
    assert gaps(calls, [(n, n + 1) for n in range(4)]) == []


def test_call_that_forks_and_joins_has_no_gap():
    # Node 1 runs on a side stream that waits for the current one, and is waited for.
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)]
    assert gaps([[0], [1, 2], [3], [4, 5], [6]], edges) == []


def test_branches_of_the_first_call_wait_for_each_other():
    found = gaps([[0], [1], [2]], [(0, 1), (0, 2)])
    assert found == [([1], [2])]
