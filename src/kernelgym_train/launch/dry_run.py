"""`kernelgym-train --dry-run`: checks that everything a run needs exists and fits.

Contract: looks, and changes nothing: no weights are loaded, no run folder is made, no kernel is
judged. What is found is returned line by line; what is missing is told at the end, all at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from kernelgym import Problem, UsageError
from kernelgym.devices import find_device
from kernelgym.judging_memory import in_gigabytes
from kernelgym_train.backends.backend import Model, find_backend
from kernelgym_train.config.config import Config
from kernelgym_train.launch.assembly import (
    held_out_problems,
    training_problems,
    training_retrieval,
    with_memory_budget,
)
from kernelgym_train.launch.prompts import check_prompts


def dry_run(config: Config, *, assume_gpu_gib: float | None = None) -> Iterator[str]:
    """Check what a training run needs; yield one line for each result.

    Args:
        config: The configuration.
        assume_gpu_gib: Memory of a GPU that this machine is taken to have, for planning; its own
            GPUs are not looked at then.

    Raises:
        UsageError: At the end, if something is missing or does not fit, with its fix. Of several
            things, each has a line of its own before.
    """
    missing: list[str] = []
    backend = find_backend(config.run.backend)
    installed = False
    with _noted(missing):
        backend.check(config)
        installed = True
        yield f"backend     {config.run.backend}, its packages are installed"
    folder = Path(config.run.folder) / config.run.name
    if folder.exists():
        missing.append(
            f"there is a run in {str(folder)!r} already; continue it by --resume {folder}, or "
            "set run.name"
        )
    else:
        yield f"run         {folder}, new"
    judge, url = config.judge.device, config.judge.url
    with _noted(missing):
        if assume_gpu_gib is None and not url:
            judge = find_device(judge)
        yield f"judge       on {judge}" + (f" of the service at {url}" if url else "")
    problems: tuple[Problem, ...] = ()
    held_out: tuple[Problem, ...] = ()
    with _noted(missing):
        assumed = None
        if assume_gpu_gib is not None and judge != "cpu":
            assumed = assume_gpu_gib * 2**30
        config = with_memory_budget(config, assumed)
        budget = config.judge.memory_bytes or 0
        yield f"budget      {in_gigabytes(budget)} to judge a kernel; larger problems are left out"
    with _noted(missing):
        problems = training_problems(config)
        yield f"problems    {len(problems)} to train on, of {config.env.suite}"
        held_out = held_out_problems(config) if config.evaluation.every else ()
        if held_out:
            yield f"held out    {len(held_out)} to evaluate on"
    if installed:
        with _noted(missing), contextlib.closing(backend.prepare(config)) as model:
            yield from model.about(assume_gpu_gib)
            if not missing:
                yield from _plan(config, model, judge, problems, held_out, assume_gpu_gib)
    if len(missing) > 1:
        for text in missing:
            yield f"missing     {text}"
        raise UsageError(f"{len(missing)} things are missing or do not fit; see above")
    if missing:
        raise UsageError(missing[0])


@contextlib.contextmanager
def _noted(missing: list[str]) -> Iterator[None]:
    """Collect the message of a `UsageError` raised in the block, and continue after the block."""
    try:
        yield
    except UsageError as error:
        if str(error) not in missing:  # both model and judge may lack the same GPU
            missing.append(str(error))


def _plan(
    config: Config,
    model: Model,
    judge: str,
    problems: Sequence[Problem],
    held_out: Sequence[Problem],
    assume_gpu_gib: float | None,
) -> Iterator[str]:
    """Yield what a run of a prepared model will do, line by line."""
    context = model.context
    if config.retrieval.on:
        part = training_retrieval(config, judge)
        yield f"retrieval   {part.k} entries of index {part.index}, digest {part.digest}"
    longest, where = check_prompts(
        config, model.tokenizer, context, problems, held_out, device=judge
    )
    yield f"prompts     at most {longest} tokens on the first turn ({where})"
    if context is not None:
        yield f"context     {context} tokens, which hold every prompt with its answer"
    yield f"ruleset     {config.rules.label}"
    for first, preset in config.schedule.entries:
        weights = ((name, value) for name, value in asdict(preset.weights).items() if value)
        parts = ", ".join(f"{name} {value:g}" for name, value in weights)
        yield f"reward      {preset.name} after {first} steps: {parts}"
    yield f"step        at most {config.samples_per_step} samples to learn from"
    yield from model.plan(judge, problems, held_out, assume_gpu_gib)
