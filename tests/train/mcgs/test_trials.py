"""Improvements of a search's best value, found from its history."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kernelgym_train.mcgs.trials import SearchTrial, leads_of

values = st.lists(st.none() | st.floats(-2.0, 4.0), max_size=12)


def trials(found: list[float | None]) -> list[SearchTrial]:
    """Return one charged trial for each value, and an uncharged one of 9.0 before each."""
    return [
        SearchTrial(str(at), "start", "move", value, charged=charged)
        for at, each in enumerate(found)
        for value, charged in ((9.0, False), (each, True))
    ]


@given(values)
def test_leads_rise_and_end_at_the_best_charged_value(found: list[float | None]) -> None:
    leads = leads_of(trials(found), ())
    assert leads[0] == (0, 0.0)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(leads))
    assert leads[-1][1] == max([0.0, *(each for each in found if each is not None)])
    assert all(found[at - 1] == value for at, value in leads[1:])


def test_leads_hold_values_that_were_timed_later() -> None:
    assert leads_of(trials([0.5, None, 0.7]), [(0, 0.0), (3, 0.9)]) == [
        *((0, 0.0), (1, 0.5), (3, 0.7), (3, 0.9))
    ]
