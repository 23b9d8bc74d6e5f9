"""Benchmarks: metrics over verdicts, reports of runs, and KernelBench's own terms.

`report` is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelgym.benchmark.reporting import report

__all__ = ["report"]

_MODULE_OF = {"report": "kernelgym.benchmark.reporting"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'kernelgym.benchmark' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value
