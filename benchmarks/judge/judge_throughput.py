"""How long a GPU verdict takes, and how many there are in an hour, beside KernelBench's evaluation.

Run ``python -m benchmarks.judge.judge_throughput --kernelbench-root DIR [--device cuda:0] [--out
FILE]``.

`cases`: seven Triton kernels of ours and a CUDA one on KernelBench's problems, judged by both
rulesets, every kernel unseen and its problem prepared (preparation is told beside it). Beside
them KernelBench's own evaluation with 5 trials and 100 timed calls, in one process, imports not
counted.
`groups`: 16 kernels of one problem at once, by several workers; KernelBench evaluates two of them
one after the other (the first is the case's), and the rest is scaled from these.
`stream`: what a training run sends, groups of eight answers to one problem, half of them wrong, by
`strict` on several GPUs of one kind (``--gpus 1,2,4 --workers 6``), and on one GPU without asking
whose time the device worked.
`starts`: how long a new evaluator takes for its first kernels, one for each worker, with an empty
cache folder and with one that was used before.

Everything is written to FILE as it is measured; with ``--resume`` what is there is not measured
again, so that the parts may be run one by one (``--parts``). Exit code 1: a verdict differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import Case
from benchmarks.conformance.sides import Server
from benchmarks.machine import HostUse, gpu, machine
from kernelgym.benchmark.kernelbench import as_kernelbench
from kernelgym.judge import LocalEvaluator
from kernelgym.rulesets import RULESETS as RULESETS_BY_NAME
from kernelgym.types import Evaluator, Job, Kernel, Problem, Verdict

KERNELS = Path(__file__).with_name("throughput_kernels")
CASES = (
    *("l1_088_gelu", "l1_001_matmul_tf32", "l1_036_rms_norm", "l2_040_epilogue"),
    *("l1_047_sum", "l1_019_relu", "l1_023_softmax"),
)
CUDA_CASE = "l1_019_relu_cuda"
GROUPS = ("l1_036_rms_norm", "l1_047_sum", "l2_040_epilogue")
RULESETS = ("kernelbench", "strict")
STREAM = ("l1_088_gelu", "l1_001_matmul_tf32", "l1_047_sum", "l2_040_epilogue")
PARTS = ("cases", "groups", "stream", "starts")
STARTED_WITH = "l1_088_gelu"
UNSEEN = 2
GROUP = 16
LATE_ROUNDS = 2
THEIRS_OF_A_GROUP = 2
THEIR_TIMED_CALLS = 100
LIMIT_S = 400.0


def read_case(name: str, root: Path) -> Job:
    """Return a case's problem, from a checkout, and our kernel for it."""
    level, number = int(name[1]), int(name[3:6])
    (path,) = (root / "KernelBench" / f"level{level}").glob(f"{number}_*.py")
    identity = f"KernelBench/L{level}/{number}"
    problem = Problem(identity, "KernelBench", level, path.stem, path.read_text())
    language = "cuda" if name.endswith("_cuda") else "triton"
    return Job(problem, Kernel((KERNELS / f"{name}.py").read_text(), language))


def unseen(kernel: Kernel, mark: str) -> Kernel:
    """Return the same kernel under a source that nobody has seen or compiled.

    Triton functions get another name, since comments do not change what is assembled.
    """
    source = kernel.source.replace("#include <torch", f"// {mark}\n#include <torch", 1)
    for name in set(re.findall(r"@triton\.jit\ndef (\w+)", source)):
        source = re.sub(rf"\b{name}\b", re.sub(r"\W", "_", f"{name} {mark}"), source)
    return Kernel(f"{source}\n# {mark}\n", kernel.language)


def told(verdict: Verdict, wall_s: float) -> dict[str, Any]:
    """Return what is kept of one verdict of ours."""
    kept: dict[str, Any] = {"status": verdict.status.value, "wall_s": round(wall_s, 3)}
    result = as_kernelbench(verdict)
    kept["pair"] = [result.compiled, result.correctness]
    if verdict.stages is not None:
        kept["stages"] = dataclasses.asdict(verdict.stages)
    if verdict.timing is not None:
        timing = verdict.timing
        kept |= {"kernel_ms": timing.kernel_ms, "speedup": timing.speedup}
        kept |= {"speedup_low": timing.speedup_low, "samples": timing.samples}
    if not verdict.correct:
        kept["message"] = verdict.message[:200]
    return kept


