"""The learning demonstration over several seeds, with the arms it is compared with.

Run ``python -m benchmarks.learning.cpu [--seeds 0,1,2] [--arms main,shuffled,...] [--out FILE]``.
A seed varies everything: problems drawn, noisy answers, weights, sampling. All arms of a seed begin
with the same warm-started model and are evaluated on the same held-out problems under the ruleset
``strict``; numbers of problems, answers and steps are `PLAN`'s, fixed before anything is run. Arms:
see `benchmarks.learning.arms`.

What is done is kept in the folder ``--work``, by seed and arm: run the same again, and it goes on
with what is missing (an arm that was cut off begins anew). ``--processes`` arms run side by side,
each with its share of the cores.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.learning.arms import ARMS, rules_of, run_arm
from benchmarks.machine import machine
from kernelgym.errors import UnknownName
from kernelgym_train.demo.heldout import HeldOut
from kernelgym_train.demo.plan import CPU_PLAN, TINY_PLAN, Plan
from kernelgym_train.demo.results import as_data, curves_of
from kernelgym_train.demo.settings import BY_BACKEND, SETTINGS
from kernelgym_train.demo.stages import evaluate_tables, open_judge, prepare
from kernelgym_train.rollout.verdict_log import VerdictLog

HELD_OUT = {"compositions": 30, "shapes": 12, "composed": 4, "unseen_operator": 4}
FULL_PLAN = dataclasses.replace(
    CPU_PLAN, fit=dataclasses.replace(CPU_PLAN.fit, epochs=5), steps=44, samples=16
)
"""Plan that learns about as much as the model can; `make demo` stops earlier."""
PLAN = dataclasses.replace(FULL_PLAN, held_out=HELD_OUT)
HEADLINE = "compositions"
START = "start"
GOALS = {
    "before_at_most": 0.50,
    "after_at_least": 0.90,
    "control_within": 0.10,
    "control_parses_at_least": 0.80,
}


def main() -> int:
    options = _options()
    packages = ("torch", "triton", "transformers", "trl", "peft", "tokenizers")
    recorded = machine(*packages)
    plan = TINY_PLAN if options.tiny else PLAN
    options.work.mkdir(parents=True, exist_ok=True)
    failed = _run_all(options, plan)
    result = assemble(options.work, options.seeds, options.arms)
    result = {"machine": recorded, "plan": as_data(_plain(plan)), **result}
    return finish(result, table(result), options.out, failed)


def finish(result: Mapping[str, Any], told: str, out: Path | None, failed: Sequence[str]) -> int:
    """Print and write a result and what failed; returns the exit code."""
    print(told)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=2) + "\n")
    for what in failed:
        print(f"failed: {what}", file=sys.stderr)
    return 1 if failed else 0


def parser_of(
    doc: str | None, arms: Iterable[str], arm_type: Callable[[str], list[str]], work: str
) -> argparse.ArgumentParser:
    """Return a parser of the options that all learning benchmarks have."""
    parser = argparse.ArgumentParser(description=str(doc).partition("\n")[0])
    add = parser.add_argument
    add("--seeds", type=_numbers, default=[0, 1, 2], help="seeds, such as 0,1,2")
    add("--arms", type=arm_type, default=list(arms), help=f"arms, of {','.join(arms)}")
    add("--work", type=Path, default=Path(work), help="folder that keeps what is done")
    add("--out", type=Path, help="write the numbers to this JSON file")
    add("--tiny", action="store_true", help="go through all stages; learns nothing")
    return parser


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__, ARMS, _arms, "runs/learning_cpu")
    add = parser.add_argument
    add("--processes", type=int, default=1, help="seeds and arms run side by side")
    add("--threads", type=int, help="of torch, in each; the cores divided by the processes if None")
    add("--workers", type=int, help="of the judge, in each; as --threads if None")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _arms(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        try:
            rules_of(name)
        except UnknownName as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return names


def _run_all(options: argparse.Namespace, plan: Plan) -> list[str]:
    """Run what is missing: of each seed first the start, then the arms; return what failed."""
    cores = os.cpu_count() or 1
    threads = options.threads or max(1, cores // options.processes)
    workers = options.workers or threads
    failed: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:

        def ask(seed: int, stage: str) -> Future[str]:
            return pool.submit(run_stage, options.work, plan, seed, stage, threads, workers)

        running = {ask(seed, START): (seed, START) for seed in options.seeds}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                seed, stage = running.pop(future)
                try:
                    print(future.result(), flush=True)
                except Exception as error:  # the others go on
                    traceback.print_exception(error)
                    failed.append(f"seed {seed}, {stage}: {type(error).__name__}: {error}")
                    continue
                if stage == START:
                    running |= {ask(seed, arm): (seed, arm) for arm in options.arms}
    return failed


def run_stage(
    work: Path, plan: Plan, seed: int, stage: str, threads: int, workers: int, arm: str = ""
) -> str:
    """Run the start of a seed, or one of its arms, unless that is done.

    It returns a line about it. `arm` is what the stage learns by, where that is not its name.
    """
    import torch

    torch.set_num_threads(threads)
    folder = work.absolute() / f"seed{seed}"
    result = folder / f"{stage}.json"
    told = f"seed {seed}  {stage}"
    if result.is_file():
        return f"{told}: done before"
    started, cpu = time.monotonic(), time.process_time()
    prepared = prepare(folder, plan, seed)
    if stage != START and (folder / stage).exists():
        shutil.rmtree(folder / stage)  # it was cut off: without its result it was never done
    verdicts = folder / f"verdicts.{stage}.jsonl"
    policy = None
    found: dict[str, Any] = {"seed": seed, "stage": stage}
    with contextlib.ExitStack() as closing, open_judge(workers) as judge:
        known = VerdictLog(judge, verdicts)
        if stage != START:
            rules = rules_of(arm or stage)
            other = None if rules == judge.capabilities.ruleset else open_judge(workers, rules)
            try:
                rewarding = known if other is None else VerdictLog(other, verdicts)
                policy = run_arm(arm or stage, prepared, rewarding, closing, name=stage)
            finally:
                if other is not None:
                    other.close()
            found["learning_s"] = time.monotonic() - started
        tables = evaluate_tables(prepared, known, policy)
        found["judged"] = known.status.misses
    found |= {
        "about": dict(prepared.about),
        "tables": {name: as_data(each.scores) for name, each in tables.items()},
        "by_problem": {name: _by_problem(each) for name, each in tables.items()},
        "curves": curves_of(folder / stage),
        "seconds": time.monotonic() - started,
        "cpu_s": time.process_time() - cpu,
    }
    half = result.with_suffix(".half")
    half.write_text(json.dumps(as_data(found)) + "\n")
    half.rename(result)
    return f"{told}: {_headline(found)}, {found['seconds']:.0f} s"


def assemble(work: Path, seeds: Sequence[int], arms: Sequence[str]) -> dict[str, Any]:
    """Return the results of what is done."""
    rows = []
    for seed in seeds:
        folder = work / f"seed{seed}"
        stages = {
            stage: json.loads((folder / f"{stage}.json").read_text())
            for stage in (START, *arms)
            if (folder / f"{stage}.json").is_file()
        }
        if START in stages:
            rows.append(_row(seed, stages))
    return {"headline": HEADLINE, "seeds": rows, "goals": dict(_goals(rows))}


def _row(seed: int, stages: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    def of(stage: str, *path: str) -> Any:
        value: Any = stages.get(stage, {}).get("tables", {}).get(HEADLINE)
        for key in path:
            value = None if value is None else value.get(key)
        return value

    def rate(stage: str, *path: str) -> Any:
        return of(stage, *path, "value")

    return {
        "seed": seed,
        "before_sampled": rate(START, "sampled"),
        "after_sampled": rate("main", "sampled"),
        "before_greedy": rate(START, "greedy"),
        "after_greedy": rate("main", "greedy"),
        "control_after_sampled": rate("shuffled", "sampled"),
        "control_parse_rate": rate("shuffled", "parsed"),
        "rejection_sft_after": rate("rejection_sft", "sampled"),
        "clean_sft_after": rate("clean_sft", "sampled"),
        "evidence_off_after": rate("evidence_off", "sampled"),
        "evidence_off_cheat_after": rate("evidence_off", "cheats"),
        "pass16_before": rate(START, "pass_at", "16"),
        "pass16_after": rate("main", "pass_at", "16"),
        "cheat_before": rate(START, "cheats"),
        "cheat_after": rate("main", "cheats"),
        "retry_after_failure": rate("main", "retry"),
        "blind_second_try": rate("main", "blind"),
        "tokens_per_answer": of("main", "tokens_per_answer"),
        "n": of(START, "n"),
        "seconds": sum(stages[s]["seconds"] for s in (START, "main") if s in stages),
        "stages": stages,
    }


def _goals(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool | None]]:
    """Yield whether every seed meets a goal; None if none fails, but one has not come to it."""

    def every(*names: str, meets: Any) -> bool | None:
        values = [[row[name] for name in names] for row in rows]
        known = [some for some in values if None not in some]
        if not all(meets(*some) for some in known):
            return False
        return True if known and len(known) == len(values) else None

    yield "before_met", every("before_sampled", meets=lambda x: x <= GOALS["before_at_most"])
    yield "after_met", every("after_sampled", meets=lambda x: x >= GOALS["after_at_least"])
    within = GOALS["control_within"]
    yield (
        "control_met",
        every(
            "before_sampled",
            "control_after_sampled",
            meets=lambda start, end: abs(end - start) <= within,
        ),
    )
    least = GOALS["control_parses_at_least"]
    yield "control_parses_met", every("control_parse_rate", meets=lambda x: x >= least)


def _by_problem(table: HeldOut) -> dict[str, list[int]]:
    """Return right first answers and all of them, by problem."""
    found: dict[str, list[int]] = {}
    for rollout in table.sampled:
        if played := rollout.trajectory.turns:
            counted = found.setdefault(rollout.trajectory.problem.id, [0, 0])
            counted[0] += played[0].verdict.correct
            counted[1] += 1
    return found


def _headline(found: Mapping[str, Any]) -> str:
    scores = found["tables"][HEADLINE]
    told = []
    for name in ("sampled", "greedy", "cheats", "parsed"):
        value = scores[name]
        told.append(f"{name} {'-' if value is None else format(value['value'], '.3f')}")
    return "  ".join(told)


def _plain(plan: Plan) -> dict[str, Any]:
    data = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    scope = dataclasses.asdict(plan.scope)
    scope["operators"] = sorted(plan.scope.operators or ())
    return data | {"scope": scope, "learning": [*SETTINGS, *BY_BACKEND["trl"]]}


def table(result: Mapping[str, Any]) -> str:
    """Return the result for a reader."""
    names = [f"seed {row['seed']}" for row in result["seeds"]]
    lines = [f"{result['headline']:<26}" + "".join(f"{name:>10}" for name in names)]
    for name in result["seeds"][0] if result["seeds"] else ():
        if name in ("seed", "stages"):
            continue
        cells = [row[name] for row in result["seeds"]]
        told = ["-" if c is None else f"{c:.3f}" if c < 10 else f"{c:.0f}" for c in cells]
        lines.append(f"{name:<26}" + "".join(f"{cell:>10}" for cell in told))
    for name, met in result["goals"].items():
        told_met = "not known" if met is None else "met" if met else "NOT met"
        lines.append(f"goal {name.removesuffix('_met')}: {told_met}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
