"""A problem's own code: what it defines, and how large what it takes and gives is.

Lives in the worker process only, where a problem's source is trusted code.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from kernelgym.judge.tensors import bytes_of
from kernelgym.types import Problem

__all__ = ["input_bytes", "names_of", "output_bytes"]


def names_of(source: str, name: str) -> dict[str, Any]:
    """Run a problem's code, compiled once, and return the names it has defined.

    Args:
        source: The problem's source, trusted code.
        name: What tracebacks call it.

    Raises:
        Exception: Whatever the code raises.
    """
    names: dict[str, Any] = {"__name__": "problem"}
    exec(_code(source, name), names)
    return names


def input_bytes(problem: Problem) -> int:
    """Return how many bytes one set of a problem's inputs takes; 0 if that cannot be told."""
    return _sizes(problem.source, problem.id)[0]


def output_bytes(problem: Problem) -> int:
    """Return how many bytes its output takes; as many as its inputs if that cannot be told."""
    return _sizes(problem.source, problem.id)[1]


@lru_cache(maxsize=64)
def _code(source: str, name: str) -> Any:
    return compile(source, f"<{name}>", "exec")


@lru_cache(maxsize=256)
def _sizes(source: str, name: str) -> tuple[int, int]:
    """Find sizes on a device that computes shapes only, so that it takes no time or memory."""
    given = 0
    try:
        with torch.device("meta"), torch.no_grad():
            names = names_of(source, name)
            drawn = names["get_inputs"]()
            given = bytes_of(drawn)
            output = names["Model"](*names["get_init_inputs"]())(*drawn)
    except Exception:
        return given, given  # not all code runs without values
    return given, bytes_of(output)
