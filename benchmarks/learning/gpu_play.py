"""GRPO and held-out evaluation of the demonstration on a GPU: settings, and what is kept of them.

What a step, an episode and a score are is kernelgym_train's; nothing of it is written anew here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.learning.arms import ShuffledSteps
from benchmarks.learning.gpu_plan import ROWS, TURNS
from benchmarks.learning.gpu_work import TABLES, Work
from kernelgym import UsageError
from kernelgym.benchmark.numbers.taxonomy import failure_of
from kernelgym.prompts.short import question
from kernelgym_train.config.config import Config
from kernelgym_train.demo.heldout import HeldOut, evaluate_policy, policy_of
from kernelgym_train.demo.learning import dialogue_observer, learn, learning_config
from kernelgym_train.launch.assembly import episode_rules
from kernelgym_train.models import load_model
from kernelgym_train.rollout.verdict_log import VerdictLog
from kernelgym_train.run.steps import Steps

SPECIMENS = 3
"""Greedy answers of each table that the report shows."""


def settings(work: Work, run: str) -> Config:
    """Return the configuration of a training run."""
    plan = work.plan
    assert plan.rows <= ROWS, f"at most {ROWS} rows a step"
    steps = plan.steps if run == "grpo" else plan.control_steps
    half = plan.rows // 2
    return learning_config(
        work.folder / "model",
        work.folder / "runs" / run,
        plan.seed,
        (
            f"env.max_turns={TURNS}",
            f"sampling.problems_per_step={plan.problems_per_step}",
            f"sampling.group_size={plan.group_size}",
            f"sampling.max_new_tokens={plan.new_tokens}",
            f"sampling.max_prompt_tokens={plan.model.context - plan.new_tokens}",
            f"sampling.batch_size={plan.problems_per_step * plan.group_size}",
            f"optimiser.steps={steps}",
            f"optimiser.learning_rate={plan.learning_rate}",
            "optimiser.schedule=constant",  # the control has fewer steps, and would fall faster
            f"optimiser.kl_beta={plan.kl}",
            f"optimiser.micro_batch={half}",
            f"model.device={work.device}",
            f"judge.device={work.device}",
            f"judge.workers={work.workers}",
            "run.save_every=5",
            "run.keep_checkpoints=1",
            "logging.trajectories=false",
            "logging.histograms_every=5",
        ),
    )


def train(work: Work, run: str, seconds: float) -> dict[str, Any] | None:
    """Train by GRPO, or go on with it; None if time ran out before the last step."""
    from kernelgym_train.run.watchers import Lines, TensorBoard

    config = settings(work, run)
    folder = work.folder / "runs" / run
    resume = (folder / "config.yaml").is_file()
    steps = config.optimiser.steps
    watchers: list[Any] = [Lines(steps)]
    if run == "grpo":
        with contextlib.suppress(UsageError):  # not installed
            first = _steps_done(folder) if resume else 0
            watchers.append(TensorBoard(work.folder / "tensorboard" / run, first))
    try:
        with _interrupted_after(seconds):
            learn(
                config,
                work.problems("rl"),
                work.judge,
                watchers=watchers,
                steps=ShuffledSteps if run == "control" else Steps,
                resume=resume,
            )
    except KeyboardInterrupt:
        work.say(f"  stopped at a checkpoint after {_steps_done(folder)} of {steps} steps")
        return None
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    if stopped := events[-1].get("stopped"):
        work.say(f"  a guard stopped it: {stopped}")
    return {"steps": _steps_done(folder), "stopped": stopped}


def _steps_done(folder: Path) -> int:
    rows = (folder / "metrics.jsonl").read_text().splitlines() if folder.is_dir() else []
    return int(json.loads(rows[-1])["step"]) + 1 if rows else 0


@contextlib.contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt this process as a user would, once: the trainer finishes its step and saves."""
    ended = threading.Event()
    nobody = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)

    def interrupt() -> None:
        ended.wait(max(0.0, seconds))
        while signal.getsignal(signal.SIGINT) in nobody:  # the trainer does not listen yet
            if ended.wait(0.2):
                return
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def evaluate(work: Work, run: str | None) -> dict[str, Any]:
    """Play the held-out tables with the warm-started model, or with what a run made of it."""
    config = settings(work, run or "grpo")
    model = load_model(config.model)
    if run is not None:
        from peft import PeftModel

        adapted = PeftModel.from_pretrained(model, str(work.folder / "runs" / run / "model"))
        model = adapted.merge_and_unload()
    judge = VerdictLog(work.judge, work.folder / "verdicts.jsonl")
    tables = {name: work.problems(name) for name in TABLES}
    started = time.monotonic()
    found = evaluate_policy(
        policy_of(model, work.tokenizer, 256),
        {name: problems for name, problems in tables.items() if problems},
        judge,
        dialogue_observer(config, judge, work.tokenizer),
        episode_rules(config),
        samples=work.plan.samples,
        max_new_tokens=work.plan.new_tokens,
        seed=work.plan.seed,
        pass_at=tuple(k for k in (1, 4, 8, 16) if k <= work.plan.samples),
    )
    if run == "grpo":
        _keep_right(work, found)
    told = {name: dataclasses.asdict(table.scores) for name, table in found.items()}
    for name, table in found.items():
        scores = table.scores
        work.say(f"  {name}: sampled {scores.sampled}, greedy {scores.greedy}, n={scores.n}")
        work.say(
            f"    within {TURNS} turns {scores.within}, retry {scores.retry}, blind {scores.blind}"
        )
        work.say(f"    parsed {scores.parsed}, cheats {scores.cheats}, {dict(scores.failures)}")
    work.say(f"  {judge.misses} kernels judged, {judge.hits} known")
    return {
        "tables": told,
        "seconds": time.monotonic() - started,
        "judged": judge.misses,
        "known": judge.hits,
        "answers": _specimens(found),
    }


def _specimens(found: dict[str, HeldOut]) -> dict[str, dict[str, str]]:
    """Return some greedy first answers, for a reader."""
    return {
        rollout.trajectory.problem.id: {
            "question": question(rollout.trajectory.problem)[0].content,
            "answer": rollout.trajectory.turns[0].action,
            "verdict": failure_of(rollout.trajectory.turns[0]),
        }
        for table in found.values()
        for rollout in table.greedy[:SPECIMENS]
    }


def _keep_right(work: Work, found: dict[str, HeldOut]) -> None:
    """Write down the greedy answers that are right, to be timed."""
    right = [
        {"problem": rollout.trajectory.problem.id, "table": name, "source": kernel.source}
        for name, table in found.items()
        for rollout in table.greedy
        for turn in rollout.trajectory.turns
        if turn.verdict.correct and (kernel := turn.reply.kernel) is not None
    ]
    (work.folder / "right.json").write_text(json.dumps(right))
