"""Guards: alarms about the health of a run, from the numbers of its last steps.

Contract: `check_guards` is a pure function of a window of `StepHealth`, the newest last. A number
that is not available is None, never 0, and a guard that lacks its numbers gives no alarm, or, for
the guard ``gap``, one with the action ``off``. Each alarm has the numbers that it rests on and an
action: warn, stop, or roll back to the last good checkpoint. A rollback changes
the learning rate and the seed: replaying the same steps would lead to the same place.

This module reads no file, measures nothing and stops no run; the training loop does. Some signals
are those that rose before a collapse of Kevin-32B (arXiv 2507.11948), others are from other runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

Action = Literal["off", "warn", "stop", "rollback"]
"""Reaction of a run to an alarm."""
ACTIONS: tuple[Action, ...] = get_args(Action)
"""Reactions, the mildest first."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""

_NGRAM = 4


@dataclass(frozen=True, slots=True)
class StepHealth:
    """Numbers of one step that guards read; None where one is not available."""

    step: int
    """Number of the step, from 0."""
    groups: int = 0
    """Number of groups played, refills included."""
    groups_with_signal: int = 0
    """Number of groups whose returns differ."""
    opening_share: float | None = None
    """Share of answers that begin with the usual token; see `opening_share`."""
    repetition: float | None = None
    """Mean over the answers of the share of repeated 4-grams; see `repetition`."""
    answer_tokens: float | None = None
    """Mean number of tokens of an answer."""
    entropy: float | None = None
    """Mean entropy of the policy per token, in nats."""
    logprob_gap: float | None = None
    """Mean absolute difference of the sampler's and the learner's log-probabilities of the same
    tokens, at the same weights, in nats."""
    answers: int = 0
    """Number of answers that were requested."""
    failures: int = 0
    """Number of answers that the policy failed to give (`kernelgym.PolicyFailure`), or whose
    verdict is `unavailable`: failures of the machinery, not of the model."""
    filters: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Number of answers that each filter decided on and that it passed, by the filter's name
    (`kernelgym_train.metrics.filter_counts.FILTERS`)."""


@dataclass(frozen=True, slots=True)
class GuardRules:
    """Thresholds and actions of the guards.

    `kernelgym_train.config.config.load_config` checks the values against the types of the fields.
    """

    window: PositiveInt = 10
    """Number of latest steps that guards examine together."""
    baseline: PositiveInt = 5
    """Number of first steps, of the run or after a rollback, that later ones are compared with."""
    no_signal: Action = "warn"
    """Action if no group of a whole window has differing returns, so that nothing is learned."""
    collapse: Action = "warn"
    """Action if answers begin otherwise than before, repeat themselves, grow or shrink, or if their
    entropy runs out."""
    opening_drop: Share = 0.4
    """Largest drop, against the first steps, in the share of answers with the usual first token."""
    most_repetition: Share = 0.5
    """Largest share of an answer that may repeat earlier parts of it."""
    length_ratio: Annotated[float, Field(gt=1)] = 3.0
    """Largest factor by which the mean answer length may grow or shrink against the first steps."""
    least_entropy: NonNegativeFloat = 0.001
    """Smallest entropy of the policy per token, in nats."""
    gap: Action = "warn"
    """Action if sampler and learner disagree about the probabilities of sampled tokens."""
    most_gap: PositiveFloat = 0.1
    """Largest mean difference between the log-probabilities of sampler and learner, in nats."""
    infrastructure: Action = "stop"
    """Action if too many answers were not given, or not judged."""
    most_failures: Share = 0.2
    """Largest share of a window's answers that may be missing or unjudged."""
    filters: Action = "warn"
    """Action if a filter lets almost none of the answers through that it decided on."""
    least_passed: Share = 0.05
    """Smallest share of a window's answers that each filter should let through. A filter that has
    decided on fewer answers than the inverse of this share (20) raises no alarm."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Alarm of one guard, or a note that the guard lacks its numbers."""

    guard: str
    """Name of the guard, such as ``no_signal`` or ``collapse/length``."""
    action: Action
    """Action of the run; ``off`` if the guard lacks its numbers, which is logged once."""
    message: str
    """Message of one line, with the numbers."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the alarm is based on, by name."""


def check_guards(
    rules: GuardRules, history: Sequence[StepHealth], *, first: Sequence[StepHealth] = ()
) -> tuple[Alarm, ...]:
    """Return the alarms of the newest steps, the gravest action first.

    Args:
        rules: Thresholds and actions of the guards.
        history: Numbers of the run's steps so far, or at least of its last window.
        first: Numbers of the first steps, the baseline; empty to take those of `history`.
    """
    recent = list(history)[-rules.window :]
    if not recent:
        return ()
    start = (list(first) or list(history))[: rules.baseline]
    found = [
        *_no_signal(rules, recent),
        *_collapse(rules, recent, start),
        *_gap(rules, recent),
        *_infrastructure(rules, recent),
        *_filters(rules, recent),
    ]
    return tuple(sorted(found, key=lambda alarm: -_GRAVITY[alarm.action]))


_GRAVITY = {"off": 0, "warn": 1, "rollback": 2, "stop": 3}


