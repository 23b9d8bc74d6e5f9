"""Tables of what finished runs rest on, from their result files; see `benchmarks.tables`."""

from __future__ import annotations

from typing import Any

from benchmarks.table_rows import number, percent, table
from kernelgym.benchmark.numbers.intervals import wilson

__all__ = ["baselines", "device", "driver", "judged_import", "noise", "report"]


def noise(data: Any) -> str:
    """Return how often a reference is called faster than itself."""
    head = [
        *("problem", "ms", "verdicts", "timed", "called faster", "certainly faster"),
        *("certainly slower", "mean speedup", "deviation", "half interval", "`strict` says"),
    ]
    rows = []
    for each in data["problems"]:
        said = each["strict"]
        counts = [str(each["verdicts"]), str(each["timed"])]
        if not each["timed"]:
            rows.append([_short(each["problem"]), "-", *counts, *["-"] * 6, said])
            continue
        called = [each[what] for what in ("faster", "certainly_faster", "certainly_slower")]
        shares = [f"{each[what]:.4f}" for what in ("speedup", "deviation", "half_width")]
        told = [*counts, *map(str, called), *shares, said]
        rows.append([_short(each["problem"]), number(each["kernel_ms"]), *told])
    timed = sum(each["timed"] for each in data["problems"])
    said = []
    for name, what in (("fast_1 as measured", "faster"), ("certain fast_1", "certainly_faster")):
        called = sum(each.get(what, 0) for each in data["problems"])
        if timed:
            low, high = wilson(called / timed, timed)
            said.append(f"{name} {percent(called / timed)} ({100 * low:.0f} to {100 * high:.0f})")
    told = f"Of {timed} verdicts: {', '.join(said)}; 95 % intervals over verdicts (Wilson)."
    return f"{table(head, rows)}\n\n{told}"


def judged_import(data: Any) -> str:
    """Return statuses by ruleset, and how many claims they agree with."""
    rulesets = data["rulesets"]
    statuses = sorted({status for each in rulesets.values() for status in each["statuses"]})
    head = ["ruleset", "kernels", *statuses, "claims agree", "disagree", "not judged"]
    rows = [
        [
            f"`{name}`",
            str(each["kernels"]),
            *(str(each["statuses"].get(status, 0)) for status in statuses),
            *(str(each["claims"].get(what, 0)) for what in ("agree", "disagree", "not judged")),
        ]
        for name, each in rulesets.items()
    ]
    parts = [table(head, rows)]
    moved = [
        [*pair.split(" -> "), str(count)]
        for pair, count in data["kernelbench_to_strict"].items()
        if len(set(pair.split(" -> "))) > 1
    ]
    if moved:
        parts += ["Kernels on which the rulesets differ:"]
        parts += [table(["`kernelbench`", "`strict`", "kernels"], moved)]
    told = [
        [f"`{name}`", _short(each["problem"]), each["differs"]]
        for name, found in rulesets.items()
        for each in found["disagreements"]
        if name == "kernelbench"
    ]
    if told:
        parts += ["Where `kernelbench` and the claim disagree:"]
        parts += [table(["ruleset", "problem", "difference"], told)]
    if data["not_run"]:
        parts.append(f"Not run: {'; '.join(data['not_run'])}")
    return "\n\n".join(parts)


def baselines(data: Any) -> str:
    """Return medians in ms by problem and mode, with the seconds of compiling."""
    problems = data["problems"]
    modes = list(dict.fromkeys(mode for each in problems.values() for mode in each))
    rows, failures = [], []
    for name, each in problems.items():
        cells = []
        for mode in modes:
            found = each.get(mode, {})
            cells.append(f"{found['median']:.4g}" if "median" in found else "-")
            if found.get("message"):
                failures.append([_short(name), mode, _one_line(found["message"])])
        eager = each.get("eager", {}).get("median")
        compiled = {
            mode: found["median"]
            for mode, found in each.items()
            if mode != "eager" and "median" in found
        }
        best = min(compiled, key=compiled.__getitem__, default="")
        faster = f"{eager / compiled[best]:.2f} ({best})" if eager and best else "-"
        longest = max((found.get("compile_s", 0.0) for found in each.values()), default=0.0)
        rows.append([_short(name), *cells, faster, number(longest)])
    head = ["problem", *modes, "eager over best", "longest compiling, s"]
    parts = [table(head, rows)]
    if failures:
        parts += ["Without a time:", table(["problem", "mode", "because"], failures)]
    left = data["asked"] - data["measured"] - data["failed"]
    parts.append(
        f"{data['measured']} of {data['asked']} timed, {data['failed']} failed, {left} not begun."
    )
    return "\n\n".join(parts)


def device(data: Any) -> str:
    """Return the measured rates of a device."""
    rates = [
        [f"matrix product, {name}", f"{rate:.4g} TFLOP/s" if rate else "not available"]
        for name, rate in data["matmul_tflops"].items()
    ]
    rows = [
        ["copies, read and written", f"{data['copy_gb_s']:,.0f} GB/s"],
        *rates,
        ["launch of a small operation", f"{data['launch_us']:.3g} us"],
        ["start of a context", f"{data['context_s']:.3g} s"],
        *([name, value] for name, value in data.get("clocks_after", {}).items()),
    ]
    return table(["what", "measured"], rows)


def driver(data: Any) -> str:
    """Return how fast eval runs are driven, beside what was asked for."""
    turns, memory, overlap = data["turns"], data["memory"], data["overlap"]
    rows = [
        ["turns a second, policy and judge instant", number(turns["per_s"]), "200 at least"],
        [
            f"memory's growth over {memory['episodes']:,} episodes",
            f"{memory['growth_bytes'] / 1e6:.1f} MB",
            "100 MB at most",
        ],
        [
            f"{overlap['answers']:,} answers of 2 s, 32 at a time, a judge of 20 a second: wall "
            "time over the slower side alone",
            f"{overlap['over_slower']:.2f}",
            "1.3 at most",
        ],
    ]
    return f"{table(['what', 'measured', 'goal'], rows)}\n\n{_load(data)}"


def report(data: Any) -> str:
    """Return what making a large run's report takes."""
    rows = [
        [
            form,
            *(f"{each['seconds']:.1f}", f"{each['cpu_s']:.1f}" if "cpu_s" in each else "-"),
            f"{each['max_rss_bytes'] / 1e6:,.0f}",
            *(f"{each['files']:,}", f"{each['bytes'] / 1e6:.1f}"),
        ]
        for form, each in data["forms"].items()
    ]
    goals = data["goals"]
    most = f"{goals['max_rss_bytes'] / 1e6:,.0f}"
    rows.append(["goal", f"{goals['seconds']:.0f}", "", most, "", ""])
    head = ["form", "seconds", "of CPU time", "memory, MB", "files", "size, MB"]
    return f"{table(head, rows)}\n\n{_load(data)}"


def _load(data: Any) -> str:
    """Return how busy the machine was with other work."""
    machine = data["machine"]
    return f"Other programs ran meanwhile: load {machine['load']} on {machine['cores']} cores."


def _short(identity: str) -> str:
    return identity.removeprefix("KernelBench/")


def _one_line(text: str) -> str:
    """Return the start of a message, as a cell of a table."""
    told = " ".join(text.split()).replace("|", "/")
    return told if len(told) <= 160 else f"{told[:160]}..."
