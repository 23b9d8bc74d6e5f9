"""Credit: from episodes to one sample per turn, each with an advantage and a weight.

Two steps, both the same whatever backend takes the optimiser step: an estimator gives every turn
its advantage (`kernelgym_train.credit.estimators`), and a normaliser spreads weight over tokens,
such that the loss is ``-sum(weight * advantage * logp)`` over all tokens of all samples. Contract:

- returns are `kernelgym.Trajectory.returns`; nothing here discounts;
- a trajectory that is not valid, or was cut from outside, is in no baseline and gives no sample:
  the result is what it would be without it;
- a group without signal gives no samples either, see
  `kernelgym_train.credit.estimators.has_signal`;
- the order of the rollouts changes no digit.

docs/credit.md tells the bias of each choice. This module needs the standard library only; ratios
are clipped by the loss, not here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelgym.errors import UnknownName, UsageError
from kernelgym.types import GAMMA, ReturnVariant, return_variant
from kernelgym_train.credit.estimators import advantages, find_estimator, has_signal
from kernelgym_train.types import Key, Rollout, Sample

Normaliser = Literal["token", "sequence", "constant"]
"""Name of a rule by which weight is spread over tokens."""

NORMALISERS: tuple[Normaliser, ...] = ("token", "sequence", "constant")
"""Names of the rules by which weight is spread over tokens. For N samples in a step, ``token``:
each token weighs one by the number of all tokens. ``sequence``: each sample weighs 1/N, spread over
its tokens. ``constant``: each token weighs one by N times a constant number of tokens."""


@dataclass(frozen=True, slots=True)
class CreditRule:
    """Rule by which the returns of a step become advantages and weights.

    Raises:
        UsageError: If a name is unknown or a number out of range.
    """

    estimator: str = "trloo"
    """Estimator of advantages; a name from `kernelgym_train.credit.estimators.ESTIMATORS`."""
    normaliser: Normaliser = "token"
    """Rule of the tokens' weights; a name from `NORMALISERS`."""
    constant: int = 0
    """Number of tokens that the normaliser ``constant`` divides by, usually the largest length of
    an answer."""
    gamma: float = GAMMA
    """Discount factor over the turns of an episode."""
    returns: ReturnVariant = "sum"
    """Rule by which the scores from a turn on become its return; see `kernelgym.returns`."""

    def __post_init__(self) -> None:
        find_estimator(self.estimator)
        _check_normaliser(self.normaliser, self.constant)
        if not 0.0 <= self.gamma <= 1.0:
            raise UsageError(f"gamma must lie in [0, 1], got {self.gamma}")
        return_variant(self.returns)


@dataclass(frozen=True, slots=True)
class Credit:
    """Training samples of one step, and the rollouts that gave none."""

    samples: tuple[Sample, ...]
    """Training samples, in the order of their keys."""
    groups: int
    """Number of groups that gave samples."""
    flat: tuple[tuple[int, int], ...]
    """Groups whose returns do not differ, by `Key.group`; they give no samples."""
    left_out: int
    """Number of trajectories that do not count; see `counts`."""


def assign_credit(rollouts: Iterable[Rollout], rule: CreditRule) -> Credit:
    """Return the training samples of one step.

    Args:
        rollouts: Rollouts of the step, in any order.
        rule: Rule of advantages and weights.

    Raises:
        ValueError: If two rollouts have the same key, a group holds several problems, or an
            episode is not over.
    """
    groups: dict[tuple[int, int], list[Rollout]] = defaultdict(list)
    left_out = 0
    for rollout in _checked(rollouts):
        if counts(rollout):
            groups[rollout.key.group].append(rollout)
        else:
            left_out += 1
    flat: list[tuple[int, int]] = []
    graded: list[tuple[Rollout, tuple[float, ...]]] = []
    for name, group in groups.items():
        returns = group_returns(group, rule)
        if has_signal(rule.estimator, returns):
            graded += zip(group, advantages(rule.estimator, returns), strict=True)
        else:
            flat.append(name)
    lengths = [len(answer.ids) for each, _ in graded for answer in each.completions]
    weights = iter(token_weights(rule.normaliser, lengths, rule.constant))
    samples = tuple(
        Sample(
            each.key._replace(turn=turn),
            answer.prompt_ids,
            answer.ids,
            answer.logprobs,
            advantage,
            next(weights),
        )
        for each, credited in graded
        for turn, (answer, advantage) in enumerate(zip(each.completions, credited, strict=True))
    )
    return Credit(samples, len(groups) - len(flat), tuple(flat), left_out)


def counts(rollout: Rollout) -> bool:
    """Return True if a rollout counts in baselines and in the loss.

    It does not if the judge failed at one of its turns, if it was cut short (for example by a
    `kernelgym.PolicyFailure`), because its returns are too low then, or if it has no turn.
    """
    played = rollout.trajectory
    return played.valid and played.ended != "cut" and bool(played.turns)


def group_returns(rollouts: Iterable[Rollout], rule: CreditRule) -> list[tuple[float, ...]]:
    """Return the returns of those rollouts of one group that count, one per turn."""
    counting = (each.trajectory for each in rollouts if counts(each))
    return [played.returns(rule.gamma, rule.returns) for played in counting]


def token_weights(
    normaliser: Normaliser, lengths: Sequence[int], constant: int = 0
) -> tuple[float, ...]:
    """Return, for each sample of a step, the weight of each of its tokens.

    Args:
        normaliser: A name from `NORMALISERS`.
        lengths: Number of tokens of each sample.
        constant: Number of tokens that the normaliser ``constant`` divides by.

    Raises:
        UnknownName: If there is no such normaliser.
        UsageError: If the normaliser is ``constant`` and its number of tokens is below 1.
    """
    _check_normaliser(normaliser, constant)
    samples = len(lengths)
    if normaliser == "sequence":
        return tuple(1.0 / (samples * max(1, length)) for length in lengths)
    tokens = sum(lengths) if normaliser == "token" else samples * constant
    return (1.0 / max(1, tokens),) * samples


def _check_normaliser(normaliser: str, constant: int) -> None:
    if normaliser not in NORMALISERS:
        raise UnknownName("normaliser", normaliser, NORMALISERS)
    if normaliser == "constant" and constant < 1:
        raise UsageError(
            f"normaliser 'constant' divides by a number of tokens of at least 1, got {constant}; "
            "the most tokens that an answer may have is usual"
        )


def _checked(rollouts: Iterable[Rollout]) -> list[Rollout]:
    """Return the rollouts in the order of their keys."""
    ordered = sorted(rollouts, key=lambda rollout: rollout.key)
    seen: set[Key] = set()
    problems: dict[tuple[int, int], str] = {}
    for rollout in ordered:
        key, played = rollout.key, rollout.trajectory
        if key in seen:
            raise ValueError(f"two rollouts of a step have the same key {tuple(key)}")
        seen.add(key)
        if not played.ended:
            raise ValueError(f"episode {tuple(key)} is not over; its returns are not known yet")
        if problems.setdefault(key.group, played.problem.id) != played.problem.id:
            raise ValueError(
                f"group {key.group} holds {problems[key.group]!r} and {played.problem.id!r}; "
                "only episodes of one problem can be compared"
            )
    return ordered
