"""Does a model solve more with examples in its prompt? Warm start with and without, then held out.

Run ``python -m benchmarks.retrieval.effect --work FOLDER [--seeds 0,1,2] [--seconds 560]`` until it
ends with exit code 0: it goes through the stages of one seed after the other, stops in time, and
goes on at the next call, on this machine or another that has the folder (under 60 MB).

- Two Qwen3 of about 11 million weights, from nothing, over ordinary word tokens, learn the same
  right answers and repairs to Synthetic problems, in as many updates but for padding: one from
  the question alone, one with the page of examples before it.
- Both are asked held-out problems, twice where the first answer fails. Nothing of the problem asked
  is shown, as in every search. Kernels are judged by ``strict``, untimed, on ``--judge``.
- Arms: ``none`` (taught and asked without examples), ``first`` (with solutions before the first
  answer), ``adaptive`` (with repairs after a failure, too), ``first_asked_without`` (taught with,
  asked without).
- Tables: ``compositions`` of operators that were taught, ``shapes`` that were not, and an operator
  that was not taught at all, and stands in examples only.

``--model NAME_OR_FOLDER`` asks a model that is there already, as it is, by the full prompt; arms
are ``none``, ``first`` and ``adaptive``. ``--device cpu --tiny`` is the same in miniature.

Not covered: training with rewards, examples at random as a control, and the copy test: an answer
that is one of the kernels shown counts as right where the judge says so, and is counted
(``verbatim``).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.retrieval.effect_corpus import (
    FULL,
    TABLES,
    TINY,
    Plan,
    held_out,
    observer_of,
    prepare,
    rows_of,
    splits_of,
)
from benchmarks.retrieval.effect_rows import effect_rows, gain_rows
from kernelgym.benchmark.numbers.taxonomy import failure_of
from kernelgym.judge import LocalEvaluator
from kernelgym.machine import machine
from kernelgym.prompts.observer import Observer
from kernelgym.retrieval.part import Retrieval, load_index
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.credit.credit import counts
from kernelgym_train.demo.learning import RULES
from kernelgym_train.demo.model import build_model, parameter_count
from kernelgym_train.demo.stages import warm_up
from kernelgym_train.demo.warmstart import FitProgress, FitRule, fit_rows
from kernelgym_train.models import context_tokens, load_model, load_tokenizer
from kernelgym_train.rollout.play import EpisodeRules, play, tasks_of
from kernelgym_train.rollout.policies import HFPolicy, Sampling
from kernelgym_train.rollout.verdict_log import VerdictLog
from kernelgym_train.types import Rollout

ARMS: Mapping[str, tuple[str, str]] = {
    "none": ("without", "never"),
    "first": ("with", "first"),
    "adaptive": ("with", "adaptive"),
    "first_asked_without": ("with", "never"),
}
"""By arm, what its model was taught with, and when examples are shown."""
OF_A_MODEL = ("none", "first", "adaptive")
"""Arms of a model that is there already."""
STAGES = ("prepare", "fit_without", "none", "fit_with", *tuple(ARMS)[1:])
PACKAGES = ("torch", "triton", "transformers", "tokenizers")
STANDBY = 3
"""Processes that each of the judge's workers keeps ready: a turn's kernels come all at once."""
UNKNOWN_S = {"prepare": 60.0, "fit_without": 60.0, "fit_with": 120.0}
"""Seconds that a stage takes where none of its kind was run yet; others 100."""
NOTE = (
    "Intervals are 95 % ones over problems; those of all seeds are over the problems of {seeds}. "
    "{model}; nothing follows for other models or for KernelBench."
)


class Bench:
    """What all stages share: options, plan, judge, and the folder that keeps what is done."""

    def __init__(self, given: argparse.Namespace, plan: Plan, say: Callable[[str], None]) -> None:
        self.given, self.plan, self.say = given, plan, say
        self.judge = LocalEvaluator(
            given.judge, RULES, given.workers, timing=False, standby=STANDBY
        )
        self._warming = warm_up(self.judge)

    def folder(self, seed: int) -> Path:
        return Path(self.given.work) / f"seed_{seed}"

    def done(self, seed: int, stage: str) -> dict[str, Any] | None:
        path = self.folder(seed) / f"{stage}.json"
        return dict(json.loads(path.read_text())) if path.is_file() else None

    def run(self, seed: int, stage: str) -> None:
        """Run a stage and keep what it came to, which is written last."""
        folder = self.folder(seed)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        if stage == "prepare":
            found = prepare(folder, self.plan, seed, self.given.judge)
        elif stage in ARMS:
            found = self.play(seed, stage)
        else:
            found = self.fit(seed, stage.removeprefix("fit_"))
        found |= {"seconds": round(time.monotonic() - began, 1), "machine": self.machine()}
        draft = folder / f".{stage}.json"
        draft.write_text(json.dumps(found))
        draft.replace(folder / f"{stage}.json")
        self.say(f"seed {seed}, {stage}: {found['seconds']} s")
        # What no later stage reads is removed: the folder may be carried to another machine.
        if stage in ("none", tuple(ARMS)[-1]):
            shutil.rmtree(folder / f"model_{ARMS[stage][0]}", ignore_errors=True)
        if stage.startswith("fit_"):
            (folder / f"rows_{stage.removeprefix('fit_')}.npz").unlink()

    def machine(self) -> dict[str, Any]:
        return machine(self.given.device, *PACKAGES)

    def fit(self, seed: int, name: str) -> dict[str, Any]:
        """Fit a model on what is taught, and save it."""
        import torch

        plan, folder = self.plan, self.folder(seed)
        tokenizer = load_tokenizer(ModelConfig(id=str(folder / "tokenizer")))
        rows = rows_of(folder / f"rows_{name}.npz")
        model = build_model(tokenizer, plan.model, seed=seed, device=self.given.device)
        mean = sum(len(read) + len(answer) for read, answer in rows) / len(rows)
        rule = FitRule(
            epochs=plan.epochs,
            seconds=plan.warm_s,
            learning_rate=plan.warm_rate,
            batch_tokens=round(plan.batch_answers * mean),
            weight_decay=0.1,
            half=True,
        )
        last = -10.0

        def progress(done: FitProgress) -> None:
            nonlocal last
            if done.seconds - last >= 10.0:
                last = done.seconds
                self.say(f"  batch {done.batches} of {done.of}: loss {done.loss:.3f}")

        found = fit_rows(model, rows, rule, seed=seed, progress=progress)
        model.to(torch.bfloat16).save_pretrained(folder / f"model_{name}")
        tokenizer.save_pretrained(folder / f"model_{name}")
        self.say(f"  {name}: {found.epochs:.1f} epochs, loss {found.loss:.4f}")
        return {"parameters": parameter_count(model), **dataclasses.asdict(found)}

    def play(self, seed: int, arm: str) -> dict[str, Any]:
        """Play the held-out problems of a seed and return what each episode came to."""
        plan, folder, given = self.plan, self.folder(seed), self.given
        taught, when = ARMS[arm]
        place = given.model or str(folder / f"model_{taught}")
        dtype: Any = "auto" if given.model else "float32"
        config = ModelConfig(id=place, device=given.device, dtype=dtype)
        model, tokenizer = load_model(config), load_tokenizer(config)
        prompt, most = "short", None
        if given.model:
            context = context_tokens(model.config) or 16_384
            prompt, most = "full", min(context - plan.new_tokens - 256, 16_384)
        observer = observer_of(folder, plan, given.judge, tokenizer, when, prompt=prompt, most=most)
        own = load_tokenizer(ModelConfig(id=str(folder / "tokenizer")))
        tables = held_out(plan, splits_of(plan, seed), own)
        problems = [problem for name in TABLES for problem in tables[name]]
        judge = VerdictLog(self.judge, folder / "verdicts.jsonl")
        self._warming.join()
        rollouts = asyncio.run(
            play(
                tasks_of(0, problems, plan.samples),
                HFPolicy(model, tokenizer, Sampling(plan.new_tokens), batch=given.batch),
                judge,
                observer,
                EpisodeRules("sparse", "correct", "minimal", prompt_tokens=most),
                seed=f"effect/{seed}",
            )
        )
        found: dict[str, Any] = {"tables": {}, "failures": {}, "left_out": 0}
        for name in TABLES:
            ids = {problem.id for problem in tables[name]}
            mine = [each for each in rollouts if each.trajectory.problem.id in ids]
            counted = [each for each in mine if counts(each)]
            found["left_out"] += len(mine) - len(counted)
            found["tables"][name] = [episode(each, observer) for each in counted]
            failures = Counter(failure_of(each.trajectory.turns[0]) for each in counted)
            found["failures"][name] = dict(failures)
            right = sum(one["solved"] for one in found["tables"][name])
            self.say(f"  {arm}, {name}: {right} of {len(counted)} solved, {dict(failures)}")
        return {**found, "judged": judge.misses, "known": judge.hits}

    def close(self) -> None:
        self.judge.close()


def episode(rollout: Rollout, observer: Observer) -> dict[str, Any]:
    """Return what an episode came to, what it read, and whether it copied an example."""
    played = rollout.trajectory
    turns, problem = played.turns, played.problem
    shown = [observer.retrieved(problem, turns[:place])[0] for place in range(len(turns))]
    read = [len(completion.prompt_ids) for completion in rollout.completions]
    kernel = turns[0].reply.kernel
    text = "" if kernel is None else _spaceless(kernel.source)
    known = {_spaceless(source) for source in _kernels(observer, shown[0])}
    return {
        "problem": problem.id,
        "first": turns[0].verdict.correct,
        "solved": any(turn.verdict.correct for turn in turns),
        "reward": played.returns()[0],
        "tokens1": read[0],
        "tokens2": read[1] if len(read) > 1 else None,
        "shown1": len(shown[0]),
        "shown2": len(shown[1]) if len(shown) > 1 else None,
        "verbatim": text in known,
    }


def _kernels(observer: Observer, ids: tuple[str, ...]) -> list[str]:
    """Return the kernels of entries that an observer shows."""
    parts = [part for part in observer.parts if isinstance(part, Retrieval)]
    if not ids or not parts:
        return []
    index = load_index(parts[0], observer.language, observer.device)
    return [entry.kernel for entry in index.entries if entry.id in ids]


def _spaceless(source: str) -> str:
    return "".join(source.split())


def main() -> int:
    """Run stages; returns 0 when all is done, 3 if the time ended first."""
    given = _options()
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f}s] {text}", flush=True)

    os.environ.pop("TRITON_INTERPRET", None)  # the judge sets it for its own processes
    plan = (TINY if given.tiny else FULL).changed(
        samples=given.samples,
        epochs=given.epochs,
        per_problem=given.per_problem,
        new_tokens=given.new_tokens,
        warm_s=given.warm_s,
    )
    _check_work(given, plan)
    _steady(given.device)
    bench = Bench(given, plan, say)
    try:
        complete = _run_all(bench, started + given.seconds)
    finally:
        bench.close()
    result = summary(bench)
    if result["effect"]:
        out = given.out or given.work / "retrieval_effect.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
        for row in result["effect"]:
            say(f"{row['table']}, {row['arm']}, seed {row['seed']}: {_told(row)}")
        say(f"wrote {out}")
    say("all is done" if complete else "call again to go on")
    return 0 if complete else 3


def _told(row: Mapping[str, Any]) -> str:
    return (
        f"solved {row['solve_rate']:.3f} ({row['low']:.2f} to {row['high']:.2f}), first answer "
        f"{row['first']['value']:.3f}, {row['prompt_tokens']:.0f} tokens read"
    )


def _run_all(bench: Bench, ends: float) -> bool:
    """Run what is not done yet; False if the time ends first."""
    took: dict[str, float] = {}
    begun = False
    stages = ("prepare", *OF_A_MODEL) if bench.given.model else STAGES
    for seed in bench.given.seeds:
        for stage in stages:
            kept = bench.done(seed, stage)
            if kept is None:
                left = ends - time.monotonic()
                need = 1.1 * took.get(_kind(stage), UNKNOWN_S.get(stage, 100.0))
                if begun and left < need:
                    bench.say(f"{left:.0f} s are left, too few for seed {seed}, {stage}")
                    return False
                bench.say(f"seed {seed}, {stage} ...")
                bench.run(seed, stage)
                kept = bench.done(seed, stage)
                assert kept is not None
                begun = True
            took[_kind(stage)] = max(kept["seconds"], took.get(_kind(stage), 0.0))
    return True


def _kind(stage: str) -> str:
    return "arm" if stage in ARMS else stage


def summary(bench: Bench) -> dict[str, Any]:
    """Return the result of what is done so far, as JSON data."""
    given = bench.given
    seeds: dict[int, dict[str, Any]] = {}
    about: dict[str, Any] = {}
    ran: list[dict[str, Any]] = []
    for seed in given.seeds:
        stages = {stage: found for stage in STAGES if (found := bench.done(seed, stage))}
        arms = {arm: found["tables"] for arm, found in stages.items() if arm in ARMS}
        if not arms:
            continue
        seeds[seed] = arms
        # The load differs from stage to stage; what is told is the machine.
        ran += [
            {name: value for name, value in found["machine"].items() if name != "load"}
            for found in stages.values()
        ]
        about[str(seed)] = {
            stage: {key: value for key, value in found.items() if key not in ("tables", "machine")}
            for stage, found in stages.items()
        }
    named = f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
    model = f"Model {given.model}" if given.model else "Small models made from nothing"
    return {
        "note": NOTE.format(seeds=named, model=model),
        "ran": [each for place, each in enumerate(ran) if each not in ran[:place]],
        "device": given.device,
        "judge": given.judge,
        "model": given.model,
        "plan": dataclasses.asdict(bench.plan),
        "effect": effect_rows(seeds),
        "gains": gain_rows(seeds),
        "seeds": about,
    }


def _check_work(given: argparse.Namespace, plan: Plan) -> None:
    """Refuse a folder that was begun with another plan, model or judge."""
    path = given.work / "plan.json"
    now = {"plan": dataclasses.asdict(plan), "model": given.model, "judge": given.judge}
    now = json.loads(json.dumps(now))
    if not path.is_file():
        given.work.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(now))
    elif json.loads(path.read_text()) != now:
        raise SystemExit(
            f"{given.work} was begun with another plan, model or judge; give the options of the "
            "first call, or another --work"
        )


def _steady(device: str) -> None:
    """Compute in full fp32 where fp32 is said; refuse a device that is not there."""
    import torch

    torch.set_float32_matmul_precision("highest")
    if device == "cpu":
        torch.set_num_threads(1)
    elif not torch.cuda.is_available():
        raise SystemExit(f"there is no {device} here; give --device cpu --tiny to try it out")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--work", type=Path, default=Path("runs/retrieval_effect"), help="keeps what is done")
    add("--seeds", type=_numbers, default=[0, 1, 2], help="seeds, such as 0,1,2")
    add("--seconds", type=float, default=560.0, help="after which no stage is begun that is longer")
    add("--device", default="cuda:0", help="of the model")
    add("--judge", help="device of the kernels; --device if not given")
    add("--workers", type=int, default=12, help="kernels judged at a time")
    add("--batch", type=int, default=256, help="most answers of one generation")
    add("--model", default="", help="name or folder of a model that is asked as it is")
    add("--out", type=Path, help="the result; retrieval_effect.json in --work if not given")
    add("--tiny", action="store_true", help="in miniature, to see that it runs")
    add("--samples", type=int, help="episodes of each problem")
    add("--epochs", type=int, help="of the fitting")
    add("--per-problem", type=int, help="first answers that are taught for each problem")
    add("--new-tokens", type=int, help="most tokens of an answer")
    add("--warm-s", type=float, help="seconds after which a fitting ends")
    given = parser.parse_args()
    given.judge = given.judge or given.device
    return given


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
