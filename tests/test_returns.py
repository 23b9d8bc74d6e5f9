"""Returns: both variants by hand, what they promise, and that solving early never pays less."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UnknownName
from kernelgym.rewards import RewardPreset
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import (
    GAMMA,
    RETURN_VARIANTS,
    Ended,
    Kernel,
    Trajectory,
    Verdict,
    discounted_returns,
)
from support.strategies import as_turn, presets

scores = st.lists(st.floats(-10, 10), max_size=8)
gammas = st.floats(0, 1)
variants = st.sampled_from(RETURN_VARIANTS)


def close(one: object, other: object) -> bool:
    return one == pytest.approx(other, abs=1e-9)


@pytest.mark.parametrize(
    ("variant", "horizon", "returns"),
    [
        # Scores 0.3, 1.0, 0.5 at gamma 0.4, from the last turn to the first.
        ("sum", None, (0.3 + 0.4 * (1.0 + 0.4 * 0.5), 1.0 + 0.4 * 0.5, 0.5)),
        ("max", None, (0.4, 1.0, 0.5)),
        # Solved at turn 2 of 5: 0.5 twice more.
        ("sum", 5, (0.3 + 0.4 * (1.0 + 0.4 * 0.78), 1.0 + 0.4 * 0.78, 0.5 + 0.4 * (0.5 + 0.2))),
        ("max", 5, (0.4, 1.0, 0.5)),
    ],
)
def test_returns_by_hand(variant, horizon, returns) -> None:
    found = discounted_returns((0.3, 1.0, 0.5), 0.4, horizon=horizon, variant=variant)
    assert close(found, returns)


def test_a_later_penalty_is_never_better_than_its_turn() -> None:
    """Discounting moves a penalty towards 0, which must not make up for the one before it."""
    assert discounted_returns((-0.1, -0.1), 0.4, variant="max") == (-0.1, -0.1)
    assert close(discounted_returns((-0.1, 1.0), 0.4, variant="max"), (0.4, 1.0))
    assert close(discounted_returns((-0.1, -0.1), 0.4), (-0.14, -0.1))


def test_gamma_is_kevins_unless_it_is_given() -> None:
    turns = (as_turn(0, verdict("wrong"), 0.0), as_turn(1, verdict("correct"), 1.0))
    assert GAMMA == 0.4
    assert close(Trajectory(SAMPLE_PROBLEM, turns, "budget", 2).returns(), (0.4, 1.0))


@given(scores, variants)
def test_with_gamma_zero_every_turn_is_its_own_episode(values: list[float], variant: str) -> None:
    assert discounted_returns(values, 0.0, variant=variant) == tuple(values)
    assert discounted_returns(values, 0.0, horizon=20, variant=variant) == tuple(values)


@given(scores)
def test_with_gamma_one_returns_are_sums_or_maxima_of_what_is_left(values: list[float]) -> None:
    sums = tuple(math.fsum(values[t:]) for t in range(len(values)))
    assert close(discounted_returns(values, 1.0), sums)
    earned = [max(0.0, value) for value in values]
    most = tuple(max(earned[t:]) for t in range(len(earned)))
    assert discounted_returns(earned, 1.0, variant="max") == most


@given(scores, gammas)
def test_returns_follow_the_recursion(values: list[float], gamma: float) -> None:
    found = (*discounted_returns(values, gamma), 0.0)
    for t, value in enumerate(values):
        assert close(found[t], value + gamma * found[t + 1])


@given(scores, gammas)
def test_the_max_is_the_best_discounted_score(values: list[float], gamma: float) -> None:
    found = discounted_returns(values, gamma, variant="max")
    for t, value in enumerate(values):
        later = [gamma**k * v for k, v in enumerate(values[t:]) if gamma**k * v > 0.0]
        assert close(found[t], max([value, *later]))


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), max_size=8), gammas, gammas)
def test_sums_are_linear(pairs: list[tuple[float, float]], gamma: float, a: float) -> None:
    one = discounted_returns([x for x, _ in pairs], gamma)
    other = discounted_returns([y for _, y in pairs], gamma)
    mixed = discounted_returns([a * x + y for x, y in pairs], gamma)
    assert close(mixed, tuple(a * x + y for x, y in zip(one, other, strict=True)))


@given(scores, gammas, st.floats(0, 5), st.integers(0, 4))
def test_a_shift_of_the_scores_shifts_what_is_returned(
    values: list[float], gamma: float, by: float, more: int
) -> None:
    """By the same for every episode that is played, or credited, to the same horizon."""
    horizon = len(values) + more
    found = discounted_returns(values, gamma, horizon=horizon)
    shifted = discounted_returns([v + by for v in values], gamma, horizon=horizon)
    weights = [math.fsum(gamma**k for k in range(horizon - t)) for t in range(len(values))]
    assert close(shifted, tuple(r + by * w for r, w in zip(found, weights, strict=True)))
    earned = [max(0.0, value) for value in values]
    most = discounted_returns(earned, 1.0, variant="max")
    raised = discounted_returns([v + by for v in earned], 1.0, variant="max")
    assert close(raised, tuple(r + by for r in most))


@given(scores, scores, gammas, variants)
def test_what_came_before_a_turn_does_not_matter(
    before: list[float], values: list[float], gamma: float, variant: str
) -> None:
    found = discounted_returns([*before, *values], gamma, variant=variant)
    assert found[len(before) :] == discounted_returns(values, gamma, variant=variant)


@given(scores, gammas, variants, st.data())
def test_no_return_falls_as_a_score_rises(values, gamma, variant, data) -> None:
    raised = [v + data.draw(st.floats(0, 5)) for v in values]
    low = discounted_returns(values, gamma, variant=variant)
    high = discounted_returns(raised, gamma, variant=variant)
    assert all(a <= b + 1e-9 for a, b in zip(low, high, strict=True))


@given(scores.filter(bool), gammas, variants, st.integers(0, 4))
def test_an_absorbing_end_equals_playing_it_out(
    values: list[float], gamma: float, variant: str, more: int
) -> None:
    played_out = discounted_returns(values + [values[-1]] * more, gamma, variant=variant)
    absorbed = discounted_returns(values, gamma, horizon=len(values) + more, variant=variant)
    assert close(absorbed, played_out[: len(values)])


@pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan])
def test_gamma_out_of_range_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        discounted_returns([1.0], gamma)
    with pytest.raises(ValueError, match="gamma"):
        Trajectory(SAMPLE_PROBLEM).returns(gamma)


def test_an_unknown_variant_is_refused_with_the_known() -> None:
    with pytest.raises(UnknownName, match="sum, max"):
        discounted_returns([1.0], 0.4, variant="mean")  # type: ignore[arg-type]


def test_only_a_solved_trajectory_is_absorbing() -> None:
    turns = (as_turn(0, verdict("wrong"), 0.0), as_turn(1, verdict("correct"), 1.0))
    solved = Trajectory(SAMPLE_PROBLEM, turns, "solved", horizon=4)
    assert solved.returns(0.5) == (0.875, 1.75)
    assert solved.returns(0.5, "max") == (0.5, 1.0)
    others: tuple[Ended, ...] = ("budget", "no_improvement", "cut", "")
    for other in others:
        assert Trajectory(SAMPLE_PROBLEM, turns, other, horizon=4).returns(0.5) == (0.5, 1.0)


def play(found: list[Verdict], reward: RewardPreset, rule: str, max_turns: int) -> Trajectory:
    """Play an episode in which every answer is another kernel."""
    game = Episode(
        SAMPLE_PROBLEM,
        EpisodeConfig(language="triton", reward=reward, stop_when=rule, max_turns=max_turns),
    )
    for number, each in enumerate(found):
        if game.over:
            break
        text = reply(Kernel(f"{SAMPLE_KERNELS['triton'].source}\n# variant {number}\n", "triton"))
        game.read(text)
        game.record(text, each)
    return game.trajectory


FAILURES = (
    verdict("compile_error"),
    verdict("runtime_error"),
    verdict("timeout"),
    verdict("wrong"),
    verdict("wrong", trials_passed=3),
    verdict("rejected"),
)
failures = st.lists(st.sampled_from(FAILURES), max_size=2)


@settings(max_examples=300)
@given(
    reward=presets,
    gamma=gammas,
    variant=variants,
    rule=st.sampled_from(["correct", "never", "speedup:1.2"])
    | st.integers(1, 4).map("no_improvement:{}".format),
    first=failures,
    more=st.lists(st.sampled_from(FAILURES), min_size=1, max_size=3),
    horizon=st.integers(6, 8),
    speedup=st.floats(1.3, 20.0),
    share=st.floats(0, 1),
)
def test_solving_now_never_returns_less_than_solving_later(
    reward, gamma, variant, rule, first, more, horizon, speedup, share
) -> None:
    """Two episodes that fail alike at first; one is right earlier, and both then stay right."""
    solved = verdict("correct", speedup=speedup, custom_share=share)
    early = play(first + [solved] * horizon, reward, rule, horizon)
    late = play(first + more + [solved] * horizon, reward, rule, horizon)
    assume(late.ended != "no_improvement")  # otherwise it gave up before it was right
    pairs = list(zip(early.returns(gamma, variant), late.returns(gamma, variant), strict=False))
    if reward.weights.improvement:
        # Paid for what is gained, an episode that has its gain behind it is paid less from there
        # on; up to the turn at which it chose to be right, and that one, it is not.
        pairs = pairs[: len(first) + 1]
    for one, other in pairs:
        assert one >= other - 1e-9
