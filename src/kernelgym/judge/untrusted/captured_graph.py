"""A window's calls in a CUDA graph, replayed as captured or with inputs that are written late.

Loaded by path in the untrusted process: torch only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import torch

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
_no_grad = torch.no_grad
_Graph, _capturing, _current_stream = (
    torch.cuda.CUDAGraph,
    torch.cuda.graph,
    torch.cuda.current_stream,
)
_handle_of: Any = getattr(_Graph, "raw_cuda_graph", None)


class CapturedGraph:
    """Captures calls, in order; each begins when all earlier ones have ended.

    Args:
        calls: Functions that make one call each.
        graph_order: The module `graph_order.py`.
        held_back: Inputs of each call (`HeldBack`) that `replay_late` writes late; empty if it is
            never asked for.

    Raises:
        Exception: If the calls cannot be captured, or the graph not instantiated.
    """

    def __init__(
        self,
        calls: Iterable[Callable[[], None]],
        graph_order: ModuleType,
        held_back: Sequence[Any] = (),
    ) -> None:
        self._graph, self._held = _Graph(keep_graph=True), held_back
        with _no_grad(), _capturing(self._graph):
            self._calls = graph_order.CapturedCalls(_current_stream().cuda_stream)
            for call in calls:
                call()
                self._calls.end_call()
        handle = _handle_of(self._graph)
        self._calls.order(handle)
        # Not by torch's functions, which a kernel could replace.
        self._calls.instantiate(handle)
        if held_back:
            self._calls.delay(handle, [each.copies() for each in held_back])

    def hold_back(self) -> None:
        """Overwrite the graph's inputs with other values; a late replay writes the real ones."""
        for each in self._held:
            each.hold()

    def replay(self, late: bool = False) -> None:
        """Replay the calls.

        Args:
            late: Whether inputs are written before each call, after the one before it.
        """
        self._calls.launch(_current_stream().cuda_stream, late)
