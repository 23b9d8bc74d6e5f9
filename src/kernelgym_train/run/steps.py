"""Training steps up to the optimiser: draw problems, play them, refill, give credit, log.

Contract: the same for every backend. Given the state of the sampler, the step's number and a policy
that answers the same, everything that comes out is the same, in the same order: that is what makes
a resumed run equal the unbroken one. Time is measured, and decides nothing.

Several processes may share a step: each plays its share of the groups, `gather` brings together
what all have played, and all go on with the same rollouts. Only the one that holds the log writes.

Playing and writing down are apart: while the next step is played already, logs and `Steps.state`
are those at the end of the last one that was written down.

It holds no model and takes no optimiser step; that is the backend's.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.indexing.growing import RunArchive
from kernelgym.prompts.observer import Observer
from kernelgym.types import Evaluator, Trajectory
from kernelgym_train.config.config import Config
from kernelgym_train.credit.credit import Credit, assign_credit
from kernelgym_train.metrics.filter_counts import (
    Filtered,
    entropy_metrics,
    filter_metrics,
    filtered,
)
from kernelgym_train.metrics.guards import (
    Alarm,
    StepHealth,
    check_guards,
    opening_share,
    repetition,
)
from kernelgym_train.metrics.retrieval_metrics import retrieval_metrics
from kernelgym_train.metrics.step_metrics import advantage_metrics, distributions, rollout_metrics
from kernelgym_train.rollout.device_share import DeviceHold, SharingPolicy
from kernelgym_train.rollout.play import BatchPolicy, Policy, play, tasks_of
from kernelgym_train.rollout.policy_timing import TimedStream
from kernelgym_train.rollout.records import bare_record
from kernelgym_train.rollout.refill import Refill
from kernelgym_train.rollout.sampling import ProblemSampler
from kernelgym_train.run.interrupts import Activity
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.types import Rollout

Gather = Callable[[list[Rollout]], list[Rollout]]
"""Function that returns the rollouts of all processes, given those of this one."""


@dataclass(frozen=True, slots=True)
class Played:
    """Rollouts of a training step, before they are logged and credited."""

    rollouts: tuple[Rollout, ...]
    """All rollouts of the step, in the order of their keys."""
    fill: Refill
    """Groups of the step, with and without differing returns."""
    rules: EpisodeConfig
    """Rules by which the episodes were scored and ended."""
    observer: Observer
    """Observer that wrote the prompts."""
    times: Mapping[str, float]
    """Durations in seconds, by the name of their metric, such as waiting for the model."""


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """Training samples and metrics of a step, after credit was given."""

    credit: Credit
    rollouts: tuple[Rollout, ...]
    """All rollouts of the step, those of groups without signal included."""
    metrics: dict[str, float]
    """Metrics of the step by name."""


class Steps:
    """Plays, credits and logs the steps of a training run.

    Args:
        config: Configuration of the run.
        sampler: Sampler of the problems.
        evaluator: Evaluator of the answers' kernels.
        observer: Observer that writes the prompts.
        rules: Rules of the episodes; their reward is replaced by the schedule's.
        log: Log of the run; None to write nothing.
        activity: Activity of the run, for the answer to Ctrl-C.
        device_share: Holder of the device lock while a batch policy's model works.
        archive: Archive of the kernels that earlier steps found, shown in prompts; None for none.
    """

    def __init__(
        self,
        config: Config,
        *,
        sampler: ProblemSampler,
        evaluator: Evaluator,
        observer: Observer,
        rules: EpisodeConfig,
        log: RunLog | None = None,
        activity: Activity | None = None,
        device_share: DeviceHold | None = None,
        archive: RunArchive | None = None,
    ) -> None:
        self.archive = archive
        self.activity = Activity() if activity is None else activity
        self.device_share = DeviceHold() if device_share is None else device_share
        self.sampler, self.evaluator, self.observer, self.log = sampler, evaluator, observer, log
        self._config, self._rules, self._guards = config, rules, config.guards
        self._credit = config.credit_rule
        self._first: list[StepHealth] = []
        self._recent: list[StepHealth] = []
        self._usual: int | None = None
        self._told: set[str] = set()
        self._before: dict[str, Any] | None = None
        """State of the sampler before the step that is being played; None between steps."""

    @property
    def seed(self) -> str:
        """Seed of all sampling: the run's seed and the number of rollbacks."""
        return f"{self._config.run.seed}/{self.sampler.seed_epoch}"

    async def take(
        self,
        step: int,
        policy: Policy | BatchPolicy,
        *,
        share: tuple[int, int] = (0, 1),
        gather: Gather | None = None,
    ) -> TrainingStep:
        """Play one step and record it; see `play` and `write_down`."""
        played = await self.play(step, policy, share=share, gather=gather)
        return self.write_down(step, played)

    async def play(
        self,
        step: int,
        policy: Policy | BatchPolicy,
        *,
        share: tuple[int, int] = (0, 1),
        gather: Gather | None = None,
    ) -> Played:
        """Draw a step's problems and play them; nothing is written.

        Args:
            step: Number of the step, from 0. The step before it has been logged.
            policy: Policy that answers.
            share: Number of this process, and number of processes.
            gather: Function that joins the rollouts of all processes; None for one process.

        Raises:
            UsageError: As `kernelgym_train.rollout.play.play` does.
        """
        rules = replace(self._rules, reward=self._config.schedule.at(step))
        # The archive as it is now: it moves on when the step is written down.
        observer = self.observer if self.archive is None else self.archive.observer(self.observer)
        self.activity.now = f"playing step {step + 1}"
        if isinstance(policy, BatchPolicy):
            self.activity.now = f"judging answers of step {step + 1}"
        timed = self._timed(policy, step)
        sampling = self._config.sampling
        fill = Refill(sampling.problems_per_step, self._credit, sampling.refill_rounds)
        self._before = self.sampler.state_dict()
        started = time.monotonic()
        while fill.missing:
            problems = self.sampler.draw(step, fill.missing, fill.round)
            tasks = tasks_of(step, problems, sampling.group_size, first=fill.groups)
            played = await play(
                [task for task in tasks if task.key.problem % share[1] == share[0]],
                timed,
                self.evaluator,
                observer,
                rules,
                seed=self.seed,
                at_once=sampling.at_once,
            )
            fill.add(played if gather is None else gather(played))
        play_s = time.monotonic() - started
        times = {
            "time/play_s": play_s,
            "time/model_s": timed.seconds,
            # Time in which only verdicts were awaited.
            "time/judge_s": max(0.0, play_s - timed.seconds),
        }
        times["time/judge_share"] = times["time/judge_s"] / max(play_s, 1e-9)
        if isinstance(timed, TimedStream):
            times |= timed.metrics()
        # The sampler learns in the order of keys, independent of the process that played them.
        every = sorted((*fill.rollouts, *fill.discarded), key=lambda rollout: rollout.key)
        return Played(tuple(every), fill, rules, observer, times)

    def write_down(self, step: int, played: Played) -> TrainingStep:
        """Give credit for a step and log its rollouts.

        Args:
            step: Number of the step.
            played: Rollouts, as `play` returned them.
        """
        started = time.monotonic()
        every = list(played.rollouts)
        credit = assign_credit(every, self._credit)
        self.sampler.record(every)
        self._before = None
        metrics = {**self._metrics(every, credit, played.fill), **played.times}
        if self.archive is not None:  # before this step is added: what was shown in it
            metrics["retrieval/archive"] = float(len(self.archive))
        metrics |= retrieval_metrics(every, played.observer, played.rules)
        self.activity.now = f"writing down step {step + 1}"
        if self.log is not None:
            self.log.rollouts(every, played.observer, played.rules)
            every_so_often = self._config.logging.histograms_every
            if every_so_often and step % every_so_often == 0:
                self.log.histograms(step, distributions(every, credit.samples))
        if self.archive is not None:
            self.archive.move_on(bare_record(each, played.observer) for each in every)
        metrics["time/bookkeeping_s"] = time.monotonic() - started
        return TrainingStep(credit, played.rollouts, metrics)

    def finish(
        self,
        step: int,
        taken: TrainingStep,
        measured: Mapping[str, float],
        *,
        entropy: float | None = None,
        gap: float | None = None,
    ) -> tuple[Alarm, ...]:
        """Log a step's metrics after its optimiser step, and check the guards.

        Args:
            step: Number of the step.
            taken: Step, as `take` returned it.
            measured: Metrics of the backend.
            entropy: The policy's mean entropy per token, in nats; None if not available.
            gap: Mean difference of the sampler's and the learner's log-probabilities; likewise.

        Returns:
            Alarms, the gravest action first. That a guard lacks its numbers is reported once.
        """
        health = self._health(step, taken, entropy, gap)
        if len(self._first) < self._guards.baseline:
            self._first.append(health)
        self._recent = [*self._recent, health][-self._guards.window :]
        found = check_guards(self._guards, self._recent, first=self._first)
        alarms = tuple(
            alarm for alarm in found if alarm.action != "off" or alarm.guard not in self._told
        )
        self._told |= {alarm.guard for alarm in alarms if alarm.action == "off"}
        metrics = {**taken.metrics, **measured}
        metrics["guards/alarms"] = float(sum(alarm.action != "off" for alarm in alarms))
        known = {"opening_share": health.opening_share, "repetition": health.repetition, "gap": gap}
        metrics |= {f"guards/{name}": value for name, value in known.items() if value is not None}
        if self.log is not None:
            self.log.metrics(step, metrics)
            for alarm in alarms:
                numbers = dict(alarm.numbers)
                facts = {"guard": alarm.guard, "action": alarm.action, "numbers": numbers}
                self.log.event("alarm", step=step, message=alarm.message, **facts)
        return alarms

    def _health(
        self, step: int, taken: TrainingStep, entropy: float | None, gap: float | None
    ) -> StepHealth:
        answers = [one.ids for rollout in taken.rollouts for one in rollout.completions]
        if self._usual is None and answers:
            first = Counter(ids[0] for ids in answers if ids)
            self._usual = min(first, key=lambda token: (-first[token], token)) if first else None
        played = [rollout.trajectory for rollout in taken.rollouts]
        turns = [turn for each in played for turn in each.turns]
        missing = _not_given(played)
        count = len(answers)
        return StepHealth(
            step,
            groups=len({rollout.key.group for rollout in taken.rollouts}),
            groups_with_signal=taken.credit.groups,
            opening_share=opening_share(answers, self._usual),
            repetition=math.fsum(map(repetition, answers)) / count if count else None,
            answer_tokens=sum(map(len, answers)) / count if count else None,
            entropy=entropy,
            logprob_gap=gap,
            answers=len(turns) + missing,
            failures=sum(not turn.verdict.valid for turn in turns) + missing,
            filters={
                name: [each.seen, each.passed]  # a list, as JSON gives it back
                for name, each in self._filtered(taken.rollouts, taken.credit).items()
            },
        )

    def _filtered(self, rollouts: Iterable[Rollout], credit: Credit) -> dict[str, Filtered]:
        timed = self.evaluator.capabilities.timed
        return filtered(rollouts, credit.samples, timing=timed)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON data.

        A step that is being played is not part of it, so that a resumed run draws that step anew.
        """
        archived = {} if self.archive is None else {"archive": self.archive.state()}
        return archived | {
            "sampler": self.sampler.state_dict() if self._before is None else self._before,
            "first": [asdict(health) for health in self._first],
            "recent": [asdict(health) for health in self._recent],
            "usual": self._usual,
            "told": sorted(self._told),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint.

        Raises:
            UsageError: If the state belongs to another run.
        """
        self.sampler.load_state_dict(state["sampler"])
        self._before = None
        self._first = [StepHealth(**health) for health in state["first"]]
        self._recent = [StepHealth(**health) for health in state["recent"]]
        self._usual, self._told = state["usual"], set(state["told"])
        if self.archive is not None:
            assert self.log is not None, "a run with an archive has a folder"
            self.archive.load(state["archive"], self.log.trajectories)

    def _timed(self, policy: Policy | BatchPolicy, step: int) -> SharingPolicy | TimedStream:
        if not isinstance(policy, BatchPolicy):
            return TimedStream(policy)
        told = f"sampling answers of step {step + 1}"
        return SharingPolicy(policy, self.device_share, lambda: self.activity.during(told))

    def _metrics(self, every: list[Rollout], credit: Credit, fill: Refill) -> dict[str, float]:
        found = rollout_metrics(every) | advantage_metrics(credit.samples)
        found |= filter_metrics(self._filtered(every, credit))
        found |= entropy_metrics(every, credit.samples)
        missing = _not_given(rollout.trajectory for rollout in every)
        asked = missing + sum(len(rollout.completions) for rollout in every)
        found |= {
            "groups/wanted": float(self._config.sampling.problems_per_step),
            "groups/with_signal": float(credit.groups),
            "groups/flat": float(len({rollout.key.group for rollout in fill.discarded})),
            "groups/waste": fill.waste,
            "groups/rounds": float(fill.round),
            "infra/left_out": float(credit.left_out),
            "infra/policy_fail_rate": missing / max(1, asked),
            "curriculum/levels": float(len(self.sampler.levels)),
        }
        for bucket, rate in self.sampler.solve_rates.items():
            if rate is not None:
                found[f"curriculum/{bucket}"] = rate
        status = self.evaluator.status
        if status.health:
            found["infra/workers_lost"] = float(sum(device.lost for device in status.health))
            found["infra/devices_out"] = float(sum(not each.in_service for each in status.health))
        if status.hits + status.misses:
            found["judge/hit_rate"] = status.hits / (status.hits + status.misses)
            found["judge/judged"] = float(status.misses)
        return found


def _not_given(played: Iterable[Trajectory]) -> int:
    """Return the number of answers that the policy failed to give.

    A trajectory was cut for that if all its verdicts are valid.
    """
    return sum(each.ended == "cut" and each.valid for each in played)
