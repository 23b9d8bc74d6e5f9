"""Cost of training steps and runs on a Tinker service.

Contract: pure. Bounds are of what a configuration may take at most: every prompt and answer as long
as allowed, every refill round played, no token of a prompt found in the service's cache. Steps
mostly take less. With ``optimiser.kl_beta`` the base model reads each row that is learned from, and
samples the one token that a request for log-probabilities costs. A model that is not in `PRICES`
has no price, and none is made up for it.

Does not cover requests that are given up and made again, steps that are played again after a kill,
what checkpoints cost (0.10 USD per gigabyte and month by the same page), and servers of one's own,
which charge nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kernelgym.prices import Price, Tokens

if TYPE_CHECKING:
    from kernelgym_train.config.config import Config

SOURCE = "https://tinker-docs.thinkingmachines.ai/tinker/models/models_and_pricing/"
READ_ON = "2026-10-07"
"""Day on which the table of prices was read; several prices were said to be halved for a limited
time."""


PRICES: Mapping[str, Price] = MappingProxyType(
    {
        "Qwen/Qwen3-8B": Price(0.195, 0.60, 0.44),
        "Qwen/Qwen3.5-4B": Price(0.33, 1.005, 0.737),
        "Qwen/Qwen3.5-9B": Price(0.66, 1.995, 1.463),
        "Qwen/Qwen3.5-397B-A17B": Price(3.00, 7.50, 6.60),
        "Qwen/Qwen3.6-35B-A3B": Price(0.54, 1.335, 1.177),
        "deepseek-ai/DeepSeek-V3.1": Price(1.695, 4.215, 3.718),
        "moonshotai/Kimi-K2.6": Price(2.205, 5.49, 4.84),
    }
)
"""Prices of models of the hosted Tinker service, as read at `SOURCE` on `READ_ON`."""


def most_of_step(config: Config) -> Tokens:
    """Return the largest number of tokens that one step can take."""
    sampling, turns = config.sampling, config.env.max_turns
    learned = sampling.problems_per_step * sampling.group_size * turns
    played = learned * (1 + sampling.refill_rounds)
    prompt, answer = sampling.max_prompt_tokens, sampling.max_new_tokens
    scored = learned if config.optimiser.kl_beta else 0
    return Tokens(
        played * prompt + scored * (prompt + answer),
        played * answer + scored,
        learned * (prompt + answer),
    )


def most_of_run(config: Config, held_out: int) -> Tokens:
    """Return the largest number of tokens that a run can take, evaluations included.

    Args:
        config: The configuration.
        held_out: Problems of one evaluation.
    """
    chosen, steps = config.evaluation, config.optimiser.steps
    times = steps // chosen.every if chosen.every else 0
    episodes = held_out * (chosen.samples + chosen.greedy)
    answers = times * episodes * (chosen.max_turns or config.env.max_turns)
    prompt, answer = config.sampling.max_prompt_tokens, config.sampling.max_new_tokens
    return most_of_step(config).times(steps) + Tokens(answers * prompt, answers * answer)


def cost_lines(config: Config, held_out: int) -> Iterator[str]:
    """Yield lines on the largest cost of a training step and of the run.

    Args:
        config: The configuration.
        held_out: Problems of one evaluation.
    """
    step, run = most_of_step(config), most_of_run(config, held_out)
    for what, tokens in (("a step", step), ("the run", run)):
        yield (
            f"{what} takes at most {_millions(tokens.total)} million tokens: "
            f"{_millions(tokens.prefill)} of prompts, {_millions(tokens.sample)} sampled, "
            f"{_millions(tokens.train)} learned from"
        )
    price = PRICES.get(config.model.id)
    if price is None:
        yield f"in US dollars is not known: the table has no price for {config.model.id!r}"
        return
    yield (
        f"at most {_usd(price.usd(step))} USD a step and {_usd(price.usd(run))} in all, by the "
        f"hosted service's prices of {READ_ON} ({SOURCE}), with nothing found in its cache"
    )


def _usd(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1.0 else f"{amount:.2g}"


def _millions(count: int) -> str:
    return f"{count / 1e6:,.3g}" if count < 1e9 else f"{count / 1e6:,.0f}"
