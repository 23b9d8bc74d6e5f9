"""Checks of a configuration for the backend ``trl``.

TRL is imported only where options of its own are given.

Contract: `check_settings` raises a `UsageError` that says what was given, what fits and what to do.
Names in ``run.options`` are compared with those of the installed TRL; without one they are not, and
the run is refused for that.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelgym.errors import UnknownName, UsageError
from kernelgym_train.config.unused import refuse_given

if TYPE_CHECKING:
    from kernelgym_train.config.config import Config

LOSSES = ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
"""Losses of TRL whose token weights the backend knows; they differ only in how ratios are
clipped."""

_DECIDED_HERE = (
    *("output_dir", "max_steps", "per_device_train_batch_size", "steps_per_generation"),
    *("gradient_accumulation_steps", "num_generations", "generation_batch_size", "num_iterations"),
    *("save_strategy", "save_steps", "save_total_limit", "logging_steps", "logging_strategy"),
    *("scale_rewards", "mask_truncated_completions", "ignore_data_skip", "resume_from_checkpoint"),
    *("remove_unused_columns", "loss_type", "report_to", "seed"),
)
"""Options of TRL that the backend sets itself, since rows, weights and checkpoints depend on
them."""

_UNUSED = {
    "sampling.at_once": "it answers the trajectories of a step together",
    "tinker": "it trains on this machine",
}


def check_settings(config: Config, processes: int = 1) -> None:
    """Refuse a configuration that TRL cannot train by.

    Args:
        config: The configuration.
        processes: Processes that train together.

    Raises:
        UnknownName: If the loss or an option is none of TRL's.
        UsageError: If a setting has no use there, a step cannot be divided, or an option follows
            from other settings.
    """
    if config.optimiser.loss not in ("auto", *LOSSES):
        raise UnknownName("loss of TRL", config.optimiser.loss, ("auto", *LOSSES))
    refuse_given(config, "trl", _UNUSED)
    _check_options(config.run.options)
    _check_division(config, processes)


def _check_options(given: Sequence[str]) -> None:
    names = []
    for text in given:
        name, equals, _ = text.partition("=")
        if not equals:
            raise UsageError(f"run.options holds name=value, got {text!r}")
        names.append(name.strip())
        if names[-1] in _DECIDED_HERE:
            raise UsageError(
                f"run.options={names[-1]}: that follows from other settings (such as "
                "optimiser.steps, optimiser.micro_batch, optimiser.loss, credit.*); set those"
            )
    if not names or importlib.util.find_spec("trl") is None:
        return
    from trl import GRPOConfig  # seconds, so only where an option is given

    known = {field.name for field in dataclasses.fields(GRPOConfig) if field.init}
    for name in names:
        if name not in known:
            raise UnknownName("option of TRL's GRPOConfig", name, sorted(known))


def _check_division(config: Config, processes: int) -> None:
    """Refuse a step that cannot be divided by processes, updates and micro-batches."""
    sampling, optimiser = config.sampling, config.optimiser
    if sampling.problems_per_step % processes:
        raise UsageError(
            f"sampling.problems_per_step={sampling.problems_per_step} does not divide among "
            f"{processes} processes, and a group stays on one; take a multiple of {processes}"
        )
    rows = config.samples_per_step
    shares = processes * optimiser.updates_per_step
    if rows % (shares * optimiser.micro_batch):
        fitting = [n for n in range(1, rows // shares + 1) if rows % (shares * n) == 0]
        near = sorted(fitting, key=lambda n: abs(n - optimiser.micro_batch))[:2]
        advice = (
            f"optimiser.micro_batch={' or '.join(map(str, sorted(near)))} fits"
            if near
            else "change sampling.group_size or optimiser.updates_per_step"
        )
        raise UsageError(
            f"a step has {rows} samples (sampling.problems_per_step={sampling.problems_per_step} x "
            f"sampling.group_size={sampling.group_size} x env.max_turns={config.env.max_turns}), "
            f"which do not divide by {shares * optimiser.micro_batch} (processes={processes} x "
            f"optimiser.updates_per_step={optimiser.updates_per_step} x optimiser.micro_batch="
            f"{optimiser.micro_batch}); "
            f"{advice}"
        )
