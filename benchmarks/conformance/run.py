"""Our `kernelbench` ruleset against KernelBench's own evaluation, kernel by kernel.

Run ``python -m benchmarks.conformance.run --kernelbench-root DIR [--out FILE]`` on a machine with a
GPU; DIR is a checkout of KernelBench, of which nothing is shipped here. Every kernel of
`kernels/` is judged by both sides, at the same time, with no timing: five trials under
KernelBench's seeds. Compared is its pair (compiled, correctness) with that of
`kernelgym.benchmark.kernelbench.as_kernelbench`. Exit code 0: all agree or differ as documented; 1:
some differ otherwise; 3: the budget ended first (run again with ``--resume``).

With ``--device cpu`` KernelBench, which needs CUDA, is left out: our verdicts under Triton's
interpreter, on cut sizes, are compared with what each case says KernelBench's rules give.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import (
    DISAGREE,
    Case,
    Outcome,
    compare,
    cut,
    fingerprint,
    load_cases,
    summary,
)
from benchmarks.conformance.sides import Journal, Server
from benchmarks.machine import machine
from kernelgym.benchmark.kernelbench import as_kernelbench
from kernelgym.judge import LocalEvaluator
from kernelgym.suites.kernelbench import KernelBenchSuite
from kernelgym.types import Problem, Status


@dataclasses.dataclass(frozen=True)
class Task:
    """A case with the problem both sides are given."""

    case: Case
    problem: Problem
    mark: str


def side_by_threads(
    name: str,
    tasks: list[Task],
    journal: Journal,
    judges: list[Callable[[Task], Outcome]],
    deadline: float,
) -> list[threading.Thread]:
    """Start one thread per judge; they take tasks in order until the deadline."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        if journal.get(name, task.case, task.mark) is None:
            waiting.put(task)

    def work(judge: Callable[[Task], Outcome]) -> None:
        while time.monotonic() < deadline:
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            outcome = judge(task)
            journal.add(name, task.case, task.mark, outcome)
            print(
                f"{name:<12}{task.case.name:<44}{show(outcome):<16}{outcome.wall_s:>7.1f} s  "
                f"{outcome.message.splitlines()[0][:90] if outcome.message else ''}",
                flush=True,
            )

    threads = [threading.Thread(target=work, args=(judge,), daemon=True) for judge in judges]
    for thread in threads:
        thread.start()
    return threads


def our_judge(evaluator: LocalEvaluator) -> Callable[[Task], Outcome]:
    """Return a function that gives our verdict in KernelBench's terms."""

    def judge(task: Task) -> Outcome:
        verdict = evaluator.evaluate(task.problem, task.case.kernel)
        result = as_kernelbench(verdict)
        silent = verdict.status is Status.UNAVAILABLE
        return Outcome(
            None if silent else (result.compiled, result.correctness),
            f"{verdict.status.value} ({result.reason})" if result.reason else verdict.status.value,
            verdict.message[:500],
            round(verdict.wall_s, 3),
        )

    return judge


def show(outcome: Outcome | None) -> str:
    """Return (compiled, correctness) for a reader."""
    if outcome is None:
        return "not run"
    if outcome.pair is None:
        return "no answer"
    compiled, correct = outcome.pair
    return "correct" if correct else "not correct" if compiled else "not compiled"


def make_tasks(options: argparse.Namespace) -> list[Task]:
    """Return the cases chosen, with the problems as both sides are given them."""
    suite = KernelBenchSuite(str(options.kernelbench_root))
    on_cpu = options.device == "cpu"
    tasks = []
    for case in load_cases(pattern=options.only):
        if on_cpu and (not case.cpu or case.kernel.language != "triton" or not case.expected):
            continue
        sizes = {**case.sizes, **(case.cpu_sizes if on_cpu else {})}
        problem = cut(suite.get(case.problem), sizes)
        tasks.append(Task(case, problem, fingerprint(problem, case.kernel)))
    return tasks


