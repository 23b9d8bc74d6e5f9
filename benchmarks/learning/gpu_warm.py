"""The warm start of the demonstration on a GPU: its answers as tokens, and who has read them.

`prepare` needs no GPU and is what takes longest on a CPU, so it can be run beforehand elsewhere.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks.learning.gpu_plan import Plan
from benchmarks.learning.gpu_work import TABLES, Work, code_digest
from kernelgym.prompts.short import question
from kernelgym.suites.synthetic import solve
from kernelgym.types import Problem
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.demo.corpus import Example, first_answers, fits, planted_rates, repairs
from kernelgym_train.demo.dialogue import answer_of
from kernelgym_train.demo.model import build_model, parameter_count
from kernelgym_train.demo.tokenizer import train_tokenizer, within_budget
from kernelgym_train.demo.warmstart import FitProgress, FitRule, encode, fit_rows
from kernelgym_train.models import load_tokenizer
from kernelgym_train.rollout.huggingface_policy import ChatText

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids that are read, and ids that are answered."""

_STYLES = 12


def prepare(work: Work) -> dict[str, Any]:
    """Write the warm start's answers, train its tokenizer, and choose the problems."""
    plan, splits = work.plan, work.splits
    warm = spread(problem for problem in splits.warmstart if fits(problem))
    rates = planted_rates(warm, plan.seed)
    families: dict[str, list[Problem]] = collections.defaultdict(list)
    for problem in warm:
        families[problem.family].append(problem)
    # Every part has all families, or it would have other rates.
    count = min(len(os.sched_getaffinity(0)), *map(len, families.values()))
    parts = [[p for group in families.values() for p in group[n::count]] for n in range(count)]
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("spawn")) as pool:
        written = list(pool.map(_written, parts, itertools.repeat((plan, work.device, rates))))
        made = [example for part in written for example in part]
        work.say(f"{len(made)} answers written for {len(warm)} problems")
        tokenizer = train_tokenizer(made, 4096, words=True)
        tokenizer.save_pretrained(work.folder / "tokenizer")
        rows, kept = [], []
        where = itertools.repeat((plan, str(work.folder / "tokenizer")))
        for ids, examples in pool.map(_encoded, written, where):
            rows += ids
            kept += examples
    work.say(f"{len(kept)} of them fit into {plan.answer_tokens} tokens of {len(tokenizer)} kinds")
    whole = [np.asarray([*read, *answer], np.uint16) for read, answer in rows]
    np.savez_compressed(
        work.folder / "rows.npz",
        ids=np.concatenate(whole),
        reads=np.asarray([len(read) for read, _ in rows]),
        answers=np.asarray([len(answer) for _, answer in rows]),
    )
    most = {"rl": 10**6, "compositions": plan.held_out, "shapes": plan.held_out}
    chosen = {
        name: [
            problem.id
            for problem in spread(getattr(splits, name))
            if _fits_tokens(problem, tokenizer, plan)
        ][: most.get(name, plan.unseen)]
        for name in ("rl", *TABLES)
    }
    prepared = {"problems": chosen, "code": code_digest(), "plan": dataclasses.asdict(plan)}
    (work.folder / "prepared.json").write_text(json.dumps(prepared))
    lengths = [
        len(answer) for (_, answer), each in zip(rows, kept, strict=True) if each.label != "torch"
    ]
    return {
        "examples": len(kept),
        "labels": dict(collections.Counter(example.label for example in kept)),
        "families": dict(collections.Counter(example.problem.family for example in kept)),
        "planted_rates": rates,
        "vocabulary": len(tokenizer),
        "kernel_tokens": {
            "least": min(lengths),
            "median": int(np.median(lengths)),
            "most": max(lengths),
        },
        "problems": {name: len(ids) for name, ids in chosen.items()},
        "withheld_operator": splits.withheld,
    }


def _written(
    problems: list[Problem], asked: tuple[Plan, str, dict[str, float]]
) -> tuple[Example, ...]:
    """Return the answers to some of the problems."""
    plan, device, rates = asked
    assert planted_rates(problems, plan.seed) == rates
    second = max(1, plan.per_problem // 8)
    return (
        *first_answers(problems, plan.seed, plan.per_problem, device=device),
        *repairs(problems, plan.seed, second, device=device),
    )


def _encoded(
    examples: tuple[Example, ...], asked: tuple[Plan, str]
) -> tuple[list[Row], tuple[Example, ...]]:
    """Return the ids of examples that are short enough, and those examples."""
    plan, folder = asked
    tokenizer = load_tokenizer(ModelConfig(id=folder))
    kept = within_budget(
        tokenizer, examples, module_tokens=plan.answer_tokens, prompt_tokens=plan.prompt_tokens
    )
    text = ChatText(tokenizer)
    return [encode(text, example) for example in kept], kept


def spread(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems so that any first few of them are of all families."""
    families: dict[str, list[Problem]] = collections.defaultdict(list)
    for problem in problems:
        families[problem.family].append(problem)
    most = max(map(len, families.values()))
    return [group[n] for n in range(most) for group in families.values() if n < len(group)]


def _fits_tokens(problem: Problem, tokenizer: Any, plan: Plan) -> bool:
    """Say whether question and some right answer are no longer than the warm start's."""

    def length(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    if length(question(problem)[0].content) > plan.prompt_tokens - 8:
        return False
    sources = (solve(problem, style_seed=style).source for style in range(_STYLES))
    return any(length(answer_of(source)) <= plan.answer_tokens for source in sources)


def warm_start(work: Work) -> dict[str, Any]:
    """Fit a model on the answers, and save it in bfloat16."""
    import torch

    plan, tokenizer = work.plan, work.tokenizer
    with np.load(work.folder / "rows.npz") as kept:
        ids, reads, answers = kept["ids"].tolist(), kept["reads"].tolist(), kept["answers"].tolist()
    rows, at = [], 0
    for read, answer in zip(reads, answers, strict=True):
        rows.append((ids[at : at + read], ids[at + read : at + read + answer]))
        at += read + answer
    model = build_model(tokenizer, plan.model, seed=plan.seed, device=work.device)
    rule = FitRule(
        epochs=plan.warm_epochs,
        seconds=plan.warm_s,
        learning_rate=plan.warm_rate,
        batch_tokens=plan.batch_tokens,
        weight_decay=0.1,
        half=True,
    )
    work.say(f"{parameter_count(model):,} parameters, {len(rows)} answers, {sum(answers):,} tokens")
    last = -10.0

    def progress(done: FitProgress) -> None:
        nonlocal last
        if done.seconds - last >= 10.0:
            last = done.seconds
            work.say(f"  batch {done.batches} of {done.of}: loss {done.loss:.3f}")

    found = fit_rows(model, rows, rule, seed=plan.seed, progress=progress)
    model.to(torch.bfloat16).save_pretrained(work.folder / "model")
    tokenizer.save_pretrained(work.folder / "model")
    work.say(f"  {found.epochs:.1f} epochs, loss {found.loss:.3f}")
    return {"parameters": parameter_count(model), **dataclasses.asdict(found)}
