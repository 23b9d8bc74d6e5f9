"""Tables of docs/languages.md: kernels of three problems in every language, and their verdicts.

Contract: a function is given the content of a file of `benchmarks.languages.run` and returns
Markdown.
"""

from __future__ import annotations

import math
from typing import Any

from benchmarks.languages.run import MOVED_BYTES
from benchmarks.table_rows import number, percent, table
from kernelgym.languages import LANGUAGES
from kernelgym.prompts.hardware import known_gpu

__all__ = ["batch_times", "kernels", "verdict_times"]

_PROBLEMS = {"rmsnorm": "RMSNorm", "softmax": "softmax", "linear_gelu": "linear layer and GELU"}
_KINDS = ("first", "new_source", "seen_before")


def _in_order(result: tuple[str, Any]) -> tuple[int, str]:
    """Return the place of a language's result in tables: languages as in `LANGUAGES`."""
    language, _, problem = result[0].partition(" ")
    return list(LANGUAGES).index(language), problem


def kernels(data: Any) -> str:
    """Return what became of each language's kernel of the three problems."""
    known, rows = known_gpu(data["machine"]["gpu"]), []
    peak = known.bandwidth_gb_s if known is not None else math.inf
    for key, found in sorted(data["kernels"].items(), key=_in_order):
        language, problem = key.split(" ")
        speeds = [found["speedup"], found["speedup_low"]]
        cells = [f"{speed:.2f}" if speed else "-" for speed in speeds]
        moved, milliseconds = MOVED_BYTES.get(problem), found["kernel_ms"]
        share = moved / (milliseconds * 1e6) / peak if moved and milliseconds else None
        cells.append(percent(share) if share else "-")
        rows.append([f"`{language}`", _PROBLEMS[problem], found["status"], *cells])
    head = ["language", "problem", "status", "speedup", "at least", "share of bandwidth"]
    return table(head, rows)


def verdict_times(data: Any) -> str:
    """Return seconds of verdicts on each language's sample."""
    rows = []
    for language, found in sorted(data["verdicts"].items(), key=_in_order):
        rows.append([f"`{language}`", *(number(found[kind]["s"]) for kind in _KINDS)])
    return table(["language", "first", "new source", "seen before"], rows)


def batch_times(data: Any) -> str:
    """Return the seconds for each of sixteen kernels that four workers judge at once."""
    found = sorted(data["batch"].items(), key=_in_order)
    times = [number(each["s_a_kernel"]) for _, each in found]
    return table([f"`{language}`" for language, _ in found], [times])
