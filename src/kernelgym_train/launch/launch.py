"""A whole training run: makes its parts from the configuration, trains, evaluates and saves.

Contract: missing packages, models and problems are reported before the run's folder is made. The
folder holds all results; the trained model, or its adapter, is in ``model/``. An interruption
closes the judge and leaves the folder as a kill would.

This module knows backends by `kernelgym_train.backends.backend` only, and imports a backend when it
is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelgym import Evaluator, Problem, UsageError
from kernelgym.indexing.growing import RunArchive
from kernelgym.pace import Pace, line_a_minute
from kernelgym.records.run_lock import LOG, RunLock
from kernelgym_train.backends.backend import Model, find_backend
from kernelgym_train.config.config import Config
from kernelgym_train.launch.assembly import (
    TokenCounter,
    episode_rules,
    held_out_problems,
    make_steps,
    run_archive,
    run_evaluator,
    training_observer,
    training_problems,
    training_retrieval,
    with_memory_budget,
)
from kernelgym_train.launch.manifest import manifest
from kernelgym_train.launch.prompts import check_prompts
from kernelgym_train.rollout.device_share import DeviceHold, SharingPolicy
from kernelgym_train.rollout.evaluation import score_rollouts
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from kernelgym_train.rollout.play import BatchPolicy, play, tasks_of
from kernelgym_train.run.interrupts import Activity, Interrupts, say_line
from kernelgym_train.run.runlog import (
    RunLog,
    Watcher,
    check_from_step,
    finished_steps,
    kept_checkpoint,
    trained_steps,
)
from kernelgym_train.run.training import PolicyFor, run_stretches
from kernelgym_train.run.watchers import (
    Lines,
    LiveTable,
    LoggedSteps,
    TensorBoard,
    WeightsAndBiases,
)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Result of a training run."""

    folder: Path
    """Folder of the run."""
    steps: int
    """Number of finished steps."""
    stopped: str
    """Guard or cap that stopped the run, with its message; empty if it reached its last step."""
    was_finished: bool = False
    """True if the resumed run had done all its steps already, so that nothing was done."""


def train_run(
    config: Config, resume: Path | None = None, from_step: int | None = None
) -> RunOutcome:
    """Train by a configuration, or resume a run.

    A resumed run that has no step left is not changed. A new run that fails, or is interrupted,
    before the end of its first step leaves no folder.

    Args:
        config: The configuration.
        resume: Folder of the run to resume; None for a new run.
        from_step: Number of steps of the checkpoint to resume from; None for the last checkpoint.

    Raises:
        UsageError: If something is missing.
        KeyboardInterrupt: After an interrupt; its text says how to resume.
    """
    if resume is not None and from_step is not None:
        check_from_step(resume, from_step)
    done = finished_steps(resume) if resume is not None and from_step is None else None
    if resume is not None and done is not None and done >= config.optimiser.steps:
        return RunOutcome(resume, done, "", was_finished=True)
    logs: list[RunLog] = []
    activity = Activity()
    # Only the first process answers Ctrl-C on the terminal.
    says = None if _is_first() else lambda line: None
    try:
        with Interrupts(activity, resume, says) as interrupts:
            return _train_run(config, resume, from_step, interrupts, logs)
    except BaseException as error:
        begun = logs[-1] if logs else None
        gone = begun is not None and resume is None and begun.discard_if_unstarted()
        if not isinstance(error, KeyboardInterrupt):
            raise
        if begun is None or gone:
            raise KeyboardInterrupt("interrupted before a step was done; no run was kept") from None
        begun.event("interrupted")
        raise KeyboardInterrupt(f"interrupted; continue with --resume {begun.folder}") from None


def _train_run(
    config: Config,
    resume: Path | None,
    from_step: int | None,
    interrupts: Interrupts,
    logs: list[RunLog],
) -> RunOutcome:
    """Train as `train_run` says; append the run's log to `logs`."""
    activity = interrupts.activity
    activity.now = "looking for what the run needs"
    backend = find_backend(config.run.backend)
    backend.check(config)
    with quiet_frameworks(), contextlib.ExitStack() as stack:
        model = backend.prepare(config, resumed=resume is not None)
        stack.callback(model.close)
        device = model.device
        config = with_memory_budget(config)
        problems = training_problems(config)
        held_out = held_out_problems(config) if config.evaluation.every else ()
        judged = config.judge.device
        check_prompts(config, model.tokenizer, model.context, problems, held_out, device=judged)
        activity.now = "loading the model"
        model.load()  # before the folder is made: most failures occur here
        log = _open(config, resume, from_step, model, stack)
        logs.append(log)
        interrupts.folder = log.folder
        activity.now = "starting the judge"
        first = log.start.step if log.start else 0
        pace = Pace("steps", config.optimiser.steps, first)
        if log.writes:
            stack.enter_context(_progress(pace, activity))
        log.watchers = list(make_watchers(config, log, first, pace))
        log.keeps_tokens = config.logging.tokens
        log.keeps_trajectories = config.logging.trajectories
        judge: Evaluator = run_evaluator(config)
        stack.callback(judge.close)
        count = TokenCounter(model.tokenizer)
        kept = log.verdicts(judge, seeded=not config.judge.cache)
        share = DeviceHold(device, judged)
        steps = make_steps(
            config, problems, kept, count=count, log=log, activity=activity, device_share=share
        )
        tested = None
        if held_out and log.writes:
            tested = HeldOutEvaluation(
                config, log, held_out, count, judge, stack, share, archive=steps.archive
            )
        try:
            outcome = run_stretches(
                config,
                log,
                steps,
                model.train,
                evaluate=tested,
                watchers=lambda first: make_watchers(config, log, first, pace),
                interrupts=interrupts,
            )
        finally:
            (steps.log or log).close()
        activity.now = "saving the model"
        if log.writes:
            model.save(log.folder / "model")
            log.event("finished", step=outcome.steps, stopped=outcome.stopped)
    return RunOutcome(log.folder, outcome.steps, outcome.stopped)


