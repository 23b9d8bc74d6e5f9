"""The problem sampler: what it draws follows from seed, step and state; refills are counted."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.testing import verdict
from kernelgym.types import Problem
from kernelgym_train.config.config import load_config
from kernelgym_train.credit.credit import CreditRule
from kernelgym_train.rollout.refill import Refill
from kernelgym_train.rollout.sampling import (
    Bucket,
    Curriculum,
    ProblemSampler,
    bucket_of,
    shape_class,
)
from support.played import problems, rollout

EASY, HARD, SECOND = (problems("easy", 1, 20), problems("hard", 1, 20), problems("next", 2, 20))
EVERY = [*EASY, *HARD, *SECOND]
RIGHT, WRONG, UNAVAILABLE = verdict("correct"), verdict("wrong"), verdict("unavailable")


def sampler(seed: int = 0, chosen: list[Problem] | None = None, **curriculum) -> ProblemSampler:
    return ProblemSampler(chosen or EVERY, seed, Curriculum(**curriculum))


def tell(to: ProblemSampler, problem: Problem, right: int, wrong: int = 0, step: int = 0) -> None:
    """Tell of so many first answers to one problem."""
    verdicts = [RIGHT] * right + [WRONG] * wrong
    to.record(
        rollout((1.0,), step=step, number=number, verdicts=[found], problem=problem)
        for number, found in enumerate(verdicts)
    )


def drawn(from_: ProblemSampler, count: int = 400, step: int = 0) -> Counter[str]:
    return Counter(problem.family for problem in from_.draw(step, count))


def test_the_same_seed_and_step_draw_the_same_whatever_was_drawn_before() -> None:
    """A choice of buckets depends on the step; within a bucket problems come by turns."""
    one, other = sampler(3), sampler(3)
    assert one.draw(0, 8) == other.draw(0, 8)
    assert one.draw(1, 8) == other.draw(1, 8)
    assert one.draw(1, 8, round=1) == other.draw(1, 8, round=1)
    assert sampler(3).draw(0, 30) != sampler(4).draw(0, 30)
    assert sampler(3).draw(0, 30) != sampler(3).draw(1, 30)


def test_nothing_is_drawn_twice_by_mistake() -> None:
    one = sampler()
    one.draw(5, 2)
    one.draw(5, 2, round=1)
    for step, round in ((5, 1), (5, 0), (4, 9)):
        with pytest.raises(ValueError, match="was drawn already"):
            one.draw(step, 2, round)
    one.draw(6, 2)


def test_a_bucket_is_gone_through_before_a_problem_comes_again() -> None:
    one = sampler(chosen=EASY)
    rounds = [one.draw(step, len(EASY)) for step in range(3)]
    assert all(sorted(p.id for p in each) == sorted(p.id for p in EASY) for each in rounds)
    assert len(set(rounds)) == 3  # each time in another order


def test_buckets_near_the_target_are_drawn_most() -> None:
    one = sampler()
    tell(one, EASY[0], 20)
    tell(one, HARD[0], 0, 20)
    one.record([rollout((1.0,), problem=SECOND[0], verdicts=[RIGHT])])  # too little to go by
    assert one.solve_rates == {
        Bucket(1, "easy", ""): 1.0,
        Bucket(1, "hard", ""): 0.0,
        Bucket(2, "next", ""): None,
    }
    assert one.levels == (1, 2)  # half of level 1 is solved
    found = drawn(one, 1000)
    # A tenth is replay of what is solved; a never solved bucket weighs a tenth of the other.
    assert 60 < found["easy"] < 140
    assert 50 < found["hard"] < 120
    assert found["next"] > 700


@given(st.integers(0, 20), st.integers(0, 20))
def test_interest_grows_up_to_the_target(right: int, wrong: int) -> None:
    """More often right is drawn at least as often, up to the target; above it only as replay."""
    one = sampler(chosen=[*EASY, *HARD], replay=0.0)
    tell(one, EASY[0], right, wrong)
    found = drawn(one)
    rate = one.solve_rates[Bucket(1, "easy", "")]
    if rate is None or 0.3 <= rate <= 0.7:
        assert 150 < found["easy"] < 250  # as often as one that is not known
    elif rate > 0.7:
        assert found["easy"] == 0
    else:
        expected = 400 * (0.1 + 3 * rate) / (1.1 + 3 * rate)
        assert expected - 70 < found["easy"] < expected + 70


def test_what_was_forgotten_is_noticed_and_drawn_again() -> None:
    one = sampler(chosen=[*EASY, *HARD], half_life=8)
    tell(one, EASY[0], 30)
    assert 0 < drawn(one, step=0)["easy"] < 80  # replay
    tell(one, EASY[0], 0, 8, step=1)
    assert one.solve_rates[Bucket(1, "easy", "")] == pytest.approx(0.5, abs=0.05)
    assert drawn(one, step=1)["easy"] > 150


def test_if_all_is_solved_all_is_drawn() -> None:
    one = sampler(chosen=[*EASY, *HARD], replay=0.0)
    for problem in (EASY[0], HARD[0]):
        tell(one, problem, 20)
    assert min(drawn(one).values()) > 100


def test_if_nothing_is_ever_solved_all_is_still_drawn() -> None:
    one = sampler(chosen=[*EASY, *HARD], least=0.0)
    for problem in (EASY[0], HARD[0]):
        tell(one, problem, 0, 20)
    assert min(drawn(one).values()) > 100


def test_a_level_is_unlocked_by_solving_the_one_before() -> None:
    one = sampler(unlock_after=32)
    assert one.levels == (1,)
    assert drawn(one)["next"] == 0
    tell(one, EASY[0], 16)
    tell(one, HARD[0], 0, 15)
    assert one.levels == (1,)  # 31 answers
    tell(one, HARD[0], 0, 1, step=1)
    assert one.levels == (1, 2)
    tell(one, EASY[0], 0, 40, step=2)
    assert one.levels == (1, 2)  # and stays so
    stuck = sampler()
    for problem in (EASY[0], HARD[0]):
        tell(stuck, problem, 9, 11)
    assert stuck.levels == (1,)


def test_a_later_level_is_not_unlocked_by_answers_of_an_earlier_one() -> None:
    one = sampler(chosen=[*EVERY, *problems("last", 5, 3)])
    tell(one, EASY[0], 64)
    assert one.levels == (1, 2)


def test_without_a_curriculum_all_problems_are_alike() -> None:
    one = sampler(chosen=[*EASY, *SECOND, *problems("few", 3, 5)], enabled=False)
    tell(one, EASY[0], 40)
    found = drawn(one, 900)
    assert one.levels == (1, 2, 3)
    assert found["few"] == pytest.approx(100, abs=40)
    assert found["easy"] == pytest.approx(400, abs=60)


def test_only_first_answers_count_and_only_valid_episodes() -> None:
    one = sampler(chosen=EASY)
    played = [
        *(
            rollout((0.0, 1.0), number=n, verdicts=[WRONG, RIGHT], problem=EASY[0])
            for n in range(10)
        ),
        *(
            rollout((1.0, 0.0), number=n, verdicts=[RIGHT, UNAVAILABLE], problem=EASY[0])
            for n in range(10, 20)
        ),
    ]
    one.record(played)
    assert one.solve_rates == {Bucket(1, "easy", ""): 0.0}
    with pytest.raises(ValueError, match="is not one of this sampler's problems"):
        one.record([rollout((1.0,), problem=HARD[0])])


histories = st.lists(
    st.tuples(st.sampled_from([EASY[0], HARD[0], SECOND[0]]), st.integers(0, 9), st.integers(0, 9)),
    max_size=6,
)


@settings(max_examples=50)
@given(st.integers(0, 99), histories, st.integers(0, 3))
def test_a_sampler_resumed_at_any_point_draws_the_same(seed: int, history, epoch: int) -> None:
    straight = sampler(seed)
    states = []
    after = []
    for step, (problem, right, wrong) in enumerate(history):
        states.append(json.loads(json.dumps(straight.state_dict())))
        after.append((straight.draw(step, 5), straight.draw(step, 3, round=1)))
        tell(straight, problem, right, wrong, step=step)
        straight.seed_epoch = epoch
    for start, state in enumerate(states):
        resumed = sampler(seed)
        resumed.load_state_dict(state)
        for step in range(start, len(history)):
            assert (resumed.draw(step, 5), resumed.draw(step, 3, round=1)) == after[step]
            tell(resumed, *history[step], step=step)
            resumed.seed_epoch = epoch
        assert resumed.state_dict() == straight.state_dict()


def test_a_rollback_draws_something_else() -> None:
    one = sampler()
    good = one.state_dict()
    before = one.draw(0, 20)
    one.load_state_dict(good)
    assert one.draw(0, 20) == before
    one.load_state_dict(good)
    one.seed_epoch += 1
    after = one.draw(0, 20)
    # Other problems, of other buckets.
    assert [p.family for p in after] != [p.family for p in before]
    assert {p.id for p in after} != {p.id for p in before}


def test_what_another_has_drawn_is_not_drawn_again() -> None:
    one, resumed = sampler(), sampler()
    one.draw(4, 2, round=1)
    resumed.load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="was drawn already"):
        resumed.draw(4, 2, round=1)


@pytest.mark.parametrize("other", [sampler(1), sampler(0, EASY), sampler(0, EVERY[:-1])])
def test_a_state_of_another_run_is_refused(other: ProblemSampler) -> None:
    with pytest.raises(UsageError, match="resume with the configuration and the problems"):
        other.load_state_dict(sampler(0).state_dict())


def test_a_choice_that_cannot_be_drawn_from_is_refused() -> None:
    with pytest.raises(UsageError, match="no problem to train on"):
        ProblemSampler([], 0)
    with pytest.raises(UsageError, match="there twice"):
        ProblemSampler([EASY[0], EASY[0]], 0)
    for name, value in (("replay", 1.5), ("unlock_after", 0), ("half_life", 0), ("target_low", 1)):
        with pytest.raises(UsageError, match=f"{name}"):
            load_config(None, [f"curriculum.{name}={value}"])


def test_synthetic_tells_the_shape_class_of_single_operators() -> None:
    suite = SyntheticSuite(per_level=40)
    shapes = {bucket_of(problem).shape for problem in suite.problems(level=1)}
    assert {"rank 2 narrow", "rank 2 wide"} <= shapes and "" not in shapes
    assert {shape_class(problem) for problem in suite.problems(level=2)} == {""}
    assert shape_class(EASY[0]) == ""
    assert str(Bucket(1, "", "big")) != str(Bucket(1, "big", ""))


RULE = CreditRule("trloo")


def group(place: int, *scores: float, turns: int = 1):
    return [
        rollout((score,) * turns, group=place, number=number) for number, score in enumerate(scores)
    ]


def test_a_step_is_refilled_twice_at_most() -> None:
    fill = Refill(3, RULE)
    assert (fill.missing, fill.round, fill.groups, fill.waste) == (3, 0, 0, 0.0)
    fill.add([*group(0, 0.0, 1.0), *group(1, 1.0, 1.0, turns=2), *group(2, 0.0, 0.0)])
    assert (fill.missing, fill.round, fill.groups) == (2, 1, 3)
    fill.add([*group(3, 0.0, 1.0), *group(4, 0.5, 0.5)])
    assert (fill.missing, fill.round, fill.groups) == (1, 2, 5)
    fill.add(group(5, 1.0, 1.0))
    assert (fill.missing, fill.groups) == (0, 6)  # still short, and that is that
    assert {each.key.problem for each in fill.rollouts} == {0, 3}
    assert {each.key.problem for each in fill.discarded} == {1, 2, 4, 5}
    # Group 1 had two answers a trajectory.
    assert fill.waste == pytest.approx(10 / 14)


def test_a_step_that_is_full_asks_for_no_more() -> None:
    fill = Refill(1, RULE)
    fill.add(group(0, 0.0, 1.0))
    assert (fill.missing, fill.waste) == (0, 0.0)
    assert Refill(2, RULE, extra_rounds=0).missing == 2
    short = Refill(2, RULE, extra_rounds=0)
    short.add(group(0, 1.0, 1.0))
    assert short.missing == 0


def test_a_group_spoilt_by_the_judge_is_refilled() -> None:
    fill = Refill(1, RULE)
    bad = rollout((1.0,), number=1, verdicts=[UNAVAILABLE])
    fill.add([rollout((0.0,)), bad])
    assert fill.missing == 1


def test_a_round_brings_what_was_missing() -> None:
    fill = Refill(1, RULE)
    with pytest.raises(ValueError, match="1 new ones were missing"):
        fill.add([*group(0, 0.0, 1.0), *group(1, 0.0, 1.0)])
    fill.add(group(0, 0.0, 0.0))
    with pytest.raises(ValueError, match="beside"):
        fill.add(group(0, 0.0, 1.0))
    for wrong in ((0, 2), (1, -1)):
        with pytest.raises(UsageError):
            Refill(wrong[0], RULE, wrong[1])


@pytest.mark.parametrize("turns", [0, 1])
def test_cut_trajectories_teach_the_sampler_nothing(turns: int) -> None:
    one, other = sampler(), sampler()
    cut = [
        rollout(
            [1.0] * turns, number=number, verdicts=[RIGHT] * turns, ended="cut", problem=EASY[0]
        )
        for number in range(20)
    ]
    one.record(cut)
    assert one.state_dict() == other.state_dict()
    fill = Refill(1, RULE)
    fill.add(cut)
    assert fill.missing == 1 and len(fill.discarded) == 20, "a group that was cut is refilled"
