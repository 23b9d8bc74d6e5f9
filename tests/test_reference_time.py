"""Settings in which references are timed, and their times."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.reference_time import MODES, ReferenceTime, TimeSetting, time_settings

SETTINGS = st.builds(
    TimeSetting,
    st.sampled_from(MODES),
    st.sampled_from(["own", "fp32", "fp16", "bf16"]),
    st.sampled_from(["off", "on", "torch"]),
)
MS = st.floats(0.001, 1e4)
TIMES = st.builds(
    ReferenceTime, st.text(), st.text(), SETTINGS, st.just("cpu"), *[MS] * 5, st.integers(3, 500)
)


@given(TIMES)
def test_a_time_survives_json(time: ReferenceTime) -> None:
    assert ReferenceTime.from_dict(json.loads(json.dumps(time.to_dict()))) == time


def test_every_combination_comes_once() -> None:
    found = time_settings(["eager", "default", "eager"], ["fp32", "bf16"], ["off", "on"], "cuda:0")
    assert len(found) == len(set(found)) == 8
    assert found[:2] == (TimeSetting("eager", "fp32"), TimeSetting("default", "fp32"))


@pytest.mark.parametrize(
    ("modes", "precisions", "tf32", "said"),
    [
        ([], ["own"], ["off"], "modes names nothing"),
        (["fast"], ["own"], ["off"], "mode 'fast' is none of eager, default"),
        (["eager"], ["fp8"], ["off"], "precision 'fp8' is none of own"),
        (["eager"], ["own"], ["yes"], "tf32 'yes' is none of off, on, torch"),
        (["cudagraphs"], ["own"], ["off"], "needs a GPU, since it captures CUDA graphs"),
        (["eager"], ["own"], ["on"], "on the CPU there is no TF32"),
    ],
)
def test_what_means_nothing_is_refused(modes, precisions, tf32, said) -> None:
    with pytest.raises(UsageError, match=said):
        time_settings(modes, precisions, tf32, "cpu")