class Record:
    """What has been measured so far, on disk as soon as it is."""

    def __init__(self, path: Path | None, resume: bool, head: dict[str, Any]) -> None:
        self._path = path
        self.data: dict[str, Any] = {**head, **{part: {} for part in PARTS}}
        if resume and path is not None and path.exists():
            self.data |= json.loads(path.read_text())

    def measure(self, part: str, key: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what was measured before under a key, or measure and keep it."""
        if key not in self.data[part]:
            self.data[part][key] = run()
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(json.dumps(self.data, indent=1) + "\n")
            print(f"{part:7}{key:34}{one_line(self.data[part][key])}", flush=True)
        found: dict[str, Any] = self.data[part][key]
        return found


def one_line(found: dict[str, Any]) -> str:
    """Return a measurement for a reader who waits."""
    return "  ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in found.items()
        if isinstance(value, (int, float, str))
    )


def judge_case(evaluator: LocalEvaluator, job: Job) -> dict[str, Any]:
    """Judge a case's kernel under sources never seen, once its problem is prepared."""
    started = time.perf_counter()
    evaluator.evaluate(job.problem, unseen(job.kernel, "first"))
    preparation_s = time.perf_counter() - started
    runs = []
    for number in range(UNSEEN):
        kernel = unseen(job.kernel, f"unseen {number}")
        started = time.perf_counter()
        verdict = evaluator.evaluate(job.problem, kernel)
        runs.append(told(verdict, time.perf_counter() - started))
    known_started = time.perf_counter()
    evaluator.evaluate(job.problem, unseen(job.kernel, "first"))
    return {
        "wall_s": statistics.median(run["wall_s"] for run in runs),
        "longest_s": max(run["wall_s"] for run in runs),
        "known_s": time.perf_counter() - known_started,
        "preparation_s": preparation_s,
        "status": runs[0]["status"],
        "runs": runs,
    }


def run_cases(options: argparse.Namespace, record: Record, theirs: Server | None) -> None:
    names = [name for name in (*CASES, CUDA_CASE) if name in options.cases.split(",")]
    for ruleset in filter(None, options.rulesets.split(",")):
        left = [name for name in names if f"{name} {ruleset}" not in record.data["cases"]]
        if not left:
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            LocalEvaluator(options.device, ruleset, cache_dir=folder) as evaluator,
        ):
            first = read_case(CASES[0], options.kernelbench_root)
            evaluator.evaluate(first.problem, first.kernel)  # the worker's own start
            for name in left:
                job = read_case(name, options.kernelbench_root)
                record.measure("cases", f"{name} {ruleset}", partial(judge_case, evaluator, job))
    if theirs is not None:
        for name in names:
            job = read_case(name, options.kernelbench_root)
            record.measure("cases", f"{name} theirs", partial(ask, theirs, name, job))


def ask(theirs: Server, name: str, job: Job) -> dict[str, Any]:
    """Have KernelBench evaluate a kernel, with its timing."""
    case = Case(name, job.problem.id, job.kernel, outcome="correct", limit_s=LIMIT_S)
    outcome = theirs.evaluate(case, job.problem)
    return {"wall_s": outcome.wall_s, "pair": outcome.pair, "message": outcome.message}


def judge_group(evaluator: LocalEvaluator, job: Job, warm: int) -> dict[str, Any]:
    """Judge 16 kernels of one problem, by all workers, once each has prepared it."""
    prepared = prepare(evaluator, job, warm)
    jobs = [Job(job.problem, unseen(job.kernel, f"unseen {n}")) for n in range(GROUP)]
    started = time.perf_counter()
    verdicts = [verdict for _, verdict in evaluator.evaluate_iter(jobs)]
    wall_s = time.perf_counter() - started
    return {
        "each_s": wall_s / GROUP,
        "per_hour": 3600 * GROUP / wall_s,
        **prepared,
        "stages": mean_stages(verdicts),
        **outcomes(verdicts),
    }


