"""The tables of docs/performance.md: one function a table, from a result file's content.

Contract: a function is given the file's content and returns Markdown; it reads nothing else, and
makes up nothing. `benchmarks.tables` says which file each is for and what its columns mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.judge.broken_device import BREAKS

__all__ = [
    "broken_device",
    "cases",
    "conformance",
    "context_cost",
    "env_overhead",
    "group_rows",
    "host_capacity",
    "judge_cpu",
    "learning_cpu",
    "learning_gpu",
    "learning_tinker",
    "red_team",
    "repeatability",
    "retrieval",
    "several_gpus",
    "soak",
    "starts",
]

STAGES = ("build", "load", "check", "evidence", "timing")
PROBLEMS = {
    "l1_088_gelu": "L1/88 GELU, 0.27 GB",
    "l1_001_matmul_tf32": "L1/1 matrix product in TF32",
    "l1_036_rms_norm": "L1/36 RMSNorm, 7.5 GB",
    "l2_040_epilogue": "L2/40 matrix product and epilogue",
    "l1_047_sum": "L1/47 sum, 8.6 GB",
    "l1_019_relu": "L1/19 ReLU, 6.4 GB",
    "l1_023_softmax": "L1/23 softmax, 6.4 GB",
    "l1_019_relu_cuda": "L1/19 ReLU in CUDA",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float) -> str:
    """Return a number with three digits that count, and no more than two behind the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(value: float) -> str:
    """Return a share as whole percent."""
    return f"{100 * value:.0f} %"


def cases(data: Any) -> str:
    """Return the time of single verdicts, beside KernelBench where it was run."""

    def stage(each: Any, name: str) -> str:
        if each["status"] != "correct" and name in ("evidence", "timing"):
            return "-"
        return number(sum(run["stages"][f"{name}_s"] for run in each["runs"]) / len(each["runs"]))

    found = data["cases"]
    theirs = any(key.endswith(" theirs") for key in found)
    rows = []
    for case, title in PROBLEMS.items():
        ours, strict = found[f"{case} kernelbench"], found[f"{case} strict"]
        row = [f"{title} ({ours['status']})"]
        row += [number(found[f"{case} theirs"]["wall_s"])] if theirs else []
        row += [number(each["wall_s"]) for each in (ours, strict)]
        row += [number(each["known_s"]) for each in (ours, strict)]
        rows.append(row + [stage(strict if s == "evidence" else ours, s) for s in STAGES])
    head = ["problem", *(["KernelBench"] if theirs else []), "`kernelbench`", "`strict`"]
    return table([*head, "`kernelbench`, seen", "`strict`, seen", *STAGES], rows)


def group_rows(data: Any) -> str:
    """Return the time for each of sixteen kernels that four workers judge."""
    found, rows = data["groups"], []
    for key, each in found.items():
        case, ruleset, workers = key.split(" ", 2)
        if ruleset == "theirs":
            continue
        row = [PROBLEMS[case], f"`{ruleset}`", workers.removeprefix("workers=")]
        if f"{case} theirs 1" in found:
            walls = (data["cases"][f"{case} theirs"], found[f"{case} theirs 1"])
            other = sum(wall["wall_s"] for wall in walls) / len(walls)
            row += [number(other), number(each["each_s"]), number(other / each["each_s"])]
        else:
            row += [number(each["each_s"])]
        row += [f"{min(each['speedups']):.3f} to {max(each['speedups']):.3f}"]
        rows.append(row)
    beside = ["KernelBench, s each", "ours, s each", "times less"]
    head = ["problem", "ruleset", "workers"]
    head += beside if any(len(row) == 7 for row in rows) else ["s each"]
    return table([*head, "speedups, least to most"], rows)


def starts(data: Any) -> str:
    """Return how long new workers take for their first kernels."""
    rows = []
    for key, each in data["starts"].items():
        _, ruleset, workers = key.split(" ")
        used, empty = each["used"], each["empty"]
        cells = (empty["first_s"], empty["all_s"], used["first_s"], used["all_s"])
        rows.append([f"`{ruleset}`", workers.partition("=")[2], *map(number, cells)])
    return table(
        ["ruleset", "workers", "first, empty cache", "all", "first, used cache", "all"], rows
    )


def several_gpus(name: str) -> Callable[[Any], str]:
    """Return what makes the table of verdicts in an hour on several GPUs."""

    def rows(data: Any) -> str:
        found = data[name]
        alone = {key.rpartition(" gpus=")[0]: v for key, v in found.items() if v["gpus"] == 1}
        made = []
        for key, each in sorted(found.items(), key=lambda item: item[0]):
            case, ruleset = key.split(" ")[:2]
            times = each["per_hour"] / alone[key.rpartition(" gpus=")[0]]["per_hour"]
            hour = f"{each['per_hour']:,.0f}"
            made.append([PROBLEMS[case], f"`{ruleset}`", str(each["gpus"]), hour, f"{times:.2f}"])
        return table(["problem", "ruleset", "GPUs", "verdicts an hour", "times one GPU"], made)

    return rows


