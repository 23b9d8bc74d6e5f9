"""Tables of docs/languages.md: kernels of three problems in every language, and their verdicts.

Contract: a function is given the content of ``languages_h100.json`` and returns Markdown.
"""

from __future__ import annotations

from typing import Any

from benchmarks.table_rows import number, percent, table

__all__ = ["kernels", "verdict_times"]

_PROBLEMS = {"rmsnorm": "RMSNorm", "softmax": "softmax", "linear_gelu": "linear layer and GELU"}
_KINDS = ("first", "new_source", "seen_before")


def kernels(data: Any) -> str:
    """Return what became of each language's kernel of the three problems."""
    rows = []
    for key, found in data["kernels"].items():
        language, problem = key.split(" ")
        speeds = [found["speedup"], found["speedup_low"]]
        cells = [f"{speed:.2f}" if speed else "-" for speed in speeds]
        share = found.get("share_of_bandwidth")
        cells.append(percent(share) if share else "-")
        rows.append([f"`{language}`", _PROBLEMS[problem], found["status"], *cells])
    head = ["language", "problem", "status", "speedup", "at least", "share of bandwidth"]
    return table(head, rows)


def verdict_times(data: Any) -> str:
    """Return seconds of verdicts on each language's sample."""
    rows = []
    for language, found in data["verdicts"].items():
        batch = data.get("batch", {}).get(language)
        cells = [number(found[kind]["s"]) for kind in _KINDS]
        rows.append([f"`{language}`", *cells, number(batch["s_a_kernel"]) if batch else "-"])
    return table(["language", "first", "new source", "seen before", "each of sixteen"], rows)
