"""What the environment costs beside the judge: time per step, and time to import.

Run ``python -m benchmarks.env.env_overhead [--out FILE]``. The evaluator answers at once, so that a
step's time is the environment's own: reading the answer, screening, scoring, feedback, the next
observation, info. Imports are timed in fresh interpreters, alternating with gymnasium's alone.
Goals: a step under 0.2 ms, importing under 60 ms over gymnasium's. Ratios are between numbers of
one run; the numbers themselves move with the machine and its load.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym

import kernelgym  # noqa: F401 - registers the ids
from benchmarks.machine import machine
from kernelgym.testing import (
    SAMPLE_KERNELS,
    SAMPLE_PROBLEM,
    ScriptedEvaluator,
    reply,
    verdict,
)
from kernelgym.types import Kernel

STEP_GOAL_MS = 0.2
IMPORT_GOAL_MS = 60.0
ENV_ID = "KernelBench-L1-MultiTurn-v0"
TURNS = 4
BATCH = 16


NUMBERS = itertools.count()


def answers(language: str) -> list[str]:
    """Return answers whose kernels were never seen before, so that nothing is cached."""
    kernel = SAMPLE_KERNELS[language]
    return [
        reply(Kernel(f"{kernel.source}\nNUMBER = {next(NUMBERS)}\n", language))
        for _ in range(TURNS)
    ]


def per_call_us(body: Callable[[], None], calls: int, repeats: int) -> float:
    """Return the median over `repeats` of the time of one of the `calls` that `body` makes."""
    body()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        body()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times) * 1e6


def evaluator_us(language: str, repeats: int) -> float:
    """Return the time the scripted evaluator itself takes, which is not the environment's."""
    evaluator, kernel = ScriptedEvaluator([verdict("wrong")]), SAMPLE_KERNELS[language]
    return per_call_us(
        lambda: [evaluator.evaluate(SAMPLE_PROBLEM, kernel) for _ in range(100)] and None,
        100,
        repeats,
    )


def step_us(language: str, repeats: int) -> float:
    """Return the time of one step of an episode of `TURNS` turns, resets included."""
    evaluator = ScriptedEvaluator([verdict("wrong", trials_passed=1)])
    env = gym.make(ENV_ID, problems=[SAMPLE_PROBLEM], evaluator=evaluator, language=language)
    prepared = iter([answers(language) for _ in range(repeats + 1)])

    def episode() -> None:
        env.reset()
        for text in next(prepared):
            env.step(text)

    return per_call_us(episode, TURNS, repeats)


def vector_step_us(language: str, repeats: int) -> float:
    """Return the time of one slot's step in a vector environment, autoresets included."""
    evaluator = ScriptedEvaluator([verdict("wrong", trials_passed=1)])
    envs = gym.make_vec(
        ENV_ID, BATCH, problems=[SAMPLE_PROBLEM], evaluator=evaluator, language=language
    )
    prepared = iter([[answers(language) for _ in range(BATCH)] for _ in range(repeats + 1)])
    envs.reset()

    def episodes() -> None:
        for texts in zip(*next(prepared), strict=True):
            envs.step(texts)

    return per_call_us(episodes, TURNS * BATCH, repeats)


def import_ms(statement: str) -> float:
    """Return how long a fresh interpreter takes for an import, start-up left out."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout) * 1e3


def measure(repeats: int, imports: int) -> dict[str, Any]:
    """Return every number of one run."""
    steps: dict[str, dict[str, float]] = {}
    for language in ("triton", "cpp"):
        judge = evaluator_us(language, repeats)
        steps[language] = {
            "evaluator_us": judge,
            "step_us": step_us(language, repeats) - judge,
            "vector_step_us": vector_step_us(language, max(3, repeats // BATCH)) - judge,
        }
    statements = ("import gymnasium", "import kernelgym", "import kernelgym.envs.vector")
    taken: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(imports):  # alternating, so that a busy moment hits all of them
        for statement in statements:
            taken[statement].append(import_ms(statement))
    # The least of each: whatever else the machine does can only add to it.
    base, total, everything = (min(taken[statement]) for statement in statements)
    worst = max(entry["step_us"] for entry in steps.values())
    return {
        "steps": steps,
        "import": {
            "gymnasium_ms": base,
            "kernelgym_ms": total,
            "extra_ms": total - base,
            "with_envs_extra_ms": everything - base,
        },
        "ratios": {
            "step_over_goal": worst / 1e3 / STEP_GOAL_MS,
            "import_over_gymnasium": total / base,
            "import_with_envs_over_gymnasium": everything / base,
        },
        "goals": {
            "step_ms": STEP_GOAL_MS,
            "step_met": worst / 1e3 < STEP_GOAL_MS,
            "import_extra_ms": IMPORT_GOAL_MS,
            "import_met": total - base < IMPORT_GOAL_MS,
        },
    }


def table(result: dict[str, Any]) -> str:
    """Return the result for a reader."""
    rows = [("", "triton", "cpp")]
    for key, title in (
        ("step_us", "one step, us"),
        ("vector_step_us", f"one slot's step, {BATCH} slots, us"),
        ("evaluator_us", "scripted evaluator (not counted), us"),
    ):
        rows.append((title, *(f"{result['steps'][lang][key]:.1f}" for lang in ("triton", "cpp"))))
    lines = [f"{title:<40}{a:>10}{b:>10}" for title, a, b in rows]
    imports, goals = result["import"], result["goals"]
    lines.append(
        f"import: gymnasium {imports['gymnasium_ms']:.0f} ms, kernelgym "
        f"{imports['kernelgym_ms']:.0f} ms, extra {imports['extra_ms']:.1f} ms "
        f"({imports['with_envs_extra_ms']:.1f} ms with the environments' own modules)"
    )
    for name, text in (
        ("step_met", f"step under {STEP_GOAL_MS} ms"),
        ("import_met", f"import under {IMPORT_GOAL_MS:.0f} ms over gymnasium's"),
    ):
        lines.append(f"goal {text}: {'met' if goals[name] else 'NOT met'}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    parser.add_argument("--repeats", type=int, default=300, help="episodes timed")
    parser.add_argument("--imports", type=int, default=9, help="fresh interpreters per package")
    options = parser.parse_args()
    result = measure(options.repeats, options.imports)
    print(table(result))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(
            json.dumps({"machine": machine("gymnasium"), **result}, indent=2) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
