"""Settings of the demonstration's training runs, by backend.

Contract: settings of a run as ``key.path=value``, beside the numbers of a plan. `SETTINGS` hold for
every backend; what one alone has a use for, or learns better with, is in `BY_BACKEND`. Nothing is
checked or loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SETTINGS = (
    *("env.suite=Synthetic", "env.language=triton", "env.ruleset=strict", "env.max_turns=2"),
    *("env.prompt=short", "env.feedback=minimal", "reward.preset=sparse"),
    *("sampling.problems_per_step=8", "sampling.group_size=8", "sampling.refill_rounds=0"),
    *("sampling.max_prompt_tokens=400", "curriculum.enabled=false", "credit.estimator=turn_group"),
    *("optimiser.schedule=linear", "model.lora_rank=16"),
    *("run.save_every=1000", "judge.workers=2", "judge.cache=false", "evaluation.every=0"),
    "logging.histograms_every=0",
)
"""Settings that every backend gets, as ``key.path=value``."""
BY_BACKEND: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "trl": (
            *("optimiser.learning_rate=3e-3", "optimiser.kl_beta=0.2", "optimiser.micro_batch=32"),
            *("model.lora_alpha=32", "model.modules_to_save=[lm_head]", "model.dtype=float32"),
            *("model.gradient_checkpointing=false", "model.device=cpu"),
        ),
        "tinker": (
            *("optimiser.learning_rate=5e-3", "optimiser.clip_low=0.2", "optimiser.clip_high=0.2"),
        ),
    }
)
"""Settings beside `SETTINGS` that only one backend gets, by the backend's name."""
LOCAL = ("trl",)
"""Names of the backends whose model is in this process."""
