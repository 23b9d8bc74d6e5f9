"""Training on a Tinker service.

It takes the optimiser steps, and snapshots of its weights sample.

Contract:

- one policy is one snapshot of the weights, taken anew after every update, so that no answer is
  sampled by older weights than the step learns with; `tinker.off_policy=1` plays the next step
  meanwhile, by the snapshot from before this step's updates (`_Stretch._begin`);
- a step learns from credit's samples, a datum per turn. A step without an advantage submits nothing
  and counts no version: the optimiser's momentum would move the weights;
- learning rates are ours, sent with every update;
- a checkpoint is kept by the service, weights and optimiser; its folder here holds its paths, and
  a row in checkpoints.jsonl makes it count. A run that was killed and resumed plays the unbroken
  run's problems with its seeds;
- no request of training is sent twice: one that was not answered may still be carried out. The
  learner counts as lost, and the run goes on from its checkpoint with another one;
- after an interrupt a step that is not done within `tinker.step_timeout_s` is given up. Once it was
  played, no checkpoint is taken: whether its updates are done is not known.

Steps are finished, evaluated and kept by `kernelgym_train.run.training`. It needs neither the SDK
nor a tensor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kernelgym import UsageError
from kernelgym_train.backends.tinker.checkpoint import KeptCheckpoint, checkpoint_name
from kernelgym_train.backends.tinker.datums import datum_row, logprob_gap, updates_of
from kernelgym_train.backends.tinker.losses import learning_rate_at, loss_of
from kernelgym_train.backends.tinker.recovery import or_lost
from kernelgym_train.backends.tinker.reference import (
    divergence,
    reference_logprobs,
)
from kernelgym_train.backends.tinker.remote_model import Remote
from kernelgym_train.backends.tinker.service import Learner, Sampler
from kernelgym_train.backends.tinker.settings import EVERYWHERE
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from kernelgym_train.run.interrupts import finish_within
from kernelgym_train.run.runlog import Checkpoint
from kernelgym_train.run.steps import Played, TrainingStep
from kernelgym_train.run.training import LearnerLost, Progress, TrainingOutcome
from kernelgym_train.types import Key, Sample


def train(progress: Progress, remote: Remote) -> TrainingOutcome:
    """Train from the checkpoint at which `progress` begins until it ends.

    Args:
        progress: Progress of the run.
        remote: Model on the service.

    Returns:
        The outcome; its model is a `KeptCheckpoint`.

    Raises:
        UsageError: If the log's checkpoint is another backend's.
        LearnerLost: If the weights that are trained on the service are lost.
    """
    remote.service.pauses.event = progress.log.event
    return asyncio.run(_Stretch(progress, remote).run())


class _Stretch:
    """One stretch of a run: it trains from a checkpoint, or from a fresh adapter, onwards."""

    def __init__(self, progress: Progress, remote: Remote) -> None:
        self._progress, self._remote = progress, remote
        self._config, self._steps = progress.config, progress.steps
        self._loss = loss_of(progress.config)
        self._kept = _kept_at_start(progress)
        self._version = self._kept.version if self._kept else 0
        self._sampled: tuple[int, Sampler] | None = None
        self._base: Sampler | None = None
        self._unfinished = False
        """True between logging a step and knowing that the service has carried out its updates."""
        self._ahead: asyncio.Task[Played] | None = None
        start, spending = progress.log.start, remote.spending
        self._saved = start.step if start is not None else 0
        self._before: dict[str, Any] | None = start.state().get("before") if start else None
        """Path and version of the weights that sample in the first step after the checkpoint; None
        unless the run is one step off policy."""
        if start is not None and not spending.spent.total:  # a rollback takes nothing back
            spending.load(start.state().get("spent", {}))

    async def run(self) -> TrainingOutcome:
        """Train until the last step, a stop, or a rollback."""
        progress = self._progress
        self._end_if_spent()
        try:
            if not progress.ends or self._kept is None:
                learner = await self._open()
                if self._kept is None and self._loss.name not in EVERYWHERE:
                    await self._check_loss(learner)
                await self._train(learner)
        except LearnerLost:
            self._remote.service.renew()
            raise
        finally:
            if self._ahead is not None:
                self._ahead.cancel()
                await asyncio.gather(self._ahead, return_exceptions=True)
        return TrainingOutcome(progress.done, stopped=progress.stopped, model=self._kept)

    async def _train(self, learner: Learner) -> None:
        progress = self._progress
        limit_s = self._config.tinker.step_timeout_s
        while not progress.ends:
            step = self._step(learner, progress.done)
            if not await finish_within(step, progress.interrupted, limit_s):
                progress.log.event("step_given_up", step=progress.done)
                if not self._unfinished and progress.done > self._saved:
                    await self._save(learner, checkpoint=True)
                return
            self._end_if_spent()
            if progress.save_due:
                await self._save(learner, checkpoint=True)
        if progress.action == "stop" and not progress.save_due:
            await self._save(learner, checkpoint=bool(self._remote.spending.over))

    def _end_if_spent(self) -> None:
        """End the run if a cap on what it spends was reached."""
        if self._progress.done and (over := self._remote.spending.over):
            self._progress.stop(over)

    async def _open(self) -> Learner:
        config, service = self._config, self._remote.service
        if self._kept is not None:
            self._steps.activity.now = "restoring the checkpoint on the service"
            return await or_lost(service.restore(self._kept.state_path, optimiser=True))
        if path := config.tinker.start_from:
            self._steps.activity.now = "taking over another run's weights on the service"
            return await or_lost(service.restore(path, optimiser=False))
        self._steps.activity.now = "making an adapter on the service"
        return await or_lost(
            service.create(self._remote.base_model, config.model.lora_rank, config.run.seed)
        )

    async def _check_loss(self, learner: Learner) -> None:
        """Raise a UsageError if the server does not have the configured loss."""
        if await or_lost(learner.has_loss(self._loss.name, self._loss.told(1.0))):
            return
        raise UsageError(
            f"the Tinker server at {self._remote.server} does not have the loss {self._loss.name}; "
            f"set optimiser.loss to one that it has: {', '.join(EVERYWHERE)}, and leave "
            "optimiser.importance=token"
        )

    async def _step(self, learner: Learner, step: int) -> None:
        taken, snapshot_s = await self._take(learner, step)
        before, started = self._version, time.monotonic()
        await self._begin(learner, step + 1)
        snapshot_s += time.monotonic() - started
        self._steps.activity.now = "learning from the step's answers"
        started = time.monotonic()
        measured, gap = await self._learn(learner, step, taken)
        measured["time/train_s"] = time.monotonic() - started
        measured["time/snapshot_s"] = snapshot_s
        measured |= self._remote.spending.metrics()
        self._progress.finish(
            step,
            taken,
            measured,
            version=before,
            entropy=measured.get("train/entropy"),
            gap=gap,
        )
        self._unfinished = False
        self._end_if_spent()
        if self._progress.evaluation_due:
            if self._ahead is not None:  # one use of the judge at a time
                await asyncio.wait({self._ahead})
            evaluated = await self._snapshot(learner)
            asks = partial(self._remote.policy, evaluated, self._version)
            await self._progress.evaluate(asks)

    async def _take(self, learner: Learner, step: int) -> tuple[TrainingStep, float]:
        """Play a step and log it; return it with the seconds that taking the snapshot took."""
        started = time.monotonic()
        if self._ahead is None:
            self._ahead = self._play(step, *await self._chosen(learner))
        snapshot_s = time.monotonic() - started
        self._steps.activity.now = f"playing step {step + 1}"
        played, self._ahead = await self._ahead, None
        if played.rollouts and not any(rollout.completions for rollout in played.rollouts):
            raise LearnerLost(f"the snapshot of step {step + 1} gave no answer")
        self._unfinished = True
        return self._steps.write_down(step, played), snapshot_s

    async def _begin(self, learner: Learner, step: int) -> None:
        """Start playing the next step in the background, if the run is one step off policy.

        If a checkpoint is due before that step, the weights that sample are kept with it, so that a
        resumed run plays the step with the same weights.
        """
        progress, self._before = self._progress, None
        over = step >= self._config.optimiser.steps or progress.interrupted.is_set()
        if not self._config.tinker.off_policy or over or self._remote.spending.over:
            return
        if progress.saves_after(step - 1):
            self._steps.activity.now = "keeping the weights that play on the service"
            name = f"before-{checkpoint_name(step)}"
            saving = learner.save_sampler(name, keep_days=self._config.tinker.keep_days)
            self._before = {"sampler_path": await or_lost(saving), "version": self._version}
        self._ahead = self._play(step, await self._snapshot(learner), self._version)
        await asyncio.sleep(0)  # lets it begin before the update is submitted

    async def _chosen(self, learner: Learner) -> tuple[Sampler, int]:
        """Return the snapshot that samples in a step, and the version of its weights."""
        kept = self._before
        if kept is None or not self._config.tinker.off_policy:
            return await self._snapshot(learner), self._version
        self._steps.activity.now = "opening the weights that play on the service"
        opened = await or_lost(self._remote.service.sampler(kept["sampler_path"]))
        return opened, kept["version"]

    def _play(self, step: int, snapshot: Sampler, version: int) -> asyncio.Task[Played]:
        sampling = self._config.sampling
        drawn = SamplingRule(sampling.max_new_tokens, sampling.temperature, sampling.top_p)
        policy = self._remote.policy(snapshot, version, drawn)
        return asyncio.create_task(self._steps.play(step, policy))

    async def _learn(
        self, learner: Learner, step: int, taken: TrainingStep
    ) -> tuple[dict[str, float], float | None]:
        """Take the optimiser updates of a step; return their metrics and the mean gap.

        The gap is the difference between the log-probabilities of sampler and learner; None if it
        is not known.
        """
        optimiser = self._config.optimiser
        sampled_by = _versions(taken)
        parts = updates_of(
            taken.credit.samples,
            optimiser.updates_per_step,
            penalised=optimiser.kl_beta > 0,
        )
        penalties, found = await self._penalties(parts)
        first = step * optimiser.updates_per_step
        rates, losses, norms = [], [], []
        gap = most_gap = stale_gap = None
        for number, samples in enumerate(parts):
            rows = [datum_row(sample, penalties.get(sample.key, ())) for sample in samples]
            rates.append(learning_rate_at(optimiser, self._progress.learning_rate, first + number))
            update = learner.update(
                rows,
                loss=self._loss.name,
                loss_config=self._loss.told(samples[0].weight),
                learning_rate=rates[-1],
                weight_decay=optimiser.weight_decay,
                max_grad_norm=optimiser.max_grad_norm,
            )
            done = await or_lost(update)
            prompts = [len(sample.prompt_ids) for sample in samples]
            if all(sampled_by[sample.key] == self._version for sample in samples):
                # Later updates, and answers of older weights, differ by right.
                gap, most_gap = logprob_gap(rows, done.logprobs, prompts)
            elif not number:
                stale_gap, _ = logprob_gap(rows, done.logprobs, prompts)
            self._version += 1
            self._remote.spending.trained(sum(len(row.tokens) for row in rows))
            losses += _found(done.metrics, "loss:sum")
            norms += _found(done.metrics, "grad_norm")
        planned = learning_rate_at(optimiser, self._progress.learning_rate, first)
        measured = {
            **found,
            "train/learning_rate": rates[0] if rates else planned,
            "train/updates": float(len(parts)),
            "train/datums": float(sum(map(len, parts))),
        }
        if losses:
            measured["train/loss"] = sum(losses)
        if norms:
            measured["train/grad_norm"] = sum(norms) / len(norms)
        if most_gap is not None:
            measured["train/gap_max"] = most_gap
        if stale_gap is not None:
            measured["train/gap_stale"] = stale_gap
        if (entropy := taken.metrics.get("entropy/raw")) is not None:
            measured["train/entropy"] = entropy
        return measured, gap

    async def _penalties(
        self, parts: Sequence[Sequence[Sample]]
    ) -> tuple[dict[Key, tuple[float, ...]], dict[str, float]]:
        """Return the penalty of each token by sample, and the divergence as a metric.

        The divergence is that from the base model; both are empty without ``optimiser.kl_beta``.
        """
        beta, remote = self._config.optimiser.kl_beta, self._remote
        samples = [sample for part in parts for sample in part]
        if not beta or not samples:
            return {}, {}
        if self._base is None:
            self._base = await or_lost(remote.service.sampler(base_model=remote.base_model))
        asking = reference_logprobs(
            self._base,
            samples,
            limit_s=remote.answer_timeout_s,
            at_once=self._config.sampling.at_once,
        )
        told = await or_lost(asking)
        for sample in samples:
            remote.spending.sampled(len(sample.prompt_ids) + len(sample.ids), 1)
        found = divergence(samples, told)
        penalties = {
            sample.key: tuple(beta * value for value in excess)
            for sample, excess in zip(samples, found.excess, strict=True)
        }
        return penalties, {"train/kl": found.kl}

    async def _snapshot(self, learner: Learner) -> Sampler:
        """Return a snapshot of the weights; the last one if unchanged."""
        if self._sampled is None or self._sampled[0] != self._version:
            self._steps.activity.now = "taking a snapshot of the weights"
            self._sampled = (self._version, await or_lost(learner.snapshot()))
        return self._sampled[1]

    async def _save(self, learner: Learner, *, checkpoint: bool) -> None:
        self._steps.activity.now = "keeping the weights on the service"
        progress = self._progress
        name = checkpoint_name(progress.done) if checkpoint else "final"
        saving = learner.save(name, keep_days=self._config.tinker.keep_days)
        state, sampler = await or_lost(saving)
        remote = self._remote
        self._kept = KeptCheckpoint(state, sampler, self._version, remote.base_model, remote.server)
        if checkpoint:
            folder = progress.log.folder / "checkpoints" / name
            folder.mkdir()
            kept = {"tinker": self._kept.state(), "spent": remote.spending.state()}
            facts = self._kept.facts(progress.done)
            if self._before is not None:
                kept["before"] = self._before
                facts["before_path"] = self._before["sampler_path"]
            pruned = progress.commit(folder, state=kept, facts=facts)
            self._saved = progress.done
            await self._delete(pruned)

    async def _delete(self, pruned: Iterable[Checkpoint]) -> None:
        """Delete checkpoints on the service; a failure is only logged as an event."""
        names = ("state_path", "sampler_path", "before_path")
        paths = [str(each.facts[name]) for each in pruned for name in names if name in each.facts]
        ended = await asyncio.gather(
            *(self._remote.service.delete(path) for path in paths), return_exceptions=True
        )
        for path, error in zip(paths, ended, strict=True):
            if isinstance(error, Exception):
                reason = f"{type(error).__name__}: {error}"
                self._progress.log.event("not_deleted", path=path, reason=reason)
            elif error is not None:
                raise error  # an interrupt


def _kept_at_start(progress: Progress) -> KeptCheckpoint | None:
    """Return the weights that a stretch of the run begins with; None for a new adapter.

    Raises:
        UsageError: If it is another backend's.
    """
    start = progress.log.start
    if start is None:
        return None
    found = start.state().get("tinker")
    if not isinstance(found, dict):
        raise UsageError(
            f"the checkpoint in {str(start.folder)!r} is not one of a Tinker service; go on with "
            "the run under the backend that it was made with"
        )
    return KeptCheckpoint.of(found)


def _versions(taken: TrainingStep) -> dict[Key, int]:
    """Return the version of the weights that sampled each turn."""
    return {
        rollout.key._replace(turn=turn): answer.policy_version
        for rollout in taken.rollouts
        for turn, answer in enumerate(rollout.completions)
    }


def _found(metrics: Mapping[str, float], name: str) -> list[float]:
    """Return a metric's value by the last part of its name, such as skyrl.ai/grad_norm."""
    return [value for key, value in metrics.items() if key.rpartition("/")[2] == name]
