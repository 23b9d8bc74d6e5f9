"""Tables and sentences on learning, examples in prompts, searches, environments and runs.

Contract: a function is given the content of one result file and returns Markdown.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.table_rows import interval, number, percent, table

__all__ = [
    "beside_openevolve",
    "context_cost",
    "copies",
    "counters",
    "driver",
    "effect",
    "env_overhead",
    "false_promotions",
    "gpu_searches",
    "learning_cpu",
    "learning_gpu",
    "learning_tinker",
    "offline",
    "searches",
]


def learning_cpu(data: Any) -> str:
    """Return what the demonstration's model learns, by seed, beside its control."""
    rows = []
    for seed in sorted(data["seeds"], key=lambda each: each["seed"]):
        of = {name: stage["tables"]["compositions"] for name, stage in seed["stages"].items()}
        before, after = of["start"], of["main"]
        rows.append(
            [
                str(seed["seed"]),
                *(interval(each["sampled"]) for each in (before, after, of["shuffled"])),
                *(" to ".join(percent(each["greedy"]["value"]) for each in (before, after)),),
                " to ".join(f"{100 * each['cheats']['value']:.1f} %" for each in (before, after)),
            ]
        )
    return table(["seed", "before", "after", "shuffled rewards", "greedy", "cheats"], rows)


def learning_gpu(data: Any) -> str:
    """Return what a model of 11 million weights learns on a GPU."""
    rows = []
    for name in data["held_out"]["before"]["tables"]:
        of = {when: each["tables"][name] for when, each in data["held_out"].items()}
        both = (of["before"], of["after"])
        rows.append(
            [
                name.replace("_", " "),
                *(interval(of[when]["sampled"]) for when in ("before", "after", "control")),
                " to ".join(percent(each["greedy"]["value"]) for each in both),
                " to ".join(percent(each["cheats"]["value"]) for each in both),
            ]
        )
    run = data["training"]["grpo"]
    judged = sum(run["curves"]["time/judge_s"]) / run["steps"]
    speeds = data["speedup"]["speedups"]
    faster = sum(each["low"] > 1 for each in speeds)
    return (
        table(["held out", "before", "after", "shuffled rewards", "greedy", "cheats"], rows)
        + f"\n\nA step takes {number(run['seconds'] / run['steps'])} s, of which the judge "
        f"{number(judged)} s. Of {len(speeds)} right greedy kernels {faster} are certainly faster "
        "than eager PyTorch."
    )


def learning_tinker(data: Any) -> str:
    """Return what the demonstration's model learns on a Tinker server, by seed and arm."""
    arms = ("start", "main", "near", "off_policy", "shuffled")
    rows = [
        [
            str(row["seed"]),
            *(interval(row["stages"][a]["tables"]["compositions"]["sampled"]) for a in arms),
        ]
        for row in sorted(data["seeds"], key=lambda each: each["seed"])
    ]
    head = ["seed", "before", "after", "with a penalty", "one step off", "shuffled rewards"]
    return table(head, rows)


def effect(data: Any) -> str:
    """Return rates of solved problems with examples in the prompt and without, seeds together."""
    arms = ("none", "first", "adaptive", "first_asked_without")
    found = {(row["table"], row["arm"]): row for row in data["effect"] if row["seed"] == "all"}
    rows = []
    for name in dict.fromkeys(held_out for held_out, _ in found):
        solved = (found[name, arm] | {"value": found[name, arm]["solve_rate"]} for arm in arms)
        problems = found[name, "none"]["problems"]
        rows.append([name.replace("_", " "), str(problems), *map(interval, solved)])
    head = ["held out", "problems", "no examples", "examples", "and repairs after a failure"]
    return table([*head, "taught with examples, asked without"], rows)


