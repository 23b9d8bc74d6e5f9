"""Benchmarks of policies: eval runs, statistics, reports, and exchange with KernelBench.

`run` plays a policy over problems, `numbers` are the statistics, `pages` the report's page, and
`interchange` reads and writes KernelBench's files. `evaluate` and `report` are imported when they
are first used.

May import every room of kernelgym but `adapters`, `serve` and `cli`; never `kernelgym_train`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelgym.benchmark.reporting import report
    from kernelgym.benchmark.run.evaluate import evaluate

__all__ = ["evaluate", "report"]

_MODULE_OF = {
    "evaluate": "kernelgym.benchmark.run.evaluate",
    "report": "kernelgym.benchmark.reporting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'kernelgym.benchmark' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value
