"""Checks of a run's settings for the backend ``tinker``, before anything is connected.

Contract: `check_settings` raises a `UsageError` that says what was given, why the service cannot
use it and what to do. No setting is ignored in silence, and the SDK is not imported. Facts about
one server (its models, its losses) are not checked here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernelgym.errors import UnknownName, UsageError
from kernelgym_train.backends.tinker.checkpoint import is_of_training
from kernelgym_train.backends.tinker.prices import PRICES, most_of_step
from kernelgym_train.config.unused import refuse_given

if TYPE_CHECKING:
    from kernelgym_train.config.config import Config

EVERYWHERE = ("importance_sampling", "ppo", "cispo")
"""Losses that all known servers have."""
LOSSES = (*EVERYWHERE, "gspo", "dro")
"""Values of ``optimiser.loss`` beside ``auto``, which means ppo, or gspo with
``optimiser.importance=sequence``."""

_SERVICE = "the service decides it"
_TRAINING = "the service returns log-probabilities at temperature 1, whatever it sampled at"
_UNUSED = {
    "model.dtype": _SERVICE,
    "model.device": "the weights are the service's",
    "model.lora_alpha": _SERVICE,
    "model.lora_dropout": "the service has none",
    "model.lora_targets": _SERVICE,
    "model.modules_to_save": "the service trains an adapter alone",
    "model.quantisation": _SERVICE,
    "model.gradient_checkpointing": _SERVICE,
    "sampling.engine": "the service samples",
    "sampling.batch_size": "each answer is a request of its own",
    "optimiser.micro_batch": "the service divides an update by itself",
    "sampling.temperature": f"{_TRAINING}; evaluation.temperature is apart",
    "sampling.top_p": _TRAINING,
    "run.options": "it has no options beside the settings",
}

_ADVICE = (
    "give one such as tinker://RUN/weights/NAME, which a row of a run's checkpoints.jsonl has as "
    "state_path"
)
_CLIPS = ("optimiser.clip_low", "optimiser.clip_high")


def check_settings(config: Config, processes: int = 1) -> None:
    """Refuse a configuration with which a Tinker service cannot train.

    Args:
        config: The configuration.
        processes: Number of processes that train together.

    Raises:
        UnknownName: If the loss is not one of `LOSSES`.
        UsageError: If the service cannot use a setting, there are several processes, or a cap on
            spending is below the cost of one step or needs a price that is not known.
    """
    refuse_given(config, "tinker", _UNUSED)
    if config.model.lora_rank == 0:
        raise UsageError(
            "model.lora_rank=0 trains all weights, and a Tinker service trains an adapter; give "
            "its rank, such as 32"
        )
    optimiser = config.optimiser
    if optimiser.loss not in ("auto", *LOSSES):
        raise UnknownName("loss of backend tinker", optimiser.loss, ("auto", *LOSSES))
    if optimiser.importance == "sequence" and optimiser.loss not in ("auto", "gspo"):
        raise UsageError(
            f"optimiser.importance=sequence and optimiser.loss={optimiser.loss} do not fit: ratios "
            "of whole answers are a Tinker service's loss gspo; leave optimiser.loss auto"
        )
    if optimiser.loss in ("importance_sampling", "dro"):
        refuse_given(config, "tinker", dict.fromkeys(_CLIPS, "its loss clips nothing"))
    if optimiser.loss != "dro":
        refuse_given(config, "tinker", {"tinker.dro_beta": "only optimiser.loss=dro reads it"})
    elif config.credit.normaliser == "sequence":
        raise UsageError(
            "credit.normaliser=sequence and optimiser.loss=dro do not fit: the service takes one "
            "weight of DRO's penalty for all answers; set credit.normaliser to token or constant"
        )
    _check_start(config.tinker.start_from)
    _check_caps(config)
    if processes > 1:
        raise UsageError(
            f"{processes} processes were started (WORLD_SIZE), and a run on a Tinker service is "
            "one; start it without torchrun or accelerate launch"
        )


def check_address(given: str, path: str) -> None:
    """Refuse a text that is not an address of weights on a service.

    Args:
        given: The setting or option with the address, as it was given.
        path: The address.

    Raises:
        UsageError: If it is none.
    """
    if not re.fullmatch(r"tinker://[^/\s]+(/[^/\s]+)+", path):
        raise UsageError(
            f"{given} is not an address of weights on a Tinker service; {_ADVICE}; a run in a "
            "folder is gone on with by --resume RUN"
        )


def _check_start(path: str) -> None:
    """Refuse an address of weights that cannot be trained; an empty one is accepted."""
    if not path:
        return
    check_address(f"tinker.start_from={path}", path)
    if not is_of_training(path):
        raise UsageError(
            f"tinker.start_from={path} are weights for sampling, which cannot be trained; {_ADVICE}"
        )


def _check_caps(config: Config) -> None:
    """Refuse caps on spending that one step could exceed."""
    most_usd, most_tokens = config.tinker.most_usd, config.tinker.most_tokens
    step, price = most_of_step(config), PRICES.get(config.model.id)
    lower = (
        "raise it, or lower sampling.problems_per_step, sampling.group_size, "
        "sampling.max_prompt_tokens or sampling.max_new_tokens"
    )
    if most_tokens is not None and most_tokens < step.total:
        raise UsageError(
            f"tinker.most_tokens={most_tokens} is below the {step.total} tokens that one step may "
            f"take; {lower}"
        )
    if most_usd is None:
        return
    if price is None:
        raise UsageError(
            f"tinker.most_usd={most_usd:g} cannot be held: no price is known for model.id="
            f"{config.model.id}; set tinker.most_tokens"
        )
    if most_usd < price.usd(step):
        raise UsageError(
            f"tinker.most_usd={most_usd:g} is below the {price.usd(step):.4g} USD that one step "
            f"may cost; {lower}"
        )
