"""What stands between TRL's trainer and the steps of a run.

It samples with the trainer's model, gives it rows, takes its numbers and makes its checkpoints
count. Contract: see `kernelgym_train.backends.trl.train`. Importing it imports neither TRL nor
torch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgym.records.jsonlines import read_lines
from kernelgym_train.backends.trl.generation import generate_ids
from kernelgym_train.backends.trl.rows import Rows, rows_of
from kernelgym_train.config.config import Config
from kernelgym_train.metrics.guards import Alarm
from kernelgym_train.models import context_tokens, weights_digest
from kernelgym_train.rollout.play import request_seed
from kernelgym_train.rollout.policies import (
    ChatText,
    batch_seed,
    by_length,
    end_ids,
    refuse_long_prompts,
)
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Step, Steps
from kernelgym_train.types import Completion, Key, Request, Rollout

if TYPE_CHECKING:
    from kernelgym_train.backends.trl.trainer import KernelTrainer

__all__ = ["Evaluate", "TrlLoop", "TrlPolicy"]

Evaluate = Callable[[Any, int], float | None]
"""Evaluates a model after so many steps, writes down what it finds, and returns its score."""


class TrlPolicy:
    """Samples with a trainer's own model, as `kernelgym_train.rollout.play.BatchPolicy`.

    Args:
        trainer: The trainer.
        text: The chat template.
        batch: Most requests of one call.
        version: Optimiser steps that the model has taken.
        max_new_tokens: Most tokens of an answer, for which the model's context must have room.
    """

    def __init__(
        self,
        trainer: Any,
        text: ChatText,
        *,
        batch: int = 64,
        version: int = 0,
        max_new_tokens: int = 0,
    ) -> None:
        self._trainer, self._text = trainer, text
        self._batch, self._version, self._most = batch, version, max_new_tokens
        model = trainer.accelerator.unwrap_model(trainer.model)
        self._ends = end_ids(model, text.tokenizer)
        self._context = context_tokens(model.config)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in their order.

        Raises:
            PromptTooLong: If a prompt and its answer do not fit into the model's context.
        """
        import torch

        prompts = [self._text.prompt(request.messages) for request in requests]
        refuse_long_prompts([len(ids) for ids, _ in prompts], self._most, self._context)
        found: dict[int, Completion] = {}
        for chunk in by_length([len(ids) for ids, _ in prompts], self._batch):
            torch.manual_seed(batch_seed([requests[index].seed for index in chunk]))
            sampled, told = generate_ids(self._trainer, [prompts[index][0] for index in chunk])
            for place, (index, ids) in enumerate(zip(chunk, sampled, strict=True)):
                read, opened = prompts[index]
                found[index] = Completion(
                    text=self._text.answer(ids, opened),
                    prompt_ids=read,
                    ids=tuple(ids),
                    logprobs=None if told is None else tuple(told[place]),
                    finish="stop" if ids and ids[-1] in self._ends else "length",
                    policy_version=self._version,
                )
        return [found[index] for index in range(len(requests))]