def evaluate_run(
    config: Config, folder: Path, step: int | None = None, checkpoint: Path | None = None
) -> tuple[dict[str, float], int]:
    """Evaluate a run's model, or one of its checkpoints, on the held-out problems.

    The run may go on meanwhile. The metrics are appended to its ``evaluations.jsonl``, and to
    ``tensorboard/evaluate/`` with `logging.tensorboard`: TensorBoard reads only the newest file of
    a folder, so that one more in ``tensorboard/`` would hide the run's own.

    Args:
        config: Configuration of the run.
        folder: Folder of the run.
        step: Number of steps of the checkpoint.
        checkpoint: Folder of the checkpoint, in place of `step`. Without both, the model of a
            run that has ended is evaluated, and the newest checkpoint of another.

    Returns:
        The metrics, and the number of steps that made the weights.

    Raises:
        UsageError: If something is missing.
    """
    backend = find_backend(config.run.backend)
    backend.check(config)
    weights, steps = folder / "model", trained_steps(folder)
    if steps is None or checkpoint is not None or step not in (None, steps):
        kept = kept_checkpoint(folder, step, checkpoint)
        weights, steps = kept.folder, kept.step
    log = RunLog.follow(folder)
    log.writes = True
    if config.logging.tensorboard:
        log.watchers = [TensorBoard(folder / "tensorboard" / "evaluate")]
    try:
        with quiet_frameworks():
            found = _evaluate(config, log, backend.trained(config, weights), steps, weights)
    finally:
        log.close()
    return found, steps


def evaluate_model(config: Config, address: str = "") -> tuple[dict[str, float], Path]:
    """Evaluate the untrained model, or weights that a service keeps.

    Args:
        config: The configuration.
        address: Address of weights, such as ``tinker://...``; empty for the untrained model.

    Returns:
        The metrics, and the folder that was made for them, like that of a run.

    Raises:
        UsageError: If something is missing.
    """
    if not address and config.tinker.start_from:
        raise UsageError(
            f"the untrained model has no weights to begin with, and tinker.start_from="
            f"{config.tinker.start_from} is set; evaluate them by --evaluate "
            f"{config.tinker.start_from}, or leave it out"
        )
    backend = find_backend(config.run.backend)
    backend.check(config)
    with quiet_frameworks():
        model = backend.kept(config, address) if address else backend.prepare(config)
        config = with_memory_budget(config)
        log = _create(config)
        try:
            found = _evaluate(config, log, model, 0, address or "untrained")
        except BaseException:
            log.discard_if_unstarted()
            raise
        log.event("evaluated", weights=address)
    return found, log.folder


def _evaluate(
    config: Config, log: RunLog, model: Model, step: int, weights: Path | str
) -> dict[str, float]:
    """Evaluate a model on the held-out problems, and log the metrics with the weights' place."""
    with contextlib.ExitStack() as stack:
        stack.callback(model.close)
        held_out = held_out_problems(config)
        model.load()
        judge = run_evaluator(config)
        stack.callback(judge.close)
        share = DeviceHold(model.device, config.judge.device)
        count = TokenCounter(model.tokenizer)
        archive = run_archive(config)
        if archive is not None:
            archive.read(log.trajectories, step)
        run = HeldOutEvaluation(config, log, held_out, count, judge, stack, share, archive=archive)
        run.facts = {"checkpoint": str(weights)}
        asyncio.run(run(model.policy, step))
        return run.last