def host_capacity(data: Any) -> str:
    """Return how many verdicts a second one host's driver and processors bear."""
    rows = [
        [each["machine"]["gpu"], f"`{row['ruleset']}`", str(row["workers"]), number(row["per_s"])]
        for each in data["machines"]
        for row in each["capacity"]
    ]
    return table(["GPU", "ruleset", "workers", "verdicts a second"], rows)


def broken_device(data: Any) -> str:
    """Return what one broken device of several costs."""
    rows = [
        [
            BREAKS[row["breaks"]],
            str(row["devices"]),
            f"{row['blamed']} of {row['honest']}",
            str(row["unavailable"]),
            str(row["moved"]),
            f"{row['hostile_blamed']} of {row['hostile']}",
            number(row["out_after_s"]) if row["out_after_s"] is not None else "never out",
            number(row["batch_s"]),
        ]
        for row in data["rows"]
    ]
    head = ["the broken device", "devices", "blamed", "unavailable", "moved", "hostile blamed"]
    return table([*head, "out after, s", "batch, s"], rows)


def judge_cpu(data: Any) -> str:
    """Return verdicts a second on the CPU, what a build takes, and how far memory grows."""
    titles = {
        "triton": "Triton, interpreted",
        "cpp": "C++, untimed",
        "cpp_timed": "C++, timed",
    }
    workers = ("workers_1", "workers_2", "workers_3")
    rows = [
        [title, *(number(data[key][each]["per_s"]) for each in workers)]
        for key, title in titles.items()
    ]
    speed = table(["verdicts a second", "1 worker", "2 workers", "3 workers"], rows)
    build, memory = data["cpp_build"], data["memory"]
    seconds = ("first_ever_s", "unseen_median_s", "unseen_max_s", "known_median_s", "known_max_s")
    head = ["C++ build, s", "with an empty library folder", "source not seen, median", "most"]
    built = table(
        [*head, "source seen, median", "most"],
        [["", *(number(build[key]) for key in seconds)]],
    )
    grown = max(memory["growth_mib"].values())
    return (
        f"{speed}\n\n{built}\n\n{memory['verdicts']:,} Triton verdicts on end by "
        f"{memory['workers']} workers: {number(memory['per_s'])} a second; no process grew by more "
        f"than {grown:g} MiB."
    )


def repeatability(data: Any) -> str:
    """Return how far verdicts on one kernel vary."""
    rows = []
    for each in data["sizes"]:
        other = each.get("kernelbench")
        rows.append(
            [
                f"{each['kernel_ms']:.3f}",
                str(each["runs"]),
                f"{each['speedup']:.3f}",
                f"{each['smallest']:.3f} to {each['largest']:.3f}",
                f"{100 * each['variation']:.2f} %",
                percent(each["coverage"]["both"]),
                f"{100 * other['variation']:.2f} % of {other['runs']} runs" if other else "not run",
            ]
        )
    return table(
        [
            *("kernel, ms", "verdicts", "mean speedup", "least to most", "variation"),
            *("interval holds the mean", "variation of KernelBench's"),
        ],
        rows,
    )


def conformance(data: Any) -> str:
    """Return how often both judges give the same answer."""
    rows = [
        [name.replace("documented: ", "differ: "), str(n)] for name, n in data["counts"].items()
    ]
    head = [f"{data['kernels']} kernels over {data['problems']} problems", "kernels"]
    return table(head, rows)


def red_team(data: Any) -> str:
    """Return what became of the corpus, by language."""
    counts = Counter((e["language"], e["kind"], e["result"]) for e in data["entries"])
    rows = []
    for language in sorted({language for language, _, _ in counts}):
        kinds = {
            kind: sum(n for key, n in counts.items() if key[:2] == (language, kind))
            for kind in ("exploit", "honest")
        }
        caught, still = counts[language, "exploit", "caught"], counts[language, "exploit", "open"]
        through = kinds["exploit"] - caught - still
        passed = counts[language, "honest", "passed"]
        cells = (kinds["exploit"], caught, still, through, kinds["honest"], passed)
        rows.append([language, *map(str, cells)])
    opened = "; ".join(f"`{e['name']}`: {e['open']}" for e in data["entries"] if e["open"])
    return (
        table(
            [
                *("language", "exploits", "caught", "known to get through", "others not caught"),
                *("honest kernels", "passed"),
            ],
            rows,
        )
        + f"\n\nKnown to get through: {opened}."
    )


