"""The one place that touches TRL's private generation call.

TRL has no public way to generate inside a rollout function; `GRPOTrainer._generate_single_turn`
serves Hugging Face, vLLM and continuous batching alike, and its parameters have changed three
times. Which form is installed is read from its signature; one that is not known is refused, with
the versions that are. tests/train/backends/trl/test_contract.py holds it against the installed TRL.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from kernelgym import KernelgymError

__all__ = ["FORMS", "UnknownTrl", "generate_ids", "generation_form"]

Ids = list[int]
Generated = tuple[list[Ids], list[list[float]] | None]

FORMS: dict[tuple[str, ...], tuple[str, Callable[[Any, list[Ids]], Generated]]] = {
    ("prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images"): (
        "1.15 - 1.16",
        # One generation per prompt: the prompts stand there as often as they are wanted.
        lambda trainer, prompts: trainer._generate_single_turn(prompts, None, {}, 1),
    ),
    ("prompt_ids", "images", "multimodal_fields", "has_tool_images"): (
        "1.10 - 1.13",
        lambda trainer, prompts: trainer._generate_single_turn(prompts, None, {}),
    ),
    ("prompt_ids", "images", "multimodal_fields"): (
        "up to 1.8",
        lambda trainer, prompts: trainer._generate_single_turn(prompts, None, {}),
    ),
}
"""By the names of its parameters: the versions of TRL, and how it is called."""


class UnknownTrl(KernelgymError):
    """The installed TRL generates in a way that is not known here."""


def generation_form(method: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters of a trainer's generation call.

    Raises:
        UnknownTrl: If that is no form we know.
    """
    names = tuple(name for name in inspect.signature(method).parameters if name != "self")
    if names not in FORMS:
        known = "; ".join(versions for versions, _ in FORMS.values())
        raise UnknownTrl(
            f"this TRL generates with parameters ({', '.join(names)}), which is no form known here "
            f"(known: TRL {known}); install trl>=1.16,<1.17"
        )
    return names


def generate_ids(trainer: Any, prompts: Sequence[Sequence[int]]) -> Generated:
    """Return the ids sampled for each prompt, and their log-probabilities if the sampler tells.

    Raises:
        UnknownTrl: If the installed TRL is not known.
    """
    _, call = FORMS[generation_form(trainer._generate_single_turn)]
    ids, logprobs = call(trainer, [list(prompt) for prompt in prompts])
    return [list(row) for row in ids], logprobs
