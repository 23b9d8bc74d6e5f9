"""Bookkeeping of a training run, shared by all backends.

A `Progress` finishes the steps of one stretch of a run: from the beginning, or from a checkpoint,
to the end, an interrupt, or a guard that acts. `run_stretches` begins the next one after a
rollback, or when the learner was lost. Contract:

- a backend reports its measurements, and `Progress` logs them with ``progress/done_frac`` and
  the times, acts on the guards' alarms, says when to evaluate and to save, and makes checkpoints
  count;
- a rollback goes back to the last checkpoint at which no guard was set off, changes the seed of all
  sampling and halves the learning rate; rollbacks are counted in events.jsonl, so that a resumed
  run knows their number. The fourth rollback is a stop, as is one without a checkpoint to go to;
- a stretch that raises `LearnerLost` is gone on with in place, exactly as a resumed run would: from
  the last checkpoint, with logs cut back and verdicts kept; before any checkpoint, from the
  beginning. The fourth time the error is
  raised;
- after the first interrupt the step is finished and saved.

It samples nothing and takes no optimiser step.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.records.jsonlines import read_lines
from kernelgym_train.config.config import Config
from kernelgym_train.metrics.guards import Alarm
from kernelgym_train.metrics.step_metrics import staleness
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from kernelgym_train.rollout.play import BatchPolicy, Policy
from kernelgym_train.run.interrupts import Interrupts
from kernelgym_train.run.runlog import Checkpoint, RunLog, Watcher
from kernelgym_train.run.steps import Steps, TrainingStep

PolicyFor = Callable[[SamplingRule], Policy | BatchPolicy]
"""Function that returns a policy with the current weights, for a sampling rule."""
Evaluate = Callable[[PolicyFor, int], Awaitable[float | None]]
"""Function that evaluates a policy after a number of steps, logs metrics and returns a score."""

_MOST_ROLLBACKS = 3
_MOST_LOST = 3


class LearnerLost(RuntimeError):
    """Raised if the weights in training are lost, or their state is unknown."""


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """End of a training run, or of one stretch of it."""

    steps: int
    """Number of finished steps."""
    weights: str = ""
    """Digest of the trained weights; empty if they are not in this process."""
    stopped: str = ""
    """Guard that stopped the run, with its message; empty if the run reached its last step."""
    model: Any = None
    """Trained model, its adapter not merged, or the checkpoint of a service; None if there is
    none."""


class Progress:
    """Completes the steps of one stretch of a training run.

    Args:
        config: The configuration.
        log: Folder of the run; the stretch begins at its last checkpoint.
        steps: Steps of the run; they continue from that checkpoint.
        interrupted: Event that the first interrupt sets.
        evaluate: Function that evaluates the policy; None for no evaluation.

    Raises:
        UsageError: If the checkpoint is that of another run.
    """

    def __init__(
        self,
        config: Config,
        log: RunLog,
        steps: Steps,
        interrupted: threading.Event,
        evaluate: Evaluate | None = None,
    ) -> None:
        self.config, self.log, self.steps, self.interrupted = config, log, steps, interrupted
        self._evaluate = evaluate
        self.learning_rate = config.optimiser.learning_rate
        """Learning rate before schedule and warm-up; halved by each rollback."""
        self.done = log.start.step if log.start else 0
        """Number of finished steps."""
        self.action = ""
        """Action of a guard that ends the stretch, ``stop`` or ``rollback``; empty before that."""
        self.stopped = ""
        """Guard that stopped the run, with its message; empty if no guard did."""
        self.score: float | None = None
        """Score of the last evaluation, until the next step."""
        self._alarmed = False
        if log.start is not None:
            steps.load(log.start.state()["steps"])
        rollbacks = _rollbacks(log.folder)
        self.learning_rate *= 0.5**rollbacks
        steps.sampler.seed_epoch = max(rollbacks, steps.sampler.seed_epoch)
        self._may_roll_back = rollbacks < _MOST_ROLLBACKS
        self._since = self._finished = time.monotonic()
        self._save_s: float | None = None

    @property
    def ends(self) -> bool:
        """True if this stretch of the run takes no further steps."""
        over = self.done >= self.config.optimiser.steps
        return over or bool(self.action) or self.interrupted.is_set()

    @property
    def save_due(self) -> bool:
        """True if a checkpoint is due after the last step."""
        if self.action == "rollback":
            return False
        over = self.done >= self.config.optimiser.steps
        return over or self.interrupted.is_set() or self.saves_after(self.done - 1)

    def saves_after(self, step: int) -> bool:
        """Return True if a checkpoint regularly follows a step."""
        return not (step + 1) % self.config.run.save_every

    @property
    def evaluation_due(self) -> bool:
        """True if an evaluation is due after the last step."""
        every = self.config.evaluation.every
        wanted = self._evaluate is not None and every > 0
        return wanted and not self.done % every and not self.action

    def finish(
        self,
        step: int,
        taken: TrainingStep,
        measured: Mapping[str, float],
        *,
        version: int,
        entropy: float | None = None,
        gap: float | None = None,
    ) -> None:
        """Log a step's metrics and act on the guards' alarms.

        Args:
            step: Number of the step.
            taken: Step as it was played and credited.
            measured: Metrics of the backend, ``time/train_s`` and ``train/learning_rate`` among
                them.
            version: Optimiser updates that the learner had had before those of this step.
            entropy: The policy's mean entropy per token, in nats; None if not available.
            gap: Mean difference of the sampler's and the learner's log-probabilities; likewise.
        """
        now = time.monotonic()
        found = {**measured, **staleness(taken.rollouts, version)}
        found["time/total_s"], self._since = now - self._since, now
        if self._save_s is not None:  # of the checkpoint before this step
            found["time/save_s"], self._save_s = self._save_s, None
        self.done = step + 1
        found["progress/done_frac"] = self.done / self.config.optimiser.steps
        self._act(self.steps.finish(step, taken, found, entropy=entropy, gap=gap))
        self.score = None
        self._finished = time.monotonic()

    def stop(self, reason: str) -> None:
        """End the run after the last step, overriding the guards' action.

        Args:
            reason: Reason for the end, as a sentence.
        """
        self.action, self.stopped = "stop", reason

    async def evaluate(self, policy: PolicyFor) -> None:
        """Evaluate the policy if that is due after the last step."""
        if self._evaluate is None or not self.evaluation_due:
            return
        with self.steps.activity.during(f"evaluating after step {self.done}"):
            self.score = await self._evaluate(policy, self.done)
        # The time of an evaluation is in time/eval_s, not in the step's.
        self._since = self._finished = time.monotonic()

    def commit(
        self,
        folder: Path,
        *,
        weights: str = "",
        state: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> tuple[Checkpoint, ...]:
        """Make a checkpoint count and prune older ones.

        Before a rollback it does nothing.

        Args:
            folder: Folder of the checkpoint, inside the run's folder.
            weights: Digest of the trained weights.
            state: State that the backend needs to continue, as JSON data.
            facts: Fields that the backend adds to the row in checkpoints.jsonl, as JSON data.

        Returns:
            Checkpoints that were pruned.
        """
        if self.action == "rollback":
            return ()
        self.log.commit(
            self.done,
            folder,
            {"steps": self.steps.state(), **(state or {})},
            weights=weights,
            good=not self._alarmed,
            score=self.score,
            facts=facts or {},
        )
        pruned = self.log.prune(self.config.run.keep_checkpoints)
        self._alarmed = False
        self._save_s = time.monotonic() - self._finished
        return pruned

    def _act(self, alarms: Sequence[Alarm]) -> None:
        grave = [alarm for alarm in alarms if alarm.action in ("stop", "rollback")]
        self._alarmed |= any(alarm.action != "off" for alarm in alarms)
        if not grave:
            return
        self.action, self.stopped = grave[0].action, f"{grave[0].guard}: {grave[0].message}"
        if self.action == "rollback" and not (self._may_roll_back and self._has_good()):
            self.action = "stop"

    def _has_good(self) -> bool:
        path = self.log.folder / "checkpoints.jsonl"
        return path.exists() and any(row["good"] for _, row in read_lines(path))


def run_stretches(
    config: Config,
    log: RunLog,
    steps: Steps,
    stretch: Callable[[Progress], TrainingOutcome],
    *,
    evaluate: Evaluate | None = None,
    watchers: Callable[[int], Iterable[Watcher]] = lambda first: (),
    interrupts: Interrupts | None = None,
) -> TrainingOutcome:
    """Train until the last step, or until a guard stops the run.

    Args:
        config: The configuration.
        log: Folder of the run.
        steps: Steps of the run, with the same log.
        stretch: Function that trains from the checkpoint at which a `Progress` begins until that
            ends.
        evaluate: Function that evaluates the policy; None for no evaluation.
        watchers: Function that makes the watchers of a run that continues after a number of steps.
        interrupts: Context that answers Ctrl-C, entered by the caller; None to make one.

    Raises:
        KeyboardInterrupt: After an interrupt, once the step was finished and a checkpoint taken,
            unless it was the last; at a second one, at once.
    """
    with contextlib.ExitStack() as stack:
        if interrupts is None:
            interrupts = stack.enter_context(Interrupts(steps.activity, log.folder))
        interrupted = stack.enter_context(interrupts.finishing_steps())
        untouched, lost = steps.state(), 0
        while True:
            progress = Progress(config, log, steps, interrupted, evaluate)
            try:
                outcome = stretch(progress)
            except LearnerLost as error:
                if interrupted.is_set():
                    raise KeyboardInterrupt from error
                if lost == _MOST_LOST:
                    raise
                lost += 1
                log.event("learner_lost", step=progress.done, number=lost, reason=str(error))
                log = _reopened(log, steps, watchers)
                step = log.start.step if log.start else 0
                interrupts.say(
                    f"{error}; the run continues from step {step} ({lost} of {_MOST_LOST} times)"
                )
                if log.start is None:
                    steps.load(untouched)
                continue
            goes_back = progress.action == "rollback"
            if interrupted.is_set() and (goes_back or outcome.steps < config.optimiser.steps):
                raise KeyboardInterrupt
            if not goes_back:
                return outcome
            log.event("rollback", step=outcome.steps, reason=outcome.stopped)
            log = _reopened(log, steps, watchers, good=True)


def _reopened(
    log: RunLog,
    steps: Steps,
    watchers: Callable[[int], Iterable[Watcher]],
    *,
    good: bool = False,
) -> RunLog:
    """Return the run's log, cut back to its last checkpoint, for `steps`."""
    log.close()
    found = RunLog.resume(log.folder, good=good)
    found.keeps_tokens, found.keeps_trajectories = log.keeps_tokens, log.keeps_trajectories
    # All logs of the run share one list: an evaluation keeps the first log, and would otherwise
    # report to watchers that are closed.
    log.watchers[:] = watchers(found.start.step if found.start else 0)
    found.watchers = log.watchers
    steps.log = found
    return found


def _rollbacks(folder: Path) -> int:
    path = folder / "events.jsonl"
    return sum(row["event"] == "rollback" for _, row in read_lines(path)) if path.exists() else 0