def _no_signal(rules: GuardRules, recent: Sequence[StepHealth]) -> list[Alarm]:
    groups = sum(step.groups for step in recent)
    if rules.no_signal == "off" or len(recent) < rules.window or not groups:
        return []
    if any(step.groups_with_signal for step in recent):
        return []
    message = (
        f"in {len(recent)} steps none of {groups} groups had returns that differ: nothing is "
        "learned; take easier or harder problems, more trajectories or a higher temperature"
    )
    return [Alarm("no_signal", rules.no_signal, message, {"groups": groups, "steps": len(recent)})]


def _collapse(
    rules: GuardRules, recent: Sequence[StepHealth], start: Sequence[StepHealth]
) -> list[Alarm]:
    if rules.collapse == "off":
        return []
    found = []

    def alarm(guard: str, message: str, **numbers: float) -> None:
        found.append(Alarm(f"collapse/{guard}", rules.collapse, message, numbers))

    # The last step is compared, not the window's mean, in which a fall would show too late.
    now = recent[-1]
    compared = len(start) == rules.baseline and now.step > start[-1].step
    opened = _mean([step.opening_share for step in start])
    if compared and opened is not None and now.opening_share is not None:
        drop = opened - now.opening_share
        if drop > rules.opening_drop:
            alarm(
                "opening",
                f"{now.opening_share:.0%} of answers begin as usual, {opened:.0%} did at first",
                now=now.opening_share,
                first=opened,
            )
    length = _mean([step.answer_tokens for step in start])
    if compared and length and now.answer_tokens is not None:
        ratio = now.answer_tokens / length
        if not 1.0 / rules.length_ratio <= ratio <= rules.length_ratio:
            alarm(
                "length",
                f"answers have {now.answer_tokens:.0f} tokens, {length:.0f} at first",
                now=now.answer_tokens,
                first=length,
            )
    if now.repetition is not None and now.repetition > rules.most_repetition:
        alarm("repetition", f"{now.repetition:.0%} of an answer is repetition", now=now.repetition)
    if now.entropy is not None and not now.entropy >= rules.least_entropy:
        alarm("entropy", f"the policy's entropy is {now.entropy:.2g} nats a token", now=now.entropy)
    return found


def _gap(rules: GuardRules, recent: Sequence[StepHealth]) -> list[Alarm]:
    if rules.gap == "off":
        return []
    known = [step.logprob_gap for step in recent if step.logprob_gap is not None]
    gap = _mean(known)
    if gap is None:
        message = "not available: the sampler tells no log-probabilities"
        return [Alarm("gap", "off", message)]
    if gap <= rules.most_gap:  # NaN is not below: it gives an alarm
        return []
    message = (
        f"sampler and learner differ by {gap:.3g} in the log-probability of a sampled token; is "
        "the adapter that is trained the one that samples?"
    )
    return [Alarm("gap", rules.gap, message, {"gap": gap, "steps": len(known)})]


def _infrastructure(rules: GuardRules, recent: Sequence[StepHealth]) -> list[Alarm]:
    answers = sum(step.answers for step in recent)
    failures = sum(step.failures for step in recent)
    if rules.infrastructure == "off" or failures <= rules.most_failures * answers:
        return []
    message = (
        f"{failures} of {answers} answers were not given or not judged, through no fault of the "
        "model; see the warnings of the policy and the messages of the verdicts"
    )
    numbers = {"failures": failures, "answers": answers}
    return [Alarm("infrastructure", rules.infrastructure, message, numbers)]


_REMEDIES = {
    "invalid": "see the warnings of the policy and the messages of unavailable verdicts",
    "parsing": "read some answers in trajectories.jsonl, and the prompt's form of an answer",
    "policy": "see finding/CODE for the rule that refuses them",
    "evidence": "see finding/CODE; the model may leave the work to torch",
    "timing": "correct kernels earn nothing for speed; see the messages of their verdicts",
    "zero_variance": "take easier or harder problems, more trajectories or a higher temperature",
}
"""Advice, by filter, for a filter that lets almost nothing through."""


def _filters(rules: GuardRules, recent: Sequence[StepHealth]) -> list[Alarm]:
    if rules.filters == "off":
        return []
    found = []
    for name in dict.fromkeys(name for step in recent for name in step.filters):
        seen, passed = (sum(step.filters.get(name, (0, 0))[at] for step in recent) for at in (0, 1))
        if passed >= rules.least_passed * seen or seen * rules.least_passed < 1.0:
            continue
        message = (
            f"the filter {name} lets {passed} of {seen} answers through; "
            f"{_REMEDIES.get(name, 'see its metrics')}"
        )
        numbers = {"passed": float(passed), "seen": float(seen)}
        found.append(Alarm(f"filter/{name}", rules.filters, message, numbers))
    return found


def opening_share(answers: Sequence[Sequence[int]], usual: int | None = None) -> float | None:
    """Return the share of answers that begin with the usual token.

    Args:
        answers: Token ids of each.
        usual: Id of the usual token; None for the most common first token of these answers.

    Returns:
        The share, from 0 to 1; None if there are no answers.
    """
    first = Counter(ids[0] for ids in answers if ids)
    if not first:
        return None
    common = first.most_common(1)[0][1] if usual is None else first[usual]
    return common / first.total()


def repetition(ids: Sequence[int]) -> float:
    """Return the share of an answer's 4-grams that occurred in it before; 0 if it is shorter."""
    grams = [tuple(ids[start : start + _NGRAM]) for start in range(len(ids) - _NGRAM + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    # Divided before they are added: the sum of readings near the largest float would overflow.
    return sum(value / len(known) for value in known) if known else None
