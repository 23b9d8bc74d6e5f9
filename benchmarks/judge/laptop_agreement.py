"""How often a laptop and a GPU give a Triton kernel the same status.

Run on each machine ``python -m benchmarks.judge.laptop_agreement --device cpu --out cpu.json
[--kernelbench-root DIR] [--seconds 240] [--workers 2]`` (``--device cuda:0 --out gpu.json``), again
until it says that nothing is left, then ``--compare cpu.json gpu.json --out FILE``.

The kernels are all those in Triton that the project has: the red team's corpus, right and broken
kernels of Synthetic, the conformance kernels in sizes for the CPU, and the sample. Each is judged
by `strict`, without timing. A run goes on where the last one with the same file stopped. A kernel
counts once both machines have judged it; one that is `unavailable` is left to the next run.

Two statuses may differ although both refuse a kernel: an access outside a tensor is an error in the
interpreter and gives wrong values on a GPU. So the comparison also counts equal answers to whether
the kernel is correct. A disagreement is explained if the CPU's verdict has a finding.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import cut, load_cases
from benchmarks.machine import gpu, machine
from kernelgym.cli.judging import judge_many
from kernelgym.cli.redteam import load_corpus
from kernelgym.judge import LocalEvaluator
from kernelgym.rulesets import RULESETS, Limits
from kernelgym.suites.kernelbench import KernelBenchSuite
from kernelgym.suites.synthetic import SyntheticSuite, broken_variants, solve
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Job, Status

CORPUS = Path(__file__).parents[2] / "tests" / "adversarial"
GOAL = 0.99
SYNTHETIC = 12
"""Problems of each level of Synthetic."""
_COUNTS = ("kernels", "equal", "same_answer", "unexplained")
LIMITS = Limits(run_s=20.0)  # some kernels never end


def jobs(kernelbench_root: str) -> Iterator[tuple[str, Job]]:
    """Yield the name and the job of each kernel."""
    entries, problems = load_corpus(CORPUS)
    for entry in entries:
        if entry.language == "triton":
            yield f"redteam/{entry.kind}/{entry.name}", Job(problems[entry.problem], entry.kernel)
    yield "sample", Job(SAMPLE_PROBLEM, SAMPLE_KERNELS["triton"])
    for level in (1, 2, 3):
        for problem in list(SyntheticSuite(per_level=SYNTHETIC).problems(level=level)):
            yield f"{problem.id}/right", Job(problem, solve(problem, "triton"))
            for broken in broken_variants(problem, "triton"):
                yield f"{problem.id}/{broken.defect}", Job(problem, broken.kernel)
    if kernelbench_root:
        suite = {each.id: each for each in KernelBenchSuite(kernelbench_root).problems()}
        for case in load_cases():
            if case.cpu and case.kernel.language == "triton":
                problem = cut(suite[case.problem], {**case.sizes, **case.cpu_sizes})
                # Under its own id the problem would count as large as KernelBench has it.
                problem = dataclasses.replace(problem, id=problem.id.replace("KernelBench", "Cut"))
                yield f"conformance/{case.name}", Job(problem, case.kernel)


def mark(job: Job) -> str:
    """Return a digest of problem and kernel, by which both machines know a job."""
    text = f"{job.problem.digest} {job.kernel.digest}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def judge(
    device: str, out: Path, kernelbench_root: str, seconds: float, workers: int
) -> dict[str, Any]:
    """Judge what `out` lacks, for about `seconds`; return all results so far."""
    rules = dataclasses.replace(RULESETS["strict"], limits=LIMITS)
    result: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"rows": {}}
    result |= {"machine": {**machine("torch", "triton"), **gpu(device)}, "ruleset": rules.label}
    rows, deadline = result["rows"], time.monotonic() + seconds
    todo = [(name, job) for name, job in jobs(kernelbench_root) if mark(job) not in rows]
    todo.sort(key=lambda named: mark(named[1]))  # every part of a run is a sample of all
    at_once = 4 * workers
    with LocalEvaluator(device, rules, workers=workers, timing=False) as evaluator:
        while todo and time.monotonic() < deadline:
            chunk, todo = todo[:at_once], todo[at_once:]
            for index, verdict in judge_many(evaluator, [job for _, job in chunk]):
                name, job = chunk[index]
                if verdict.status is Status.UNAVAILABLE:  # another run may judge it
                    print(f"{name}: {verdict.message}")
                    continue
                findings = sorted({finding.code for finding in verdict.findings})
                rows[mark(job)] = {
                    "name": name,
                    "status": verdict.status.value,
                    "findings": findings,
                    "message": verdict.message[:300],
                }
                out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(rows)} judged on {device}, {len(todo)} left")
    return result


def compare(cpu: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    """Return how often two machines agree, and where they do not."""
    both = sorted(cpu["rows"].keys() & device["rows"].keys())
    pairs = [(cpu["rows"][key], device["rows"][key]) for key in both]
    unlike = [pair for pair in pairs if pair[0]["status"] != pair[1]["status"]]
    equal = len(pairs) - len(unlike)
    groups: dict[str, dict[str, int]] = {}
    for mine, theirs in pairs:
        counts = groups.setdefault(_group(mine["name"]), dict.fromkeys(_COUNTS, 0))
        same = mine["status"] == theirs["status"]
        counts["kernels"] += 1
        counts["equal"] += same
        counts["same_answer"] += (mine["status"] == "correct") == (theirs["status"] == "correct")
        counts["unexplained"] += not same and not mine["findings"]
    return {
        "machines": {"cpu": cpu["machine"], "gpu": device["machine"]},
        "rulesets": sorted({cpu["ruleset"], device["ruleset"]}),
        "kernels": len(pairs),
        "equal": equal,
        "groups": dict(sorted(groups.items())),
        "share": equal / len(pairs) if pairs else 0.0,
        "goal_met": equal >= GOAL * len(pairs) > 0,
        "statuses": dict(
            Counter(f"{mine['status']} / {theirs['status']}" for mine, theirs in pairs)
        ),
        "disagreements": [
            {
                "name": mine["name"],
                "cpu": mine["status"],
                "gpu": theirs["status"],
                "findings": mine["findings"],
                "cpu_message": mine["message"],
                "gpu_message": theirs["message"],
            }
            for mine, theirs in sorted(unlike, key=lambda pair: str(pair[0]["name"]))
        ],
    }


def _group(name: str) -> str:
    """Return the kind of kernel that a name stands for."""
    first = name.partition("/")[0]
    if first == "redteam":
        return name.rpartition("/")[0]
    if first == "Synthetic":
        return "Synthetic/right" if name.endswith("/right") else "Synthetic/broken"
    return first


def main() -> int:
    """Judge on one machine, or compare two; returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--device", default="cpu", help="cpu, or for example cuda:0")
    parser.add_argument("--kernelbench-root", default="", help="checkout of KernelBench")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin nothing afterwards")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("CPU", "GPU"))
    given = parser.parse_args()
    if given.compare:
        result = compare(*(json.loads(path.read_text()) for path in given.compare))
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{result['equal']} of {result['kernels']} equal ({result['share']:.1%})")
        for group, counts in result["groups"].items():
            print(f"{group}: {counts}")
        for each in result["disagreements"]:
            print(each["name"], each["cpu"], each["gpu"], each["findings"], each["cpu_message"])
        return 0 if result["goal_met"] else 1
    judge(given.device, given.out, given.kernelbench_root, given.seconds, given.workers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
