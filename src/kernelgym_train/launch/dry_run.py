"""`kernelgym-train --dry-run`: is everything there that a run needs, and does it fit?

Contract: looks, and changes nothing: no weights are loaded, no run folder is made, no kernel is
judged. The first thing that is missing is a `UsageError` with its fix; what is found is returned
line by line.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from kernelgym import UsageError
from kernelgym.devices import find_device
from kernelgym.judging_memory import in_gigabytes
from kernelgym_train.config.config import Config
from kernelgym_train.launch.assembly import (
    held_out_problems,
    training_problems,
    with_memory_budget,
)
from kernelgym_train.launch.footprint import reference_sizes
from kernelgym_train.launch.memory import estimate_memory
from kernelgym_train.launch.prompts import check_prompts
from kernelgym_train.models import context_tokens, gpus, load_shape, load_tokenizer, model_device

__all__ = ["dry_run", "missing_packages"]

_PACKAGES = {"trl": ("trl", "transformers", "peft", "accelerate")}


def dry_run(config: Config, *, assume_gpu_gib: float | None = None) -> Iterator[str]:
    """Check what a run needs; yields what was found.

    Args:
        config: The configuration.
        assume_gpu_gib: Memory of a GPU that this machine is taken to have, for planning; its own
            GPUs are not looked at then.

    Raises:
        UsageError: At the first thing that is missing or does not fit.
    """
    missing_packages(config)
    yield f"backend     {config.run.backend}, its packages are installed"
    folder = Path(config.run.folder) / config.run.name
    if folder.exists():
        raise UsageError(
            f"there is a run in {str(folder)!r} already; go on with it by --resume {folder}, or "
            "set run.name"
        )
    yield f"run         {folder}, will be made"
    if assume_gpu_gib is None:
        device = model_device(config.model)
        judge = find_device(config.judge.device)
    else:
        device, judge = "cuda:0", config.judge.device
    yield f"devices     model on {device}, kernels on {judge}"
    assumed = None
    if assume_gpu_gib is not None and judge != "cpu":
        assumed = assume_gpu_gib * 2**30
    config = with_memory_budget(config, assumed)
    budget = config.judge.memory_bytes or 0
    yield f"budget      {in_gigabytes(budget)} to judge a kernel; larger problems are left out"
    problems = training_problems(config)
    yield f"problems    {len(problems)} to train on, of {config.env.suite}"
    held_out = held_out_problems(config) if config.evaluation.every else ()
    if held_out:
        yield f"held out    {len(held_out)} to evaluate on"
    tokenizer = load_tokenizer(config.model)
    context = context_tokens(load_shape(config.model))
    longest, where = check_prompts(config, tokenizer, context, problems, held_out, device=judge)
    yield f"prompts     at most {longest} tokens on the first turn ({where})"
    if context is not None:
        yield f"context     {context} tokens, which hold every prompt with its answer"
    yield f"ruleset     {config.rules.label}"
    yield f"step        at most {config.samples_per_step} samples to learn from"
    judged = None
    if device != "cpu" and _number(judge) == _number(device):
        sizes = reference_sizes([*problems, *held_out])
        judged = max((each.on_gpu for each in sizes if each), default=0)
    estimate = estimate_memory(config, half=device != "cpu", judged_bytes=judged)
    yield from (f"memory      {line}" for line in estimate.lines())
    if device == "cpu":
        return
    number = _number(device)
    assert number is not None
    total = (
        assume_gpu_gib * 2**30 if assume_gpu_gib is not None else float(gpus()[number].memory_bytes)
    )
    if estimate.peak > total:
        advice = (
            "lower optimiser.micro_batch, sampling.batch_size, sampling.max_new_tokens or "
            "max_prompt_tokens, or set model.quantisation=4bit"
        )
        if estimate.judge:
            advice = (
                f"{estimate.judge / 2**30:.0f} of it are the judge's: give it another GPU "
                "(judge.device=cuda:1), or lower judge.memory_bytes, judge.workers or "
                "judge.standby; else " + advice
            )
        raise UsageError(
            f"the run is estimated to take {estimate.peak / 2**30:.0f} GiB of a GPU that has "
            f"{total / 2**30:.0f}; {advice}"
        )
    yield f"memory      fits into {total / 2**30:.0f} GiB"


def _number(device: str) -> int | None:
    """Return the number of a GPU; None for the CPU."""
    kind, _, number = device.partition(":")
    return int(number or 0) if kind == "cuda" else None


def missing_packages(config: Config) -> None:
    """Refuse a backend whose packages are not installed.

    Raises:
        UsageError: If so.
    """
    wanted = list(_PACKAGES.get(config.run.backend, ()))
    extra = {"vllm": config.sampling.engine != "transformers"}
    extra["bitsandbytes"] = config.model.quantisation != "none"
    lacking = [name for name in wanted if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(
            f"backend {config.run.backend!r} needs {', '.join(lacking)}: "
            f"pip install 'kernelgym[{config.run.backend}]'"
        )
    for name, needed in extra.items():
        if needed and importlib.util.find_spec(name) is None:
            what = "sampling.engine" if name == "vllm" else "model.quantisation"
            raise UsageError(
                f"{what} as configured needs {name}, which is not installed: pip install {name}"
            )