class TrlLoop:
    """Gives the trainer its rows and takes its numbers; see `RowSource`."""

    def __init__(
        self,
        config: Config,
        log: RunLog,
        steps: Steps,
        tokenizer: Any,
        evaluate: Evaluate | None,
        *,
        may_roll_back: bool,
    ) -> None:
        self._config, self._log, self._steps = config, log, steps
        self._evaluate, self._may_roll_back = evaluate, may_roll_back
        self._updates = config.optimiser.updates_per_step
        template = {"enable_thinking": config.sampling.thinking}
        self._text = ChatText(tokenizer, template)
        self._end = tokenizer.eos_token_id
        self._taken: Step | None = None
        self._measured: list[dict[str, float]] = []
        self._since = time.monotonic()
        self.trainer: KernelTrainer | None = None
        self.alarmed = False
        """Whether a guard was set off since the last checkpoint."""
        self.score: float | None = None
        """What the last evaluation said, until the next step."""
        self.action = ""
        """``stop`` or ``rollback`` once a guard has asked for it."""
        self.stopped = ""

    def rows(self, trainer: KernelTrainer, count: int) -> Rows:
        """Play a step and return that many rows."""
        import torch

        optimiser_step = trainer.state.global_step
        step = optimiser_step // self._updates
        torch.manual_seed(request_seed(self._steps.seed, Key(step, 0)))
        policy = TrlPolicy(
            trainer,
            self._text,
            batch=self._config.sampling.batch_size,
            version=optimiser_step,
            max_new_tokens=self._config.sampling.max_new_tokens,
        )
        accelerator = trainer.accelerator
        share = (accelerator.process_index, accelerator.num_processes)
        gather = _gather if share[1] > 1 else None
        self._taken = asyncio.run(self._steps.take(step, policy, share=share, gather=gather))
        self._measured = []
        self.learns()
        rows = rows_of(self._taken.credit.samples, count * share[1], end=self._end)
        return rows.part(share[0] * count, count)

    def learns(self) -> None:
        """Hold the device lock, if needed, from now until `rests`."""
        self._steps.activity.now = "learning from the step's answers"
        self._steps.device_share.take()

    def rests(self) -> None:
        """Release the device lock: the optimiser step is taken."""
        self._steps.device_share.release()

    def logged(self, optimiser_step: int, values: dict[str, float]) -> None:
        """Take what the trainer measured in one optimiser step."""
        self._measured.append(values)
        if optimiser_step % self._updates or self._taken is None or self.trainer is None:
            return
        step = optimiser_step // self._updates - 1
        values = _mean(self._measured)
        now = time.monotonic()
        measured = {_NAMES.get(name, f"train/{name}"): value for name, value in values.items()}
        measured = {name: value for name, value in measured.items() if name}
        measured["time/total_s"], self._since = now - self._since, now
        # TRL's time of a step holds what was played in it.
        played = sum(self._taken.metrics[f"time/{part}_s"] for part in ("play", "bookkeeping"))
        spent = sum(row.get("step_time", 0.0) for row in self._measured)
        measured["time/train_s"] = max(0.0, spent - played)
        measured["progress/done_frac"] = (step + 1) / self._config.optimiser.steps
        alarms = self._steps.finish(
            step,
            self._taken,
            measured,
            entropy=values.get("entropy"),
            gap=values.get("sampling/sampling_logp_difference/mean"),
        )
        self._taken = None
        self._act(alarms)
        every = self._config.evaluation.every
        self.score = None
        if self._evaluate is not None and every and (step + 1) % every == 0 and not self.action:
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            with self._steps.activity.during(f"evaluating after step {step}"):
                self.score = self._evaluate(model, step + 1)
            self._since = time.monotonic()  # what an evaluation takes is its own: time/eval_s

    def saved(self, optimiser_step: int, folder: Path) -> None:
        """Make a checkpoint count."""
        if self.trainer is None or self.action == "rollback":
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        self._log.commit(
            optimiser_step // self._updates,
            folder,
            {"steps": self._steps.state()},
            weights=weights_digest(model),
            good=not self.alarmed,
            score=self.score,
        )
        self._log.prune(self._config.run.keep_checkpoints)
        self.alarmed = False

    def _act(self, alarms: Sequence[Alarm]) -> None:
        grave = [alarm for alarm in alarms if alarm.action in ("stop", "rollback")]
        self.alarmed |= any(alarm.action != "off" for alarm in alarms)
        if not grave or self.trainer is None:
            return
        self.action, self.stopped = grave[0].action, f"{grave[0].guard}: {grave[0].message}"
        if self.action == "rollback" and not (self._may_roll_back and self._has_good()):
            self.action = "stop"
        self.trainer.control.should_training_stop = True

    def _has_good(self) -> bool:
        path = self._log.folder / "checkpoints.jsonl"
        return path.exists() and any(row["good"] for _, row in read_lines(path))


_NAMES = {
    **dict.fromkeys(("reward", "reward_std", "frac_reward_zero_std", "epoch", "num_tokens"), ""),
    **dict.fromkeys(("rewards/_given/mean", "rewards/_given/std"), ""),
    **{
        f"completions/{name}": ""
        for name in (
            *("mean_length", "min_length", "max_length", "clipped_ratio"),
            *("mean_terminated_length", "min_terminated_length", "max_terminated_length"),
        )
    },
    "step_time": "",
}
"""TRL's names of what it measures, by ours; empty for what it says of its own groups and fillers.
Any other keeps its name, below ``train/``."""


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name for row in rows for name in row}
    known = {name: [row[name] for row in rows if name in row] for name in sorted(names)}
    return {name: sum(values) / len(values) for name, values in known.items()}


def _gather(rollouts: list[Rollout]) -> list[Rollout]:
    from accelerate.utils import gather_object

    found: list[Rollout] = gather_object(rollouts)
    return found
