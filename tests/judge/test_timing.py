"""What a reported interval covers once it is widened by what differs between processes."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge import timing


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_widening_never_narrows_and_grows_with_its_term(values, one, other):
    middle = statistics.median(values)
    low, high = timing.median_interval(values)
    less, more = (timing.widened(low, middle, high, s) for s in sorted((one, other)))
    assert more[0] <= less[0] <= low + 1e-12 and high - 1e-12 <= less[1] <= more[1]
    assert timing.widened(middle, middle, middle, one) == pytest.approx(
        (middle - 1.96 * one, middle + 1.96 * one)
    )


def test_the_widened_interval_covers_what_differs_from_process_to_process():
    rng, between, covered = np.random.default_rng(1), 0.02, {0.0: 0, 0.02: 0}
    for _ in range(2000):
        logs = rng.normal(math.log(2.0) + rng.normal(0, between), 0.005, size=12)
        pairs = [(math.exp(value), 1.0) for value in logs.tolist()]
        for term in covered:
            found = timing.summarise(pairs, term)
            assert found.speedup_low <= found.speedup <= found.speedup_high
            covered[term] += found.speedup_low <= 2.0 <= found.speedup_high
    assert covered[0.0] < 800  # of 2,000: what the pairs alone promise is far from true
    assert 1880 <= covered[between] <= 1990


def test_a_faster_reference_scales_the_whole_interval():
    before = timing.summarise([(2.0, 1.0), (2.2, 1.0), (1.9, 1.0)], 0.01)
    after = timing.slow_down(before, 1.25)
    for name in ("reference_ms", "speedup", "speedup_low", "speedup_high"):
        assert getattr(after, name) == pytest.approx(getattr(before, name) / 1.25)
