"""Feedback for a model on its last answer: facts, and one hint.

Contract: `feedback` is deterministic and bounded: its text never exceeds the budget in tokens,
and what is cut is cut in the middle, where compilers say least. It is a function of verdict and
reply, so nothing can be in it that the verdict does not hold; of what that holds, the secret seed
is never told, and a level decides about the rest:

- ``minimal``: what happened, with the first error's own line, or the speedup. Nothing about the
  values of a wrong output but how many calls failed.
- ``standard``: where an output is wrong (places, sizes to one digit, the kind of error), every
  error with the line of the candidate's source, what the kernel printed, times, bandwidth.
- ``profile``: the same, and figures for tuning; findings for information.

Categories are in `kernelgym.feedback.categories`.

The room may import the nouns and `answers`.
"""

from __future__ import annotations

import dataclasses
import re

from kernelgym.answers.parsing import DEFECTS
from kernelgym.errors import UnknownName, UsageError
from kernelgym.feedback.categories import CATEGORIES, category, headline, hint
from kernelgym.feedback.error_locations import complaints_of, without_noise
from kernelgym.feedback.facts import (
    figures,
    notes,
    places_told,
    speed_facts,
    trial_facts,
    wrong_facts,
)
from kernelgym.tokens import TokenCounter, cut_middle, estimate_tokens, fit
from kernelgym.types import Feedback, Reply, Severity, Status, Verdict

__all__ = [
    "CATEGORIES",
    "FEEDBACK_TOKENS",
    "LEVELS",
    "category",
    "check_budget",
    "check_level",
    "cut_middle",
    "feedback",
]

LEVELS = ("minimal", "standard", "profile")
"""Levels of detail of a feedback, the least first."""
FEEDBACK_TOKENS = 1_000
"""Default largest number of tokens of one feedback."""
_LEAST_TOKENS = 100
_COMPLAINTS = 5
_LEAST_LOG_TOKENS = 30
_GIST_CHARS = 160
_CALLS_FAILED = re.compile(r"^\d{1,9} of \d{1,9} calls failed; ")
_EXTENSION = "the extension did not compile: "
_FAILED = (Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT)


def check_level(name: str) -> str:
    """Return `name` if it is a level.

    Raises:
        UnknownName: If it is not.
    """
    if name not in LEVELS:
        raise UnknownName("feedback level", name, LEVELS)
    return name


def check_budget(tokens: int) -> int:
    """Return `tokens` if it is enough for a feedback.

    Raises:
        UsageError: If it cannot.
    """
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < _LEAST_TOKENS:
        raise UsageError(f"feedback_tokens is at least {_LEAST_TOKENS}, got {tokens!r}")
    return tokens


def feedback(
    verdict: Verdict,
    reply: Reply,
    *,
    level: str = "standard",
    budget: int = FEEDBACK_TOKENS,
    count: TokenCounter = estimate_tokens,
) -> Feedback:
    """Return the feedback on an answer: its outcome, the details, and a hint.

    Args:
        verdict: The judge's verdict.
        reply: Kernel, thinking and defects that were read from the model's text.
        level: Level of detail: ``minimal``, ``standard`` or ``profile``.
        budget: Largest number of tokens of ``str(feedback)``; at least 100.
        count: Function that counts a text's tokens; four characters are one by default.

    Raises:
        UsageError: If the level is unknown or the budget too small.
    """
    check_level(level)
    check_budget(budget)
    kind = category(verdict)
    first, last = headline(kind, verdict), hint(kind, verdict, level != "minimal")
    detail = "\n".join(_facts(verdict, reply, kind, level))
    log = _log(verdict, reply) if level != "minimal" else ""
    gist = _gist(verdict, reply, kind, level)
    room = budget - count(f"{first}\n\n\n\n{last}")
    while True:
        told = fit(detail, room, count)
        # The log gets what is left; below a few lines' worth it would only confuse.
        left = room - count(told) - 5
        if log and left >= _LEAST_LOG_TOKENS:
            told = "\n\n".join(part for part in (told, "Output:\n" + fit(log, left, count)) if part)
        found = Feedback(kind, first, told, last, gist)
        if (over := count(str(found)) - budget) <= 0:
            return found
        if room <= 0:  # a tokenizer with very short tokens
            return Feedback(kind, fit(first, budget, count), gist=gist)
        room -= over  # tokens do not add up over pieces of text


def _facts(verdict: Verdict, reply: Reply, kind: str, level: str) -> list[str]:
    """Return the lines between headline and hint, the most informative first."""
    minimal = level == "minimal"
    lines = trial_facts(verdict)
    if verdict.correct:
        lines = speed_facts(verdict) + lines if not minimal else lines
        lines += figures(verdict) if level == "profile" else []
    elif verdict.status is Status.WRONG and kind == "numerics":
        lines += [] if minimal else wrong_facts(verdict)
        if verdict.mismatch is None and not minimal and verdict.message:
            lines.append(without_noise(_message(verdict)))
    elif verdict.status in _FAILED:
        lines += _errors(verdict, reply, minimal)
    elif verdict.status is not Status.NO_KERNEL:
        message = _message(verdict)
        lines.append(_first_line(message) if minimal else without_noise(message))
    least = {"minimal": Severity.HARD, "standard": Severity.SOFT, "profile": Severity.INFO}[level]
    known = tuple(found for found in verdict.findings if found.message not in lines)
    lines += notes(known, least)
    if verdict.status is Status.NO_KERNEL or not verdict.correct:
        lines += [f"Form: {DEFECTS.get(code, code)}." for code in reply.defects]
    return [line for line in lines if line]


def _errors(verdict: Verdict, reply: Reply, minimal: bool) -> list[str]:
    found = complaints_of(verdict, reply.kernel.source if reply.kernel else "")
    if found and verdict.message.startswith(_EXTENSION) and _EXTENSION not in found[0].text:
        first = dataclasses.replace(found[0], text=_EXTENSION + found[0].text)
        found = (first, *found[1:])
    if minimal:
        return [_first_line(complaint.text) for complaint in found[:1]]
    lines = [str(complaint) for complaint in found[:_COMPLAINTS]]
    if len(found) > _COMPLAINTS:
        lines.append(f"... and {len(found) - _COMPLAINTS} more errors.")
    return lines


def _gist(verdict: Verdict, reply: Reply, kind: str, level: str) -> str:
    """Return an answer's outcome in a few words, with no more detail than the level allows."""
    if verdict.correct:
        return ""
    told = ""
    if kind == "numerics":
        told = places_told(verdict) if level != "minimal" else ""
        told = told or f"{verdict.trials_passed} of {verdict.trials} calls passed"
    elif verdict.status in _FAILED:
        told = "".join(_errors(verdict, reply, True))
    else:
        told = _first_line(_message(verdict))
    return cut_middle(" ".join(told.split()), _GIST_CHARS)


def _log(verdict: Verdict, reply: Reply) -> str:
    """Return the kernel's further output; nothing if the compiler's errors are shown already."""
    if verdict.correct:
        return ""
    log = verdict.log.strip()
    if verdict.status is Status.COMPILE_ERROR:
        source = reply.kernel.source if reply.kernel else ""
        told = [complaint.text for complaint in complaints_of(verdict, source)]
        if any(text in log for text in told):
            return ""
    return without_noise(log)


def _message(verdict: Verdict) -> str:
    """Return a verdict's message, without the number of failed calls if that is told already."""
    return _CALLS_FAILED.sub("", verdict.message, count=1)


def _first_line(text: str) -> str:
    return cut_middle(text.strip().partition("\n")[0], 400)
