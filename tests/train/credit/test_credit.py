"""Credit: what counts, what is left out, and how weight is spread."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UnknownName, UsageError
from kernelgym.testing import SAMPLE_PROBLEM, verdict
from kernelgym.types import Trajectory
from kernelgym_train.credit.credit import (
    NORMALISERS,
    CreditRule,
    assign_credit,
    counts,
    group_returns,
    token_weights,
)
from kernelgym_train.credit.estimators import ESTIMATORS, advantages
from kernelgym_train.types import Completion, Key, Rollout, Sample
from support.played import rollout

WRONG, UNAVAILABLE = verdict("wrong"), verdict("unavailable")

scores = st.integers(-2, 16).map(lambda n: n / 16)
lengths = st.integers(0, 5)


@st.composite
def steps(draw: st.DrawFn) -> list[Rollout]:
    """The rollouts of a step: ragged, some invalid, some cut, in any order."""
    played = []
    for group in range(draw(st.integers(1, 3))):
        for number in range(draw(st.integers(1, 4))):
            turns = draw(st.lists(st.tuples(scores, lengths), min_size=1, max_size=3))
            ended = draw(st.sampled_from(("solved", "budget", "no_improvement", "cut")))
            last = draw(st.sampled_from((WRONG, WRONG, WRONG, UNAVAILABLE)))
            played.append(
                rollout(
                    [score for score, _ in turns],
                    group=group,
                    number=number,
                    lengths=[length for _, length in turns],
                    verdicts=[WRONG] * (len(turns) - 1) + [last],
                    ended=ended,
                    horizon=3,
                )
            )
    return draw(st.permutations(played))


rules = st.builds(
    CreditRule,
    st.sampled_from(sorted(ESTIMATORS)),
    st.sampled_from(NORMALISERS),
    st.integers(1, 100),
    st.sampled_from((0.0, 0.4, 1.0)),
    st.sampled_from(("sum", "max")),
)


def by_turn(samples: tuple[Sample, ...]) -> dict[tuple[int, int, int], float]:
    return {tuple(s.key)[1:]: round(s.advantage, 6) for s in samples}


def test_two_groups_by_hand() -> None:
    """Gamma 0.5, leave-one-out per turn; the second group was right at turn 1 of 3, or never."""
    played = [
        rollout((0.0, 1.0), group=0, number=0),  # returns 0.5, 1
        rollout((0.25, 0.5), group=0, number=1),  # 0.5, 0.5
        rollout((1.0,), group=1, number=0, ended="solved", horizon=3),  # 1.75: absorbing
        rollout((0.0, 0.0, 0.25), group=1, number=1),  # 0.0625, 0.125, 0.25
    ]
    credit = assign_credit(played, CreditRule("trloo", "sequence", gamma=0.5))
    assert by_turn(credit.samples) == {
        **{(0, 0, 0): 0.0, (0, 0, 1): 0.5, (0, 1, 0): 0.0, (0, 1, 1): -0.5},
        **{(1, 0, 0): 1.6875, (1, 1, 0): -1.6875, (1, 1, 1): 0.0, (1, 1, 2): 0.0},
    }
    assert {sample.weight for sample in credit.samples} == {1 / 8 / 3}
    assert (credit.groups, credit.flat, credit.left_out) == (2, (), 0)
    best = assign_credit(played, CreditRule("rloo", gamma=0.5, returns="max"))
    # First returns: max(0, .5) and max(.25, .25); 1 and max(0, .0625): each less the other's.
    assert by_turn(best.samples) == {
        **{(0, 0, 0): 0.25, (0, 0, 1): 0.25, (0, 1, 0): -0.25, (0, 1, 1): -0.25},
        **{(1, 0, 0): 0.9375, (1, 1, 0): -0.9375, (1, 1, 1): -0.9375, (1, 1, 2): -0.9375},
    }


def test_a_sample_is_its_turns_tokens() -> None:
    answer = Completion("x", (1, 2), (3, 4), (-0.5, -0.25), "stop", 9)
    one = rollout((1.0,), number=0)
    one = dataclasses.replace(one, completions=(answer,))
    credit = assign_credit([one, rollout((0.0,), number=1, lengths=[6])], CreditRule())
    assert credit.samples[0] == Sample(Key(0, 0, 0, 0), (1, 2), (3, 4), (-0.5, -0.25), 1.0, 1 / 8)
    assert credit.samples[1].weight == 1 / 8


@pytest.mark.parametrize("spoilt", ["unavailable", "unscored", "cut", "nothing played"])
def test_what_went_wrong_on_our_side_is_nowhere(spoilt: str) -> None:
    good = [rollout((0.0, 1.0), number=0), rollout((0.5, 0.0), number=1)]
    bad = rollout((0.9, 0.9), number=2, verdicts=(WRONG, UNAVAILABLE))
    if spoilt == "cut":
        bad = rollout((0.9, 0.9), number=2, ended="cut")
    elif spoilt == "unscored":
        bad = rollout((0.9, 0.9), number=2)
        turns = bad.trajectory.turns
        unscored = dataclasses.replace(turns[0].score, valid=False)
        turns = (dataclasses.replace(turns[0], score=unscored), turns[1])
        trajectory = dataclasses.replace(bad.trajectory, turns=turns)
        bad = dataclasses.replace(bad, trajectory=trajectory)
    elif spoilt == "nothing played":
        bad = Rollout(Key(0, 0, 2), Trajectory(SAMPLE_PROBLEM, (), "budget"), ())
    assert not counts(bad)
    for name in ESTIMATORS:
        without, beside = (
            assign_credit(played, CreditRule(name)) for played in (good, [*good, bad])
        )
        assert beside.samples == without.samples != ()
        assert (without.left_out, beside.left_out) == (0, 1)


def test_a_group_left_with_one_trajectory_teaches_nothing() -> None:
    played = [
        rollout((0.0, 1.0), number=0),
        rollout((0.5, 0.0), number=1, verdicts=(WRONG, UNAVAILABLE)),
    ]
    for name in ESTIMATORS:
        credit = assign_credit(played, CreditRule(name))
        assert (credit.samples, credit.groups, credit.flat) == ((), 0, ((0, 0),))


def test_identical_trajectories_give_no_samples_even_under_kevin() -> None:
    flat = [rollout((0.3, 0.3), group=0, number=number) for number in range(8)]
    useful = [rollout((float(number), 0.3), group=1, number=number) for number in range(2)]
    credit = assign_credit([*flat, *useful], CreditRule("kevin", "sequence"))
    assert credit.flat == ((0, 0),) and credit.groups == 1
    assert {sample.key.problem for sample in credit.samples} == {1}
    assert {sample.weight for sample in credit.samples} == {1 / 4 / 3}  # the flat group is not in N


def test_rollouts_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="two rollouts of a step have the same key"):
        assign_credit([rollout((1.0,)), rollout((0.0,))], CreditRule())
    other = dataclasses.replace(SAMPLE_PROBLEM, id="Other/1")
    with pytest.raises(ValueError, match="only episodes of one problem"):
        assign_credit([rollout((1.0,)), rollout((0.0,), number=1, problem=other)], CreditRule())
    with pytest.raises(ValueError, match="not over"):
        assign_credit([rollout((1.0,), ended="")], CreditRule())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"estimator": "trlo"}, "did you mean trloo"),
        ({"normaliser": "tokens"}, "did you mean token"),
        ({"normaliser": "constant"}, "number of tokens of at least 1"),
        ({"gamma": 1.5}, "gamma must lie in"),
        ({"gamma": math.nan}, "gamma must lie in"),
        ({"returns": "mean"}, "known: sum, max"),
    ],
)
def test_rules_that_make_no_sense_are_refused(options, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CreditRule(**options)


@pytest.mark.parametrize(
    ("normaliser", "weights"),
    [
        ("token", (1 / 10, 1 / 10, 1 / 10)),
        ("sequence", (1 / 6, 1 / 12, 1 / 12)),
        ("constant", (1 / 48, 1 / 48, 1 / 48)),
    ],
)
def test_weights_by_hand(normaliser, weights) -> None:
    assert token_weights(normaliser, (2, 4, 4), 16) == pytest.approx(weights)


def test_weights_of_nothing() -> None:
    assert [token_weights(name, (), 5) for name in NORMALISERS] == [(), (), ()]
    assert all(math.isfinite(w) for name in NORMALISERS for w in token_weights(name, (0, 0), 5))
    with pytest.raises(UnknownName):
        token_weights("turn", (1,))  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        token_weights("constant", (1,))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(50, 99))
def test_weights_add_up(lengths: list[int], constant: int) -> None:
    def total(normaliser) -> float:
        weights = token_weights(normaliser, lengths, constant)
        return math.fsum(w * length for w, length in zip(weights, lengths, strict=True))

    assert total("token") == pytest.approx(1.0)
    assert total("sequence") == pytest.approx(1.0)
    assert total("constant") == pytest.approx(sum(lengths) / len(lengths) / constant)
    assert total("constant") <= 1.0


@given(steps(), rules)
def test_every_turn_that_counts_gives_its_sample_once(played, rule: CreditRule) -> None:
    credit = assign_credit(played, rule)
    wanted = {
        each.key._replace(turn=turn): answer
        for each in played
        if counts(each) and each.key.group not in credit.flat
        for turn, answer in enumerate(each.completions)
    }
    assert [sample.key for sample in credit.samples] == sorted(wanted)
    assert all(sample.ids == wanted[sample.key].ids for sample in credit.samples)
    assert credit.left_out == sum(not counts(each) for each in played)


@given(steps(), rules)
def test_what_does_not_count_changes_nothing(played, rule: CreditRule) -> None:
    credit = assign_credit(played, rule)
    without = assign_credit([each for each in played if counts(each)], rule)
    assert (credit.samples, credit.flat) == (without.samples, without.flat)


@given(steps(), rules, st.integers(0, 99))
def test_order_changes_no_digit(played, rule: CreditRule, seed: int) -> None:
    shuffled = random.Random(seed).sample(played, len(played))
    assert assign_credit(shuffled, rule) == assign_credit(played, rule)


@given(steps(), rules)
def test_a_group_is_credited_as_if_it_were_alone(played, rule: CreditRule) -> None:
    """But for weights, which are of the whole step."""
    credit = assign_credit(played, rule)
    for name in {each.key.group for each in played}:
        group = sorted((e for e in played if e.key.group == name), key=lambda each: each.key)
        alone = advantages(rule.estimator, group_returns(group, rule))
        found = [sample.advantage for sample in credit.samples if sample.key.group == name]
        assert found in ([], [value for turns in alone for value in turns])


@given(steps(), st.sampled_from(sorted(ESTIMATORS)))
def test_discounting_is_kernelgyms(played, name: str) -> None:
    """At gamma 0 the returns are the scores, whatever comes later."""
    rule = CreditRule(name, gamma=0.0)
    assert [tuple(turns) for turns in group_returns(played, rule)] == [
        each.trajectory.scores for each in played if counts(each)
    ]
    for gamma in (0.4, 1.0):
        assert group_returns(played, CreditRule(name, gamma=gamma)) == [
            each.trajectory.returns(gamma) for each in played if counts(each)
        ]


def test_records_check_their_own_form() -> None:
    with pytest.raises(ValueError, match="1 log-probabilities for 2 tokens"):
        Completion("", (), (1, 2), (0.0,), "stop", 0)
    with pytest.raises(ValueError, match="0 completions for 1 turns"):
        Rollout(Key(0, 0), rollout((1.0,)).trajectory, ())
    with pytest.raises(ValueError, match="that of its first turn"):
        dataclasses.replace(rollout((1.0,)), key=Key(0, 0, 0, 1))
    assert Key(3, 1, 2, 1).group == (3, 1)
    assert sorted([Key(1, 0), Key(0, 9, 9, 9), Key(0, 9, 9)])[0] == Key(0, 9, 9, 0)
