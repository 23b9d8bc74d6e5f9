"""How two kernels are compared: what is decided, when a duel ends, and how often it errs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelgym import CachedEvaluator, Duel, UsageError, duel
from kernelgym.evaluators.duel import _student
from kernelgym.testing import SAMPLE_PROBLEM, Script, ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Timing, Verdict

ONE, OTHER = Kernel("# one", "cpp"), Kernel("# other", "cpp")
DOWN = verdict("unavailable")
NOISE = st.lists(st.floats(-0.3, 0.3), min_size=24, max_size=24)


def held(script: Script, **options: object) -> Duel:
    """Return the duel of two kernels whose verdicts are scripted."""
    return duel(ScriptedEvaluator(script), SAMPLE_PROBLEM, ONE, OTHER, **options)  # type: ignore[arg-type]


def noisy(
    speedups: dict[Kernel, float], noise: Iterator[float]
) -> Callable[[Problem, Kernel], Verdict]:
    return lambda _, kernel: verdict("correct", speedup=speedups[kernel] * math.exp(next(noise)))


def normal(rng: np.random.Generator, spread: float) -> Iterator[float]:
    while True:
        yield float(rng.normal(0.0, spread))


def tailed(rng: np.random.Generator, spread: float) -> Iterator[float]:
    """Noise of a host on which every fifth process meets load that triples its time."""
    while True:
        yield float(rng.normal(0.0, spread)) - math.log(3.0) * bool(rng.random() < 0.2)


@pytest.mark.parametrize("noise", [normal, pytest.param(tailed, marks=pytest.mark.slow)])
def test_equal_kernels_are_decided_in_one_of_twenty(noise) -> None:  # type: ignore[no-untyped-def]
    source = noise(np.random.default_rng(7), 0.05)
    script = noisy({ONE: 1.0, OTHER: 1.0}, source)
    duels = [held(script) for _ in range(500)]
    assert sum(found.decided != "neither" for found in duels) <= 25
    assert sum(not found.low <= 1.0 <= found.high for found in duels) <= 25


@pytest.mark.parametrize("gain", [1.2, 1 / 1.2])
def test_kernel_faster_by_a_fifth_is_found(gain: float) -> None:
    script = noisy({ONE: 1.0, OTHER: gain}, normal(np.random.default_rng(8), 0.05))
    duels = [held(script) for _ in range(100)]
    winner = "second" if gain > 1.0 else "first"
    assert sum(found.decided == winner for found in duels) >= 97
    assert sum(found.low <= gain <= found.high for found in duels) >= 95
    assert np.mean([found.rounds for found in duels]) < 8


@given(NOISE, st.floats(0.5, 2.0), st.integers(3, 12))
def test_swapping_the_kernels_inverts_the_duel(noise: list[float], gain: float, most: int) -> None:
    def script(flip: bool) -> Callable[[Problem, Kernel], Verdict]:
        count = {ONE: 0, OTHER: 0}

        def found(_: Problem, kernel: Kernel) -> Verdict:
            role = (kernel == OTHER) != flip
            count[kernel] += 1
            noise_of_it = noise[2 * (count[kernel] - 1) + role]
            return verdict("correct", speedup=(gain if role else 1.0) * math.exp(noise_of_it))

        return found

    straight, flipped = held(script(False), most=most), held(script(True), most=most)
    assume(abs(straight.low - 1) > 1e-9 < abs(straight.high - 1))
    swapped = {"first": "second", "second": "first", "neither": "neither"}
    assert flipped.rounds == straight.rounds
    assert flipped.decided == swapped[straight.decided]
    assert flipped.ratio * straight.ratio == pytest.approx(1.0)
    assert flipped.low * straight.high == pytest.approx(1.0)


@given(NOISE, st.integers(3, 12), st.floats(0, 0.5))
def test_duel_ends_once_it_may(noise: list[float], most: int, width: float) -> None:
    found = held(noisy({ONE: 1.0, OTHER: 1.0}, iter(noise)), most=most, width=width)
    assert 3 <= found.rounds == len(found.verdicts) <= most
    assert 0 < found.low <= found.ratio <= found.high < math.inf
    outside = found.low > 1.0 or found.high < 1.0
    assert outside == (found.decided != "neither")
    narrow = found.high / found.low <= (1 + width) * (1 + 1e-9)
    assert outside or narrow or found.rounds == most


def test_rounds_alternate_and_share_a_fresh_seed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    inner = ScriptedEvaluator([verdict("correct", speedup=s) for s in (1.0, 2.0, 0.5)])
    cached = CachedEvaluator(inner, tmp_path)
    duel(cached, SAMPLE_PROBLEM, ONE, OTHER, most=4, seed="5eed")
    order = [job.kernel for job in inner.judged]
    assert order == [ONE, OTHER, OTHER, ONE] * 2
    assert len(set(inner.seeds)) == 4 and inner.seeds[::2] == inner.seeds[1::2]
    again = ScriptedEvaluator([verdict("correct", speedup=1.0)])
    duel(again, SAMPLE_PROBLEM, ONE, OTHER, most=4, seed="5eed")
    assert again.seeds == inner.seeds[: len(again.seeds)]
    other = ScriptedEvaluator([verdict("correct", speedup=1.0)])
    duel(other, SAMPLE_PROBLEM, ONE, OTHER, most=4)
    assert all(other.seeds) and not set(other.seeds) & set(inner.seeds)


@pytest.mark.parametrize(
    ("script", "decided"),
    [
        ([verdict("wrong"), verdict("correct", speedup=1.0)], "second"),
        ([verdict("correct", speedup=1.0), verdict("timeout")], "first"),
    ],
)
def test_kernel_that_fails_ends_the_duel(script: Script, decided: str) -> None:
    found = held(script)
    assert (found.decided, found.rounds, found.ratio) == (decided, 1, 0.0)


def test_failure_after_some_rounds_keeps_their_ratio() -> None:
    fine = verdict("correct", speedup=1.0)
    found = held([*[fine] * 4, verdict("wrong"), fine])
    assert (found.decided, found.rounds, found.ratio) == ("second", 3, 1.0)


def test_round_in_which_both_fail_is_left_out() -> None:
    slow, fast = verdict("correct", speedup=1.0), verdict("correct", speedup=2.0)
    # The kernels take turns in going first: ONE, OTHER, then OTHER, ONE.
    found = held([verdict("wrong"), verdict("wrong"), fast, slow, slow, fast, fast, slow])
    assert (found.decided, found.rounds, found.ratio) == ("second", 4, pytest.approx(2.0))


@pytest.mark.parametrize("nothing", [DOWN, verdict("correct"), verdict("wrong")])
def test_rounds_that_measure_nothing_end_undecided(nothing: Verdict) -> None:
    found = held([nothing])
    assert (found.decided, found.rounds) == ("neither", 3)
    assert (found.ratio, found.low, found.high) == (0.0, 0.0, 0.0)


def test_times_against_two_baselines_are_not_compared() -> None:
    compiled = Verdict(
        verdict("correct").status,
        compiled=True,
        trials=1,
        trials_passed=1,
        timing=Timing(1.0, 3.0, 3.0, 2.9, samples=9, baseline="compile"),
    )
    assert held([verdict("correct", speedup=1.0), compiled]).ratio == 0.0


@pytest.mark.parametrize("options", [{"most": 2}, {"width": -0.1}, {"width": math.nan}])
def test_impossible_duel_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        held([verdict("correct")], **options)


@pytest.mark.parametrize(
    ("freedom", "tail", "value"),  # from printed tables of Student's distribution
    [(1, 0.025, 12.706), (2, 0.025, 4.303), (5, 0.0025, 4.773), (11, 0.0025, 3.497)],
)
def test_students_quantile_is_that_of_the_tables(freedom: int, tail: float, value: float) -> None:
    assert _student(freedom, tail) == pytest.approx(value, abs=5e-4)


class Turning(ScriptedEvaluator):
    """Times two kernels in turns, and writes down who began."""

    def __init__(self, script: Script, tells: int = 100) -> None:
        super().__init__(script)
        self.tells, self.began, self.shared = tells, list[Kernel](), list[str]()

    def duel_round(
        self, problem: Problem, kernels: Sequence[Kernel], *, seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        self.began.append(kernels[0])
        self.shared.append(seed)
        if len(self.began) > self.tells:
            return None
        script = cast("Callable[[Problem, Kernel], Verdict]", self._script)
        return tuple(script(problem, kernel) for kernel in kernels)


def test_turns_alternate_after_a_round_of_verdicts() -> None:
    script = noisy({ONE: 1.0, OTHER: 1.0}, normal(np.random.default_rng(3), 0.2))
    evaluator = Turning(script)
    found = duel(evaluator, SAMPLE_PROBLEM, ONE, OTHER, most=6, width=0.0, seed="5e")
    assert found.rounds == 7 and [job.kernel for job in evaluator.judged] == [ONE, OTHER]
    assert evaluator.began == [OTHER, ONE, OTHER, ONE, OTHER, ONE]
    assert len({*evaluator.seeds, *evaluator.shared}) == 7 and all(evaluator.shared)


def in_turns(speedup: float, turn_ms: float) -> Verdict:
    made = verdict("correct", speedup=speedup)
    assert made.timing is not None
    return dataclasses.replace(made, timing=dataclasses.replace(made.timing, turn_ms=turn_ms))


def test_turns_compare_the_kernels_own_times_whatever_the_reference_does() -> None:
    """The reference takes three times as long beside the first kernel as beside the second."""
    evaluator = Turning(lambda _, k: in_turns(1.0, 4.0) if k == OTHER else in_turns(3.0, 6.0))
    found = duel(evaluator, SAMPLE_PROBLEM, ONE, OTHER)
    assert found.decided == "second" and found.ratio == pytest.approx(1.5)


def test_kernels_that_were_judged_before_are_timed_in_turns_at_once() -> None:
    evaluator = Turning(lambda _, k: in_turns(1.0, 4.0 if k == OTHER else 6.0))
    found = duel(evaluator, SAMPLE_PROBLEM, ONE, OTHER, judged=True)
    assert found.rounds == 3 and not evaluator.judged
    whole = duel(ScriptedEvaluator([FAST]), SAMPLE_PROBLEM, ONE, OTHER, judged=True)
    assert whole.rounds == 3


def test_round_of_whole_verdicts_before_turns_is_not_measured() -> None:
    evaluator = Turning(lambda _, k: in_turns(9.0 if k == OTHER else 1.0, 5.0), tells=100)
    found = duel(evaluator, SAMPLE_PROBLEM, ONE, OTHER, most=3)
    assert found.ratio == pytest.approx(1.0) and found.decided == "neither" and found.rounds == 4


def test_sides_keep_their_verdicts_in_turns() -> None:
    found = duel(Turning(lambda _, k: FAST if k == OTHER else SLOW), SAMPLE_PROBLEM, ONE, OTHER)
    assert found.decided == "second" and found.ratio == pytest.approx(2.0)
    assert all((one.speedup, two.speedup) == (1.0, 2.0) for one, two in found.verdicts)


FAST, SLOW = verdict("correct", speedup=2.0), verdict("correct", speedup=1.0)


@pytest.mark.parametrize("tells", [0, 2])
def test_whole_verdicts_tell_what_turns_do_not(tells: int) -> None:
    evaluator = Turning(lambda _, k: FAST if k == OTHER else SLOW, tells)
    found = duel(evaluator, SAMPLE_PROBLEM, ONE, OTHER, most=5)
    assert found.decided == "second"
    assert len(evaluator.began) == min(tells + 1, found.rounds - 1)  # in vain once at most
    assert len(evaluator.judged) == 2 * (found.rounds - tells)


def test_a_kernel_wrong_in_turns_loses() -> None:
    evaluator = Turning(lambda *_: SLOW)
    evaluator.duel_round = lambda *_, **__: (verdict("wrong"), SLOW)  # type: ignore[method-assign]
    found = duel(evaluator, SAMPLE_PROBLEM, ONE, OTHER)
    assert (found.decided, found.rounds) == ("first", 2)  # the second began, and was wrong


@pytest.mark.parametrize("script", [lambda *_: verdict("correct"), lambda *_: DOWN])
def test_untimed_kernels_take_no_turns(script: Script) -> None:
    evaluator = Turning(script)
    assert duel(evaluator, SAMPLE_PROBLEM, ONE, OTHER).decided == "neither"
    assert not evaluator.began
