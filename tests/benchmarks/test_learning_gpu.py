"""The demonstration on a GPU, in miniature on a CPU: its plans, its result, its stages."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import gpu
from benchmarks.learning import gpu_result as result
from benchmarks.learning.gpu_plan import FULL, ROWS, SMOKE, TINY, Plan
from kernelgym.benchmark.numbers.intervals import Rate
from kernelgym_train.demo.scores import Scores

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("plan", [FULL, SMOKE, TINY], ids=["full", "smoke", "tiny"])
def test_plans_hold_what_is_promised(plan: Plan) -> None:
    assert plan.rows <= ROWS and plan.rows % 2 == 0, "two micro-batches"
    # What is read at a later turn: question, last answer, feedback; and what is written.
    longest = plan.prompt_tokens + plan.new_tokens + 100 + plan.new_tokens
    assert longest <= plan.model.context
    assert plan.new_tokens > plan.answer_tokens
    stages = gpu.STAGES
    # Each call ends within ten minutes, whatever stage it ends with.
    assert all(gpu.needed_s(stage, plan) < 520 for stage in stages)


def test_the_full_plan_is_the_one_that_is_told_of() -> None:
    model = FULL.model
    square = 4 * model.hidden**2 + 3 * model.hidden * model.feed_forward
    assert 10e6 < model.layers * square + 2 * 1024 * model.hidden < 12e6
    assert FULL.rows == ROWS == 192


def scores() -> Scores:
    rate = Rate(0.25, 0.1, 0.5, 8.0)
    return Scores(
        *(2, 8, rate, None, {1: rate, 4: rate}, rate, rate, rate, None, rate),
        failures={"right": 2, "format": 6},
        tokens_per_answer=241.5,
    )


def test_scores_come_back_from_a_file() -> None:
    kept = json.loads(json.dumps(dataclasses.asdict(scores())))
    assert result.scores_from(kept) == scores()


def test_the_histogram_holds_every_kernel() -> None:
    values = [0.2, 0.5, 0.95, 1.0, 1.05, 1.9, 4.0, 90.0]
    told = result.speedups({"speedups": [{"speedup": value} for value in values], "own": True})
    assert told is not None and sum(told["histogram"].values()) == len(values)
    assert told["histogram"]["0.95 to 1.05"] == 2 and told["histogram"]["4 to inf"] == 2
    assert result.speedups(None) is None


def test_time_is_shared_out(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "grpo"
    run.mkdir(parents=True)
    step = {"time/total_s": 10.0, "time/play_s": 8.0, "time/model_s": 5.0, "time/judge_s": 3.0}
    step |= {"batch/turns": 20.0, "kernel/format_rate": 0.5, "advantage/samples": 18.0}
    rows = [{"step": n, **step} for n in range(2)]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (run / "verdicts.jsonl").write_text("{}\n" * 5)

    class Work:
        folder = tmp_path

    told: dict[str, Any] = result.training(Work(), "grpo")  # type: ignore[arg-type]
    assert told["share"] == {"judge": 0.3, "sampling": 0.5, "learning": pytest.approx(0.2)}
    assert math.isclose(math.fsum(told["share"].values()), 1.0)
    assert (told["steps"], told["judged"], told["hit_rate"]) == (2, 5, 0.75)


@pytest.mark.slow
def test_all_stages_in_miniature(tmp_path: Path) -> None:
    """In calls that end early, as on a machine that is lent for minutes."""
    command = [sys.executable, "-m", "benchmarks.learning.gpu"]
    command += ["--work", str(tmp_path), "--device", "cpu", "--tiny", "--workers", "1"]
    command += ["--warm-s", "2", "--samples", "1", "--held-out", "1", "--out"]
    command += [str(tmp_path / "out.json")]
    ended = [subprocess.run([*command, "--stage", "prepare"], check=False, timeout=600).returncode]
    for _ in range(20):
        ended.append(subprocess.run([*command, "--budget-s", "1"], check=False).returncode)
        if ended[-1] != 3:
            break
    assert ended[0] == ended[-1] == 0 and set(ended[1:-1]) == {3}, ended
    found = json.loads((tmp_path / "out.json").read_text())
    assert set(found["held_out"]) == {"before", "after", "control"}
    assert found["training"]["grpo"]["steps"] == TINY.steps
    assert found["labels"]["as_labelled"] == found["labels"]["kernels"] == TINY.labels
    assert found["seconds"].keys() == set(gpu.STAGES)
    page = (tmp_path / "out.html").read_text()
    assert "compositions" in page and "One seed" in page
