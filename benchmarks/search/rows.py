"""The table of real searches, from their result file; see `benchmarks.tables`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.table_rows import number, percent, table

__all__ = ["busy_host", "decisions", "false_promotions", "offline", "searches"]


def searches(data: Any) -> str:
    """Return a table of searches, goals and loads."""
    head = [
        *(
            "task",
            "algorithm",
            "seed",
            "day",
            "over the start",
            "95 % interval",
            "goal",
            "over torch",
        ),
        *("goal", "evaluations", "a minute", "in builds", "noise", "load", "host busy"),
    ]
    rows = []
    for each in data["rows"]:
        over_start, over_torch = data["goals"][each["task"]]
        interval = f"{number(each['speedup_low'])} to {number(each['speedup_high'])}"
        rows.append(
            [
                *(each["task"], f"`{each['algorithm']}`", str(each["seed"]), each["day"]),
                *(number(each["speedup"]), interval, f"{over_start:g}"),
                *(number(each["over_torch"]), f"{over_torch:g}" if over_torch else "-"),
                *(str(each["evaluations"]), number(each["evaluations_a_minute"])),
                *(_known(each["share_of_builds"]), percent(each["noise"])),
                *(" to ".join(f"{load:g}" for load in each["load"]),),
                "yes" if each["host_busy"] else "no",
            ]
        )
    limits = f"{data['builds']} evaluations or {data['seconds']:g} s a search"
    return f"{table(head, rows)}\n\nLimits: {limits}."


def offline(data: Any) -> str:
    """Return a table of the optimum's share that each algorithm finds in measured tables."""
    at = ("20", "60", "100", "200")
    head = ["table", "failing", "noise", "algorithm", *at, "area"]
    rows = []
    for each in data["rows"]:
        held_out = " (held out)" if each["table"] in data["held_out"] else ""
        for algorithm, found in each["figures"].items():
            shares = [f"{median:.2f} / {tenth:.2f}" for median, tenth in map(found.get, at)]
            rows.append(
                [
                    *(f"{each['table']}{held_out}", percent(each["failing"])),
                    *(percent(each["noise"]), algorithm, *shares, f"{found['area']:+.2f}"),
                ]
            )
    misses = [miss for each in data["rows"] for miss in each["misses"]]
    lines = "\n".join(f"- {miss}" for miss in misses)
    return f"{table(head, rows)}\n\nWhere `auto` misses its goal:\n\n{lines or '- nowhere'}"


def decisions(data: Any) -> str:
    """Return a table of what choosing the next state takes."""
    head = ["algorithm", "decisions", "first hundred, ms", f"last, of {data['states']:,}, ms"]
    rows = [
        [
            *(f"`{name}`", str(found["decisions"])),
            *(f"{median:.1f} / {late:.0f}" for median, late in (found["first"], found["last"])),
        ]
        for name, found in sorted(data["algorithms"].items())
    ]
    return f"{table(head, rows)}\n\nMedian / 95th percentile."


def busy_host(data: Any) -> str:
    """Return a table of one kernel's verdicts beside programs that take the processors."""
    head = ["verdict", "speedup", "interval", "`host_busy`"]
    rows = [
        [
            *(str(place), number(each["speedup"])),
            f"{number(each['low'])} to {number(each['high'])}",
            "yes" if each["host_busy"] else "no",
        ]
        for place, each in enumerate(data["verdicts"], 1)
    ]
    found = data["search"]
    promoted = "promoted none" if found["speedup"] == 1.0 else "promoted one"
    return (
        f"{table(head, rows)}\n\nA search among {found['evaluations']} kernels that are no faster "
        f"{promoted}, in {found['seconds']:.0f} s."
    )


def false_promotions(data: Any) -> str:
    """Return how many searches promoted a kernel that is no faster."""
    rows = [
        ("searches", str(len(data["searches"]))),
        ("of these promoted one", str(data["promoted"])),
        ("noise of the start against itself", _range(each["noise"] for each in data["searches"])),
    ]
    if repeated := data["again"]:
        inside = sum(each["inside"] for each in repeated)
        rows.append(("duels repeated, and in the interval", f"{len(repeated)}, {inside}"))
    return table(("", ""), rows)


def _known(share: float | None) -> str:
    """Return a share, or a dash: older rows did not count builds of many kernels."""
    return "-" if share is None else percent(share)


def _range(values: Iterable[float]) -> str:
    found = sorted(values)
    return f"{percent(found[0])} to {percent(found[-1])}"
