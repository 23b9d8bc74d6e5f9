"""Caps on what a run spends: never exceeded, whatever the usages; prices from numbers and files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.driver import EvalSummary
from kernelgym.benchmark.run.generations import AnswerRequest, Generation, TokenUsage
from kernelgym.benchmark.run.policies import ProviderFailure, RunStopped
from kernelgym.benchmark.run.spending import PricedPolicy, SpendingCap, byte_count, read_price
from kernelgym.errors import UsageError
from kernelgym.prices import Price, Tokens
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Message
from support.evals import CountedPolicy, lines_of

REQUESTS = st.lists(st.tuples(st.floats(0.01, 3.0), st.floats(0.0, 1.0)), max_size=25)


@given(requests=REQUESTS, cap=st.floats(0.5, 10.0), at_once=st.integers(1, 6), seed=st.integers())
def test_cap_is_never_exceeded(
    requests: list[tuple[float, float]], cap: float, at_once: int, seed: int
) -> None:
    held = SpendingCap(cap)
    room = asyncio.Semaphore(at_once)

    async def request(worst: float, share: float) -> bool:
        async with room:
            try:
                await held.reserve(worst)
            except RunStopped:
                return False
            assert held.spent + held.reserved <= cap + 1e-9
            await asyncio.sleep(0)
            await held.settle(worst, worst * share)
            assert held.spent <= cap + 1e-9
            return True

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(request(*each) for each in requests))

    done = asyncio.run(all_of_them())
    spent = sum(w * s for (w, s), ok in zip(requests, done, strict=True) if ok)
    assert held.spent == pytest.approx(spent) and held.reserved == pytest.approx(0.0)
    if sum(worst for worst, _ in requests) <= cap:
        assert all(done), "nothing is refused that fits"
    assert all(done) or held.stopped


def test_usage_above_its_reservation_stops_the_run() -> None:
    async def ask() -> str:
        held = SpendingCap(10.0)
        await held.reserve(1.0)
        await held.settle(1.0, 1.5)
        with pytest.raises(RunStopped, match=r"above the 1\.000000 that were reserved"):
            await held.reserve(0.1)
        return held.stopped

    assert "max_usd (--max-usd) cannot be held" in asyncio.run(ask())


def test_request_waits_for_reservations_of_others() -> None:
    async def ask() -> list[str]:
        held, order = SpendingCap(1.0), list[str]()
        await held.reserve(0.8)
        other = asyncio.create_task(held.reserve(0.5))
        await asyncio.sleep(0)
        order.append("waits" if not other.done() else "passed")
        await held.settle(0.8, 0.2)
        await other
        return order

    assert asyncio.run(ask()) == ["waits"]


PRICE = Price(1.0, 10.0, cached=0.1)


class LimitedPolicy(CountedPolicy):
    """A policy with a limit of tokens, as those that cost something have."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "max_tokens": 100}


def priced(policy: CountedPolicy, cap: SpendingCap) -> PricedPolicy:
    return PricedPolicy(policy, PRICE, cap, max_tokens=100)


def test_worst_case_counts_every_byte() -> None:
    asked = AnswerRequest(SAMPLE_PROBLEM, 0, 0, (Message("system", "ab"), Message("user", "€")), 0)
    worst = priced(CountedPolicy(), SpendingCap()).worst_usd(asked)
    assert worst == pytest.approx((2 + 3) * 1e-6 + 100 * 10e-6)


@given(st.text())
def test_no_more_bytes_than_are_counted(text: str) -> None:
    assert byte_count(text) >= len(text)


def test_run_stops_at_its_cap_and_goes_on(tmp_path: Path) -> None:
    def run(most_usd: float, samples: int = 4) -> object:
        policy = CountedPolicy(lambda asked: Generation("x", usage=TokenUsage(500, 100, 100)))
        return evaluate(
            priced(policy, SpendingCap(most_usd)),
            **{"suite": "Synthetic", "level": 1, "limit": 2, "samples": samples},
            **{"out": tmp_path, "evaluator": ScriptedEvaluator(), "concurrency": 3},
        )

    each = (400 * 1.0 + 100 * 0.1 + 100 * 10.0) / 1e6
    first = run(0.01)
    assert "(--max-usd) is 0.01; raise it to go on" in getattr(first, "stopped", "")
    rows = lines_of(tmp_path, "generations")
    assert 0 < len(rows) < 8 and all(row["usd"] == pytest.approx(each) for row in rows)
    assert sum(row["usd"] for row in rows) <= 0.01
    # What was spent before counts: nothing fits below the same cap.
    again = run(0.01)
    assert getattr(again, "answers", None) == 0 and len(lines_of(tmp_path, "generations")) < 8
    assert getattr(run(1.0), "ended", 0) == 8