class HeldOutEvaluation:
    """Evaluates a policy on held-out problems, sampled and greedy.

    Args:
        config: The configuration.
        log: Log of the run.
        problems: Problems to play.
        count: Function that counts a text's tokens.
        judge: Evaluator of the training, which may be untimed.
        stack: Stack that closes a second, timed evaluator, if one is needed.
        share: Holder of the device lock while a local model samples.
        archive: Archive of the kernels that the run has found so far, shown in prompts; None for
            none.
    """

    def __init__(
        self,
        config: Config,
        log: RunLog,
        problems: tuple[Problem, ...],
        count: Callable[[str], int],
        judge: Evaluator,
        stack: contextlib.ExitStack,
        share: DeviceHold,
        archive: RunArchive | None = None,
    ) -> None:
        self._archive = archive
        self._config, self._log, self._problems = config, log, problems
        self._count, self._share = count, share
        self._again: Evaluator | None = None
        if config.evaluation.timing and (config.judge.cache or not config.judge.timing):
            # A second judge that is seldom used: one process in reserve is enough.
            timed = run_evaluator(config, timing=True, cache=False, standby=1)
            stack.callback(timed.close)
            self._again, self._judge = timed, log.verdicts(timed, "verdicts.timed")
        else:
            self._again = judge if config.evaluation.timing else None
            self._judge = log.verdicts(judge, seeded=not config.judge.cache)
        self.facts: Mapping[str, str] = {}
        """Fields of the evaluation's row beside its metrics."""
        self.last: dict[str, float] = {}
        """Metrics of the newest evaluation."""

    async def __call__(self, policy: PolicyFor, step: int) -> float | None:
        """Evaluate a policy after a number of steps, log the metrics, and return pass@1."""
        chosen, sampling = self._config.evaluation, self._config.sampling
        started = time.monotonic()

        async def played(
            temperature: float,
            samples: int,
            ks: tuple[int, ...],
            name: str,
            retrieval: bool = True,
        ) -> dict[str, float]:
            observer = training_observer(
                self._config,
                self._judge.capabilities.device,
                self._count,
                max_turns=chosen.max_turns,
                retrieval=retrieval,
            )
            if self._archive is not None:
                observer = self._archive.observer(observer)
            asked = policy(SamplingRule(sampling.max_new_tokens, temperature, sampling.top_p))
            if isinstance(asked, BatchPolicy):
                asked = SharingPolicy(asked, self._share)
            rollouts = await play(
                tasks_of(step, self._problems, samples),
                asked,
                self._judge,
                observer,
                episode_rules(self._config),
                seed=f"{name}/{self._config.run.seed}",
                at_once=sampling.at_once,
            )
            return score_rollouts(rollouts, pass_at=ks, again=self._again, name=name)

        settings = (chosen.temperature, chosen.samples, chosen.pass_at)
        metrics = await played(*settings, "eval")
        if chosen.greedy:
            metrics |= await played(0.0, 1, (1,), "greedy")
        if chosen.without_retrieval:
            metrics |= await played(*settings, "without_retrieval", retrieval=False)
        metrics["time/eval_s"] = time.monotonic() - started
        self.last = metrics
        self._log.evaluation(step, metrics, **self.facts)
        return metrics.get("eval/pass@1")


def _progress(pace: Pace, activity: Activity) -> contextlib.AbstractContextManager[None]:
    """Return a context that says once a minute how far the run is, in its log and off a terminal.

    Args:
        pace: Pace of the run's steps.
        activity: Present activity of the run.
    """
    say = LOG.info if sys.stderr.isatty() else say_line
    return line_a_minute(lambda: f"{pace.line()}; {activity.now}", say)


def make_watchers(config: Config, log: RunLog, first: int, pace: Pace) -> Iterator[Watcher]:
    """Yield the watchers of a run that are configured, for the steps from `first` on."""
    chosen = config.logging
    if not log.writes:
        return
    yield LoggedSteps(pace)
    if chosen.tensorboard:
        yield TensorBoard(log.folder / "tensorboard", first)
    if chosen.wandb_project:
        yield WeightsAndBiases(chosen.wandb_project, config.run.name, config.model_dump())
    if chosen.live:
        steps = config.optimiser.steps
        on_terminal = sys.stderr.isatty()
        yield LiveTable(config.run.name, steps) if on_terminal else Lines(steps)


def _open(
    config: Config,
    resume: Path | None,
    from_step: int | None,
    model: Model,
    stack: contextlib.ExitStack,
) -> RunLog:
    """Open the run's folder: the first process for writing, others for reading after that.

    The first process holds the run's lock until `stack` is closed.
    """
    folder = Path(config.run.folder) / config.run.name if resume is None else resume
    if not _is_first():
        model.wait_for_others()
        return RunLog.follow(folder)
    if resume is not None and folder.is_dir():
        stack.enter_context(RunLock(folder, "folder to --resume"))
    if resume is not None:
        log = RunLog.resume(folder, from_step=from_step)
    else:
        log = _create(config)
        stack.enter_context(RunLock(folder, "run.name"))
    model.wait_for_others()
    return log


def _create(config: Config) -> RunLog:
    """Make the folder of a new run, with its manifest."""
    shown = training_retrieval(config, config.judge.device) if config.retrieval.on else None
    about = manifest(config, config.rules, shown)
    return RunLog.create(Path(config.run.folder) / config.run.name, config.model_dump(), about)


def _is_first() -> bool:
    """Return True in the one process that writes logs and messages."""
    return not int(os.environ.get("RANK", "0"))


@contextlib.contextmanager
def quiet_frameworks() -> Iterator[None]:
    """Hide transformers' progress bars and deprecation warnings during the block."""
    from transformers.utils import logging

    before: Callable[[], None] = logging.enable_progress_bar
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
            yield
    finally:
        before()
