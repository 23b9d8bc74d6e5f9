"""Tokens, prices and caps: bounds hold, amounts add up, and a cap ends a run."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.prices import Price, Tokens
from kernelgym_train.backends.tinker.prices import (
    PRICES,
    READ_ON,
    cost_lines,
    most_of_run,
    most_of_step,
)
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.config.config import load_config

PRICE = Price(prefill=1.0, sample=3.0, train=2.0)
COUNTS = st.integers(0, 10**9)
TOKENS = st.builds(Tokens, COUNTS, COUNTS, COUNTS, COUNTS)
SMALL = (
    *("run.backend=tinker", "sampling.problems_per_step=2", "sampling.group_size=3"),
    *("env.max_turns=2", "sampling.refill_rounds=1", "sampling.max_prompt_tokens=100"),
    *("sampling.max_new_tokens=10", "optimiser.steps=7"),
)


def test_step_is_counted_by_hand() -> None:
    # 12 turns to learn from, 24 with a refill round.
    config = load_config(None, SMALL)
    assert most_of_step(config) == Tokens(24 * 100, 24 * 10, 12 * 110)
    assert PRICE.usd(most_of_step(config)) == pytest.approx((2400 + 240 * 3 + 1320 * 2) / 1e6)
    # With a penalty, the base model reads each row that is learned from.
    penalised = most_of_step(load_config(None, [*SMALL, "optimiser.kl_beta=0.1"]))
    assert penalised == Tokens(24 * 100 + 12 * 110, 24 * 10 + 12, 12 * 110)
    # Two evaluations of 5 problems, (4 sampled + 1 greedy) episodes of 3 turns each.
    chosen = ("evaluation.every=3", "evaluation.max_turns=3")
    run = most_of_run(load_config(None, [*SMALL, *chosen]), held_out=5)
    assert run == most_of_step(config).times(7) + Tokens(150 * 100, 150 * 10)
    assert most_of_run(load_config(None, [*SMALL, "evaluation.every=0"]), 5).train == 7 * 1320


@given(TOKENS, TOKENS)
def test_amounts_add_up(one: Tokens, other: Tokens) -> None:
    assert (one + other).total == one.total + other.total
    assert PRICE.usd(one + other) == pytest.approx(PRICE.usd(one) + PRICE.usd(other))
    assert one.times(3) == one + one + one


def test_prices_of_the_table_are_plausible() -> None:
    assert date.fromisoformat(READ_ON) < date.today()
    for price in PRICES.values():
        assert 0 < price.prefill < price.train < 10 and price.prefill < price.sample < 10
    assert "Qwen/Qwen2.5-Coder-7B-Instruct" not in PRICES


def test_cost_is_told_in_lines() -> None:
    step, run, usd = cost_lines(load_config(None, [*SMALL, "model.id=Qwen/Qwen3-8B"]), 0)
    assert "a step takes at most 0.00396 million tokens" in step and "learned from" in run
    assert re.search(r"at most 0\.0012 USD a step and 0\.0083 in all", usd) and READ_ON in usd
    *_, unknown = cost_lines(load_config(None, [*SMALL, "model.id=runs/demo/start"]), 0)
    assert "not known" in unknown and "USD" not in unknown


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=20))
def test_spending_goes_on_from_a_checkpoint(answers: list[tuple[int, int]]) -> None:
    whole, first = Spending(PRICE), Spending(PRICE)
    for prompt, answer in answers:
        whole.sampled(prompt, answer)
        whole.trained(prompt + answer)
    for prompt, answer in answers[:5]:
        first.sampled(prompt, answer)
        first.trained(prompt + answer)
    resumed = Spending(PRICE)
    resumed.load(first.state())
    for prompt, answer in answers[5:]:
        resumed.sampled(prompt, answer)
        resumed.trained(prompt + answer)
    assert resumed.spent == whole.spent and resumed.metrics() == whole.metrics()
    assert whole.metrics()["cost/tokens"] == 2 * sum(map(sum, answers))


def test_cap_is_reached_at_its_value() -> None:
    spending = Spending(PRICE, most_usd=5e-6, most_tokens=100)
    assert spending.over == "" and spending.metrics() == {"cost/tokens": 0.0, "cost/usd": 0.0}
    spending.sampled(1, 1)  # 1 + 3
    assert spending.over == ""
    spending.sampled(1, 0)
    assert "tinker.most_usd is 5e-06" in spending.over
    unknown = Spending(None, most_tokens=100)
    unknown.trained(99)
    assert unknown.over == "" and unknown.metrics() == {"cost/tokens": 99.0}
    unknown.trained(1)
    assert unknown.over.startswith("100 tokens were spent, and tinker.most_tokens is 100; ")
