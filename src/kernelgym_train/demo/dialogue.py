"""What the demonstration's model reads and writes, short: questions, answers, feedback.

Contract: pure text. `compact` keeps what a module computes and drops what a small model would pay
tokens for; `brief` keeps what kernelgym's feedback says about the kind of failure and drops the
figures, so that a kernel's label decides its text. The same functions serve the warm start and the
episodes, or the model would read in training what it never read before.

Nothing here judges, and what a label's feedback says is true only if the label is.
"""

from __future__ import annotations

import re

from kernelgym.feedback import feedback
from kernelgym.parsing import parse
from kernelgym.types import Feedback, Message, Problem, Status, Verdict

__all__ = ["answer_of", "brief", "compact", "question", "retry", "told"]

_TASK = "Write ModelNew with Triton kernels."
_AGAIN = "Write it again without the fault."
_DOC = re.compile(r'^\s*""".*"""$')
_BARE_INIT = re.compile(
    r"    def __init__\(self\):\n        super\(\)\.__init__\(\)\n(?!        self\.)"
)
_KERNEL = re.compile(r"^def (([a-z]+)_\w+)_kernel\(", re.MULTILINE)
_FIRST_CLAUSE = re.compile(r"^(\w+: [^:]+|[^:]+)")
_MISSPELT = re.compile(r"tl\.store\(.*, (result_\w+)")


def compact(source: str) -> str:
    """Return a module without blank lines, docstrings and constructors that hold nothing.

    Functions around a kernel lose what their names say of the operator.
    """
    lines = [line for line in source.splitlines() if line.strip() and not _DOC.match(line)]
    short = _BARE_INIT.sub("", "".join(f"{line}\n" for line in lines))
    for name, first in set(_KERNEL.findall(short)):
        short = re.sub(rf"\b{name}(?=_kernel\b|\()", first, short)
    return short


def question(problem: Problem) -> tuple[Message, ...]:
    """Return what the model reads first: the task and the reference."""
    reference, _, rest = compact(problem.source).partition("import torch.nn.functional as F\n")
    return (Message("user", f"{_TASK}\n{rest or reference}"),)


def answer_of(source: str) -> str:
    """Return an answer that holds a module."""
    return f"<KERNEL>\n{compact(source)}</KERNEL>"


def brief(said: Feedback) -> str:
    """Return a feedback's kind of failure and hint, without figures.

    Of an error, its type and first clause are kept; of a wrong output, nothing beyond that.
    """
    lines = [said.headline]
    if said.category not in ("numerics", "shape", "success", "slow"):
        clause = _FIRST_CLAUSE.match(said.detail.partition("\n")[0])
        lines += [clause[0].strip()] if clause else []
    return "\n".join([*lines, said.hint])


def retry(said: Feedback) -> Message:
    """Return what the model reads after a failed answer."""
    return Message("user", f"{brief(said)}\n{_AGAIN}")


def told(answer: str, status: Status) -> Feedback:
    """Return the feedback that an answer's label gets, at the level ``minimal``.

    Only what the label decides is in it; `brief` of it is `brief` of the judge's.

    Args:
        answer: A text with a broken kernel, as `answer_of` returns it.
        status: Its label: ``wrong``, or ``runtime_error`` for a name that does not exist or an
            access beyond a tensor's end.

    Raises:
        ValueError: If the label decides no feedback.
    """
    reply = parse(answer, "triton")
    if status is Status.WRONG:
        verdict = Verdict(status, compiled=True, trials=1, max_abs_error=1.0, message="wrong")
    elif status is Status.RUNTIME_ERROR:
        missing = _MISSPELT.search(answer)
        message = "IndexError: out-of-bounds load"
        if missing:
            message = f"NameError: name {missing[1]!r} is not defined"
        verdict = Verdict(status, compiled=True, trials=1, message=message)
    else:
        raise ValueError(f"the label {status.value} alone does not decide a feedback")
    return feedback(verdict, reply, level="minimal", budget=200)
