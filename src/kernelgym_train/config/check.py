"""The one validator of a configuration: what the numbers and names of different sections need.

Contract: `check_config` raises a `UsageError` that says what was given, what fits and what to do,
or nothing. It looks at no device, folder, model or data set, so it gives the same answer anywhere.
What one section can tell by itself (an estimator's name, a guard's action) it tells itself; what a
backend cannot do, or has no use for, is in its own `settings` module.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernelgym.devices import check_device
from kernelgym.episodes.stopping import check_stop_rule, stop_rule
from kernelgym.errors import UsageError
from kernelgym.evaluators.service_client import check_address
from kernelgym.feedback import check_budget, check_level
from kernelgym.languages import check_language
from kernelgym.prompts.observer import Observer
from kernelgym.retrieval.prompt_part import Retrieval
from kernelgym.rewards import check_speed, check_trials
from kernelgym_train.config.sections import EnvConfig

if TYPE_CHECKING:
    from kernelgym_train.config.config import Config

_SHORT_PROMPT_TAKES: dict[str, tuple[int | str, ...]] = {
    "examples": (EnvConfig().examples, "zero_shot", 0),
    "context": (EnvConfig().context, "last"),
}


def check_config(config: Config, processes: int = 1) -> None:
    """Refuse a configuration that cannot work.

    Args:
        config: The configuration.
        processes: Processes that train together.

    Raises:
        UsageError: If a name is unknown, a number out of range, or two settings do not fit.
    """
    _check_names(config)
    _check_judging(config)
    _check_retrieval(config)
    _check_backend(config, processes)
    _check_evaluation(config)


def _check_names(config: Config) -> None:
    name = config.run.name
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise UsageError(f"run.name is the name of a folder, got {name!r}")
    if not config.model.id:
        raise UsageError("model.id is empty; give a name on the hub or the path of a folder")
    if config.model.quantisation != "none" and config.model.lora_rank == 0:
        raise UsageError(
            f"model.quantisation={config.model.quantisation} freezes the weights, and without an "
            "adapter (model.lora_rank=0) nothing would be trained; set model.lora_rank"
        )
    if config.model.device not in ("auto", "cpu"):
        check_device(config.model.device)
    if not config.env.suite:
        raise UsageError("env.suite is empty; give a suite's name or the path of a folder")
    _ = config.credit_rule  # refuses what it cannot use


def _check_judging(config: Config) -> None:
    env, judge = config.env, config.judge
    device = check_device(judge.device)
    if judge.url:
        check_address(judge.url)
    check_language(env.language, device)
    rules = config.rules
    paid = config.reward.weights.speed or config.reward.weights.improvement
    for _, preset in config.schedule.entries:
        if paid:  # it was asked for by name, so a kernel without a time would be a surprise
            preset = replace(preset, speed="required")
        check_speed(preset, env.language, device)
        if preset.speed == "required" and not judge.timing:
            raise UsageError(
                f"reward {preset.name!r} needs measured speed, but judge.timing is false; set "
                "judge.timing=true, or take another reward.preset"
            )
        check_trials(preset, rules)
    stop = stop_rule(env.stop)
    check_stop_rule(stop, env.language, device)
    if stop.needs_speed and not judge.timing:
        raise UsageError(f"env.stop={stop} needs measured speed; set judge.timing=true")
    check_level(env.feedback)
    check_budget(env.feedback_tokens)
    Observer(
        env.language,
        device,
        rules,
        env.max_turns,
        env.examples,
        context=env.context,
        context_tokens=env.context_tokens,
    )
    if env.prompt == "short":
        _check_short_prompt(env)


def _check_short_prompt(env: EnvConfig) -> None:
    """Refuse settings that the short prompt would ignore."""
    for name, fitting in _SHORT_PROMPT_TAKES.items():
        if (value := getattr(env, name)) not in fitting:
            raise UsageError(
                f"env.{name}={value} has no effect on env.prompt=short, which shows no worked "
                f"examples and only the last answer; leave env.{name} out, or set env.prompt=full"
            )


def _check_retrieval(config: Config) -> None:
    """Refuse settings of retrieval that cannot work or change nothing."""
    chosen = config.retrieval
    if not chosen.on:
        if chosen.archive:
            raise UsageError(
                "retrieval.archive=true is shown beside an index, and retrieval.index is empty; "
                "set it, such as to synthetic, or leave retrieval.archive out"
            )
        if config.evaluation.without_retrieval:
            raise UsageError(
                "evaluation.without_retrieval compares with prompts that show entries, and "
                "retrieval.index is empty; set it, or leave evaluation.without_retrieval out"
            )
        return
    if chosen.archive and not config.logging.trajectories:
        raise UsageError(
            "retrieval.archive shows what the run's trajectories.jsonl holds, and "
            "logging.trajectories=false writes none; leave one of them out"
        )
    Retrieval(
        chosen.index,
        chosen.k,
        chosen.tokens,
        chosen.least,
        chosen.when,
        model=chosen.model,
    )
    if chosen.tokens >= config.sampling.max_prompt_tokens:
        raise UsageError(
            f"retrieval.tokens={chosen.tokens} leaves nothing of sampling.max_prompt_tokens="
            f"{config.sampling.max_prompt_tokens} for the problem; lower the one or raise the other"
        )


def _check_backend(config: Config, processes: int) -> None:
    """Refuse what the backend cannot do or has no use for."""
    if config.run.backend == "trl":
        from kernelgym_train.backends.trl.settings import check_settings as check_trl

        check_trl(config, processes)
    elif config.run.backend == "tinker":
        from kernelgym_train.backends.tinker.settings import check_settings as check_tinker

        check_tinker(config, processes)


def _check_evaluation(config: Config) -> None:
    chosen = config.evaluation
    if not chosen.pass_at or not all(1 <= k <= chosen.samples for k in chosen.pass_at):
        raise UsageError(
            f"evaluation.pass_at holds values of k from 1 to evaluation.samples="
            f"{chosen.samples}, got {list(chosen.pass_at)}"
        )
