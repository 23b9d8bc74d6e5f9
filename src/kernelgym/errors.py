"""Errors that kernelgym raises for its callers.

The tree::

    KernelgymError
    |-- UsageError (also ValueError)     something the caller gave is wrong; exit code 2
    |   |-- UnknownName                  a name that is not in a known set of names
    |   |-- ProblemError                 a problem file or suite that cannot be used
    |   |   `-- DegenerateProblem        a problem that a worthless kernel passes
    |   `-- UnsupportedLanguage          a language the device or this machine cannot run
    |-- JudgeError                       the judge itself failed; becomes `unavailable`
    |   `-- DeviceFull                   for want of device memory
    `-- PolicyFailure                    a policy could not give one answer; its episode is cut

A model's mistake is never an exception: it is a `kernelgym.types.Verdict`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KernelgymError(Exception):
    """Base class of every error kernelgym raises on purpose."""


class UsageError(KernelgymError, ValueError):
    """Something the caller gave is wrong; the message says what, what is known, what to do."""


class UnknownName(UsageError):
    """A name that is not one of a known set.

    Args:
        what: Kind of thing that the name stands for, such as ``"problem"`` or ``"reward preset"``.
        given: The name that was given.
        known: The names that exist; of more than twenty, ten are listed in the message.
        hint: Sentence on what to do next; may be empty.
    """

    def __init__(self, what: str, given: object, known: Iterable[str], hint: str = "") -> None:
        self.what, self.given, self.known, self.hint = what, given, tuple(known), hint
        super().__init__(_unknown_name_message(what, given, self.known, hint))

    def __reduce__(self) -> tuple[type[UnknownName], tuple[object, ...]]:
        # Exceptions with more than one constructor argument do not pickle by themselves.
        return type(self), (self.what, self.given, self.known, self.hint)


class ProblemError(UsageError):
    """A problem file or a suite that cannot be used (unreadable, no `Model`, empty selection)."""


class DegenerateProblem(ProblemError):
    """A problem that a worthless kernel passes, or no honest one, asked for by its id."""


class UnsupportedLanguage(UsageError):
    """A kernel language that the device, or this machine's tools, cannot run."""


class JudgeError(KernelgymError):
    """The judge failed, not the kernel. Callers of an evaluator see `unavailable` instead."""


class PolicyFailure(KernelgymError):
    """A policy could not give one answer.

    A policy raises it for one request that failed through no fault of the model, such as one that a
    server dropped. That trajectory ends ``cut`` and counts nowhere; the others play on. What
    concerns every request (a server that is gone, a wrong key) is better raised as another error,
    which ends the play.
    """


def _unknown_name_message(what: str, given: object, known: tuple[str, ...], hint: str) -> str:
    close = difflib.get_close_matches(str(given), known, n=3, cutoff=0.6)
    listed = known if len(known) <= 20 else (*known[:10], f"... ({len(known)} in all)")
    parts = [f"unknown {what} {given!r}"]
    if close:
        parts.append(f"did you mean {' or '.join(close)}?")
    parts.append(f"known: {', '.join(listed) or 'none'}")
    return "; ".join(parts) + (f". {hint}" if hint else "")


class DeviceFull(JudgeError):
    """The trusted side found too little device memory for what it does itself."""
