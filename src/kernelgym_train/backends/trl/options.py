"""TRL's options, from ours. Contract: pure; every key is one of GRPOConfig's.

What TRL cannot do was refused by `kernelgym_train.backends.trl.settings`.
tests/train/backends/trl/test_contract.py holds that against the installed TRL.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelgym_train.config.config import Config

_OF_NORMALISER = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}


def grpo_options(
    config: Config, folder: str | Path, *, device: str = "cpu", processes: int = 1
) -> dict[str, Any]:
    """Return the options for TRL's GRPOConfig that follow from our settings.

    Args:
        config: The configuration.
        folder: Folder of the checkpoints.
        device: The model's.
        processes: Processes that train together.
    """
    sampling, optimiser = config.sampling, config.optimiser
    loss = _loss(config)
    rows = config.samples_per_step
    window = rows // (processes * optimiser.micro_batch)
    updates = optimiser.updates_per_step
    # TRL clips CISPO's ratio at the number itself, and the others' at one more than it.
    high = 1.0 + optimiser.clip_high if loss == "cispo" else optimiser.clip_high
    vllm = sampling.engine.removeprefix("vllm_") if sampling.engine != "transformers" else None
    options = {
        "output_dir": str(folder),
        "seed": config.run.seed,
        "max_steps": optimiser.steps * updates,
        "per_device_train_batch_size": optimiser.micro_batch,
        "steps_per_generation": window,
        "gradient_accumulation_steps": window // updates,
        # TRL compares rows in blocks of this size; what it finds is replaced.
        "num_generations": config.sampling.group_size * config.env.max_turns,
        "max_completion_length": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": _SCHEDULES[optimiser.schedule],
        "warmup_steps": optimiser.warmup_steps * updates,
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        "loss_type": loss,
        "importance_sampling_level": optimiser.importance,
        "epsilon": optimiser.clip_low,
        "epsilon_high": high,
        "beta": optimiser.kl_beta,
        "scale_rewards": "none",
        "mask_truncated_completions": False,
        "shuffle_dataset": False,
        "gradient_checkpointing": config.model.gradient_checkpointing,
        "bf16": device != "cpu" and config.model.dtype in ("auto", "bfloat16"),
        "fp16": device != "cpu" and config.model.dtype == "float16",
        "use_cpu": device == "cpu",
        "save_strategy": "steps",
        "save_steps": config.run.save_every * updates,
        "save_total_limit": None,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "ignore_data_skip": True,
        "disable_tqdm": True,
        "report_to": "none",
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
    }
    if vllm is not None:
        options |= {"use_vllm": True, "vllm_mode": vllm}
    return options | _own_options(config.run.options)


_SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def _own_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the options of TRL that the configuration sets by their own names."""
    if not given:
        return {}
    import yaml

    split = (text.partition("=") for text in given)
    return {name.strip(): yaml.safe_load(value) for name, _, value in split}


def _loss(config: Config) -> str:
    name = config.optimiser.loss
    return _OF_NORMALISER[config.credit.normaliser] if name == "auto" else name