def run(options: argparse.Namespace, tasks: list[Task], journal: Journal) -> dict[str, Any]:
    """Judge what is not judged yet, both sides at once; return what KernelBench ran on."""
    deadline = time.monotonic() + options.budget_s
    servers: list[Server] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        caches = Path(options.caches) if options.caches else folder
        threads = []
        with LocalEvaluator(
            options.device, "kernelbench", workers=options.workers, timing=False
        ) as evaluator:
            try:
                if options.device == "cpu":
                    for task in tasks:
                        stated = Outcome(task.case.expected, "stated by the case")
                        journal.add("kernelbench", task.case, task.mark, stated)
                else:
                    log = Path(options.journal).with_suffix(".log")
                    servers = [
                        Server(options.kernelbench_root, options.device, caches, log)
                        for _ in range(options.workers)
                    ]
                    threads += side_by_threads(
                        "kernelbench",
                        tasks,
                        journal,
                        [
                            lambda task, server=server: server.evaluate(task.case, task.problem)
                            for server in servers
                        ],
                        deadline,
                    )
                judges = [our_judge(evaluator)] * options.workers
                threads += side_by_threads("kernelgym", tasks, journal, judges, deadline)
                for thread in threads:
                    thread.join()
            finally:
                for server in servers:
                    server.close()
    hello = next((server.hello for server in servers if server.hello), {})
    return {**hello, "starts": sum(server.starts for server in servers)}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the comparison for a reader."""
    lines = [f"{'case':<44}{'problem':<20}{'KernelBench':<15}{'kernelgym':<15}result"]
    lines += [
        f"{row['case']:<44}{row['problem']:<20}{row['kernelbench']['shown']:<15}"
        f"{row['kernelgym']['shown']:<15}{row['result']}"
        for row in rows
    ]
    for row in rows:
        if row["result"] == DISAGREE:
            lines.append(f"\n{row['case']} ({row['outcome']}): {DISAGREE}")
            for side in ("kernelbench", "kernelgym"):
                said = row[side]
                lines.append(
                    f"  {side}: {said['shown']}; {said['reason']}; {said['message'][:300]}"
                )
    return "\n".join(lines)


def compared(tasks: list[Task], journal: Journal) -> list[dict[str, Any]]:
    """Return one row per case that both sides have judged."""
    rows = []
    for task in tasks:
        theirs, ours = (
            journal.get(side, task.case, task.mark) for side in ("kernelbench", "kernelgym")
        )
        if theirs is None or ours is None:
            continue
        case = task.case
        rows.append(
            {
                "case": case.name,
                "problem": case.problem + (" (cut)" if case.sizes else ""),
                "language": case.kernel.language,
                "outcome": case.outcome,
                "result": compare(case.documented, theirs, ours),
                "as_expected": case.expected is None or theirs.pair == case.expected,
                "kernelbench": {"shown": show(theirs), **dataclasses.asdict(theirs)},
                "kernelgym": {"shown": show(ours), **dataclasses.asdict(ours)},
            }
        )
    return rows


def commit_of(root: Path) -> str:
    """Return the checkout's commit, if git can tell."""
    command = ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    # A copy without its history may lie inside some other repository.
    top, _, commit = found.stdout.strip().partition("\n")
    return commit if top and Path(top).resolve() == root.resolve() else "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kernelbench-root", type=Path, required=True, help="a checkout")
    parser.add_argument("--kernelbench-commit", help="of a checkout without its history")
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu without KernelBench")
    parser.add_argument("--out", type=Path, help="write the comparison to this JSON file")
    parser.add_argument("--journal", default="build/conformance.jsonl", help="what is finished")
    parser.add_argument("--resume", action="store_true", help="keep what the journal holds")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases by name")
    parser.add_argument("--budget-s", type=float, default=3600.0, help="begin no case after that")
    parser.add_argument("--workers", type=int, default=2, help="processes a side")
    parser.add_argument("--caches", help="folder for what KernelBench compiles; kept")
    options = parser.parse_args()
    tasks = make_tasks(options)
    journal = Journal(Path(options.journal), options.resume)
    started = time.monotonic()
    try:
        ran_on = run(options, tasks, journal)
    finally:
        journal.close()
    rows = compared(tasks, journal)
    counts = summary(row["result"] for row in rows)
    print("\n" + table(rows))
    unfinished = len(tasks) - len(rows)
    problems = {row["problem"] for row in rows}
    print(f"\n{len(rows)} kernels, {len(problems)} problems: {counts}; {unfinished} not finished")
    for row in rows:
        if not row["as_expected"]:
            print(f"note: KernelBench says {row['kernelbench']['shown']} of {row['case']}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "machine": {**machine("torch", "triton"), "device": options.device, **ran_on},
            "kernelbench_commit": options.kernelbench_commit or commit_of(options.kernelbench_root),
            "kernels": len(rows),
            "problems": len(problems),
            "counts": counts,
            "unfinished": unfinished,
            "wall_s": round(time.monotonic() - started, 1),
            "cases": rows,
        }
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    if DISAGREE in counts:
        return 1
    return 3 if unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
