"""Tables of what the rules on kernels cost and find, from their result files; see `tables`."""

from __future__ import annotations

from typing import Any

from benchmarks.table_rows import number, shown, table

__all__ = ["device_share_cost", "front_end_share", "strict_cost"]


def device_share_cost(data: Any) -> str:
    """Return what asking for the time of a GPU's kernels costs."""
    head = [
        *("kernel", "evidence s, without", "with", "verdict s, without", "with"),
        *("speedup, without", "with", "`custom_share`, without", "with"),
    ]
    rows = []
    for each in data["kernels"]:
        measured = (each[name] for name in ("evidence_s", "wall_s", "speedup", "custom_share"))
        cells = (number(pair[how]) for pair in measured for how in ("without", "with"))
        rows.append([f"`{each['kernel']}`", *cells])
    most = f"The most that it adds to evidence: {data['most_s'] * 1e3:.0f} ms."
    return f"{table(head, rows)}\n\n{most}"


def strict_cost(data: Any) -> str:
    """Return verdicts a second by both rulesets, and their ratio."""
    head = ["ruleset", "verdicts a second", "calls each"]
    rows = [
        [f"`{each['ruleset']}`", number(each["per_s"]), number(each["calls"])]
        for each in data["rulesets"]
    ]
    ratios = data["ratios"]
    told = (
        f"Median of the {data['rounds']} rounds' ratios: {data['ratio']:.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}; the goal is 0.8)."
    )
    return f"{table(head, rows)}\n\n{told}"


def front_end_share(data: Any) -> str:
    """Return how many right answers the front end accepts, by run."""
    head = ["run", "learned by", "right answers", "kernels", "accepted", "judged anew"]
    rows = [
        [
            *(each["run"], f"`{each['learned_by']}`"),
            *(str(each["right_answers"]), str(each["kernels"]), shown(each["share"])),
            ", ".join(f"{status} {count}" for status, count in each["statuses"].items()),
        ]
        for each in data["runs"]
    ]
    return f"{table(head, rows)}\n\nRight answers of the last {data['steps']} steps."
