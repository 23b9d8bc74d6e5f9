"""How fast eval runs are driven: turns a second, memory, and both sides at their own pace.

Run ``python -m benchmarks.env.bench_driver [--out FILE] [--short]``. Policy and judge cost nothing
here, so what is measured is the driver: prompts, files, and waiting. Three parts:

- ``turns``: an instant policy and a scripted judge; every answer and verdict is on disk before it
  is used;
- ``memory``: growth of the process over 10,000 episodes of one turn;
- ``overlap``: answers that take 2 s, 32 at the same time, and a judge of 20 kernels a second; the
  wall time over that of the slower side alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.driver import EvalSummary
from kernelgym.benchmark.run.generations import AnswerRequest, Generation, TokenUsage
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, reply, verdict
from kernelgym.types import Kernel, Problem, Verdict

ANSWER_S = 2.0
AT_ONCE = 32
JUDGE_PER_S = 20.0


class SteadyPolicy:
    """Gives one kernel, a little different each time, after a fixed time."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self._takes_s = takes_s

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"kind": "steady", "model": "steady"}

    async def check(self) -> None:
        pass

    async def answer(self, asked: AnswerRequest) -> Generation:
        if self._takes_s:
            await asyncio.sleep(self._takes_s)
        source = f"{SAMPLE_KERNELS['triton'].source}# {asked.sample} {asked.turn}\n"
        return Generation(reply(Kernel(source, "triton")), usage=TokenUsage(1_000, 0, 300))

    async def close(self) -> None:
        pass


class SteadyJudge(ScriptedEvaluator):
    """Judges one kernel after the other, at a fixed rate; remembers nothing."""

    def __init__(self, per_s: float = math.inf) -> None:
        super().__init__(lambda problem, kernel: verdict("wrong"))
        self._takes_s, self._turn = 1.0 / per_s, threading.Lock()

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        if self._takes_s:
            with self._turn:
                time.sleep(self._takes_s)
        self.judged.clear()
        self.seeds.clear()
        return super().evaluate(problem, kernel, seed=seed)


def play(problems: int, samples: int, turns: int, **options: Any) -> tuple[EvalSummary, float]:
    """Play one run; returns what became of it and its seconds."""
    takes_s, per_s = options.pop("takes_s", 0.0), options.pop("per_s", math.inf)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = evaluate(
            SteadyPolicy(takes_s),
            **{"suite": "Synthetic", "level": 1, "limit": problems, "samples": samples},
            **{"turns": turns, "out": folder, "evaluator": SteadyJudge(per_s)},
            **options,
        )
        return done, time.perf_counter() - started


def resident_bytes() -> int:
    """Return the memory that this process has in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def turns_a_second(episodes: int) -> dict[str, Any]:
    """Return the turns a second of an instant policy, four turns an episode."""
    done, seconds = play(20, episodes // 20, 4, concurrency=AT_ONCE)
    return {"turns": done.answers, "seconds": seconds, "per_s": done.answers / seconds}


def memory_growth(episodes: int) -> dict[str, Any]:
    """Return the growth of memory from a tenth of a run's episodes to all."""
    seen: list[int] = []
    count = 0

    def look() -> None:
        nonlocal count
        count += 1
        if count % (episodes // 10) == 0:
            seen.append(resident_bytes())

    done, _ = play(20, episodes // 20, 1, concurrency=AT_ONCE, on_episode=look)
    return {"episodes": done.ended, "growth_bytes": seen[-1] - seen[0], "most_bytes": max(seen)}


def overlap(answers: int) -> dict[str, Any]:
    """Return a run's wall time over that of its slower side alone."""
    done, seconds = play(
        20, answers // 20, 1, takes_s=ANSWER_S, per_s=JUDGE_PER_S, concurrency=AT_ONCE
    )
    alone = {
        "policy": math.ceil(answers / AT_ONCE) * ANSWER_S,
        "judge": answers / JUDGE_PER_S,
    }
    slower = max(alone.values())
    return {
        **{"answers": done.answers, "seconds": seconds, "alone_s": alone},
        "over_slower": seconds / slower,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--short", action="store_true", help="a hundredth of the work, to try it")
    arguments = parser.parse_args()
    scale = 100 if arguments.short else 1
    data = {
        "machine": machine(),
        "turns": turns_a_second(max(20, 1_000 // scale)),
        "memory": memory_growth(max(100, 10_000 // scale)),
        "overlap": overlap(max(20, 1_280 // scale)),
    }
    print(json.dumps(data, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
