"""Rows to train on, from played episodes: supervised pairs and preference pairs.

The rows are what TRL takes as conversations: ``messages`` (`SFTTrainer`), ``prompt`` and
``completion`` (`SFTTrainer` with the loss on the answer only), ``prompt``, ``chosen`` and
``rejected`` (`DPOTrainer`), each a list of ``{"role", "content"}``. Beside them stand
``problem_id``, the values that decided, and in ``correct_means`` what a correct verdict said;
trainers leave those columns aside.

The prompt of a row is what the model had read before that turn. It is not in the file but made
again by the same pure `Observer`, and compared with the digest that was recorded; where they
differ (another version's prompt, a part that was added), the export is refused, since it would
teach answers to prompts that no model has read.

Answers that may be examples (a row holds the whole text of an answer, thinking included):

- a turn whose verdict is `unavailable` is left out;
- with values by return, so is an episode that was cut or could not be judged to its end;
- an unparsable or rejected answer is never an example, only ever the rejected side of a pair;
- nor is a wrong one, unless `ExportRules.wrong` is set, nor one whose form has defects, unless
  `ExportRules.untidy` is;
- in a pair a wrong answer is never preferred to a correct one, and the value of the chosen one is
  higher by at least `ExportRules.margin` (and always higher).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.observer import Observer, render
from kernelgym.records.observer_settings import recorded_observer
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.starting_kernel import meaning_of_correct
from kernelgym.types import (
    GAMMA,
    Kernel,
    Message,
    ReturnVariant,
    Severity,
    Status,
    Turn,
    return_variant,
    text_digest,
)

FORMATS = ("sft", "completions", "preferences")
"""Names of the kinds of rows that can be exported."""

Row = dict[str, Any]
ObserverOf = Callable[[EpisodeRecord], Observer]


@dataclass(frozen=True, slots=True)
class ExportRules:
    """Settings of an export: the answers that may be examples, and which of two is better."""

    by: Literal["score", "return"] = "score"
    """Value of an answer: its turn's score, or the discounted return from its turn on."""
    gamma: float = GAMMA
    """Discount factor, for values by return."""
    variant: ReturnVariant = "sum"
    """Variant of the returns."""
    least: float = -math.inf
    """Smallest value that an answer must have to be an example."""
    wrong: bool = False
    """Whether an answer whose kernel honestly failed may be an example."""
    untidy: bool = False
    """Whether an answer whose form has defects may be an example."""
    margin: float = 0.0
    """Smallest difference between the values of the two sides of a pair."""
    pairs: Literal["prompt", "problem"] = "prompt"
    """Text that the two sides of a pair share: all that was read before them, or only the problem.
    With ``problem``, the prompt is the problem's first one, which a later answer did not follow
    directly; that gives more pairs, further from what was played."""
    most: int | None = None
    """Largest number of examples for each problem, or of pairs for each prompt, the best first;
    None for all examples and one pair."""
    checked: bool = True
    """Whether to refuse a prompt whose digest differs from the recorded one."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("value", self.by, ("score", "return")),
            ("kind of pair", self.pairs, ("prompt", "problem")),
        ):
            if value not in known:
                raise UnknownName(name, value, known)
        return_variant(self.variant)
        if not 0.0 <= self.gamma <= 1.0:
            raise UsageError(f"gamma must lie in [0, 1], got {self.gamma}")
        if math.isnan(self.least):
            raise UsageError("least must be a number, got nan")
        if not 0.0 <= self.margin < math.inf:
            raise UsageError(f"margin must be finite and at least 0, got {self.margin}")
        if self.most is not None and self.most < 1:
            raise UsageError(f"most must be at least 1, got {self.most}")


@dataclass(frozen=True, slots=True)
class _Answer:
    record: EpisodeRecord
    turn: Turn
    value: float

    @property
    def correct(self) -> bool:
        return self.turn.verdict.correct

    @property
    def rank(self) -> tuple[bool, float]:
        return self.correct, self.value

    def beats(self, other: _Answer, margin: float) -> bool:
        gain = self.value - other.value
        return gain > 0.0 and gain >= margin and self.correct >= other.correct


def sft_rows(
    records: Iterable[EpisodeRecord],
    rules: ExportRules | None = None,
    observer_of: ObserverOf = recorded_observer,
) -> Iterator[Row]:
    """Yield ``{"messages", "problem_id", "turn", "value", "correct_means"}`` of every example.

    Args:
        records: The episodes, with their problems' sources.
        rules: Rules of which answers are examples; the defaults if None.
        observer_of: Function that returns the observer with which an episode was played.

    Raises:
        UsageError: If what was read cannot be made again.
    """
    for prompt, answer in _examples(records, rules or ExportRules(), observer_of):
        messages = [*_plain(prompt), _said(answer)]
        yield {"messages": messages, **_about(answer)}


def completion_rows(
    records: Iterable[EpisodeRecord],
    rules: ExportRules | None = None,
    observer_of: ObserverOf = recorded_observer,
) -> Iterator[Row]:
    """Yield ``{"prompt", "completion", ...}`` of every example; otherwise as `sft_rows`."""
    for prompt, answer in _examples(records, rules or ExportRules(), observer_of):
        yield {"prompt": _plain(prompt), "completion": [_said(answer)], **_about(answer)}


def preference_rows(
    records: Iterable[EpisodeRecord],
    rules: ExportRules | None = None,
    observer_of: ObserverOf = recorded_observer,
) -> Iterator[Row]:
    """Yield ``{"prompt", "chosen", "rejected", ...}``, with ids and values.

    Answers are compared where prompt, problem, language, device, ruleset and reward are the same.
    There the best example is paired with the worst answer that it beats, then the second best with
    the next, and so on; no answer is used twice, nor the same text.

    Args:
        records: The episodes, with their problems' sources.
        rules: Rules of which answers are examples and which make a pair; the defaults if None.
        observer_of: Function that returns the observer with which an episode was played.

    Raises:
        UsageError: If what was read cannot be made again.
    """
    rules = rules or ExportRules()
    groups: dict[tuple[tuple[Message, ...], tuple[str, ...]], list[_Answer]] = {}
    for record in records:
        observer = observer_of(record)
        for answer in _answers(record, rules):
            place = answer.turn.index if rules.pairs == "prompt" else 0
            prompt = read_before(record, place, observer, checked=rules.checked)
            same = (record.problem_digest, record.language, record.device, record.ruleset)
            groups.setdefault((prompt, (*same, record.reward)), []).append(answer)
    for (prompt, _), answers in groups.items():
        for chosen, rejected in _pairs(answers, rules):
            yield {
                "prompt": _plain(prompt),
                "chosen": [_said(chosen)],
                "rejected": [_said(rejected)],
                "problem_id": chosen.record.trajectory.problem.id,
                "value_chosen": chosen.value,
                "value_rejected": rejected.value,
                "correct_means": meaning_of_correct(chosen.record.trajectory.problem),
            }


def read_before(
    record: EpisodeRecord, turn: int, observer: Observer | None = None, *, checked: bool = True
) -> tuple[Message, ...]:
    """Return the messages that the model had read before a turn.

    Args:
        record: The episode, with its problem's source.
        turn: Index of the turn.
        observer: The observer it was played with; made from the record if None.
        checked: Whether the messages are compared with the recorded digest of what was read.

    Raises:
        UsageError: If it cannot be made again.
    """
    trajectory = record.trajectory
    problem = trajectory.problem
    if not record.has_source:
        raise UsageError(
            f"the record of an episode on {problem.id!r} holds no source of the problem; put it "
            "back with kernelgym.records.trajectories.with_source"
        )
    observer = observer or recorded_observer(record)
    start = Kernel(record.start, record.language) if record.start else None
    messages = observer.observe(problem, trajectory.turns[:turn], start=start)
    said = record.observations[turn] if checked and record.observations else ""
    if said and said != text_digest(render(messages)):
        raise UsageError(
            f"what was read before turn {turn + 1} of an episode on {problem.id!r} is not what "
            "its observer shows now: it was played by another version of kernelgym, or something "
            "was added to its prompts; give the observer it was played with, or do without the "
            "check (ExportRules(checked=False), --unchecked)"
        )
    return messages


def _answers(record: EpisodeRecord, rules: ExportRules) -> Iterator[_Answer]:
    """Yield the answers from which something about the model can be learned, with their values."""
    trajectory = record.trajectory
    by_return = rules.by == "return"
    if by_return and (trajectory.ended == "cut" or not trajectory.valid):
        return  # what would have followed is missing from the returns
    returns = trajectory.returns(rules.gamma, rules.variant)
    values = returns if by_return else trajectory.scores
    for turn, value in zip(trajectory.turns, values, strict=True):
        if turn.verdict.valid and turn.score.valid and _is_sound(turn.action):
            yield _Answer(record, turn, value)


def _is_example(answer: _Answer, rules: ExportRules) -> bool:
    reply, verdict = answer.turn.reply, answer.turn.verdict
    if reply.kernel is None or verdict.status in (Status.NO_KERNEL, Status.REJECTED):
        return False
    if any(finding.severity is Severity.HARD for finding in verdict.findings):
        return False
    if (reply.defects and not rules.untidy) or not (verdict.correct or rules.wrong):
        return False
    return answer.value >= rules.least


def _examples(
    records: Iterable[EpisodeRecord], rules: ExportRules, observer_of: ObserverOf
) -> Iterator[tuple[tuple[Message, ...], _Answer]]:
    """Yield the examples in the order of play; by problem if `most` limits their number."""
    seen: set[tuple[tuple[Message, ...], str]] = set()
    kept = (a for record in records for a in _answers(record, rules) if _is_example(a, rules))
    for answer in kept if rules.most is None else _best_per_problem(kept, rules.most):
        observer = observer_of(answer.record)
        place = answer.turn.index
        prompt = read_before(answer.record, place, observer, checked=rules.checked)
        if (prompt, answer.turn.action) not in seen:
            seen.add((prompt, answer.turn.action))
            yield prompt, answer


def _best_per_problem(answers: Iterable[_Answer], most: int) -> Iterator[_Answer]:
    by_problem: dict[str, dict[str, _Answer]] = {}
    for answer in answers:
        known = by_problem.setdefault(answer.record.problem_digest, {})
        known.setdefault(answer.turn.action, answer)
    for known in by_problem.values():
        yield from sorted(known.values(), key=lambda answer: answer.rank, reverse=True)[:most]


def _pairs(answers: Iterable[_Answer], rules: ExportRules) -> Iterator[tuple[_Answer, _Answer]]:
    texts: dict[str, _Answer] = {}
    for answer in answers:
        texts.setdefault(answer.turn.action, answer)
    best_first = sorted(texts.values(), key=lambda answer: answer.rank, reverse=True)
    worst_first = sorted(texts.values(), key=lambda answer: answer.rank)
    used: set[str] = set()
    left = 1 if rules.most is None else rules.most
    for chosen in best_first:
        if not left or chosen.turn.action in used or not _is_example(chosen, rules):
            continue
        for rejected in worst_first:
            if rejected.turn.action not in used and chosen.beats(rejected, rules.margin):
                used |= {chosen.turn.action, rejected.turn.action}
                left -= 1
                yield chosen, rejected
                break


def _about(answer: _Answer) -> Row:
    problem_id = answer.record.trajectory.problem.id
    return {
        "problem_id": problem_id,
        "turn": answer.turn.index,
        "value": answer.value,
        "correct_means": meaning_of_correct(answer.record.trajectory.problem),
    }


def _plain(messages: Iterable[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _said(answer: _Answer) -> dict[str, str]:
    return {"role": "assistant", "content": answer.turn.action}


def _is_sound(text: str) -> bool:
    """Return True if a text has no lone surrogates, so that a tokenizer can take it."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
