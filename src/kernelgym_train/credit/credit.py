"""Credit: from episodes to one sample per turn, each with an advantage and a weight.

Two steps, both the same whatever backend takes the optimiser step: an estimator gives every turn
its advantage (`kernelgym_train.credit.estimators`), and a normaliser spreads weight over tokens,
such that
the loss is ``-sum(weight * advantage * logp)`` over all tokens of all samples. Contract:

- returns are `kernelgym.Trajectory.returns`; nothing here discounts;
- a trajectory that is not valid, or was cut from outside, is in no baseline and gives no sample:
  the result is what it would be without it;
- a group without signal gives no samples either, see
  `kernelgym_train.credit.estimators.has_signal`;
- the order of the rollouts changes no digit.

Bias of each choice: docs/credit.md. It needs the standard library only, and clips no ratio:
that is the loss's business.
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
"""Rules by which weight is spread over tokens."""

NORMALISERS: tuple[Normaliser, ...] = ("token", "sequence", "constant")
"""Names of the rules. For N samples in a step, ``token``: each token weighs one by the number of
all tokens. ``sequence``: each sample weighs 1/N, spread over its tokens. ``constant``: each token
weighs one by N times a constant number of tokens."""


@dataclass(frozen=True, slots=True)
class CreditRule:
    """How returns become advantages and weights.

    Raises:
        UsageError: If a name is unknown or a number out of range.
    """

    estimator: str = "trloo"
    """A name from `kernelgym_train.credit.estimators.ESTIMATORS`."""
    normaliser: Normaliser = "token"
    """A name from `NORMALISERS`."""
    constant: int = 0
    """Tokens that ``constant`` divides by; the most that an answer may have is usual."""
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
    """What is learned from the rollouts of one step, and what was left out."""

    samples: tuple[Sample, ...]
    """In the order of their keys."""
    groups: int
    """Groups that gave samples."""
    flat: tuple[tuple[int, int], ...]
    """Groups without signal, by `Key.group`."""
    left_out: int
    """Trajectories that do not count, see `counts`."""


def assign_credit(rollouts: Iterable[Rollout], rule: CreditRule) -> Credit:
    """Return the samples of one step.

    Args:
        rollouts: What was played, in any order.
        rule: How credit is given.

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
    """Return whether a rollout is in baselines and in the loss.

    It is not if something of ours went wrong with a turn of it, if it was cut from outside, such as
    by a `kernelgym.PolicyFailure` (its returns are too low then), or if no turn was played.
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
        lengths: How many tokens each sample has.
        constant: Tokens that ``constant`` divides by.

    Raises:
        UnknownName: If there is no such normaliser.
        UsageError: If ``constant`` is not given its number.
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
            raise ValueError(f"two rollouts have the key {tuple(key)}")
        seen.add(key)
        if not played.ended:
            raise ValueError(f"episode {tuple(key)} is not over; its returns are not known yet")
        if problems.setdefault(key.group, played.problem.id) != played.problem.id:
            raise ValueError(
                f"group {key.group} holds {problems[key.group]!r} and {played.problem.id!r}; "
                "only episodes of one problem can be compared"
            )
    return ordered
