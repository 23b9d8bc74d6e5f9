"""What a report of a large run costs: seconds and memory for 1,000 episodes of 4 turns.

Run ``python -m benchmarks.env.report_size [--episodes N] [--turns N] [--out FILE]``. The run is
made up: kernels of some 200 lines that differ from turn to turn, statuses and speeds drawn from a
seed, 64 pairs of windows in each timing, an answer with usage for each turn. Reading, numbers and
page are timed in a fresh process each, one file and folder; its greatest resident memory is what
the system says of it, and so are the seconds of processor time, which other programs' work adds
little to. Goals: 60 s and 1 GB, each form.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.records.jsonlines import write_lines
from kernelgym.records.trajectories import EpisodeRecord, write_records
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Kernel, Problem, Score, Status, Timing, Trajectory, Turn, Verdict

SECONDS_GOAL = 60.0
BYTES_GOAL = 10**9
SAMPLES = 5
LABEL = RULESETS["strict"].label


def problem(number: int) -> Problem:
    """Return a problem of its own."""
    name = f"{number}_Problem"
    return dataclasses.replace(
        SAMPLE_PROBLEM,
        **{"id": f"Made/L{1 + number % 3}/{number}", "level": 1 + number % 3, "name": name},
        source=f"{SAMPLE_PROBLEM.source}\n# {number}\n",
    )


def found(chance: random.Random) -> Verdict:
    """Return a verdict: three in ten correct and timed, the others of every kind."""
    if chance.random() < 0.3:
        speed = chance.lognormvariate(0.3, 0.6)
        windows = tuple(
            (chance.gauss(1.0, 0.01), speed * chance.gauss(1.0, 0.01)) for _ in range(64)
        )
        timing = Timing(1.0, speed, speed, 0.98 * speed, 64, windows=windows)
        return dataclasses.replace(verdict("correct"), timing=timing, wall_s=3.0)
    failures = [Status.WRONG, Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.REJECTED]
    message = f"IndexError: index {chance.randrange(100)} is out of range"
    return verdict(chance.choice(failures), message=message, log="line of a log\n" * 40)


def episodes(count: int, turns: int, chance: random.Random) -> Iterator[EpisodeRecord]:
    """Yield episodes, `SAMPLES` of each problem."""
    kernel = SAMPLE_KERNELS["triton"].source
    for number in range(count):
        asked, played = problem(number // SAMPLES), []
        for index in range(turns):
            lines = [f"    # {chance.randrange(10**6)} of turn {index}" for _ in range(150)]
            text = reply(
                Kernel(kernel + "\n".join(["def unused():", *lines, "    pass\n"]), "triton")
            )
            read, judged = parse(text, "triton"), found(chance)
            played.append(Turn(index, text, read, judged, feedback(judged, read), Score(0.0)))
        ended = "solved" if played[-1].verdict.correct else "budget"
        yield EpisodeRecord(
            Trajectory(asked, tuple(played), ended, turns),  # type: ignore[arg-type]
            **{"language": "triton", "device": "cuda:0", "ruleset": LABEL, "reward": "stage2"},
            stop_when="never",
            writer="eval",
            key=f"{asked.id}#{number % SAMPLES}",
        )


def make(folder: Path, count: int, turns: int) -> None:
    """Write the run."""
    records = list(episodes(count, turns, random.Random(0)))
    write_records(folder / "trajectories.jsonl", records)
    usage = {"prompt": 3000, "cached": 0, "completion": 900, "reasoning": 100}
    write_lines(
        folder / "generations.jsonl",
        (
            {
                **{"problem": each.trajectory.problem.id, "sample": int(each.key.split("#")[1])},
                **{"turn": turn, "text": "", "usage": usage, "usd": 0.01, "latency_s": 4.0},
            }
            for each in records
            for turn in range(turns)
        ),
    )
    ids = {each.trajectory.problem.id: each.problem_digest for each in records}
    plan = {
        "version": 1,
        "kind": "eval",
        "name": "large",
        "policy": {},
        "problems": [{"id": name, "digest": digest} for name, digest in ids.items()],
        "samples": SAMPLES,
    }
    (folder / "plan.json").write_text(json.dumps(plan))


def measure(run: Path, html: str) -> dict[str, Any]:
    """Return seconds, greatest memory and size of one report, in a process of its own."""
    command = [sys.executable, "-m", "kernelgym", "report", str(run), "--json", "--html", html]
    code = (
        "import resource, subprocess, sys, time\n"
        "start = time.perf_counter()\n"
        "quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}\n"
        f"subprocess.run({command!r}, check=True, **quiet)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "cpu = used.ru_utime + used.ru_stime\n"
        "print(time.perf_counter() - start, cpu, used.ru_maxrss * 1024)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, cpu, used = told.stdout.split()
    place = Path(html)
    files = [place] if place.is_file() else sorted(place.rglob("*.html"))
    return {
        "seconds": round(float(seconds), 2),
        "cpu_s": round(float(cpu), 2),
        "max_rss_bytes": int(used),
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "met": float(seconds) <= SECONDS_GOAL and int(used) <= BYTES_GOAL,
    }


def main() -> int:
    """Measure both forms; returns 0 if the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        run.mkdir()
        start = time.perf_counter()
        make(run, given.episodes, given.turns)
        made_s = time.perf_counter() - start
        forms = {
            "one file": measure(run, f"{name}/page.html"),
            "folder": measure(run, f"{name}/site/"),
        }
        size = sum(file.stat().st_size for file in run.iterdir())
    result = {
        "machine": machine(),
        "episodes": given.episodes,
        "turns": given.turns,
        "run_bytes": size,
        "making_the_run_s": round(made_s, 2),
        "goals": {"seconds": SECONDS_GOAL, "max_rss_bytes": BYTES_GOAL},
        "forms": forms,
    }
    print(json.dumps(result, indent=2))
    if given.out:
        given.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if all(form["met"] for form in forms.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
