"""The table of real searches, from their result file; see `benchmarks.tables`."""

from __future__ import annotations

from typing import Any

from benchmarks.table_rows import number, percent, table

__all__ = ["searches"]


def searches(data: Any) -> str:
    """Return a table of searches, goals and loads."""
    head = [
        *("task", "algorithm", "seed", "over the start", "95 % interval", "goal", "over torch"),
        *("goal", "evaluations", "a minute", "in builds", "noise", "load", "host busy"),
    ]
    rows = []
    for each in data["rows"]:
        over_start, over_torch = data["goals"][each["task"]]
        interval = f"{number(each['speedup_low'])} to {number(each['speedup_high'])}"
        rows.append(
            [
                *(each["task"], f"`{each['algorithm']}`", str(each["seed"])),
                *(number(each["speedup"]), interval, f"{over_start:g}"),
                *(number(each["over_torch"]), f"{over_torch:g}" if over_torch else "-"),
                *(str(each["evaluations"]), number(each["evaluations_a_minute"])),
                *(percent(each["share_of_builds"]), percent(each["noise"])),
                *(" to ".join(f"{load:g}" for load in each["load"]),),
                "yes" if each["host_busy"] else "no",
            ]
        )
    limits = f"{data['builds']} evaluations or {data['seconds']:g} s a search"
    return f"{table(head, rows)}\n\nLimits: {limits}."
