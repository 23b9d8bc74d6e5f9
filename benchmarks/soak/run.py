"""Thousands of mixed verdicts, one in five hostile: are all right, and is nothing left behind?

Run ``python -m benchmarks.soak.run [--device cpu|cuda:0] [--verdicts N] [--out FILE]``. The kernels
are those of `cases.py`, each of which says what a right answer is; the order is the seed's.
Judged under `strict` with limits cut, so that what hangs is soon over. Afterwards no process, file,
shared memory, open file or device memory may be left, and this process must not have grown. Exit
code 0: all of that holds; 1: something does not; 3: it holds as far as the budget went. A soak too
long for one go can be run in parts, each with a seed of its own and ``--add``.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import gpu, machine
from benchmarks.soak.cases import SoakCase, draw, load_soak_cases, problem
from benchmarks.soak.watch import Watch, below, open_files, processes, resident_mib
from kernelgym.judge import LocalEvaluator
from kernelgym.rulesets import RULESETS, Limits, Ruleset
from kernelgym.types import Job, Verdict

GROWTH_MIB = 24.0
"""How much this process may grow after its first fifth."""
SHOWN = 20


def rules(device: str, run_s: float) -> Ruleset:
    """Return `strict` with limits fit for a soak."""
    limits = Limits(run_s=run_s, output_bytes=1 << 20, file_bytes=1 << 24)
    if device == "cpu":
        limits = dataclasses.replace(limits, memory_bytes=1 << 29, open_files=64)
    return dataclasses.replace(RULESETS["strict"], limits=limits)


def judge_all(
    evaluator: LocalEvaluator, cases: list[SoakCase], deadline: float
) -> tuple[list[tuple[int, Verdict]], list[dict[str, Any]]]:
    """Judge the cases in order, as long as there is time, and sample resources on the way."""
    ours = problem(evaluator.capabilities.device)

    def jobs() -> Iterator[Job]:
        for case in cases:
            if time.monotonic() > deadline:
                return
            yield Job(ours, case.kernel)

    found: list[tuple[int, Verdict]] = []
    samples: list[dict[str, Any]] = []
    started, step = time.monotonic(), max(1, len(cases) // 20)
    for index, verdict in evaluator.evaluate_iter(jobs()):
        found.append((index, dataclasses.replace(verdict, log="")))
        if verdict.status.value not in cases[index].fair:
            print(f"UNFAIR {cases[index].name}: {verdict.status.value}: {verdict.message[:300]}")
        if len(found) % step == 0:
            workers = [pid for pid, _ in below(os.getpid(), processes())]
            samples.append(
                {
                    "verdicts": len(found),
                    "wall_s": round(time.monotonic() - started, 1),
                    "caller_mib": round(resident_mib(os.getpid()), 1),
                    "caller_files": open_files(os.getpid()),
                    "processes": len(workers),
                }
            )
            print(" ".join(f"{key} {value}" for key, value in samples[-1].items()), flush=True)
    return found, samples


def by_case(cases: list[SoakCase], found: list[tuple[int, Verdict]]) -> list[dict[str, Any]]:
    """Return one row per case: how often, with which statuses, how long."""
    grouped: dict[str, list[tuple[SoakCase, Verdict]]] = collections.defaultdict(list)
    for index, verdict in found:
        grouped[cases[index].name].append((cases[index], verdict))
    rows = []
    for name, judged in sorted(grouped.items(), key=lambda item: (item[1][0][0].hostile, item[0])):
        case = judged[0][0]
        statuses = collections.Counter(verdict.status.value for _, verdict in judged)
        rows.append(
            {
                "case": name,
                "hostile": case.hostile,
                "fair": sorted(case.fair),
                "count": len(judged),
                "statuses": dict(statuses),
                "unfair": sum(
                    count for status, count in statuses.items() if status not in case.fair
                ),
                "median_s": round(statistics.median(verdict.wall_s for _, verdict in judged), 3),
                "max_s": round(max(verdict.wall_s for _, verdict in judged), 3),
            }
        )
    return rows


def faults(
    result: dict[str, Any], started: int, found: list[tuple[int, Verdict]], left: dict[str, Any]
) -> list[str]:
    """Return everything that ought not to be."""
    faults = [f"{row['case']}: {row['statuses']}" for row in result["cases"] if row["unfair"]]
    missing = sorted(set(range(started)) - {index for index, _ in found})
    if missing or len(found) != started:
        faults.append(f"{started} jobs gave {len(found)} verdicts; missing {missing[:SHOWN]}")
    for kind, what in left.items():
        if what:
            faults.append(f"left behind, {kind}: {len(what)}, such as {what[:SHOWN]}")
    samples = result["samples"]
    if len(samples) >= 5:
        early, late = samples[len(samples) // 5]["caller_mib"], samples[-1]["caller_mib"]
        if late > early + GROWTH_MIB:
            faults.append(f"this process grew from {early} to {late} MiB")
    return faults


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Run the soak; returns everything found."""
    known = load_soak_cases(options.device, alone=options.workers == 1)
    cases = draw(known, options.verdicts, options.seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        temporary = folder / "tmp"
        temporary.mkdir()
        # Workers inherit it: whatever they or theirs leave in it is found.
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        started = time.monotonic()
        watch = Watch(folder, options.device)
        with LocalEvaluator(
            options.device,
            rules(options.device, options.run_s),
            workers=options.workers,
            cache_dir=folder / "cache",
        ) as evaluator:
            found, samples = judge_all(evaluator, cases, started + options.budget_s)
        wall_s = time.monotonic() - started
        left = watch.left(folder / "cache" / "scratch", temporary)
        tempfile.tempdir = None
        del os.environ["TMPDIR"]
    begun = 1 + max((index for index, _ in found), default=-1)
    result = {
        "device": options.device,
        "isolation": sorted({verdict.isolation for _, verdict in found if verdict.isolation}),
        "seed": options.seed,
        "workers": options.workers,
        "asked": len(cases),
        "verdicts": len(found),
        "hostile": sum(cases[index].hostile for index, _ in found),
        "wall_s": round(wall_s, 1),
        "per_s": round(len(found) / wall_s, 2),
        "most_processes": watch.peak,
        "processes_seen": len(watch.seen),
        "left": left,
        "cases": by_case(cases, found),
        "samples": samples,
        "unfair": [
            {"case": cases[index].name, "status": verdict.status.value, "message": verdict.message}
            for index, verdict in found
            if verdict.status.value not in cases[index].fair
        ][:SHOWN],
    }
    return {**result, "faults": faults(result, begun, found, left)}


def total(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all parts of a soak come to."""
    return {
        "verdicts": sum(part["verdicts"] for part in parts),
        "hostile": sum(part["hostile"] for part in parts),
        "wall_s": round(sum(part["wall_s"] for part in parts), 1),
        "faults": [fault for part in parts for fault in part["faults"]],
        "parts": parts,
    }


def table(result: dict[str, Any]) -> str:
    """Return the result for a reader."""
    lines = [f"{'case':<24}{'':<9}{'count':>6}{'unfair':>8}{'median s':>10}{'max s':>8}  statuses"]
    for row in result["cases"]:
        statuses = ", ".join(f"{status} {count}" for status, count in row["statuses"].items())
        lines.append(
            f"{row['case']:<24}{'hostile' if row['hostile'] else '':<9}{row['count']:>6}"
            f"{row['unfair']:>8}{row['median_s']:>10.2f}{row['max_s']:>8.2f}  {statuses}"
        )
    lines.append(
        f"{result['verdicts']} of {result['asked']} verdicts, {result['hostile']} hostile, "
        f"{result['wall_s']:.0f} s ({result['per_s']:.1f} a second), "
        f"{result['processes_seen']} processes seen, at most {result['most_processes']} at once"
    )
    for kind, what in result["left"].items():
        lines.append(f"left behind, {kind}: {len(what) or 'none'}")
    lines += [f"FAULT {fault}" for fault in result["faults"]] or ["no fault"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--verdicts", type=int, default=2000, help="how many")
    parser.add_argument("--workers", type=int, default=2, help="kernels judged at once")
    parser.add_argument("--seed", type=int, default=0, help="of the choice and its order")
    # On a GPU, Triton compiles while it counts, and threads that a kernel leaves spin beside it.
    parser.add_argument("--run-s", type=float, help="limit of one kernel; 8, on a GPU 20")
    parser.add_argument(
        "--budget-s", type=float, default=3600.0, help="begin no verdict after that"
    )
    parser.add_argument("--out", type=Path, help="write what was found to this JSON file")
    parser.add_argument("--add", action="store_true", help="keep the parts that FILE holds")
    options = parser.parse_args()
    if options.run_s is None:
        options.run_s = 8.0 if options.device == "cpu" else 20.0
    recorded = {**machine("torch", "triton"), **gpu(options.device)}
    result = soak(options)
    print("\n" + table(result))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(options.out.read_text())["parts"] if options.add else []
        together = total([*kept, {"machine": recorded, **result}])
        options.out.write_text(json.dumps(together, indent=2) + "\n")
    if result["faults"]:
        return 1
    return 3 if result["verdicts"] < result["asked"] else 0


if __name__ == "__main__":
    sys.exit(main())
