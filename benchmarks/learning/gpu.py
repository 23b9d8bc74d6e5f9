"""A small model learns from executed kernels on one GPU: warm start, GRPO, control, evaluation.

Run ``python -m benchmarks.learning.gpu --work FOLDER [--budget-s 520]`` until it says that all is
done: it goes through the stages in their order, stops in time at a checkpoint, and goes on at the
next call, on the same machine or another that has the folder (under 60 MB). One seed; sizes are
fixed beforehand in gpu_plan.py.

- A Qwen3 of about 11 million weights, from nothing, over ordinary word tokens; kernels of some 180
  to 300 tokens; eight families of problems; episodes of three turns; at most 192 samples a step.
- Kernels are compiled by Triton and run on the GPU by the strict judge, evidence on, untimed, up to
  the first call that fails. At the end the trained model's right greedy answers are timed.
- Held-out problems are compositions and shapes that neither warm start nor training has, in tables
  of their own; the control deals every step's advantages anew among its samples.

``--stage prepare`` needs no GPU: run it beforehand. ``--stage smoke`` tries every kind of stage, in
about 90 s and a folder of its own. ``--device cpu --tiny`` is the same in miniature, interpreted.
Results go to ``--out`` and a report beside it, once the trained model has been evaluated; ``--stage
report`` writes them again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.learning.gpu_judging import check_labels, time_right
from benchmarks.learning.gpu_plan import FULL, RUNS, SMOKE, TINY, Plan
from benchmarks.learning.gpu_play import evaluate, train
from benchmarks.learning.gpu_result import ran_on, training, write_result
from benchmarks.learning.gpu_warm import prepare, warm_start
from benchmarks.learning.gpu_work import Work, code_digest

MOST_BYTES = 60_000_000
MARGIN_S = 25.0
"""Left for the last step and its checkpoint when a training is stopped in time."""
OUT = Path(__file__).parents[1] / "results" / "learning_gpu.json"
STAGES = (
    *("prepare", "warmstart", "labels", "before", "grpo", "after", "control", "control_after"),
    "timing",
)


SMOKE_STAGES = ("prepare", "warmstart", "labels", "grpo", "after", "timing")
"""Every kind of stage once."""


def needed_s(stage: str, plan: Plan) -> float:
    """Return about how long a stage takes that cannot be interrupted."""
    if stage == "warmstart":
        return plan.warm_s + 40.0
    known = {"prepare": 150.0, "labels": 30.0, "timing": 100.0, "grpo": 90.0, "control": 90.0}
    return known.get(stage, 170.0)


def main() -> int:
    """Run stages; returns 0 when all that was asked for is done, 3 if the budget ended first."""
    given = _arguments()
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f}s] {text}", flush=True)

    os.environ.pop("TRITON_INTERPRET", None)  # the judge sets it for its own processes
    smoke = given.stage == "smoke"
    plan = (TINY if given.tiny else SMOKE if smoke else FULL).changed(
        steps=given.steps,
        control_steps=given.control_steps,
        learning_rate=given.learning_rate,
        warm_s=given.warm_s,
        samples=given.samples,
        held_out=given.held_out,
    )
    folder = given.work / "smoke" if smoke else given.work
    if smoke and folder.is_dir():
        shutil.rmtree(folder)
    work = Work(folder, plan, given.device, given.workers, say)
    several = {"all": STAGES, "smoke": SMOKE_STAGES, "report": ()}
    stages = several.get(given.stage, (given.stage,))
    try:
        done = _run(work, stages, given.budget_s - (time.monotonic() - started), smoke)
    finally:
        work.close()
        work.prune(_state(work))
    size = work.size_bytes()
    say(f"{folder} holds {size / 1e6:.1f} MB")
    if size > MOST_BYTES:
        say(f"that is more than {MOST_BYTES / 1e6:.0f} MB: too much to be carried")
    state = _state(work)
    if "after" in state:
        own = folder / "result.json" if smoke or given.tiny else OUT
        for path in write_result(work, state, given.out or own):
            say(f"wrote {path}")
    return 0 if done else 3


def _run(work: Work, stages: tuple[str, ...], budget_s: float, smoke: bool) -> bool:
    """Run what is not done yet; False if the budget ends first."""
    ends = time.monotonic() + budget_s
    if stages not in ((), ("prepare",)):
        _steady(work)
        work.warm_up()
    begun = False
    for stage in stages:
        state = _state(work)
        if stage in state:
            continue
        left = ends - time.monotonic()
        if begun and left < needed_s(stage, work.plan) and not smoke:
            work.say(f"{left:.0f} s are left, too few for {stage}; call again")
            return False
        if stage != "prepare":
            _check_prepared(work)
        begun, began = True, time.monotonic()
        work.say(f"{stage} ...")
        found = _do(work, stage, left - MARGIN_S)
        seconds = time.monotonic() - began
        spent = state.get("seconds", {}).get(stage, 0.0) + seconds
        state["seconds"] = {**state.get("seconds", {}), stage: spent}
        if stage == "grpo":
            state["ran"] = ran_on(work)
        if found is not None:
            state[stage] = found
        (work.folder / "state.json").write_text(json.dumps(state))
        if stage in RUNS:
            _say_times(work, stage)
        if found is None:
            work.say("call again to go on")
            return False
        work.say(f"{stage}: {seconds:.1f} s")
    return True


def _do(work: Work, stage: str, left_s: float) -> dict[str, Any] | None:
    """Run a stage; None if it has to be gone on with."""
    does: dict[str, Callable[[], dict[str, Any] | None]] = {
        "prepare": lambda: prepare(work),
        "warmstart": lambda: warm_start(work),
        "labels": lambda: check_labels(work),
        "before": lambda: evaluate(work, None),
        "grpo": lambda: train(work, "grpo", left_s),
        "after": lambda: evaluate(work, "grpo"),
        "control": lambda: train(work, "control", left_s),
        "control_after": lambda: evaluate(work, "control"),
        "timing": lambda: time_right(work),
    }
    return does[stage]()


def _say_times(work: Work, run: str) -> None:
    told = training(work, run)
    if not told["steps"]:
        return
    share = ", ".join(f"{name} {100 * part:.0f} %" for name, part in told["share"].items())
    work.say(
        f"  {told['seconds'] / told['steps']:.1f} s a step: {share}; {told['judged']} kernels "
        f"judged, {100 * told['hit_rate']:.0f} % were known"
    )


def _steady(work: Work) -> None:
    """Have the trainer compute in full fp32 where it says fp32, and say what it runs on."""
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    if work.device == "cpu":
        torch.set_num_threads(1)
        return
    if not torch.cuda.is_available():
        raise SystemExit(f"there is no {work.device} here; give --device cpu --tiny to try it out")
    work.say(f"{torch.cuda.get_device_name(work.device)}, torch {torch.__version__}")


def _check_prepared(work: Work) -> None:
    path = work.folder / "prepared.json"
    if not path.is_file():
        raise SystemExit("nothing is prepared; run --stage prepare, or all stages")
    kept = json.loads(path.read_text())
    if kept["code"] != code_digest():
        raise SystemExit(
            "the code that writes questions and answers has changed since they were prepared; "
            "take a new --work folder and prepare again"
        )
    fixed = ("seed", "listed", "chains", "per_problem", "answer_tokens", "model")
    now = json.loads(json.dumps(dataclasses.asdict(work.plan)))
    differing = [name for name in fixed if kept["plan"][name] != now[name]]
    if differing:
        raise SystemExit(f"prepared with another {', '.join(differing)}; take a new --work folder")


def _state(work: Work) -> dict[str, Any]:
    path = work.folder / "state.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    default = Path(tempfile.gettempdir()) / "kernelgym-learning-gpu"
    add("--work", type=Path, default=default, help="folder of all that stages leave")
    add("--stage", choices=("all", "smoke", "report", *STAGES), default="all")
    add("--budget-s", type=float, default=520.0, help="seconds after which this call ends")
    add("--device", default="cuda:0")
    add("--workers", type=int, default=12, help="kernels judged at a time")
    add("--tiny", action="store_true", help="in miniature, to see that it runs")
    add("--out", type=Path, help="the result, if not benchmarks/results/learning_gpu.json")
    add("--steps", type=int)
    add("--control-steps", type=int)
    add("--learning-rate", type=float)
    add("--warm-s", type=float)
    add("--samples", type=int)
    add("--held-out", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
