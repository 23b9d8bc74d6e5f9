"""Connects TRL's trainer with the steps of a run.

It samples with the trainer's model, gives it rows, takes its numbers and makes its checkpoints
count. Contract: see `kernelgym_train.backends.trl.train`. Importing it imports neither TRL nor
torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgym.benchmark.run.generations import request_seed
from kernelgym_train.backends.trl.rows import TrainingRows, rows_of
from kernelgym_train.config.config import Config
from kernelgym_train.models import weights_digest
from kernelgym_train.rollout.huggingface_policy import ChatText, DrawnAnswer, HFPolicy, SamplingRule
from kernelgym_train.run.steps import TrainingStep
from kernelgym_train.run.training import Progress
from kernelgym_train.types import Key, Rollout

if TYPE_CHECKING:
    from kernelgym_train.backends.trl.trainer import KernelTrainer


class TrlLoop:
    """Gives TRL's trainer its rows and logs its metrics; see `RowSource`.

    Args:
        progress: Progress of the stretch that is trained.
        tokenizer: The model's.
    """

    def __init__(self, progress: Progress, tokenizer: Any) -> None:
        config = progress.config
        self._config, self._progress, self._steps = config, progress, progress.steps
        self._updates = config.optimiser.updates_per_step
        self._text = ChatText(tokenizer, {"enable_thinking": config.sampling.thinking})
        self._taken: TrainingStep | None = None
        self._measured: list[dict[str, float]] = []
        self.trainer: KernelTrainer | None = None

    def rows(self, trainer: KernelTrainer, count: int) -> TrainingRows:
        """Play a training step and return the given number of rows."""
        import torch

        optimiser_step = trainer.state.global_step
        step = optimiser_step // self._updates
        torch.manual_seed(request_seed(self._steps.seed, Key(step, 0)))
        accelerator = trainer.accelerator
        policy = model_policy(
            self._config,
            accelerator.unwrap_model(trainer.model),
            self._text.tokenizer,
            SamplingRule(self._config.sampling.max_new_tokens),
            version=optimiser_step,
            draw=partial(draw_answers, trainer),
        )
        share = (accelerator.process_index, accelerator.num_processes)
        gather = _gather if share[1] > 1 else None
        self._taken = asyncio.run(self._steps.take(step, policy, share=share, gather=gather))
        self._measured = []
        self.learns()
        end = self._text.tokenizer.eos_token_id
        rows = rows_of(self._taken.credit.samples, count * share[1], end=end)
        return rows.part(share[0] * count, count)

    def learns(self) -> None:
        """Hold the device lock, if needed, from now until `rests`."""
        self._steps.activity.now = "learning from the step's answers"
        self._steps.device_share.take()

    def rests(self) -> None:
        """Release the device lock: the optimiser step is taken."""
        self._steps.device_share.release()

    def logged(self, optimiser_step: int, values: dict[str, float]) -> None:
        """Log the metrics of one optimiser step."""
        self._measured.append(values)
        if optimiser_step % self._updates or self._taken is None or self.trainer is None:
            return
        step = optimiser_step // self._updates - 1
        values = _mean(self._measured)
        measured = {_NAMES.get(name, f"train/{name}"): value for name, value in values.items()}
        measured = {name: value for name, value in measured.items() if name}
        # TRL's time of a step holds what was played in it.
        played = sum(self._taken.metrics[f"time/{part}_s"] for part in ("play", "bookkeeping"))
        spent = sum(row.get("step_time", 0.0) for row in self._measured)
        measured["time/train_s"] = max(0.0, spent - played)
        self._progress.finish(
            step,
            self._taken,
            measured,
            version=step * self._updates,
            entropy=values.get("entropy"),
            gap=values.get("sampling/sampling_logp_difference/mean"),
        )
        self._taken = None
        if self._progress.action:
            self.trainer.control.should_training_stop = True
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        asyncio.run(self._progress.evaluate(partial(self._policy, model)))

    def saved(self, folder: Path) -> None:
        """Make a checkpoint that the trainer has saved count."""
        if self.trainer is None:
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        self._progress.commit(folder, weights=weights_digest(model))

    def _policy(self, model: Any, sampling: SamplingRule) -> HFPolicy:
        return model_policy(self._config, model, self._text.tokenizer, sampling)


def model_policy(
    config: Config, model: Any, tokenizer: Any, sampling: SamplingRule, **options: Any
) -> HFPolicy:
    """Return a policy that samples with a model in its current state.

    Args:
        config: Configuration of the run.
        model: Model that samples.
        tokenizer: Tokenizer of the model.
        sampling: Rule by which tokens are drawn.
        options: Further arguments of `HFPolicy`.
    """
    template = {"enable_thinking": config.sampling.thinking}
    batch = config.sampling.batch_size
    return HFPolicy(model, tokenizer, sampling, batch=batch, template=template, **options)


def draw_answers(trainer: Any, prompts: Sequence[Sequence[int]], seed: int) -> list[DrawnAnswer]:
    """Return the ids that a trainer samples for each prompt, with their log-probabilities.

    TRL has no public way to generate inside a rollout function; this private call serves Hugging
    Face, vLLM and continuous batching alike. tests/train/backends/trl/test_contract.py compares its
    parameters with those of the installed TRL.

    Args:
        trainer: Trainer of TRL; it samples with the temperature and limits of its own options.
        prompts: Ids of each prompt.
        seed: Seed of torch's random number generators.
    """
    import torch

    torch.manual_seed(seed)
    # One generation per prompt: the prompts stand there as often as they are wanted.
    ids, told = trainer._generate_single_turn([list(prompt) for prompt in prompts], None, {}, 1)
    logprobs = [None] * len(ids) if told is None else map(tuple, told)
    return [(tuple(row), each) for row, each in zip(ids, logprobs, strict=True)]


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
"""Names of TRL's metrics, by ours; empty for those of its own groups and filler rows. Any other
metric keeps its name, below ``train/``."""


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name for row in rows for name in row}
    known = {name: [row[name] for row in rows if name in row] for name in sorted(names)}
    return {name: sum(values) / len(values) for name, values in known.items()}


def _gather(rollouts: list[Rollout]) -> list[Rollout]:
    from accelerate.utils import gather_object

    found: list[Rollout] = gather_object(rollouts)
    return found