def soak(data: Any) -> str:
    """Return what a long mixed run left behind."""
    rows = []
    for part in data["parts"]:
        left = sum(len(each) for each in part["left"].values())
        cells = (part["verdicts"], part["hostile"], part["workers"], part["wall_s"], part["per_s"])
        rows.append([*(f"{cell:,}" for cell in cells), str(len(part["faults"])), str(left)])
    return table(
        ["verdicts", "of hostile kernels", "workers", "s", "a second", "faults", "left behind"],
        rows,
    )


def shown(rate: Any) -> str:
    """Return a rate with its interval, in percent."""
    return f"{percent(rate['value'])} ({100 * rate['low']:.0f} to {100 * rate['high']:.0f})"


def learning_cpu(data: Any) -> str:
    """Return what the demonstration's model learns, by seed and arm."""
    seeds = sorted(data["seeds"], key=lambda each: each["seed"])
    learned, arms = [], []
    for seed in seeds:
        of = {name: stage["tables"] for name, stage in seed["stages"].items()}
        before, after = of["start"]["compositions"], of["main"]["compositions"]
        learned.append(
            [
                str(seed["seed"]),
                *(shown(before["sampled"]), shown(after["sampled"])),
                *(percent(each["greedy"]["value"]) for each in (before, after)),
                " to ".join(percent(each["pass_at"]["16"]["value"]) for each in (before, after)),
                " to ".join(f"{100 * each['cheats']['value']:.1f} %" for each in (before, after)),
                " to ".join(
                    percent(of[name]["shapes"]["sampled"]["value"]) for name in ("start", "main")
                ),
            ]
        )
        named = ("shuffled", "rejection_sft", "clean_sft", "evidence_off")
        arms.append(
            [str(seed["seed"]), *(shown(of[name]["compositions"]["sampled"]) for name in named)]
        )
    return "\n\n".join(
        [
            table(
                [
                    *("seed", "sampled, before", "after", "greedy, before", "after"),
                    *("pass@16", "cheats", "other shapes, sampled"),
                ],
                learned,
            ),
            table(
                [
                    *("seed", "shuffled rewards", "rejection sampling", "clean corpus"),
                    "no evidence asked for",
                ],
                arms,
            ),
        ]
    )


def learning_tinker(data: Any) -> str:
    """Return what the demonstration's model learns on a Tinker server, and what its steps take."""
    learned, parts = [], []
    for row in sorted(data["seeds"], key=lambda each: each["seed"]):
        before = row["stages"]["start"]["tables"]["compositions"]
        for name, stage in row["stages"].items():
            if name == "start":
                continue
            after = stage["tables"]["compositions"]
            which = [str(row["seed"]), f"`{name}`"]
            greedy = (percent(each["greedy"]["value"]) for each in (before, after))
            rates = (shown(each["sampled"]) for each in (before, after))
            learned.append([*which, *rates, *greedy])
            seconds = (number(seconds) for seconds in stage["parts"].values())
            gap = "not kept" if stage["gap_max"] is None else f"{stage['gap_max']:.1e}"
            ran = (str(stage["ran"][name]) for name in ("date", "cpu", "padded_to"))
            steps = f"{stage['updates']:.0f}"
            parts.append([*which, steps, number(stage["seconds"]), *seconds, gap, *ran])
    head = ["seed", "arm", "sampled, before", "after", "greedy, before", "after"]
    timed = ["model s", "judge s", "update s", "snapshot s", "largest gap of log-probabilities"]
    timed += ["date", "processor", "padded to"]
    return "\n\n".join(
        [table(head, learned), table(["seed", "arm", "updates", "whole stage s", *timed], parts)]
    )


def learning_gpu(data: Any) -> str:
    """Return what a model of 11 million weights learns on a GPU, and what its steps take."""
    rows = []
    for name in data["held_out"]["before"]["tables"]:
        of = {when: each["tables"][name] for when, each in data["held_out"].items()}
        rows.append(
            [
                name.replace("_", " "),
                *(shown(of[when]["sampled"]) for when in ("before", "after")),
                *(percent(of[when]["greedy"]["value"]) for when in ("before", "after")),
                " to ".join(percent(of[w]["within"]["value"]) for w in ("before", "after")),
                " to ".join(percent(of[w]["cheats"]["value"]) for w in ("before", "after")),
                shown(of["control"]["sampled"]),
            ]
        )
    held_out = table(
        [
            *("held out", "sampled, before", "after", "greedy, before", "after"),
            *("within three turns", "cheats", "shuffled rewards, sampled"),
        ],
        rows,
    )
    steps = []
    for ready, run, curves in (
        (data["ready"], data["training"]["grpo"], data["training"]["grpo"]["curves"]),
        (1, data["with_one_ready"]["training"]["grpo"], data["with_one_ready"]["training"]["grpo"]),
    ):
        judged = sum(curves["time/judge_s"]) / run["steps"]
        share = [percent(run["share"][part]) for part in ("judge", "sampling", "learning")]
        steps.append([str(ready), number(run["seconds"] / run["steps"]), number(judged), *share])
    head = ["`standby`", "s a step", "s of it the judge", "judge", "sampling", "learning"]
    stages = table(
        ["stage", *data["seconds"]], [["s", *(number(s) for s in data["seconds"].values())]]
    )
    speeds = data["speedup"]["histogram"]
    fast = table(["speedup", *speeds], [["right greedy kernels", *map(str, speeds.values())]])
    return "\n\n".join([held_out, table(head, steps), stages, fast])