def prepare(evaluator: LocalEvaluator, job: Job, workers: int) -> dict[str, Any]:
    """Have every worker meet a problem, and return what that took and came to."""
    started = time.perf_counter()
    first = [Job(job.problem, unseen(job.kernel, f"w{n}")) for n in range(workers)]
    verdicts = evaluator.evaluate_many(first)
    preparation_s = time.perf_counter() - started
    # A worker that has only now come up has taken no part so far.
    late = [Job(job.problem, unseen(job.kernel, f"late {n}")) for n in range(LATE_ROUNDS * workers)]
    verdicts += evaluator.evaluate_many(late)
    came_to = Counter(verdict.status.value for verdict in verdicts)
    return {"preparation_s": preparation_s, "prepared": dict(came_to)}


def outcomes(verdicts: list[Verdict]) -> dict[str, Any]:
    """Return what is kept of many verdicts: times as they came, and what was found how often."""
    codes = Counter(finding.code for verdict in verdicts for finding in verdict.findings)
    times = [verdict.timing for verdict in verdicts if verdict.timing is not None]
    return {
        "statuses": sorted({verdict.status.value for verdict in verdicts}),
        "speedups": [round(verdict.speedup, 4) for verdict in verdicts],
        "kernel_ms": [round(timing.kernel_ms, 4) for timing in times],
        "pairs": [timing.samples for timing in times],
        "findings": dict(codes),
    }


def mean_stages(verdicts: list[Verdict]) -> dict[str, float]:
    """Return what each stage took a verdict, in seconds, by its name."""
    stages = [dataclasses.asdict(v.stages) for v in verdicts if v.stages is not None]
    return {k: statistics.fmean(s[k] for s in stages) for k in (stages or [{}])[0]}


def run_groups(options: argparse.Namespace, record: Record, theirs: Server | None) -> None:
    for ruleset in filter(None, options.rulesets.split(",")):
        left = [
            name
            for name in options.groups.split(",")
            if f"{name} {ruleset} workers={options.workers}" not in record.data["groups"]
        ]
        if not left:
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            LocalEvaluator(
                options.device, ruleset, workers=options.workers, cache_dir=folder
            ) as evaluator,
        ):
            for name in left:
                job, key = read_case(name, options.kernelbench_root), f"{name} {ruleset}"
                key += f" workers={options.workers}"
                run = partial(judge_group, evaluator, job, options.workers)
                record.measure("groups", key, run)
    if theirs is not None:
        for name in options.groups.split(","):
            for number in range(1, THEIRS_OF_A_GROUP):  # the first is that of `cases`
                job = read_case(name, options.kernelbench_root)
                job = Job(job.problem, unseen(job.kernel, f"theirs {number}"))
                key = f"{name} theirs {number}"
                record.measure("groups", key, partial(ask, theirs, name, job))


class PlacedEvaluator(LocalEvaluator):
    """A `LocalEvaluator` that counts how often a worker meets another problem than its last."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.last: dict[int, str] = {}
        self.changes = 0

    def _judge(self, job: Job, seed: str, place: int) -> Verdict:
        self.changes += self.last.get(place) != job.problem.id
        self.last[place] = job.problem.id
        return super()._judge(job, seed, place)


def run_stream(options: argparse.Namespace, record: Record) -> None:
    """Judge the same stream of groups on 1, 2, ... GPUs, and on one without `own_time`."""
    strict = RULESETS_BY_NAME["strict"]
    settings = [(int(count), strict) for count in options.gpus.split(",") if count]
    if not options.with_own_time:
        settings.append((1, dataclasses.replace(strict, own_time=0.0)))
    for count, rules in settings:
        own_time = "with" if rules.own_time else "without"
        key = f"gpus={count} workers={options.workers} {own_time} own_time"
        if key in record.data["stream"]:
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            PlacedEvaluator(
                ruleset=rules,
                workers=options.workers,
                cache_dir=folder,
                devices=[f"cuda:{number}" for number in range(count)],
            ) as evaluator,
        ):
            root, turns = options.kernelbench_root, options.turns
            record.measure("stream", key, partial(judge_placed, evaluator, root, turns))


def judge_placed(evaluator: PlacedEvaluator, root: Path, turns: int) -> dict[str, Any]:
    """Judge a stream; return what `judge_stream` does, and how often workers met a new problem."""
    warm_up(evaluator, root)
    evaluator.changes = 0
    found = judge_stream(evaluator, root, turns, "placed")
    return found | {"preparations": evaluator.changes}


def warm_up(evaluator: Evaluator, root: Path) -> None:
    """Have each worker judge two kernels of a stream's first problem: starts are not counted."""
    case, workers = read_case(STREAM[0], root), evaluator.capabilities.workers
    kernels = [unseen(case.kernel, f"warm {number}") for number in range(2 * workers)]
    evaluator.evaluate_many([Job(case.problem, kernel) for kernel in kernels])