def copies(data: Any) -> str:
    """Return how many held-out problems are solved by copying an example."""
    rows = data["copy_agent"]

    def solved(exclusions: str) -> str:
        some = [row for row in rows if row["exclusions"] == exclusions]
        return f"{sum(row['accepted'] for row in some)} of {sum(row['n'] for row in some)}"

    return (
        "From an archive that holds their solutions, an agent that copies one of three examples "
        f"solves {solved('none')} held-out problems with nothing excluded, {solved('1')} without "
        f"entries of the same id or name, and {solved('all')} with all exclusions."
    )


def searches(data: Any) -> str:
    """Return what real searches by `best_first` on the CPU gained, in a sentence."""
    told = []
    for task, some in _by_task(data["rows"], "best_first").items():
        gain, over_torch, count = (
            statistics.median(each[key] for each in some)
            for key in ("speedup", "over_torch", "evaluations")
        )
        goal = f"{data['goals'][task][0]:g}"
        told.append(
            f"{task} {number(gain)} (goal {goal}; {number(over_torch)} of torch, {count:.0f})"
        )
    about = "Searches by `best_first` from plain C++ kernels on a busy two-core host gain, times"
    return f"{about} over the start (share of torch's speed, evaluations): {'; '.join(told)}."


def gpu_searches(data: Any) -> str:
    """Return what searches on a GPU gained over their start, and a random one, by task."""
    plain = [each for each in data["rows"] if not each["ncu_every"]]
    control = _by_task(plain, "random")
    rows = []
    for task, some in _by_task(plain, "tpe").items():
        gains = [each["speedup"] for each in some]
        beside = [each["speedup"] for each in control.get(task, ())]
        over_torch, floor, count, pace = (
            statistics.median(each[key] for each in some)
            for key in ("over_torch", "floor_share", "evaluations", "evaluations_a_minute")
        )
        held = [each["share_of_device"] for each in some if "share_of_device" in each]
        cells = (number(statistics.median(gains)), f"{number(min(gains))} to {number(max(gains))}")
        rows.append(
            [
                *(task, str(len(some)), *cells, number(over_torch), f"{floor:.2f}"),
                *(f"{count:.0f}", f"{pace:.0f}", f"{statistics.median(held):.2f}" if held else ""),
                number(statistics.median(beside)) if beside else "",
            ]
        )
    head = ["task", "searches", "over the start, median", "least to most", "over torch"]
    head += [
        "of a copy's bandwidth",
        "evaluations",
        "evaluations a minute",
        "share of time spent timing",
        "`random`",
    ]
    kept = [n for n, name in enumerate(head) if any(row[n] for row in rows)]
    return table([head[n] for n in kept], [[row[n] for n in kept] for row in rows])


def counters(data: Any) -> str:
    """Return what hardware counters change in searches on a GPU, in a sentence."""
    told = []
    for task, some in _by_task(data["rows"], "best_first").items():
        curves = {(each["seed"], bool(each["ncu_every"])): each["curve"] for each in some}
        seeds = sorted(n for n, on in curves if on and (n, False) in curves)
        sides = [[curves[n, on] for n in seeds] for on in (False, True)]
        count = min(len(each) for side in sides for each in side)
        seconds = min(each[-1][0] for side in sides for each in side)
        at_count = [statistics.median(each[count - 1][1] for each in side) for side in sides]
        at_time = [statistics.median(_best_by(each, seconds) for each in side) for side in sides]
        told.append(
            f"{task} {number(at_count[0])} without and {number(at_count[1])} with them after "
            f"{count} evaluations, {number(at_time[0])} and {number(at_time[1])} after "
            f"{seconds:.0f} s (median of {len(seeds)} seeds)"
        )
    return f"Counters in searches by `best_first`, times over the start: {'; '.join(told)}."


def _best_by(curve: Sequence[Sequence[float]], seconds: float) -> float:
    """Return the best speedup that a search had after so many seconds; 1 for none."""
    return max((best for at, best in curve if at <= seconds), default=1.0)


