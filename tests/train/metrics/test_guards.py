"""Guards: each is set off by its own numbers, says them, and is silent without them."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym_train.config.config import load_config
from kernelgym_train.metrics.filter_counts import FILTERS
from kernelgym_train.metrics.guards import (
    ACTIONS,
    Alarm,
    GuardRules,
    StepHealth,
    check_guards,
    opening_share,
    repetition,
)

RULES = GuardRules(window=3, baseline=2)
WELL = StepHealth(
    0,
    groups=8,
    groups_with_signal=5,
    opening_share=0.9,
    repetition=0.1,
    answer_tokens=100.0,
    entropy=0.5,
    logprob_gap=0.01,
    answers=64,
    failures=1,
)


def steps(count: int = 6, last: int = 1, **changes) -> list[StepHealth]:
    """Return healthy steps, of which the last ones are otherwise."""
    return [
        dataclasses.replace(WELL, step=step, **(changes if step >= count - last else {}))
        for step in range(count)
    ]


def names(alarms: tuple[Alarm, ...]) -> list[str]:
    return [alarm.guard for alarm in alarms]


def test_a_healthy_run_sets_nothing_off() -> None:
    for count in range(7):
        assert check_guards(RULES, steps(count, last=0)) == ()


@pytest.mark.parametrize(
    ("guard", "changes", "numbers"),
    [
        ("collapse/opening", {"opening_share": 0.4}, {"now": 0.4, "first": 0.9}),
        ("collapse/length", {"answer_tokens": 301.0}, {"now": 301.0, "first": 100.0}),
        ("collapse/length", {"answer_tokens": 33.0}, {"now": 33.0, "first": 100.0}),
        ("collapse/repetition", {"repetition": 0.6}, {"now": 0.6}),
        ("collapse/entropy", {"entropy": 0.0005}, {"now": 0.0005}),
        ("gap", {"logprob_gap": 0.5}, {"gap": (0.5 + 0.02) / 3, "steps": 3}),
        ("infrastructure", {"failures": 64}, {"failures": 66, "answers": 192}),
    ],
)
def test_each_guard_says_its_numbers(guard: str, changes, numbers) -> None:
    (alarm,) = check_guards(RULES, steps(**changes))
    assert alarm.guard == guard
    assert alarm.numbers == pytest.approx(numbers)
    assert alarm.action == getattr(RULES, guard.partition("/")[0])
    assert "\n" not in alarm.message


@pytest.mark.parametrize(
    "changes",
    [
        {"opening_share": 0.51},
        {"answer_tokens": 299.0},
        {"answer_tokens": 34.0},
        {"repetition": 0.5},
        {"entropy": 0.001},
        {"logprob_gap": 0.27},
        {"failures": 36},
    ],
)
def test_what_is_within_bounds_sets_nothing_off(changes) -> None:
    assert check_guards(RULES, steps(**changes)) == ()


def test_no_signal_takes_a_whole_window() -> None:
    for last in (1, 2):
        assert check_guards(RULES, steps(last=last, groups_with_signal=0)) == ()
    (alarm,) = check_guards(RULES, steps(last=3, groups_with_signal=0))
    assert alarm.guard == "no_signal" and alarm.numbers == {"groups": 24, "steps": 3}
    # Two steps of a run are less than a window.
    assert check_guards(RULES, steps(2, last=2, groups_with_signal=0)) == ()


def test_what_is_not_available_is_not_nought() -> None:
    (alarm,) = check_guards(RULES, steps(last=6, logprob_gap=None))
    assert (alarm.guard, alarm.action, alarm.numbers) == ("gap", "off", {})
    assert alarm.message.startswith("not available")
    # One step that has it is enough to go by.
    assert check_guards(RULES, steps(last=2, logprob_gap=None)) == ()
    without = {"opening_share": None, "repetition": None, "answer_tokens": None, "entropy": None}
    assert check_guards(RULES, steps(last=6, **without)) == ()
    assert check_guards(RULES, steps(last=1, **without)) == ()


def test_numbers_that_are_none_set_guards_off() -> None:
    assert names(check_guards(RULES, steps(entropy=math.nan))) == ["collapse/entropy"]
    assert names(check_guards(RULES, steps(logprob_gap=math.nan))) == ["gap"]


def test_the_first_steps_are_what_later_ones_are_compared_with() -> None:
    drift = [dataclasses.replace(WELL, step=step, answer_tokens=100.0 + step) for step in range(9)]
    far = dataclasses.replace(WELL, step=900, answer_tokens=500.0)
    assert names(check_guards(RULES, [*drift, far])) == ["collapse/length"]
    # Of a long run a window and the first steps are enough.
    assert names(check_guards(RULES, [drift[-1], far], first=drift[:2])) == ["collapse/length"]
    assert check_guards(RULES, [drift[-1], far], first=[far, far]) == ()
    # While the first steps are being played there is nothing to compare with.
    early = [WELL, dataclasses.replace(WELL, step=1, opening_share=0.0)]
    assert check_guards(RULES, early) == ()


def test_the_gravest_comes_first() -> None:
    rules = dataclasses.replace(RULES, collapse="rollback", gap="warn", infrastructure="stop")
    sick = steps(repetition=0.9, logprob_gap=9.0, failures=64, entropy=0.0)
    assert [alarm.action for alarm in check_guards(rules, sick)] == [
        *("stop", "rollback", "rollback", "warn")
    ]


@pytest.mark.parametrize("action", ACTIONS)
def test_every_guard_does_what_the_rules_say(action) -> None:
    rules = GuardRules(
        3, 2, no_signal=action, collapse=action, gap=action, infrastructure=action, filters=action
    )
    sick = steps(
        last=3, groups_with_signal=0, repetition=0.9, entropy=0.0, logprob_gap=9.0, failures=64,
        filters={"policy": (64, 0)},
    )  # fmt: skip
    sick[-1] = dataclasses.replace(sick[-1], opening_share=0.1, answer_tokens=1.0)
    found = check_guards(rules, sick)
    assert {alarm.action for alarm in found} == (set() if action == "off" else {action})
    assert len(found) == (0 if action == "off" else 8)


@given(
    st.lists(
        st.builds(
            StepHealth,
            st.integers(0, 50),
            st.integers(0, 9),
            st.integers(0, 9),
            *[st.none() | st.floats(0, 1)] * 2,
            st.none() | st.floats(0, 1e4),
            *[st.none() | st.floats(allow_nan=True)] * 2,
            st.integers(0, 99),
            st.integers(0, 99),
            st.dictionaries(
                st.sampled_from(FILTERS), st.tuples(st.integers(0, 99), st.integers(0, 99))
            ),
        ),
        max_size=12,
    )
)
def test_any_history_is_read(history: list[StepHealth]) -> None:
    found = check_guards(RULES, history)
    assert len(found) == len({alarm.guard for alarm in found})
    assert all(alarm.action in ACTIONS for alarm in found)


@pytest.mark.parametrize("name", FILTERS)
def test_filter_that_removes_everything_is_an_alarm(name) -> None:
    """A reward masked for every correct kernel trains on nothing, and looks like any other run."""
    shut = steps(last=3, filters={name: (40, 0), "other": (40, 40)})
    (alarm,) = check_guards(RULES, shut)
    assert (alarm.guard, alarm.action) == (f"filter/{name}", "warn")
    assert alarm.numbers == {"passed": 0.0, "seen": 120.0} and "0 of 120" in alarm.message


@pytest.mark.parametrize(("passed", "alarms"), [(4, 1), (5, 0)])
def test_filter_alarm_starts_below_five_percent(passed, alarms) -> None:
    assert len(check_guards(RULES, steps(last=1, filters={"timing": (100, passed)}))) == alarms


def test_filter_that_saw_too_little_is_no_alarm() -> None:
    # Of 19 answers one would be more than 5 %: none at all may be chance.
    assert check_guards(RULES, steps(last=1, filters={"evidence": (19, 0)})) == ()
    assert len(check_guards(RULES, steps(last=2, filters={"evidence": (10, 0)}))) == 1


def test_openings() -> None:
    assert opening_share([(1, 2), (1,), (3,), ()]) == pytest.approx(2 / 3)
    assert opening_share([(1, 2), (1,), (3,)], usual=3) == pytest.approx(1 / 3)
    assert opening_share([(1,)], usual=4) == 0.0
    assert opening_share([(), ()]) is None


def test_repetition() -> None:
    assert repetition(range(40)) == 0.0
    assert repetition((1, 2, 3)) == 0.0
    assert repetition((7,) * 103) == pytest.approx(0.99)
    # Five grams of four, the last of which is the first again.
    assert repetition((1, 2, 3, 4, 1, 2, 3, 4)) == pytest.approx(1 / 5)


@given(st.lists(st.integers(0, 5), max_size=40))
def test_saying_it_twice_is_repetition(ids: list[int]) -> None:
    assert 0.0 <= repetition(ids) < 1.0
    assert repetition(ids * 2) >= repetition(ids)


@pytest.mark.parametrize("wrong", ["baseline=0", "opening_drop=1.5", "length_ratio=1", "gap=no"])
def test_rules_that_make_no_sense_are_refused(wrong) -> None:
    with pytest.raises(UsageError, match=f"guards.{wrong.partition('=')[0]}"):
        load_config(None, [f"guards.{wrong}"])