def context_cost(data: Any) -> str:
    """Return the prompt's tokens before each turn, by context policy."""
    turns = [f"turn {turn}" for turn in range(1, len(data["thought_tokens"]) + 1)]

    def cells(name: str, tokens: list[int]) -> list[str]:
        return [f"`{name}`", *(f"{each:,}" for each in tokens), f"{sum(tokens):,}"]

    unlimited, budgeted = data["unlimited"], data["budgeted"]["costs"]
    changed = [name for name in unlimited if unlimited[name] != budgeted[name]]
    head = ["context", *turns, "all"]
    return (
        table(head, [cells(name, tokens) for name, tokens in unlimited.items()])
        + f"\n\nUnder the default budget of {data['budgeted']['tokens']} tokens all stay as they "
        f"are but {', '.join(f'`{name}`' for name in changed)} (0: the episode is cut):\n\n"
        + table(head, [cells(name, budgeted[name]) for name in changed])
    )


def retrieval(data: Any) -> str:
    """Return how often similar problems and repairs are found, and what a search takes."""

    def spelling(row: Any) -> str:
        return "by another author" if row["renamed"] else "as written"

    synthetic = [row for row in data["recall"] if row["suite"] == "Synthetic"]
    families = [row for row in data["recall"] if row["suite"] == "KernelBench"]
    built, kept = data["build"], data["remembered"]
    parts = [
        table(
            [
                *("level", "method", "spelling", "queries (answerable)"),
                *("hit@3", "covered", "on the page"),
            ],
            [
                [
                    f"L{row['level']}",
                    row["method"],
                    spelling(row),
                    f"{row['n']} ({row['answerable']})",
                    *(f"{row[key]:.2f}" for key in ("hit3", "covered3", "on_page")),
                ]
                for row in synthetic
            ],
        )
    ]
    if families:
        parts += [
            "KernelBench's problems, each asked of the others of its level: is the first, or one "
            "of three, of its operator family?",
            table(
                ["level", "method", "spelling", "queries", "first", "of three"],
                [
                    [
                        f"L{row['level']}",
                        row["method"],
                        spelling(row),
                        str(row["n"]),
                        *(f"{row[key]:.2f}" for key in ("family1", "family3")),
                    ]
                    for row in families
                ],
            ),
        ]
    parts += [
        "Repairs: has the kernel that the first repair, or one of three, began with the same "
        "defect as the kernel asked about?",
        table(
            ["found by", "queries", "first", "of three"],
            [
                [row["key"], str(row["n"]), f"{row['same1']:.2f}", f"{row['same3']:.2f}"]
                for row in data["repairs"]
            ],
        ),
        "One search, CPU time of one thread:",
        table(
            ["entries", "engine", "median, ms", "99th percentile, ms", "memory, MB"],
            [
                [
                    f"{row['entries']:,}",
                    row["index"],
                    *(f"{row[key]:.2f}" for key in ("p50_ms", "p99_ms")),
                    f"{row['mb']:.0f}",
                ]
                for row in data["search"]
            ],
        ),
        f"Making the embedded index of {built['entries']:,} entries took {built['cpu_s']:.1f} s of "
        f"CPU time, {built['wall_s']:.1f} s on a machine that did other work. Entries that are "
        f"remembered add {kept['added_ms']:.2f} ms to a prompt.",
    ]
    return "\n\n".join(parts)


def env_overhead(data: Any) -> str:
    """Return what a step costs beside the judge, and what importing costs."""
    rows = [
        [language, *(f"{each[key] / 1000:.2f}" for key in ("step_us", "vector_step_us"))]
        for language, each in data["steps"].items()
    ]
    loaded = data["import"]
    keys = ("gymnasium_ms", "kernelgym_ms", "with_envs_extra_ms")
    head = ["import, ms", "gymnasium", "kernelgym with it", "environments made, more"]
    return "\n\n".join(
        [
            table(["language", "step, ms", "step of a vector environment, ms"], rows),
            table(head, [["", *(f"{loaded[key]:.0f}" for key in keys)]]),
        ]
    )