def beside_openevolve(data: Any) -> str:
    """Return a sentence that compares searchers with one scripted model, in tables or on a GPU."""
    by_table = "share" in data["rows"][0]
    field = "share" if by_table else "speedup"
    found: dict[str, dict[str, list[float]]] = {}
    for each in data["rows"]:
        found.setdefault(each["task"], {}).setdefault(each["searcher"], []).append(each[field])
    told = "; ".join(
        f"{task}: "
        + ", ".join(
            f"`{name}` {number(statistics.median(some))}"
            + (f" ({number(min(some))} to {number(max(some))})" if len(some) > 1 else "")
            for name, some in searchers.items()
        )
        for task, searchers in found.items()
    )
    figure = "by a table: share of the optimum's speed" if by_table else "speedup over the start"
    count, seeds = data["rows"][0]["evaluations"], len({each["seed"] for each in data["rows"]})
    spread = f", median of {seeds} seeds (least to most)" if seeds > 1 else ", one seed"
    return (
        "Beside OpenEvolve, with one scripted model that changes settings of a GPU kernel and "
        f"{count} evaluations each, {figure}{spread}. {told}."
    )


def _by_task(rows: Sequence[Any], algo: str) -> dict[str, list[Any]]:
    """Return the rows of an algorithm, by task."""
    found: dict[str, list[Any]] = {}
    for each in rows:
        if each["algorithm"] == algo:
            found.setdefault(each["task"], []).append(each)
    return found


def offline(data: Any) -> str:
    """Return the optimum's share that each algorithm has after 60 evaluations of a table."""
    some = [row for row in data["rows"] if (row["failing"], row["noise"]) == (0.3, 0.05)]
    rows = [
        [
            f"{row['table']}{' (held out)' if row['table'] in data['held_out'] else ''}",
            *(f"{found['60'][0]:.2f}" for found in row["figures"].values()),
        ]
        for row in some
    ]
    return table(["table", *(f"`{name}`" for name in some[0]["figures"])], rows)


def false_promotions(data: Any) -> str:
    """Return how many searches promoted a kernel that is no faster."""
    inside = sum(each["inside"] for each in data["again"])
    return (
        f"Of {len(data['searches'])} searches among kernels that differ from the start in names "
        f"and comments alone, {data['promoted']} promoted one. {len(data['again'])} duels were "
        f"repeated, and {inside} of them gave a ratio inside the first one's interval."
    )


def env_overhead(data: Any) -> str:
    """Return the milliseconds of a step beside the judge."""
    steps = [each["step_us"] / 1000 for each in data["steps"].values()]
    return (
        f"A step takes {min(steps):.1f} to {max(steps):.1f} ms beside the judge (reading, "
        f"screening, scoring, feedback, next observation); importing kernelgym with Gymnasium "
        f"takes {data['import']['kernelgym_ms']:.0f} ms."
    )


def context_cost(data: Any) -> str:
    """Return the prompt's tokens by context policy, without and with the default budget."""
    last = len(data["thought_tokens"])
    budget = data["budgeted"]
    rows = [
        [
            *(f"`{name}`", f"{tokens[0]:,}", f"{tokens[-1]:,}", f"{sum(tokens):,}"),
            f"{sum(budget['costs'][name]):,}",
        ]
        for name, tokens in data["unlimited"].items()
    ]
    head = ["context", "turn 1", f"turn {last}", "all turns"]
    return table([*head, f"all turns, {budget['tokens']} tokens of history"], rows)


def driver(data: Any) -> str:
    """Return how fast eval runs are driven."""
    turns, memory, overlap = data["turns"], data["memory"], data["overlap"]
    return (
        f"`kernelgym eval` plays {turns['per_s']:.0f} turns a second where policy and judge are "
        f"instant, grows by {memory['growth_bytes'] / 1e6:.1f} MB over {memory['episodes']:,} "
        f"episodes, and takes {overlap['over_slower']:.2f} times as long as the slower of policy "
        "and judge alone."
    )
