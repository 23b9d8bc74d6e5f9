"""The result of the demonstration on a GPU: one JSON file, and a report for a reader."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.learning.gpu_plan import RUNS
from benchmarks.learning.gpu_work import READY, Work
from benchmarks.machine import gpu, machine
from kernelgym.benchmark.numbers.intervals import RateEstimate
from kernelgym_train.demo.report import html_page
from kernelgym_train.demo.results import Demonstration, Specimen, curves_of
from kernelgym_train.demo.scores import Scores

CURVES = (
    *("turn_1/correct_rate", "turn_2/correct_rate", "turn_3/correct_rate"),
    *("kernel/format_rate", "kernel/cheat_rate", "episode/success_rate", "reward/mean"),
    *("groups/with_signal", "train/entropy", "train/kl", "train/grad_norm", "tokens/answer_mean"),
)
TIMES = ("time/model_s", "time/judge_s", "time/play_s", "time/total_s")
BINS = (0.0, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0)


def ran_on(work: Work) -> dict[str, Any]:
    """Return what stages are run on; kept when they are, since the result may be written later."""
    packages = ("torch", "triton", "transformers", "trl", "peft")
    return {
        "machine": {**machine(*packages), **gpu(work.device)},
        "device": work.device,
        "workers": work.workers,
        "ready": READY,
    }


def write_result(work: Work, state: dict[str, Any], out: Path) -> Iterator[Path]:
    """Write the result and the report; yields their paths."""
    result = summary(work, state)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    yield out
    if "before" not in state:
        return
    page = out.with_suffix(".html")
    page.write_text(html_page(demonstration(work, state, result)))
    yield page


def summary(work: Work, state: dict[str, Any]) -> dict[str, Any]:
    """Return all that was found, as JSON data."""
    return {
        "note": (
            f"One seed ({work.plan.seed}): intervals are over problems and say nothing of other "
            "seeds. A model made from nothing; nothing follows for KernelBench."
        ),
        **state["ran"],
        "plan": dataclasses.asdict(work.plan),
        "corpus": state.get("prepare"),
        "warmstart": state.get("warmstart"),
        "labels": state.get("labels"),
        "held_out": {
            name: {key: value for key, value in state[stage].items() if key != "answers"}
            for name, stage in (
                ("before", "before"),
                ("after", "after"),
                ("control", "control_after"),
            )
            if stage in state
        },
        "training": {run: training(work, run) for run in RUNS if run in state},
        "speedup": speedups(state.get("timing")),
        "seconds": state.get("seconds"),
    }


def demonstration(work: Work, state: dict[str, Any], result: dict[str, Any]) -> Demonstration:
    """Return what the report shows."""
    corpus, warm, tokens = state["prepare"], state["warmstart"], state["prepare"]["kernel_tokens"]
    grpo = result["training"]["grpo"]
    named = result["machine"].get("gpu") or result["machine"]["cpu"]
    facts = {
        "model": f"Qwen3 from nothing, {warm['parameters']:,} weights, "
        f"{corpus['vocabulary']} tokens",
        "warm start": f"{corpus['examples']:,} noisy answers, {warm['epochs']:.1f} epochs, "
        f"{warm['seconds']:.0f} s",
        "kernels": f"{tokens['least']} to {tokens['most']} tokens, median {tokens['median']}",
        "families": ", ".join(sorted(corpus["families"])),
        "training": f"{grpo['steps']} steps of at most {work.plan.rows} samples, three turns, "
        f"{grpo['seconds']:.0f} s, {grpo['judged']:.0f} kernels judged",
        "time of training": ", ".join(f"{n} {100 * v:.0f} %" for n, v in grpo["share"].items()),
        "judge": f"strict, evidence on, {result['workers']} workers, on {result['device']}",
        "machine": str(named),
    }
    notes = [result["note"]]
    control = result["training"].get("control")
    for name, table in state.get("control_after", {}).get("tables", {}).items():
        found = scores_from(table)
        steps = control["steps"] if control else 0
        notes.append(
            f"Control, every step's advantages dealt anew among its samples, {steps} steps, held "
            f"out: {name}: right {found.sampled}, parsed {found.parsed}."
        )
    if result["speedup"] is not None and result["speedup"]["own"]:
        held = {name: n for name, n in result["speedup"]["histogram"].items() if n}
        told = ", ".join(f"{name}: {count}" for name, count in held.items())
        notes.append(
            f"Speedups over eager PyTorch of right greedy answers, timed at the end: {told}."
        )
    return Demonstration(
        title="A small model learns from executed kernels on a GPU",
        seed=work.plan.seed,
        facts=facts,
        before={name: scores_from(table) for name, table in state["before"]["tables"].items()},
        after={name: scores_from(table) for name, table in state["after"]["tables"].items()},
        curves=curves_of(work.folder / "runs" / "grpo"),
        seconds=state.get("seconds", {}),
        notes=notes,
        specimens=[
            Specimen(
                problem,
                one["question"],
                *(one["answer"], one["verdict"]),
                *(state["after"]["answers"][problem][name] for name in ("answer", "verdict")),
            )
            for problem, one in state["before"]["answers"].items()
            if problem in state["after"]["answers"]
        ],
    )


def scores_from(data: dict[str, Any]) -> Scores:
    """Return scores from their JSON data."""
    rates = {
        name: RateEstimate(**value) if isinstance(value, dict) and "low" in value else value
        for name, value in data.items()
    }
    at = {int(k): RateEstimate(**value) for k, value in data["pass_at"].items()}
    return Scores(**{**rates, "pass_at": at})


def training(work: Work, run: str) -> dict[str, Any]:
    """Return a run's curves, and where its time went."""
    path = work.folder / "runs" / run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not rows:
        return {"steps": 0}
    total, play, model, judge = (
        sum(row.get(name) or 0.0 for row in rows)
        for name in ("time/total_s", "time/play_s", "time/model_s", "time/judge_s")
    )
    kept = path.parent / "verdicts.jsonl"
    judged = len(kept.read_text().splitlines()) if kept.exists() else 0
    answers = sum(row["batch/turns"] * (row.get("kernel/format_rate") or 0.0) for row in rows)
    return {
        "steps": len(rows),
        "seconds": total,
        "share": {
            "judge": judge / total,
            "sampling": model / total,
            "learning": max(0.0, total - play) / total,
        },
        "judged": judged,
        "hit_rate": 1.0 - judged / max(1.0, answers),
        "rows_most": max(row.get("advantage/samples") or 0.0 for row in rows),
        "curves": {
            name: [None if row.get(name) is None else round(row[name], 4) for row in rows]
            for name in (*CURVES, *TIMES)
            if any(name in row for row in rows)
        },
    }


def speedups(timing: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the timed kernels and their histogram."""
    if timing is None:
        return None
    values = [row["speedup"] for row in timing["speedups"]]
    edges = [*BINS, float("inf")]
    counts = [
        sum(low <= value < high for value in values) for low, high in itertools.pairwise(edges)
    ]
    names = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    return {**timing, "histogram": dict(zip(names, counts, strict=True))}
