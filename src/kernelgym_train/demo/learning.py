"""Training on the demonstration's problems, by the project's own steps, credit and backends.

Contract: training takes the way of every run: `kernelgym_train.rollout.play.play`, credit, and the
backend that the configuration names. Problems and rules are given here, not by the configuration,
so the run's folder can be read like any other, but `kernelgym-train --resume` cannot continue it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernelgym.prompts.observer import Observer
from kernelgym.records.run_lock import RunLock
from kernelgym.rulesets import RULESETS, Ruleset
from kernelgym.types import Evaluator, Problem
from kernelgym_train.backends.backend import Model, find_backend
from kernelgym_train.config.config import Config, load_config
from kernelgym_train.demo.settings import BY_BACKEND, SETTINGS
from kernelgym_train.launch.assembly import TokenCounter, episode_rules, training_observer
from kernelgym_train.launch.manifest import check_ruleset, manifest
from kernelgym_train.rollout.sampling import ProblemSampler
from kernelgym_train.run.runlog import RunLog, Watcher
from kernelgym_train.run.steps import Steps
from kernelgym_train.run.training import run_stretches

RULES = dataclasses.replace(RULESETS["strict"], stop_at_first_failure=True)
"""Rules that judge the demonstration: ``strict``, without calls after one that failed, since no
reward depends on them."""


def learning_config(
    model: str | Path,
    folder: str | Path,
    seed: int,
    overrides: Iterable[str] = (),
    *,
    backend: str = "trl",
) -> Config:
    """Return the configuration of a demonstration's training run.

    Args:
        model: Folder of the warm-started model.
        folder: The run's folder, which is made.
        seed: Seed of the run.
        overrides: Settings over those of `kernelgym_train.demo.settings`.
        backend: Name of the backend that samples and learns.

    Raises:
        UsageError: If a setting cannot be used.
    """
    folder = Path(folder)
    own = (
        *(f"model.id={model}", f"run.folder={folder.parent}", f"run.name={folder.name}"),
        *(f"run.seed={seed}", f"run.backend={backend}"),
    )
    given = (*SETTINGS, *BY_BACKEND.get(backend, ()), *own, *overrides)
    return load_config(None, given)


def dialogue_observer(config: Config, judge: Evaluator, tokenizer: Any) -> Observer:
    """Return the observer that writes a demonstration's short prompts and counts their tokens."""
    can = judge.capabilities
    observer = training_observer(config, can.device, TokenCounter(tokenizer))
    return dataclasses.replace(observer, ruleset=can.ruleset)


def learn(
    config: Config,
    problems: Sequence[Problem],
    judge: Evaluator,
    *,
    watchers: Iterable[Watcher] = (),
    steps: type[Steps] = Steps,
    resume: bool = False,
) -> Model:
    """Train the warm-started model and return it; the caller closes it.

    The run's folder is `config`'s; what the backend keeps of the trained weights is in ``model/``
    there.

    Args:
        config: Configuration, as `learning_config` returns it.
        problems: Problems to train on.
        judge: Judges the answers; it is not closed.
        watchers: Watchers that get what is logged.
        steps: Class of the steps that are taken.
        resume: Go on with the run in the folder from its last checkpoint.

    Raises:
        UsageError: If the folder exists (with `resume`: if not), or the model does not.
        KeyboardInterrupt: After an interrupt, once the step was finished and a checkpoint taken.
    """
    backend = find_backend(config.run.backend)
    backend.check(config)
    model = backend.prepare(config, resumed=resume)
    try:
        model.load()
        _train(config, problems, judge, model, list(watchers), steps, resume)
    except BaseException:
        model.close()
        raise
    return model


def _train(
    config: Config,
    problems: Sequence[Problem],
    judge: Evaluator,
    model: Model,
    watchers: list[Watcher],
    kind: type[Steps],
    resume: bool,
) -> None:
    """Train as `learn` says."""
    folder = Path(config.run.folder) / config.run.name
    rules: Ruleset = judge.capabilities.ruleset
    about = manifest(config, rules)
    if resume:
        check_ruleset(folder, rules)
    log = RunLog.resume(folder) if resume else RunLog.create(folder, config.model_dump(), about)
    log.watchers = watchers
    log.keeps_tokens = False
    log.keeps_trajectories = config.logging.trajectories
    steps = kind(
        config,
        sampler=ProblemSampler(problems, config.run.seed, config.curriculum),
        evaluator=log.verdicts(judge, seeded=False),
        observer=dialogue_observer(config, judge, model.tokenizer),
        rules=episode_rules(config),
        log=log,
    )
    with RunLock(folder, "--name"):
        try:
            outcome = run_stretches(config, log, steps, model.train)
        finally:
            (steps.log or log).close()
        model.save(folder / "model")
        log.event("finished", step=outcome.steps, stopped=outcome.stopped)