@pytest.mark.parametrize("price", ["1,10,0.1", PRICE])
def test_evaluate_takes_a_price_and_a_cap(tmp_path: Path, price: str | Price) -> None:
    def run(max_usd: float | None) -> EvalSummary:
        return evaluate(
            LimitedPolicy(lambda asked: Generation("x", usage=TokenUsage(500, 100, 100))),
            **{"suite": "Synthetic", "level": 1, "limit": 2, "samples": 2, "out": tmp_path},
            **{"evaluator": ScriptedEvaluator(), "price": price, "max_usd": max_usd},
        )

    assert "(--max-usd) is 0.0001; raise it to go on" in run(0.0001).stopped
    done = run(None)
    each = (400 * 1.0 + 100 * 0.1 + 100 * 10.0) / 1e6
    assert (done.ended, done.stopped) == (4, "") and done.usd == pytest.approx(4 * each)


@pytest.mark.parametrize(
    ("policy", "given", "said"),
    [
        (
            LimitedPolicy(),
            {"max_usd": 1.0},
            r"max_usd \(--max-usd\) needs .*--price",
        ),
        (LimitedPolicy(), {"tokenizer": "x"}, r"^tokenizer \(--tokenizer\) needs a price"),
        (LimitedPolicy(), {"price": "1"}, "takes IN,OUT"),
        (LimitedPolicy(), {"price": "1,2", "max_usd": -1.0}, "US dollars above 0"),
        (CountedPolicy(), {"price": "1,2"}, "'counted' costs nothing by the token"),
        (None, {"part": "judge", "price": "1,2"}, "requests no answers"),
    ],
)
def test_prices_that_make_no_sense_are_refused(tmp_path: Path, policy, given, said) -> None:
    with pytest.raises(UsageError, match=said):
        evaluate(policy, out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_failed_request_counts_as_its_reservation(tmp_path: Path) -> None:
    def fails(asked: AnswerRequest) -> None:
        raise ProviderFailure("no", tries=3)

    policy = priced(CountedPolicy(fails), SpendingCap(5.0))
    evaluate(
        policy,
        **{"suite": "Synthetic", "level": 1, "limit": 1},
        **{"out": tmp_path, "evaluator": ScriptedEvaluator()},
    )
    (row,) = lines_of(tmp_path, "failures")
    assert row["tries"] == 3 and row["usd"] == policy.cap.spent > 0.0


def test_answer_without_usage_counts_as_reserved() -> None:
    policy = priced(CountedPolicy(lambda asked: Generation("x")), SpendingCap(5.0))
    asked = AnswerRequest(SAMPLE_PROBLEM, 0, 0, (Message("user", "u"),), 0)
    found = asyncio.run(policy.answer(asked))
    assert found.usd == policy.worst_usd(asked) == policy.cap.spent


def test_price_is_read_from_numbers_and_files(tmp_path: Path) -> None:
    assert read_price("1,2", "m") == Price(1.0, 2.0)
    assert read_price("1,2,0.5", "m") == Price(1.0, 2.0, cached=0.5)
    path = tmp_path / "prices.yaml"
    path.write_text("date: 2026-11-01\nmodels:\n  a/b: {in: 1, out: 2, cached: 0.1}\n")
    assert read_price(str(path), "a/b") == Price(1.0, 2.0, cached=0.1)
    assert Price(1.0, 2.0).usd(Tokens(cached=10**6)) == 1.0, "no price of its own"
    for price, text, said in (
        ("1", "", "takes IN,OUT"),
        ("-1,2", "", "at least 0"),
        ("nan,2", "", "at least 0"),
        (str(tmp_path / "none"), "", "cannot be read as one"),
        (str(path), "models: {}", "needs `date`"),
        (str(path), "date: 2026-11-01\nmodels: {x: {in: 1}}", "no price for model 'm'"),
        (str(path), "date: 2026-11-01\nmodels: {m: {in: 1}}", "makes no sense: 'out'"),
        (str(path), "date: [", "cannot be read as one"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            read_price(price, "m")


def test_cap_that_is_no_amount_is_refused() -> None:
    with pytest.raises(UsageError, match=r"max_usd \(--max-usd\) takes US dollars above 0"):
        SpendingCap(0.0)
