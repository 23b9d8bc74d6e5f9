"""`KernelTrainer`: TRL's GRPOTrainer, trained on our rows with our advantages and weights.

What it changes, and nothing else:

- advantages are those of `kernelgym_train.credit.credit`, row by row, in place of TRL's own;
- the loss weighs each token as credit says, whatever normaliser TRL's loss type has: advantages are
  multiplied by the weight that is wanted over the one that TRL is about to give. So the gradient of
  one step is that of ``-sum(weight * advantage * logp)`` under every loss type, and the loss type
  decides how ratios are clipped;
- rows are put into micro-batches by length, and each micro-batch is cut to its own length; so they
  are where a step's rows are scored before its update;
- what TRL measures of rows without a reward (the fillers) is not logged.

Imports TRL when it is imported, so import it late.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from trl import GRPOTrainer

from kernelgym_train.backends.trl.rows import TrainingRows

_COMPLETION_SIDE = (
    *("completion_ids", "completion_mask", "tool_mask", "old_per_token_logps"),
    *("sampling_per_token_logps", "ref_per_token_logps", "importance_sampling_ratio"),
)


class RowSource(Protocol):
    """Source of a trainer's rows, which also receives the trainer's logs."""

    def rows(self, trainer: KernelTrainer, count: int) -> TrainingRows:
        """Play a training step and return the given number of rows."""

    def learns(self) -> None:
        """Note that the model is about to learn from a micro-batch."""

    def logged(self, optimiser_step: int, values: dict[str, float]) -> None:
        """Log the metrics of one optimiser step."""


class KernelTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer, on rows and advantages that a `RowSource` gives.

    Args:
        source: Source of the rows.
        updates: Optimiser steps that are taken on the rows of one step.
        options: Options of GRPOTrainer, except reward and rollout functions.
    """

    _buffered_inputs: list[dict[str, Any]] | None

    def __init__(self, *, source: RowSource, updates: int = 1, **options: Any) -> None:
        self._source = source
        self._updates = updates
        self._rows: TrainingRows | None = None
        super().__init__(reward_funcs=[_given], rollout_func=_roll_out, **options)

    def roll_out(self, count: int) -> dict[str, Any]:
        """Return the rows in place of TRL's own rollout."""
        self._rows = self._source.rows(self, count)
        return self._rows.output()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        with _quiet("trl.trainer.grpo_trainer"):
            batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rows = self._rows
        if rows is None or len(rows) != len(inputs):
            raise RuntimeError(f"TRL scored {len(inputs)} rows, of which none came from our loop")
        device = batch["advantages"].device
        batch["advantages"] = torch.tensor(rows.advantages, dtype=torch.float32, device=device)
        batch["token_weights"] = torch.tensor(rows.weights, dtype=torch.float32, device=device)
        self._rows = None
        return batch

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        # TRL's, but for the shuffle: one that keeps rows of a like length together.
        window = self.args.steps_per_generation
        if self._step % (window * self.num_iterations) == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            seed = int(self.args.seed) + int(self.state.global_step)
            self._buffered_inputs = micro_batches(batch, window, self._updates, seed)
        found: dict[str, Any] = self._buffered_inputs[self._step % window]
        self._source.learns()  # a second update on the same rows follows no rollout
        return found

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **more: Any,
    ) -> tuple[Any, Any, Any]:
        whole = super()._get_per_token_logps_and_entropies
        plain = all(value is None or value is False for value in more.values())
        if torch.is_grad_enabled() or not plain:
            given = (model, input_ids, attention_mask, logits_to_keep, batch_size)
            found: tuple[Any, Any, Any] = whole(*given, **more)
            return found
        # All rows of a step at once, fillers too, and as wide as its longest prompt and answer.
        middle = input_ids.size(1) - logits_to_keep
        order = attention_mask.sum(-1).argsort(stable=True)
        parts = []
        for rows in order.split(batch_size or len(order)):
            mask = attention_mask[rows]
            read, answered = (int(half.sum(-1).max()) for half in mask.tensor_split([middle], 1))
            kept = slice(middle - max(1, read), middle + max(1, answered))
            part, _, _ = whole(model, input_ids[rows, kept], mask[:, kept], max(1, answered))
            parts.append(torch.nn.functional.pad(part, (0, logits_to_keep - part.size(1))))
        return torch.cat(parts)[order.argsort()], None, None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        wanted = inputs["token_weights"] * self._updates * self.accelerator.num_processes
        scaled = inputs["advantages"] * wanted / self._own_weights(inputs)
        measured = self._metrics["train"]
        before = {name: len(values) for name, values in measured.items()}
        loss: torch.Tensor = super()._compute_loss(model, inputs | {"advantages": scaled})
        if not _trained_on(inputs).any():
            # Fillers alone: what is measured of them would count as much as another micro-batch.
            for name, values in measured.items():
                del values[before.get(name, 0) :]
        return loss

    def _own_weights(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the weight that TRL's loss type gives each token of a row in a micro-batch."""
        mask = _trained_on(inputs)
        rows = mask.size(0)
        window = self.current_gradient_accumulation_steps
        one = torch.ones(rows, device=mask.device)
        if self.loss_type in ("grpo", "sapo"):
            return one / (mask.sum(-1).clamp(min=1) * rows * window)
        if self.loss_type == "bnpo":
            return one / (mask.sum().clamp(min=1) * window)
        if self.loss_type == "dr_grpo":
            return one / (rows * self.max_completion_length * window)
        if self.loss_type == "luspo":
            return one / (rows * window)
        # dapo, cispo, vespo: the tokens of the whole step, in one window of accumulation
        tokens = inputs["num_items_in_batch"].clamp(min=1) / self.accelerator.num_processes
        return one / (tokens * window / self.args.steps_per_generation)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no model card: the run's manifest has the facts."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and pass the metrics on to the run."""
        super().log(logs, start_time)
        if self.accelerator.is_main_process and "train_runtime" not in logs:
            numbers = {
                name: float(value) for name, value in logs.items() if isinstance(value, int | float)
            }
            self._source.logged(self.state.global_step, numbers)


def micro_batches(
    batch: dict[str, Any], count: int, updates: int = 1, seed: int = 0
) -> list[dict[str, Any]]:
    """Divide a step's rows into micro-batches of similar lengths, each cut to its own length.

    Args:
        batch: Tensors of one row each, left-padded prompts and right-padded completions among them.
        count: Number of micro-batches.
        updates: Optimiser steps they are for. Which rows go to which is drawn, so that the first
            does not get the short ones.
        seed: Seed of that draw.
    """
    prompts, answers = batch["prompt_mask"], batch["completion_mask"]
    total = prompts.size(0)
    lengths = (prompts.sum(-1) + answers.sum(-1)).tolist()
    order = list(range(total))
    if updates > 1:
        chance = torch.Generator().manual_seed(seed)
        order = torch.randperm(total, generator=chance).tolist()
    share, size = total // updates, total // count
    found = []
    for start in range(0, total, share):
        mine = sorted(order[start : start + share], key=lambda row: (lengths[row], row))
        for first in range(0, share, size):
            found.append(_cut(batch, torch.tensor(mine[first : first + size]), total))
    return found


def _trained_on(inputs: dict[str, Any]) -> torch.Tensor:
    """Return the mask of the answers' tokens in a micro-batch that are in the loss."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def _cut(batch: dict[str, Any], rows: torch.Tensor, total: int) -> dict[str, Any]:
    rows = rows.to(batch["prompt_mask"].device)
    part = {
        name: value[rows]
        if isinstance(value, torch.Tensor) and value.dim() and value.size(0) == total
        else value
        for name, value in batch.items()
    }
    prompt = max(1, int(part["prompt_mask"].sum(-1).max()))
    width = batch["completion_mask"].size(1)
    # Of a single column TRL takes means as if it held one value a row, fillers' included.
    answer = max(min(2, width), int(part["completion_mask"].sum(-1).max()))
    for name in ("prompt_ids", "prompt_mask"):
        part[name] = part[name][:, -prompt:]
    for name in _COMPLETION_SIDE:
        if name in part and part[name].dim() == 2 and part[name].size(1) == width:
            part[name] = part[name][:, :answer]
    return part


def _roll_out(prompts: list[Any], trainer: KernelTrainer) -> dict[str, Any]:
    return trainer.roll_out(len(prompts))


def _given(given: list[float | None], **_: Any) -> list[float | None]:
    """Return the rows that our loop gave, in the form in which TRL scores rows."""
    return given


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
