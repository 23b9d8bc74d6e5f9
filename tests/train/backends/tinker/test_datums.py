"""Rows that a Tinker service learns from: shifts, sums, and how samples are divided."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_train.backends.tinker.datums import datum_row, logprob_gap, updates_of
from kernelgym_train.backends.trl.rows import rows_of
from kernelgym_train.types import Key, Sample

ids = st.lists(st.integers(0, 99), min_size=1, max_size=8).map(tuple)
numbers = st.floats(-3, 3, allow_nan=False)


@st.composite
def samples(draw, least=1):
    """Samples of one step, their keys in order."""
    found = []
    for number in range(draw(st.integers(least, 6))):
        answer = draw(ids)
        told = tuple(-draw(st.floats(0, 5)) for _ in answer)
        advantage, weight = draw(numbers), draw(st.floats(0, 1))
        found.append(Sample(Key(0, number), draw(ids), answer, told, advantage, weight))
    return found


def test_row_is_shifted_by_one():
    row = datum_row(Sample(Key(0, 0), (5, 6, 7), (8, 9), (-0.5, -1.0), 2.0, 0.25))
    assert row.tokens == (5, 6, 7, 8)
    assert row.targets == (6, 7, 8, 9)
    assert row.logprobs == (0.0, 0.0, -0.5, -1.0)
    assert row.advantages == (0.0, 0.0, 0.5, 0.5)
    assert row.answered == (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize(("loss", "more"), [("ppo", set()), ("gspo", {"sequence_ratio_mask"})])
def test_datum_has_what_its_loss_reads(loss, more):
    pytest.importorskip("tinker")
    from kernelgym_train.backends.tinker.service import _datum

    row = datum_row(Sample(Key(0, 0), (5, 6), (8, 9), (-0.5, -1.0), 2.0, 0.25))
    given_ = _datum(row, loss).loss_fn_inputs
    assert set(given_) == {"target_tokens", "logprobs", "advantages", *more}
    assert all(given_[name].tolist() == [0.0, 1.0, 1.0] for name in more)


def test_refusal_is_told_from_a_failure():
    tinker = pytest.importorskip("tinker")
    import httpx

    from kernelgym_train.backends.tinker.service import _refuses

    def answered(kind, status):
        sent = httpx.Request("POST", "http://fake")
        return kind("said", response=httpx.Response(status, request=sent), body=None)

    refusal, failure = (
        answered(tinker.BadRequestError, 400),
        answered(tinker.InternalServerError, 500),
    )
    for error, refused in ((refusal, True), (failure, False)):
        later = ValueError("Error retrieving result")
        later.__cause__ = error
        assert _refuses(error) is _refuses(later) is refused
    category = tinker.types.RequestErrorCategory
    for kind, refused in ((category.User, True), (category.Server, False)):
        assert _refuses(tinker.RequestFailedError("said", "7", kind)) is refused


@pytest.mark.parametrize(
    ("prompt", "answer", "told"),
    [((), (1,), (-1.0,)), ((1,), (), ()), ((1,), (2,), None)],
)
def test_row_of_an_unfit_sample_is_refused(prompt, answer, told):
    with pytest.raises(ValueError, match=r"sample \(0, 0, 0, 0\)"):
        datum_row(Sample(Key(0, 0), prompt, answer, told, 1.0, 1.0))


@given(samples())
def test_rows_equal_trls_for_the_same_samples(steps):
    theirs = rows_of(steps, len(steps), end=0)
    for place, (row, sample) in enumerate(zip(map(datum_row, steps), steps, strict=True)):
        prompt = len(theirs.prompt_ids[place])
        assert [row.tokens[0], *row.targets] == [
            *theirs.prompt_ids[place],
            *theirs.completion_ids[place],
        ]
        assert theirs.logprobs is not None
        assert list(row.logprobs[prompt - 1 :]) == theirs.logprobs[place]
        product = theirs.advantages[place] * theirs.weights[place]
        assert list(row.advantages[prompt - 1 :]) == [product] * len(sample.ids)
        assert not any(row.advantages[: prompt - 1]) and not any(row.logprobs[: prompt - 1])


@given(samples(least=0), st.integers(1, 5))
def test_updates_hold_each_sample_once(steps, updates):
    parts = updates_of(steps, updates)
    taught = [sample for sample in steps if sample.advantage * sample.weight]
    assert [sample for part in parts for sample in part] == taught
    assert len(parts) <= updates and all(parts)
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1 or (
        len(taught) < updates
    )


@given(samples(), st.floats(0, 0.5))
def test_gap_of_a_constant_shift_is_that_shift(steps, shift):
    rows = [datum_row(sample) for sample in steps]
    learner = [[value + shift for value in row.logprobs] for row in rows]
    mean, most = logprob_gap(rows, learner, [len(sample.prompt_ids) for sample in steps])
    assert math.isclose(mean, shift, abs_tol=1e-9) and math.isclose(most, shift, abs_tol=1e-9)
