"""Orders the calls of a captured CUDA graph: each begins when all earlier calls have ended.

A capture records only the dependencies that a kernel's streams ask for. Calls on streams that do
not wait for the current stream would become parallel branches of the graph, and many calls would
take the time of one. Where such a dependency is missing, an empty node is added to the graph.

Loaded by path in the untrusted process: standard library only.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["CapturedCalls", "Gap", "gaps"]


class Gap(NamedTuple):
    """A call that may begin before all earlier ones have ended."""

    ends: list[int]
    """Nodes of earlier calls that no other node of these calls waits for."""
    firsts: list[int]
    """Nodes of the call that wait for no other node of it."""


def gaps(calls: Iterable[Sequence[int]], edges: Iterable[tuple[int, int]]) -> list[Gap]:
    """Return the calls that lack a dependency on earlier ones.

    Args:
        calls: The nodes of each call, in the order of the calls.
        edges: Pairs of nodes of which the second begins when the first has ended.
    """
    awaited: dict[int, set[int]] = {}
    for earlier, later in edges:
        awaited.setdefault(later, set()).add(earlier)
    found, ends = [], set[int]()
    for nodes in calls:
        if not nodes:
            continue
        own = set(nodes)
        firsts = [node for node in nodes if own.isdisjoint(awaited.get(node, ()))]
        if not all(ends <= awaited.get(node, set()) for node in firsts):
            found.append(Gap(sorted(ends), firsts))
        ends = own.difference(*(awaited.get(node, ()) for node in nodes))
    return found


class CapturedCalls:
    """Notes which nodes of a graph each call adds while a stream is captured.

    Args:
        stream: Handle of the stream that is captured.
    """

    def __init__(self, stream: int) -> None:
        status, graph = ctypes.c_int(), ctypes.c_void_p()
        code = _driver().cuStreamGetCaptureInfo_v2(
            ctypes.c_void_p(stream), ctypes.byref(status), None, ctypes.byref(graph), None, None
        )
        _check(code, "asking for the captured graph")
        self._graph = graph
        self._counts = [0]

    def end_call(self) -> None:
        """Count the graph's nodes at the end of a call."""
        count = ctypes.c_size_t()
        code = _driver().cuGraphGetNodes(self._graph, None, ctypes.byref(count))
        _check(code, "counting the nodes of a graph")
        self._counts.append(count.value)

    def order(self, graph: int) -> int:
        """Add the missing dependencies to the captured graph; return their number.

        Args:
            graph: Handle of the graph after the capture.
        """
        handle, size = ctypes.c_void_p(graph), ctypes.c_size_t(self._counts[-1])
        nodes = (ctypes.c_void_p * size.value)()
        _check(_driver().cuGraphGetNodes(handle, nodes, ctypes.byref(size)), "listing the nodes")
        listed = [node or 0 for node in nodes]
        calls = [listed[a:b] for a, b in zip(self._counts, self._counts[1:], strict=False)]
        found = gaps(calls, _full_edges(handle))
        for gap in found:
            barrier, ends = ctypes.c_void_p(), (ctypes.c_void_p * len(gap.ends))(*gap.ends)
            code = _driver().cuGraphAddEmptyNode(ctypes.byref(barrier), handle, ends, len(ends))
            _check(code, "adding a node to a graph")
            firsts = (ctypes.c_void_p * len(gap.firsts))(*gap.firsts)
            before = (ctypes.c_void_p * len(firsts))(*[barrier.value] * len(firsts))
            code = _driver().cuGraphAddDependencies(handle, before, firsts, len(firsts))
            _check(code, "adding dependencies to a graph")
        return len(found)


def _full_edges(graph: ctypes.c_void_p) -> list[tuple[int, int]]:
    """Return a graph's edges, without those of programmatic launches.

    A kernel launched so may begin before the earlier one has ended.
    """
    count = ctypes.c_size_t()
    get_edges = _driver().cuGraphGetEdges_v2
    _check(get_edges(graph, None, None, None, ctypes.byref(count)), "counting a graph's edges")
    origins, targets = ((ctypes.c_void_p * count.value)() for _ in range(2))
    kinds = (_EdgeData * count.value)()
    _check(
        get_edges(graph, origins, targets, kinds, ctypes.byref(count)), "listing a graph's edges"
    )
    listed = zip(origins, targets, kinds, strict=True)
    return [(origin, target) for origin, target, data in listed if not data.kind]


class _EdgeData(ctypes.Structure):
    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("kind", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


@functools.cache
def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    many, one = ctypes.c_void_p, ctypes.c_size_t
    driver.cuStreamGetCaptureInfo_v2.argtypes = [many] * 6
    driver.cuGraphGetNodes.argtypes = [many] * 3
    driver.cuGraphGetEdges_v2.argtypes = [many] * 5
    driver.cuGraphAddEmptyNode.argtypes = [many, many, many, one]
    driver.cuGraphAddDependencies.argtypes = [many, many, many, one]
    return driver


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")
