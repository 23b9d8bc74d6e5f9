"""The fused comparisons against the slow ones, on CPU tensors under Triton's interpreter.

Run by `test_fused.py` in a process of its own, since the interpreter is chosen at import.
"""

import sys

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.judge.compare import error_bound
from kernelgym.judge.compare.fused import load
from kernelgym.rulesets import RULESETS, ErrorFactors

STRICT, LOOSE = RULESETS["strict"], RULESETS["kernelbench"]
FUSED = load()
SIZES = st.sampled_from([1, 4095, 4096, 5000, 40_000])
SPREADS = st.sampled_from([0.0, 1.0, 8.0])
SEEDS = st.integers(0, 2**31)
WORSE = st.sampled_from([0.0, 1e-8, 1e-7, 3e-6, 1e-3, 1.0])
STRANGE = st.sampled_from([None, float("nan"), float("inf"), -float("inf")])


def outputs(size, spread, seed, worse, strange):
    """What a reference gave, the truth, and an output that is off by `worse`."""
    source = torch.Generator().manual_seed(seed)
    true = torch.randn(size, dtype=torch.float64, generator=source)
    true *= torch.exp(torch.randn(size, dtype=torch.float64, generator=source) * spread)
    ref = true.float()
    noise = torch.randn(size, dtype=torch.float64, generator=source)
    out = (true * (1 + worse * noise)).float()
    if strange is not None:
        out[seed % size] = strange
    return ref, true, out


@settings(max_examples=60, deadline=None)
@given(SIZES, SPREADS, SEEDS, WORSE, STRANGE)
def what_is_surely_inside_is_inside(size, spread, seed, worse, strange):
    ref, true, out = outputs(size, spread, seed, worse, strange)
    bound = error_bound.calibrate([(ref, true)], STRICT, ErrorFactors(4.0, 2.0))
    table = torch.cat((bound.slack, bound.slack.new_tensor([bound.least])))
    sure = FUSED.within_bound(out, true, table, bound.relative, bound.rms)
    found = error_bound.outside_bound(out, ref, true, bound)
    if sure is None:
        coarse = found.rms > bound.rms * (1 - 1e-4)
        assert found.count or coarse or not out.isfinite().all() or _near(out, true, bound)
    else:
        assert found.count == 0 and not found.is_coarse
        assert abs(sure[0] - found.worst_abs) <= 1e-9 * found.worst_abs
        assert abs(sure[1] - found.worst_rel) <= 1e-5 * found.worst_rel


def _near(out, true, bound):
    """Whether some element is so near its bound that it is left to the slow comparison."""
    size = true.abs()
    slack = bound.slack[(size.view(torch.int64) >> 52) & 2047] + size * bound.relative
    return bool(((out.double() - true).abs() > slack * (1 - 2e-6)).any())


@settings(max_examples=60, deadline=None)
@given(SIZES, SPREADS, SEEDS, WORSE, STRANGE)
def what_is_surely_close_is_close(size, spread, seed, worse, strange):
    ref, _, out = outputs(size, spread, seed, worse, strange)
    atol, rtol = LOOSE.tolerances
    sure = FUSED.within_fixed(out, ref, atol, rtol)
    if sure is None:
        tighter = torch.isclose(ref, out, rtol=rtol * (1 - 2e-6), atol=atol * (1 - 2e-6))
        assert not tighter.all()
    else:
        assert torch.allclose(ref, out, rtol=rtol, atol=atol)
        largest = float((out.double() - ref.double()).abs().max())
        assert abs(sure[0] - largest) <= 1e-6 * largest


@settings(max_examples=40, deadline=None)
@given(SIZES, SPREADS, SEEDS, st.booleans())
def errors_by_exponent_are_the_same(size, spread, seed, strange):
    ref, true, _ = outputs(size, spread, seed, 0.0, None)
    if strange:
        ref[seed % size] = float("inf")
    errors, counts = torch.zeros(2, 1 << 11, dtype=torch.int64)
    typical = float(true.abs().median())
    squares = FUSED.own_errors(ref, true, errors, counts, typical, 1e-2)
    assert (squares is None) == strange
    if squares is not None:
        slow = error_bound._tables([(ref, true)], typical, 1e-2)
        assert torch.equal(errors.view(torch.float64), slow[0])
        assert torch.equal(counts, slow[1])
        assert abs(squares - slow[2]) <= 1e-9 * slow[2]


if __name__ == "__main__":
    what_is_surely_inside_is_inside()
    what_is_surely_close_is_close()
    errors_by_exponent_are_the_same()
    sys.exit(0)
