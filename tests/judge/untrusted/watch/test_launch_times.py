"""Where the time of a call goes, as the watched process tells it."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.evidence.reports import read_profile
from kernelgym.judge.untrusted.watch.launch_times import LaunchTimes
from kernelgym.rulesets import RULESETS
from kernelgym.types import KernelTime, Profile, Verdict
from support.programs import AFFINE, CPP, TIGHT, TRITON, replaced

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=9,
)


@pytest.fixture(scope="module")
def judge(cache_dir):
    rules = dataclasses.replace(RULESETS["strict"], limits=TIGHT)
    with LocalEvaluator(ruleset=rules, cache_dir=cache_dir) as evaluator:
        yield evaluator


@pytest.mark.slow
def test_functions_of_an_extension_are_timed_by_name(judge) -> None:
    found = judge.evaluate(AFFINE, CPP)
    assert found.correct and found.profile is not None, found
    ((name, launches),) = {(k.name, k.launches) for k in found.profile.kernels}
    assert (name, launches) == ("affine", 1)
    assert 0.0 < found.profile.kernel_share <= 1.0
    assert Verdict.from_dict(found.to_dict()) == found


@pytest.mark.slow
def test_work_beside_the_kernel_takes_its_share(judge) -> None:
    waiting = "import time\n        time.sleep(0.01)\n        "
    given = "return extension.affine(x, b)\n"
    slow = replaced(CPP, given, waiting + given)
    found = judge.evaluate(AFFINE, slow)
    assert found.profile is not None, found
    assert found.profile.kernel_share < 0.1


@pytest.mark.slow
def test_the_interpreters_times_mean_nothing(judge) -> None:
    found = judge.evaluate(AFFINE, TRITON)
    assert found.correct and found.profile is None


@given(anything, anything)
def test_whatever_a_process_says_can_be_read(call_ms, kernels) -> None:
    found = read_profile({"call_ms": call_ms, "kernels": kernels})
    if found is not None:
        assert 0.0 < found.call_ms < math.inf and found.kernels
        assert 0.0 <= found.kernel_share <= 1.0
        assert Profile.from_dict(dataclasses.asdict(found)) == found


def test_what_is_read() -> None:
    said = {"call_ms": 2.0, "kernels": [["k", [3, 1.5]], ["\ud800", [1, 0.25]], ["no", [0, 1.0]]]}
    found = read_profile(said)
    assert found == Profile(2.0, (KernelTime("k", 3, 1.5), KernelTime("?", 1, 0.25)))
    assert found.kernel_share == 0.875
    assert read_profile({}) is None


def test_launches_within_launches_belong_to_the_outer_one() -> None:
    launch_times = LaunchTimes()

    def inner() -> int:
        return 3

    def outer() -> int:
        return launch_times.launch(inner, (), {}) + 1

    def model(x: int) -> int:
        return x + launch_times.launch(outer, (), {}) + launch_times.launch(outer, (), {})

    assert launch_times.call(model, [5]) == 13
    report = launch_times.report()
    assert [(name, count) for name, (count, _) in report["kernels"]] == [("outer", 2)]
    assert 0 < report["kernels"][0][1][1] <= report["call_ms"]
    assert launch_times.report() == {}
