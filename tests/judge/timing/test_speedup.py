"""What a reported interval covers, and when a process' own times are believed."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.timing import speedup
from kernelgym.judge.timing.speedup import WindowPair
from kernelgym.rulesets import TimingProtocol


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_widening_never_narrows_and_grows_with_its_term(values, one, other):
    middle = statistics.median(values)
    low, high = speedup.median_interval(values)
    less, more = (speedup.widened(low, middle, high, s) for s in sorted((one, other)))
    assert more[0] <= less[0] <= low + 1e-12 and high - 1e-12 <= less[1] <= more[1]
    assert speedup.widened(middle, middle, middle, one) == pytest.approx(
        (middle - 1.96 * one, middle + 1.96 * one)
    )


def test_the_widened_interval_covers_what_differs_from_process_to_process():
    rng, between, covered = np.random.default_rng(1), 0.02, {0.0: 0, 0.02: 0}
    for _ in range(2000):
        logs = rng.normal(math.log(2.0) + rng.normal(0, between), 0.005, size=12)
        pairs = [(math.exp(value), 1.0) for value in logs.tolist()]
        for term in covered:
            found = speedup.summarise(pairs, term)
            assert found.speedup_low <= found.speedup <= found.speedup_high
            covered[term] += found.speedup_low <= 2.0 <= found.speedup_high
    assert covered[0.0] < 800  # of 2,000: what the pairs alone promise is far from true
    assert 1880 <= covered[between] <= 1990


def test_a_faster_reference_scales_the_whole_interval():
    before = speedup.summarise([(2.0, 1.0), (2.2, 1.0), (1.9, 1.0)], 0.01)
    after = speedup.slow_down(before, 1.25)
    for name in ("reference_ms", "speedup", "speedup_low", "speedup_high"):
        assert getattr(after, name) == pytest.approx(getattr(before, name) / 1.25)


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=64),
    st.floats(0.5, 2.0),
)
def test_windows_of_a_timing_give_its_speedup(pairs, factor):
    timing = speedup.slow_down(speedup.summarise(pairs, 0.05), factor)
    assert len(timing.windows) == timing.samples == len(pairs)
    logs = statistics.median(math.log(ratio) for ratio in timing.ratios)
    assert math.exp(logs) == pytest.approx(timing.speedup, rel=1e-5)


def test_windows_beyond_the_limit_keep_the_last():
    pairs = [(1.0 + number, 1.0) for number in range(70)]
    timing = speedup.summarise(pairs)
    assert timing.samples == 70 and timing.windows == tuple((1.0, ms) for ms, _ in pairs[6:])


times = st.floats(1e-3, 1e3)
some_pairs = st.lists(st.builds(WindowPair, times, times, times, times), min_size=1, max_size=20)


def _windows(reference_ms, kernel_ms, costs, calls, claimed_ms=None, kernel_costs=None):
    """Pairs of windows that take what they cost and their calls; the kernel may claim less."""
    return [
        WindowPair(
            reference_ms,
            kernel_ms if claimed_ms is None else claimed_ms,
            cost + calls * reference_ms,
            kernel_cost + calls * kernel_ms,
        )
        for cost, kernel_cost in zip(costs, kernel_costs or costs, strict=True)
    ]


def _complaint(pairs, calls, slack_ms=0.0):
    costs = speedup.window_costs(pairs, calls)
    bounds = speedup.outside_bounds(pairs, costs, calls)
    return speedup.disbelief(pairs, bounds, costs, slack_ms, calls)


@given(times, times, st.floats(0, 10), st.integers(1, 500), st.integers(1, 12))
def test_what_a_window_costs_beside_its_calls_is_not_the_kernels_time(
    reference_ms, kernel_ms, cost, calls, count
):
    pairs = _windows(reference_ms, kernel_ms, [cost] * count, calls)
    costs = speedup.window_costs(pairs, calls)
    assert costs == pytest.approx([cost] * count, abs=1e-6 * calls * reference_ms)
    bounds = speedup.outside_bounds(pairs, costs, calls)
    assert len(bounds) == count
    # A tenth of the window is left, however much of it is put down to the window itself.
    wanted = max(kernel_ms, 0.1 * (kernel_ms + cost / calls))
    assert bounds == pytest.approx([wanted] * count, rel=1e-6, abs=1e-6 * reference_ms)
    assert all(pair.shorter_ms == min(reference_ms, kernel_ms) for pair in pairs)


@given(some_pairs, st.integers(1, 100))
def test_bounds_are_positive_whatever_was_measured(pairs, calls):
    bounds = speedup.outside_bounds(pairs, speedup.window_costs(pairs, calls), calls)
    for bound, pair in zip(bounds, pairs, strict=True):
        assert 0.1 * pair.kernel_window_ms <= bound * calls * (1 + 1e-9)


@given(some_pairs, st.floats(0, 1), st.floats(0, 1), st.integers(1, 100), st.floats(0.1, 1))
def test_claiming_less_is_never_believed_more_and_slack_never_less(
    pairs, one, other, calls, factor
):
    less, more = sorted((one, other))
    costs = speedup.window_costs(pairs, calls)
    bounds = speedup.outside_bounds(pairs, costs, calls)
    bold = [
        WindowPair(p.reference_ms, p.kernel_ms * factor, p.reference_window_ms, p.kernel_window_ms)
        for p in pairs
    ]
    if speedup.disbelief(pairs, bounds, costs, more, calls):
        assert speedup.disbelief(pairs, bounds, costs, less, calls)
        assert speedup.disbelief(bold, bounds, costs, more, calls)


def test_noise_of_a_busy_host_excuses_no_clock_that_tells_a_part_of_the_time():
    costs = [0.2, 4.0, 0.3, 3.0, 5.0, 0.1]  # milliseconds, of windows of 2 ms
    pairs = _windows(0.004, 0.008, costs, 256, claimed_ms=0.0004, kernel_costs=[1.0] * 6)
    assert "reported 0.0004 ms" in _complaint(pairs, 256, slack_ms=0.1)


def test_noise_of_a_busy_host_excuses_a_tenth_of_a_window():
    costs = [0.2, 4.0, 0.3, 3.0, 5.0, 0.1]
    pairs = _windows(0.004, 0.008, costs, 256, claimed_ms=0.0073, kernel_costs=[1.65] * 6)
    assert not _complaint(pairs, 256, slack_ms=0.1)


def test_an_honest_clock_is_believed_though_windows_cost_more_or_less():
    rng, doubted = np.random.default_rng(3), 0
    for _ in range(1000):
        costs, kernel_costs = rng.normal(0.2, 0.02, size=(2, 12)).tolist()
        pairs = _windows(0.05, 0.03, costs, 20, kernel_costs=kernel_costs)
        doubted += bool(_complaint(pairs, 20))
    assert doubted <= 40  # of 1,000, without slack; it is measured again then


@pytest.mark.parametrize("calls", [1, 20])
def test_a_clock_that_runs_slow_is_not_believed(calls):
    costs = [0.2, 0.21, 0.19, 0.2, 0.22, 0.2, 0.18, 0.2]
    true_ms = 2.0 / calls
    pairs = _windows(true_ms, true_ms, costs, calls, claimed_ms=0.9 * true_ms)
    assert f"reported {0.9 * true_ms:.4g} ms a call" in _complaint(pairs, calls)
    assert f"{true_ms:.4g} ms passed outside" in _complaint(pairs, calls)
    assert _complaint(pairs, calls, slack_ms=0.3) == ""  # of the whole window, not of a call
    assert _complaint(_windows(true_ms, true_ms, costs, calls), calls) == ""


def test_a_kernel_gains_no_slack_by_making_its_own_windows_vary():
    costs = [0.2, 0.21, 0.19, 0.2, 0.22, 0.2, 0.18, 0.2, 0.2]
    wild = [0.2 + 1.5 * (-1) ** number * (number > 0) for number in range(9)]
    calm = _windows(0.1, 0.1, costs, 20, claimed_ms=0.08)
    assert _complaint(calm, 20)
    assert _complaint(_windows(0.1, 0.1, costs, 20, 0.08, kernel_costs=wild), 20)


def test_what_is_faster_than_memory_or_than_belief_needs_a_second_process():
    protocol = TimingProtocol(quarantine_above=10.0)
    usual = speedup.summarise([(2.0, 1.0)] * 3)
    assert speedup.suspicion(usual, 0.0, protocol) == ""
    assert speedup.suspicion(usual, 1.0, protocol) == ""
    assert "less than the 1.2 ms that reading the inputs" in speedup.suspicion(usual, 1.2, protocol)
    assert speedup.suspicion(speedup.summarise([(9.9, 1.0)]), 0.0, protocol) == ""
    fast = speedup.summarise([(10.5, 1.0)])
    assert speedup.suspicion(fast, 0.0, protocol) == "a speedup of 10.5 is above 10"


@given(st.floats(0, 100), st.lists(st.floats(0, 3), min_size=1, max_size=20))
def test_a_device_is_occupied_only_if_the_kernels_values_took_longer_to_lay_out(base, extra):
    def occupied(layouts):
        return speedup.is_occupied(
            [WindowPair(1.0, 1.0, 1.0, 1.0, base, kernel) for kernel in layouts]
        )

    assert not occupied([base] * len(extra))
    assert occupied([1.5 * base + 0.6] * len(extra))
    layouts = [base + more for more in extra]
    if occupied(layouts):
        assert occupied([layout + 1.0 for layout in layouts])
    one_hiccup = [base] * (len(extra) + 1) + [base + 1e6] * (len(extra) // 2)
    assert not occupied(one_hiccup)
