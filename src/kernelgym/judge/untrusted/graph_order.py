"""Orders the calls of a captured CUDA graph: each begins when all earlier calls have ended.

A capture records only the dependencies that a kernel's streams ask for. Calls on streams that do
not wait for the current stream would become parallel branches of the graph, and many calls would
take the time of one. Where such a dependency is missing, an empty node is added to the graph.

Loaded by path in the untrusted process: standard library only.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_FREE_ON_LAUNCH = 1  # memory that a graph allocates and does not free: its next launch frees it


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
    awaited = _awaited(edges)
    found, ends = [], list[int]()
    for nodes in calls:
        if not nodes:
            continue
        call = _span(nodes, awaited)
        if not all(awaited.get(node, set()).issuperset(ends) for node in call.firsts):
            found.append(Gap(ends, call.firsts))
        ends = call.ends
    return found


def _awaited(edges: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """Return the nodes that each node waits for."""
    found: dict[int, set[int]] = {}
    for earlier, later in edges:
        found.setdefault(later, set()).add(earlier)
    return found


def _span(nodes: Sequence[int], awaited: Mapping[int, set[int]]) -> Gap:
    """Return a call's last nodes and its first ones."""
    own = set(nodes)
    firsts = [node for node in nodes if own.isdisjoint(awaited.get(node, ()))]
    return Gap(sorted(own.difference(*(awaited.get(node, ()) for node in nodes))), firsts)


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
        self._calls = [listed[a:b] for a, b in zip(self._counts, self._counts[1:], strict=False)]
        found = gaps(self._calls, _full_edges(handle))
        for gap in found:
            barrier, ends = ctypes.c_void_p(), (ctypes.c_void_p * len(gap.ends))(*gap.ends)
            code = _driver().cuGraphAddEmptyNode(ctypes.byref(barrier), handle, ends, len(ends))
            _check(code, "adding a node to a graph")
            firsts = (ctypes.c_void_p * len(gap.firsts))(*gap.firsts)
            before = (ctypes.c_void_p * len(firsts))(*[barrier.value] * len(firsts))
            code = _driver().cuGraphAddDependencies(handle, before, firsts, len(firsts))
            _check(code, "adding dependencies to a graph")
        return len(found)

    def instantiate(self, graph: int) -> None:
        """Instantiate the graph, for `launch`."""
        self._ready = _instantiated(ctypes.c_void_p(graph))

    def delay(self, graph: int, copies: Sequence[Sequence[tuple[int, int, int]]]) -> None:
        """Instantiate the ordered graph with copies on the device before each call.

        A call then reads what the copies wrote only if it begins after all earlier calls.

        Args:
            graph: Handle of the graph. The nodes are added to it: instantiate it for other uses
                before.
            copies: For each call, the address to write to, the one to read from, and the bytes.
        """
        handle, context, ends = ctypes.c_void_p(graph), ctypes.c_void_p(), list[int]()
        _check(_driver().cuCtxGetCurrent(ctypes.byref(context)), "asking for the context")
        awaited = _awaited(_full_edges(handle))
        for nodes, wanted in zip(self._calls, copies, strict=True):
            added = [_add_copy(handle, context, ends, each) for each in wanted]
            call = _span(nodes, awaited)
            for node in added:
                firsts = (ctypes.c_void_p * len(call.firsts))(*call.firsts)
                before = (ctypes.c_void_p * len(firsts))(*[node] * len(firsts))
                code = _driver().cuGraphAddDependencies(handle, before, firsts, len(firsts))
                _check(code, "adding dependencies to a graph")
            ends = call.ends or added or ends
        self._delayed = _instantiated(handle)

    def launch(self, stream: int, delayed: bool = False) -> None:
        """Launch the graph that `instantiate` made, or the one that `delay` made."""
        graph = self._delayed if delayed else self._ready
        _check(_driver().cuGraphLaunch(graph, ctypes.c_void_p(stream)), "launching a graph")


def _instantiated(graph: ctypes.c_void_p) -> ctypes.c_void_p:
    """Return a new executable graph."""
    made = ctypes.c_void_p()
    code = _driver().cuGraphInstantiateWithFlags(ctypes.byref(made), graph, _FREE_ON_LAUNCH)
    _check(code, "instantiating a graph")
    return made


def _add_copy(
    graph: ctypes.c_void_p, context: ctypes.c_void_p, after: list[int], copy: tuple[int, int, int]
) -> int:
    """Add a copy on the device to a graph; return its node."""
    target, source, size = copy
    made, device = _Copy(), 2
    made.source_kind = made.target_kind = device
    made.source, made.target = source, target
    made.source_pitches = made.target_pitches = (size, 1)
    made.width, made.height, made.depth = size, 1, 1
    node, ends = ctypes.c_void_p(), (ctypes.c_void_p * len(after))(*after)
    code = _driver().cuGraphAddMemcpyNode(
        ctypes.byref(node), graph, ends, len(ends), ctypes.byref(made), context
    )
    _check(code, "adding a copy to a graph")
    return node.value or 0


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


class _Copy(ctypes.Structure):
    """`CUDA_MEMCPY3D` of the driver."""

    _fields_ = [
        ("source_place", ctypes.c_size_t * 4),
        ("source_kind", ctypes.c_int),
        ("source_on_host", ctypes.c_void_p),
        ("source", ctypes.c_ulonglong),
        ("source_array", ctypes.c_void_p * 2),
        ("source_pitches", ctypes.c_size_t * 2),
        ("target_place", ctypes.c_size_t * 4),
        ("target_kind", ctypes.c_int),
        ("target_on_host", ctypes.c_void_p),
        ("target", ctypes.c_ulonglong),
        ("target_array", ctypes.c_void_p * 2),
        ("target_pitches", ctypes.c_size_t * 2),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
    ]


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
    driver.cuGraphAddMemcpyNode.argtypes = [many, many, many, one, many, many]
    driver.cuGraphInstantiateWithFlags.argtypes = [many, many, ctypes.c_ulonglong]
    driver.cuGraphLaunch.argtypes = [many, many]
    driver.cuCtxGetCurrent.argtypes = [many]
    return driver


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")
