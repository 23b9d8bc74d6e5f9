"""The learning demonstration on a Tinker server, over several seeds.

Run ``python -m benchmarks.learning.tinker [--seeds 0,1,2] [--steps 25] [--arms main,near,...]
[--out FILE]`` after ``make tinker-server`` has made the server's environment once. Each seed has a
server of its own on loopback, started and ended here, which serves the seed's warm-started model.
A seed varies everything, as in `benchmarks.learning.cpu`, whose stages these are. Arms:

- ``main`` learns from rewards, by the demonstration's settings;
- ``near`` is held near the base model, by the penalty that the demonstration has with TRL;
- ``shuffled`` is the control of ``near``: every step's advantages are dealt anew among its samples.
  Without the penalty, noise alone would move the model far;
- ``off_policy`` is ``main`` one step off: a step is played while the one before is learned from.

Model and problems of a seed are copied from ``--prepared`` if that folder was prepared for the seed
by this plan, and are made otherwise. What is done is kept in
``--work``, by seed and stage: run the same again, and it goes on with what is missing.

It does not cover the hosted service: its queues, its speed and its larger models.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning.cpu import FULL_PLAN, HEADLINE, START, finish, parser_of, run_stage
from benchmarks.machine import machine
from kernelgym.records.jsonlines import read_lines
from kernelgym_train.demo.plan import TINY_PLAN, Plan, on_backend
from kernelgym_train.demo.results import as_data
from kernelgym_train.demo.settings import BY_BACKEND, SETTINGS
from kernelgym_train.demo.stages import prepare
from tests.support.tinker_server import PYTHON, running
from tests.tinker_server.engine import SHORTEST


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """What differs between arms."""

    kind: str
    """The demonstration's arm that it is."""
    settings: tuple[str, ...] = ()


NEAR = ("optimiser.kl_beta=0.2",)
ARMS = {
    "main": Arm("main"),
    "near": Arm("main", NEAR),
    "shuffled": Arm("shuffled", NEAR),
    "off_policy": Arm("main", ("tinker.off_policy=1",)),
}
PLAN = dataclasses.replace(FULL_PLAN, steps=25)
CONTROL_WITHIN = 0.10
"""Most that the control's rate may differ from the one before training."""
PACKAGES = ("torch", "triton", "transformers", "tinker", "tokenizers")
PARTS = {
    "model_s": "time/model_s",
    "judge_s": "time/judge_s",
    "optimiser_s": "time/train_s",
    "snapshot_s": "time/snapshot_s",
}
"""Parts of the learning, and the metric that each is the sum of."""
GAP = "train/gap_max"
TABLES = "tables"


def main() -> int:
    options = _options()
    if not PYTHON.exists():
        print(
            f"error: there is no {PYTHON}, which has the server; `make tinker-server` makes it",
            file=sys.stderr,
        )
        return 2
    plan = on_backend(TINY_PLAN if options.tiny else PLAN, "tinker")
    if options.steps is not None:
        plan = dataclasses.replace(plan, steps=options.steps)
    recorded = machine(*PACKAGES)
    failed = [what for seed in options.seeds for what in run_seed(options, plan, seed)]
    result = {
        "machine": recorded,
        "load_at_end": round(os.getloadavg()[0], 2),
        "server": "skyrl 0.4.0, JAX on the CPU, through tests/tinker_server",
        "plan": _plain(plan),
        **assemble(options.work, options.seeds),
    }
    return finish(result, table(result), options.out, failed)


def _options() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    parser = parser_of(__doc__, ARMS, _arms, "runs/learning_tinker")
    add = parser.add_argument
    add("--steps", type=int, help="optimiser steps of an arm; 25 if not given")
    add("--workers", type=int, default=cores, help="of the judge")
    add(
        "--prepared",
        type=Path,
        default=Path("runs/demo"),
        help="prepared folder, taken for the seed that it was made with",
    )
    return parser.parse_args()


def _arms(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in ARMS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(ARMS)}")
    return names


def run_seed(options: argparse.Namespace, plan: Plan, seed: int) -> list[str]:
    """Run what is missing of a seed on its own server; return failures."""
    folder = options.work.absolute() / f"seed{seed}"
    stages = [START, *options.arms]
    if all((folder / f"{stage}.json").is_file() for stage in stages):
        return []
    failed: list[str] = []
    take_prepared(options.prepared, folder, plan, seed)
    prepare(folder, plan, seed)
    started = time.monotonic()
    with running(folder / START, folder / "server") as server:
        print(f"seed {seed}  server up in {time.monotonic() - started:.0f} s", flush=True)
        for stage in stages:
            arm = ARMS.get(stage, Arm(stage))
            settings = (*plan.settings, f"tinker.base_url={server.url}", *arm.settings)
            served = dataclasses.replace(plan, settings=settings)
            result = folder / f"{stage}.json"
            done_before = result.is_file()
            try:
                told = run_stage(options.work, served, seed, stage, 1, options.workers, arm.kind)
                if not done_before:
                    note_circumstances(result)
            except Exception as error:  # the others go on
                traceback.print_exception(error)
                failed.append(f"seed {seed}, {stage}: {type(error).__name__}: {error}")
            else:
                print(told, flush=True)
    return failed


