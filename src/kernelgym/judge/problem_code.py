"""Runs a problem's own code: returns the names it defines and the sizes of inputs and outputs.

Used only in the worker process, where a problem's source is trusted code.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from kernelgym.judge.tensors import bytes_of
from kernelgym.types import Problem

__all__ = ["input_bytes", "names_of", "output_bytes"]


def names_of(source: str, name: str) -> dict[str, Any]:
    """Run a problem's code and return the names that it defines.

    A source is compiled only once.

    Args:
        source: The problem's source, trusted code.
        name: Its file name in tracebacks.

    Raises:
        Exception: Whatever the code raises.
    """
    names: dict[str, Any] = {"__name__": "problem"}
    exec(_code(source, name), names)
    return names


def input_bytes(problem: Problem) -> int:
    """Return the bytes of one set of inputs; 0 if unknown."""
    return _sizes(problem.source, problem.id)[0]


def output_bytes(problem: Problem) -> int:
    """Return the bytes of the output; of the inputs if unknown."""
    return _sizes(problem.source, problem.id)[1]


@lru_cache(maxsize=64)
def _code(source: str, name: str) -> Any:
    return compile(source, f"<{name}>", "exec")


@lru_cache(maxsize=256)
def _sizes(source: str, name: str) -> tuple[int, int]:
    """Return the bytes of inputs and outputs.

    The code runs on torch's ``meta`` device, which computes shapes only, so tensors take neither
    time nor memory.
    """
    given = 0
    try:
        with torch.device("meta"), torch.no_grad():
            names = names_of(source, name)
            drawn = names["get_inputs"]()
            given = bytes_of(drawn)
            output = names["Model"](*names["get_init_inputs"]())(*drawn)
    except Exception:
        return given, given  # some code needs values, which the meta device does not have
    return given, bytes_of(output)