def judge_stream(evaluator: Evaluator, root: Path, turns: int, mark: str) -> dict[str, Any]:
    """Judge groups of eight answers to each problem, half of them wrong.

    Args:
        evaluator: The evaluator, warmed up.
        root: A checkout of KernelBench.
        turns: Groups of each problem for each GPU.
        mark: Text that makes the kernels differ from those of other streams.
    """
    cases = [read_case(name, root) for name in STREAM]
    devices = evaluator.capabilities.devices
    jobs = [
        Job(case.problem, answer(case.kernel, f"{mark} {turn} {n}", right=n % 2 == 0))
        for turn in range(turns * len(devices))
        for case in cases
        for n in range(GROUP // 2)
    ]
    verdicts, last_s = [], {}
    before, started = HostUse.now(), time.perf_counter()
    for _, verdict in evaluator.evaluate_iter(jobs):
        verdicts.append(verdict)
        last_s[verdict.device] = time.perf_counter() - started
    wall_s = time.perf_counter() - started
    return {
        "gpus": len(devices),
        "verdicts": len(verdicts),
        "per_hour": 3600 * len(jobs) / wall_s,
        "wall_s": wall_s,
        "mean_s": statistics.fmean(verdict.wall_s for verdict in verdicts),
        "by_device": dict(Counter(verdict.device for verdict in verdicts)),
        "last_s": last_s,
        "device_stages": {
            device: mean_stages([each for each in verdicts if each.device == device])
            for device in last_s
        },
        "host": before.until_now(),
        "stages": mean_stages(verdicts),
        "counts": dict(Counter(verdict.status.value for verdict in verdicts)),
        "findings": outcomes(verdicts)["findings"],
    }


def answer(kernel: Kernel, mark: str, *, right: bool) -> Kernel:
    """Return a kernel under a source never seen, right or a little wrong."""
    found = unseen(kernel, mark)
    if right:
        return found
    slip = "\n_forward = ModelNew.forward\n"
    slip += "ModelNew.forward = lambda self, *given: _forward(self, *given) * 1.1\n"
    return Kernel(found.source + slip, found.language)


def run_starts(options: argparse.Namespace, record: Record) -> None:
    job = read_case(STARTED_WITH, options.kernelbench_root)
    for ruleset in filter(None, options.rulesets.split(",")):
        for workers in sorted({1, options.workers}):
            key = f"{STARTED_WITH} {ruleset} workers={workers}"
            record.measure("starts", key, partial(starts, options.device, ruleset, workers, job))


def starts(device: str, ruleset: str, workers: int, job: Job) -> dict[str, Any]:
    """Return what two evaluators take, one after the other, with a cache folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        empty, used = (start(device, ruleset, workers, folder, job) for _ in range(2))
    return {"empty_s": empty["first_s"], "used_s": used["first_s"], "empty": empty, "used": used}


def start(device: str, ruleset: str, workers: int, folder: str, job: Job) -> dict[str, Any]:
    """Have each worker of a new evaluator judge its first kernel."""
    started = time.perf_counter()
    with LocalEvaluator(device, ruleset, workers=workers, cache_dir=folder) as evaluator:
        jobs = [Job(job.problem, unseen(job.kernel, f"start {n}")) for n in range(workers)]
        verdicts, seconds = [], []
        for _, verdict in evaluator.evaluate_iter(jobs):
            seconds.append(time.perf_counter() - started)
            verdicts.append(verdict)
    return {
        "first_s": seconds[0],
        "all_s": seconds[-1],
        "stages": mean_stages(verdicts),
        **outcomes(verdicts),
    }


def report(data: dict[str, Any]) -> tuple[str, bool]:
    """Return the tables, and whether every verdict agrees with KernelBench's."""
    lines, agree = [f"{'case':22}{'theirs s':>9}{'ours s':>8}{'ratio':>7}{'strict s':>9}"], True
    sums = {"theirs": 0.0, "kernelbench": 0.0}
    for name in (*CASES, CUDA_CASE):
        sides = {s: data["cases"].get(f"{name} {s}") for s in ("theirs", "kernelbench", "strict")}
        seconds = {side: found["wall_s"] for side, found in sides.items() if found}
        line = f"{name:22}{seconds.get('theirs', 0):>9.2f}{seconds.get('kernelbench', 0):>8.2f}"
        if sides["theirs"] and sides["kernelbench"]:
            ratio = seconds["theirs"] / seconds["kernelbench"]
            same = list(sides["theirs"]["pair"]) == sides["kernelbench"]["runs"][0]["pair"]
            agree &= same
            if name != CUDA_CASE:
                sums = {side: sums[side] + seconds[side] for side in sums}
            line += f"{ratio:>7.1f}{seconds.get('strict', 0):>9.2f}"
            line += "" if same else "  DIFFERS"
        lines.append(line)
    if all(sums.values()):
        lines.append(
            f"{'the seven':22}{sums['theirs']:>9.2f}{sums['kernelbench']:>8.2f}"
            f"{sums['theirs'] / sums['kernelbench']:>7.1f}"
        )
    for key, found in data["groups"].items():
        if "each_s" in found:
            name = key.split()[0]
            others = range(1, THEIRS_OF_A_GROUP)
            theirs = [data["cases"].get(f"{name} theirs")]
            theirs += [data["groups"].get(f"{name} theirs {number}") for number in others]
            each = [one["wall_s"] for one in theirs if one]
            ratio = f"{statistics.fmean(each) / found['each_s']:.1f} times" if each else ""
            lines.append(f"{key:44}{found['each_s']:>7.2f} s each  {ratio}")
    for key, found in data["stream"].items():
        alone = data["stream"].get(re.sub(r"gpus=\d+", "gpus=1", key), {}).get("per_hour")
        ratio = f"{found['per_hour'] / alone:.2f} times one" if alone else ""
        mean = f"mean {found['mean_s']:.1f} s, {found['preparations']} preparations"
        lines.append(f"{key:44}{found['per_hour']:>7.0f} an hour  {ratio}  {mean}")
    for key, found in data["starts"].items():
        lines.append(f"{key:44}{found['empty_s']:>7.1f} s, then {found['used_s']:.1f}")
    return "\n".join(lines), agree


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kernelbench-root", type=Path, required=True, help="a checkout")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--parts", default="cases,groups", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--cases", default=",".join((*CASES, CUDA_CASE)))
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--rulesets", default=",".join(RULESETS))
    parser.add_argument("--workers", type=int, default=3, help="on each device, in groups")
    parser.add_argument("--gpus", default="1,2", help="how many at a time")
    parser.add_argument("--turns", type=int, default=2, help="of a stream, for each GPU")
    parser.add_argument(
        "--with-own-time", action="store_true", help="leave out the stream without own_time"
    )
    parser.add_argument("--without-theirs", action="store_true", help="leave KernelBench out")
    parser.add_argument("--without-ours", action="store_true")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    parser.add_argument("--resume", action="store_true", help="go on from what FILE holds")
    options = parser.parse_args()
    if options.without_ours:
        options.rulesets = ""
    head = {"machine": {**machine("torch", "triton"), **gpu(options.device)}}
    record = Record(options.out, options.resume, head)
    theirs = None
    if not options.without_theirs:
        caches = Path(tempfile.mkdtemp())
        log = caches / "log"
        root, device = options.kernelbench_root, options.device
        theirs = Server(root, device, caches, log, timed_calls=THEIR_TIMED_CALLS)
    try:
        for part in options.parts.split(","):
            if part in ("stream", "starts"):
                {"stream": run_stream, "starts": run_starts}[part](options, record)
            else:
                run = {"cases": run_cases, "groups": run_groups}[part]
                run(options, record, theirs)
    finally:
        if theirs is not None:
            theirs.close()
    table, agree = report(record.data)
    print("\n" + table)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
