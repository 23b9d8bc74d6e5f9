"""Tables and sentences on verdicts: how long, how many, how well they repeat, what is caught.

Contract: a function is given the content of one result file and returns Markdown.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from benchmarks.table_rows import interval, number, table, whole

__all__ = [
    "baselines",
    "conformance",
    "cpu_build",
    "cpu_hour",
    "noise",
    "one_verdict",
    "red_team",
    "repeatability",
    "soak",
    "starts",
    "stream",
]

PROBLEMS = {
    "l1_088_gelu": "L1/88 GELU, 0.27 GB",
    "l1_001_matmul_tf32": "L1/1 matrix product in TF32 (wrong)",
    "l1_036_rms_norm": "L1/36 RMSNorm, 7.5 GB",
    "l2_040_epilogue": "L2/40 matrix product and epilogue",
    "l1_047_sum": "L1/47 sum, 8.6 GB",
    "l1_019_relu": "L1/19 ReLU, 6.4 GB",
    "l1_023_softmax": "L1/23 softmax, 6.4 GB",
    "l1_019_relu_cuda": "L1/19 ReLU in CUDA",
}


def one_verdict(data: Any) -> str:
    """Return seconds of single verdicts, and of each of sixteen at once, beside KernelBench's."""
    cases, groups, rows = data["cases"], data["groups"], []
    for case, title in PROBLEMS.items():
        ours, strict = (cases[f"{case} {ruleset}"] for ruleset in ("kernelbench", "strict"))
        single = (cases[f"{case} theirs"]["wall_s"], ours["wall_s"], strict["wall_s"])
        many = [groups.get(f"{case} {r} workers=4") for r in ("kernelbench", "strict")]
        cells = [*map(number, single), number(strict["known_s"])]
        rows.append([title, *cells, *(number(each["each_s"]) if each else "-" for each in many)])
    head = ["problem", "KernelBench", "`kernelbench`", "`strict`", "`strict`, seen"]
    return table([*head, "`kernelbench`, of 16", "`strict`, of 16"], rows)


def starts(data: Any) -> str:
    """Return the seconds until the first verdict of a new evaluator."""
    used = [each["used"]["first_s"] for each in data["starts"].values()]
    empty = [each["empty"]["first_s"] for each in data["starts"].values()]
    return (
        f"A new evaluator of one to four workers gives its first verdict after {min(used):.1f} to "
        f"{max(used):.1f} s, with an empty cache {min(empty):.1f} to {max(empty):.1f} s."
    )


def cpu_build(data: Any) -> str:
    """Return the seconds of building a C++ extension."""
    build = data["cpp_build"]
    return (
        f"A C++ extension is built in {build['unseen_median_s']:.1f} s on the CPU "
        f"({build['first_ever_s']:.1f} s the first time on a machine), and a source that was seen "
        f"is loaded in {build['known_median_s']:.2f} s (medians)."
    )


def cpu_hour(data: Any) -> str:
    """Return verdicts an hour on the CPU, by language and number of workers."""
    titles = {
        "triton": "Triton, interpreted",
        "cpp": "C++, untimed",
        "cpp_timed": "C++, timed",
    }
    rows = [
        [title, *(whole(3600 * data[key][f"workers_{n}"]["per_s"]) for n in (1, 2, 3))]
        for key, title in titles.items()
    ]
    memory = data["memory"]
    return (
        table(["kernels", "1 worker", "2 workers", "3 workers"], rows)
        + f"\n\nOver {memory['verdicts']:,} Triton verdicts no process grew by more than "
        f"{max(memory['growth_mib'].values()):g} MiB."
    )


def stream(data: Any) -> str:
    """Return verdicts an hour for the groups that a training run sends, by number of GPUs."""
    found, rows = data["stream"], []
    for key, each in found.items():
        gpus, workers, own_time, _ = key.split(" ")
        alone = found.get(f"gpus=1 {workers} {own_time} own_time", {}).get("per_hour")
        times = number(each["per_hour"] / alone) if alone else "-"
        about = [gpus.partition("=")[2], workers.partition("=")[2], own_time, str(each["verdicts"])]
        measured = [whole(each["per_hour"]), times, number(each["mean_s"])]
        rows.append([*about, *measured, str(each["preparations"])])
    rows.sort(key=lambda row: (row[2], int(row[0])))
    head = ["GPUs", "workers a GPU", "device-time evidence", "verdicts", "an hour", "times one GPU"]
    (before,) = data["stream_all_gpus_in_reach"].values()
    per_s = {(row["reach"], row["gpus"]): row["per_s"] for row in data["contexts"]}
    return table([*head, "mean verdict, s", "preparations"], rows) + (
        "\n\nGPUs of one host share a lock of the driver. When every process could open all four "
        f"GPUs, they gave {whole(before['per_hour'])} verdicts an hour, a mean verdict took "
        f"{number(before['mean_s'])} s, and the host made {per_s['all', 4]:g} CUDA contexts a "
        "second. When a process can open only the GPU on which its kernel is judged, as in the "
        f"judge, the host makes {per_s['one', 4]:g} on four GPUs and {per_s['one', 1]:g} on one "
        "(`python -m benchmarks.judge.contexts`)."
    )