def note_circumstances(result: Path) -> None:
    """Add to a stage's result when and where it ran, under what load, and how its server padded.

    Stages of one file may be of several machines and days.
    """
    found = json.loads(result.read_text())
    ran = machine()
    found["ran"] = {name: ran[name] for name in ("date", "cpu", "cores")}
    found["ran"] |= {"load_at_end": ran["load"], "padded_to": SHORTEST}
    half = result.with_suffix(".half")
    half.write_text(json.dumps(found) + "\n")
    half.rename(result)


def take_prepared(prepared: Path, folder: Path, plan: Plan, seed: int) -> bool:
    """Copy a prepared folder if it is the seed's; return whether it is."""
    try:
        about = json.loads((prepared / START / "prepared.json").read_text())
    except (OSError, ValueError):
        return False
    if (about.get("seed"), about.get("plan")) != (seed, plan.start_digest):
        return False
    if not (folder / START).exists():
        for name in ("problems", START):  # the model last: with it, the folder counts as prepared
            shutil.copytree(prepared / name, folder / name, dirs_exist_ok=True)
    return True


def assemble(work: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the results of what is done."""
    rows = []
    for seed in seeds:
        folder = work / f"seed{seed}"
        stages = {
            stage: json.loads((folder / f"{stage}.json").read_text()) | _of_run(folder / stage)
            for stage in (START, *ARMS)
            if (folder / f"{stage}.json").is_file()
        }
        if START in stages:
            rows.append({"seed": seed, "stages": stages})
    return {"headline": HEADLINE, "seeds": rows, "goals": goals(rows)}


def _of_run(run: Path) -> dict[str, Any]:
    """Return seconds by part and the largest gap of a run, if any."""
    if not (run / "metrics.jsonl").is_file():
        return {}
    rows = [row for _, row in read_lines(run / "metrics.jsonl")]
    return {
        "parts": {part: sum(row.get(name, 0.0) for row in rows) for part, name in PARTS.items()},
        "gap_max": max((row[GAP] for row in rows if GAP in row), default=None),
        "updates": sum(row["train/updates"] for row in rows),
    }


def goals(rows: Sequence[Mapping[str, Any]]) -> dict[str, bool | None]:
    """Return whether every seed meets each goal.

    None if none fails, but one was not played.
    """

    def rates(row: Mapping[str, Any], *stages: str) -> list[Any] | None:
        found = [row["stages"].get(stage, {}).get(TABLES, {}).get(HEADLINE) for stage in stages]
        return None if None in found else [each["sampled"] for each in found]

    def every(arm: str, meets: Any) -> bool | None:
        asked = [rates(row, START, arm) for row in rows]
        known = [pair for pair in asked if pair is not None]
        if not all(meets(*pair) for pair in known):
            return False
        return True if known and len(known) == len(asked) else None

    return {
        "rises_with_intervals_apart": every("main", lambda a, b: b["low"] > a["high"]),
        "control_stays": every(
            "shuffled", lambda a, b: abs(b["value"] - a["value"]) <= CONTROL_WITHIN
        ),
    }


def _plain(plan: Plan) -> dict[str, Any]:
    data = as_data(plan)
    data["scope"] = data["scope"] | {"operators": sorted(plan.scope.operators or ())}
    arms = {name: list(arm.settings) for name, arm in ARMS.items()}
    return data | {"learning": [*SETTINGS, *BY_BACKEND["tinker"]], "arms": arms}


def table(result: Mapping[str, Any]) -> str:
    """Return the result for a reader."""
    lines = [f"{result['headline']:<18}{'sampled':>22}{'greedy':>8}{'seconds':>9}"]
    for row in result["seeds"]:
        for name, stage in row["stages"].items():
            found = stage[TABLES][result["headline"]]
            rate, greedy = found["sampled"], found["greedy"]
            told = f"{rate['value']:.3f} ({rate['low']:.3f}-{rate['high']:.3f})"
            single = "-" if greedy is None else f"{greedy['value']:.3f}"
            seconds = f"{stage['seconds']:.0f}"
            lines.append(f"seed {row['seed']} {name:<11}{told:>22}{single:>8}{seconds:>9}")
    for name, met in result["goals"].items():
        told_met = "not known" if met is None else "met" if met else "NOT met"
        lines.append(f"goal {name.replace('_', ' ')}: {told_met}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
