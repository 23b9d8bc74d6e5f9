"""Checks that a run's prompts fit its settings and model.

Contract: looked at before anything is trained, from the tokenizer and the model's configuration
alone. Tried are the problems with the longest sources, to train on and held out. Prompts of later
turns grow up to ``sampling.max_prompt_tokens``; one that is too long all the same ends its episode
when it comes up (`kernelgym_train.types.PromptTooLong`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelgym import Problem, UsageError
from kernelgym_train.config.config import Config
from kernelgym_train.launch.assembly import TokenCounter, training_observer
from kernelgym_train.rollout.huggingface_policy import ChatText

_TRIED = 200


def check_prompts(
    config: Config,
    tokenizer: Any,
    context: int | None,
    problems: Sequence[Problem],
    held_out: Sequence[Problem] = (),
    *,
    device: str,
) -> tuple[int, str]:
    """Check that prompts and answers fit; return the longest first prompt.

    Args:
        config: The configuration.
        tokenizer: The model's.
        context: Tokens that the model's context holds; None if that is not known.
        problems: Problems to train on.
        held_out: Problems to evaluate on.
        device: Device on which kernels are judged.

    Returns:
        Its tokens, and the id of its problem.

    Raises:
        UsageError: If one does not fit; it says which setting to change.
    """
    sampling, turns = config.sampling, config.env.max_turns
    text = ChatText(tokenizer, {"enable_thinking": sampling.thinking})
    # Entries are cut to a budget of the model's own tokens.
    count = TokenCounter(tokenizer) if config.retrieval.on else None
    found = [(0, "")]
    for some, most in ((problems, turns), (held_out, config.evaluation.max_turns)):
        observer = training_observer(config, device, count, max_turns=most)
        tried = sorted(some, key=lambda problem: -len(problem.source))[:_TRIED]
        found += [(len(text.prompt(observer.observe(each))[0]), each.id) for each in tried]
        turns = max(turns, most or 1)
    longest, where = max(found)
    fewer = "lower env.examples, " if config.env.prompt == "full" else ""
    if longest > sampling.max_prompt_tokens:
        raise UsageError(
            f"the first prompt of {where} has {longest} tokens, above sampling.max_prompt_tokens="
            f"{sampling.max_prompt_tokens}; raise it, {fewer}or leave the problem out"
        )
    if context is None:
        return longest, where
    if longest + sampling.max_new_tokens > context:
        raise UsageError(
            f"the first prompt of {where} has {longest} tokens, which with "
            f"sampling.max_new_tokens={sampling.max_new_tokens} does not fit into the model's "
            f"context of {context}; lower sampling.max_new_tokens, {fewer}leave the "
            "problem out, or take a model with a longer context"
        )
    if turns > 1 and sampling.max_prompt_tokens + sampling.max_new_tokens > context:
        raise UsageError(
            f"prompts of later turns may have sampling.max_prompt_tokens="
            f"{sampling.max_prompt_tokens} tokens, which with sampling.max_new_tokens="
            f"{sampling.max_new_tokens} does not fit into the model's context of {context}; lower "
            f"sampling.max_prompt_tokens to at most {context - sampling.max_new_tokens}, or "
            "sampling.max_new_tokens"
        )
    return longest, where