def repeatability(data: Any) -> str:
    """Return how far verdicts on one kernel vary."""
    rows = []
    for each in data["sizes"]:
        other = each.get("kernelbench")
        ours = [
            f"{each['smallest']:.3f} to {each['largest']:.3f}",
            f"{100 * each['variation']:.2f} %",
        ]
        theirs = f"{100 * other['variation']:.2f} % of {other['runs']} runs" if other else "not run"
        rows.append([f"{each['kernel_ms']:.3f}", str(each["runs"]), *ours, theirs])
    return table(["kernel, ms", "verdicts", "speedup", "variation", "KernelBench's"], rows)


def noise(data: Any) -> str:
    """Return how often a reference is called faster than itself."""
    found, timed = data["all"], sum(each["timed"] for each in data["problems"])
    deviations = [each["deviation"] for each in data["problems"] if each["timed"]]
    certain = (interval(found[name]) for name in ("certainly_faster", "certainly_slower"))
    faster, slower = certain
    return (
        f"Of {timed} verdicts on references of KernelBench, judged as kernels by `kernelbench`, "
        f"{faster} called the reference faster than itself with a whole interval, {slower} slower. "
        f"The speedup's standard deviation was {min(deviations):.4f} to {max(deviations):.4f}."
    )


def conformance(data: Any) -> str:
    """Return how often both judges give the same answer."""
    counts = data["counts"]
    differ = ", ".join(
        f"{name.partition(': ')[2]} {n}" for name, n in counts.items() if name != "agree"
    )
    return (
        f"`kernelbench` agrees with KernelBench on {counts['agree']} of {data['kernels']} kernels "
        f"over {data['problems']} problems. The others show differences that [the judge's "
        f"page](judge.md#kernelbenchs-verdict) lists: {differ}."
    )


def red_team(data: Any) -> str:
    """Return what became of the corpus, by language."""
    counts = Counter((e["language"], e["kind"], e["result"]) for e in data["entries"])
    rows = []
    for language in sorted({language for language, _, _ in counts}):
        of = Counter({key[1:]: n for key, n in counts.items() if key[0] == language})
        kinds = {
            kind: sum(of[key] for key in of if key[0] == kind) for kind in ("exploit", "honest")
        }
        caught, still = of["exploit", "caught"], of["exploit", "open"]
        cells = (kinds["exploit"], caught, still, kinds["exploit"] - caught - still)
        rows.append([language, *map(str, (*cells, kinds["honest"], of["honest", "passed"]))])
    accepted = [e for e in data["entries"] if e["result"] == "open"]
    opened = ", ".join(f"`{e['name']}`" for e in accepted)
    head = ["language", "exploits", "caught", "known to get through", "others not caught"]
    told = table([*head, "honest kernels", "passed"], rows)
    return f"{told}\n\nKnown to get through (each one's file in the corpus says why): {opened}."


def soak(data: Any) -> str:
    """Return what long mixed runs left behind."""
    parts = data["parts"]
    verdicts, hostile = (sum(part[key] for part in parts) for key in ("verdicts", "hostile"))
    faults = sum(len(part["faults"]) for part in parts)
    left = sum(len(each) for part in parts for each in part["left"].values())
    where = "on a GPU" if parts[0]["device"] != "cpu" else "on the CPU"
    return (
        f"{whole(verdicts)} verdicts on mixed kernels {where}, {hostile} of them hostile: {faults} "
        f"wrong verdicts, and {left} processes, files or blocks of memory left behind."
    )


def baselines(data: Any) -> str:
    """Return how much faster than eager PyTorch its fastest compiled mode is."""
    ratios = {}
    for name, modes in data["problems"].items():
        compiled = [m["median"] for mode, m in modes.items() if mode != "eager" and "median" in m]
        ratios[name.removeprefix("KernelBench/")] = modes["eager"]["median"] / min(compiled)
    most = max(ratios, key=ratios.__getitem__)
    slower = sum(ratio < 0.98 for ratio in ratios.values())
    return (
        f"On {len(ratios)} problems at fp32 the fastest mode of `torch.compile` is "
        f"{statistics.median(ratios.values()):.2f} times as fast as eager PyTorch in the median, "
        f"{ratios[most]:.1f} times at most ({most}); on {slower} it is slower by more than 2 %."
    )
