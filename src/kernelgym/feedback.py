"""What a model is told about its last answer.

Contract: `feedback` is deterministic and bounded: its text never exceeds the budget, and what is
cut is cut in the middle, where compilers say least. It tells sizes of errors, never the values
that were expected, which would let a model write the answer down.

Categories: ``format, policy, compile, runtime, memory, timeout, shape, dtype, numerics, slow,
success, infrastructure``.
"""

from __future__ import annotations

import re

from kernelgym.errors import UsageError
from kernelgym.parsing import DEFECTS
from kernelgym.types import Feedback, Finding, Reply, Severity, Status, Verdict

__all__ = ["CATEGORIES", "FEEDBACK_CHARS", "category", "cut_middle", "feedback"]

FEEDBACK_CHARS = 4_000
"""Default budget of one feedback, in characters."""
_LEAST_CHARS = 400

_HINTS = {
    "format": "Answer with one complete module that defines class ModelNew, inside "
    "<KERNEL> and </KERNEL>.",
    "policy": "Do the computation in a kernel of your own, leave the inputs as they are, and do "
    "without what the notes object to.",
    "compile": "Fix the first error; later ones often follow from it. Check names, imports, "
    "signatures and brackets.",
    "runtime": "Check indices, masks at the edges, argument types and the launch configuration.",
    "memory": "Use less memory: smaller blocks, fewer temporaries, and no copies of the inputs.",
    "timeout": "Look for loops that never end or do too little work per step.",
    "shape": "Allocate the output with the reference's shape, computed from the inputs.",
    "dtype": "Return the reference's dtype; convert after accumulating, not before.",
    "numerics": "Check masks at the edges, the reduction axis, constants, and that sums are "
    "accumulated in fp32.",
    "slow": "It is correct; now move less memory: fuse passes, read contiguously, give each "
    "program more work.",
    "success": "Keep it correct while you look for a faster version.",
    "infrastructure": "Nothing was learned about your kernel; it is not counted against you.",
}
CATEGORIES = tuple(_HINTS)
"""Every category a feedback can have."""

_BY_STATUS = {
    Status.NO_KERNEL: "format",
    Status.REJECTED: "policy",
    Status.COMPILE_ERROR: "compile",
    Status.RUNTIME_ERROR: "runtime",
    Status.TIMEOUT: "timeout",
    Status.WRONG: "numerics",
    Status.UNAVAILABLE: "infrastructure",
}
_HEADLINES = {
    "format": "No kernel could be read from your answer.",
    "policy": "Your kernel broke a rule.",
    "compile": "Your kernel did not compile or load.",
    "runtime": "Your kernel failed while running.",
    "memory": "Your kernel ran out of memory.",
    "timeout": "Your kernel was still running at its deadline and was stopped.",
    "shape": "Your kernel returned an output of the wrong shape.",
    "dtype": "Your kernel returned an output of the wrong dtype.",
    "numerics": "Your kernel runs, but its output is wrong.",
    "infrastructure": "The judge failed; your kernel was not judged.",
}

# The message is bounded before it is searched, and no pattern nests repetitions.
_MEMORY = re.compile(
    r"out of memory|memoryerror|bad_alloc|can't allocate memory|cannot allocate memory"
    r"|memory limit|exceeded .{0,40}memory",
    re.IGNORECASE,
)
_SHAPE = re.compile(r"\bshapes?\b|size mismatch|size of tensor|\bdimensions?\b", re.IGNORECASE)
_DTYPE = re.compile(
    r"\bdtypes?\b|\bscalar ?type\b|data type|expected .{0,20}\b(?:float|double|half|int|long)\b",
    re.IGNORECASE,
)
_MUTATION = re.compile(r"changed (?:its |an |the )?inputs?\b", re.IGNORECASE)


def category(verdict: Verdict) -> str:
    """Return the category of a verdict, one of `CATEGORIES`."""
    if verdict.correct:
        return "slow" if verdict.timed and verdict.speedup < 1.0 else "success"
    if verdict.status is Status.UNAVAILABLE or verdict.status is Status.REJECTED:
        return _BY_STATUS[verdict.status]
    message = verdict.message[:2_000]
    if verdict.status is Status.RUNTIME_ERROR and _MEMORY.search(message):
        return "memory"
    if verdict.status is Status.WRONG and _MUTATION.search(message):
        return "policy"
    if verdict.status in (Status.RUNTIME_ERROR, Status.WRONG):
        # A dtype message often mentions shapes in passing, seldom the other way round.
        if _DTYPE.search(message):
            return "dtype"
        if _SHAPE.search(message):
            return "shape"
    return _BY_STATUS[verdict.status]


def feedback(verdict: Verdict, reply: Reply, *, budget_chars: int = FEEDBACK_CHARS) -> Feedback:
    """Say what became of an answer, what to look at, and what to try.

    Args:
        verdict: The judge's verdict.
        reply: What was read from the model's text.
        budget_chars: Most characters of ``str(feedback)``; at least 400.

    Raises:
        UsageError: If the budget is too small.
    """
    if budget_chars < _LEAST_CHARS:
        raise UsageError(f"feedback needs at least {_LEAST_CHARS} characters, got {budget_chars}")
    kind = category(verdict)
    headline = _headline(kind, verdict)
    hint = _HINTS[kind]
    sections = _facts(verdict) + _notes(verdict.findings) + _defects(verdict, reply)
    if verdict.message and not verdict.correct and verdict.status is not Status.NO_KERNEL:
        sections.append(verdict.message.strip())
    room = budget_chars - len(headline) - len(hint) - 4
    detail = cut_middle("\n".join(part for part in sections if part), room)
    log = verdict.log.strip()
    # The log gets what is left; below a few lines' worth it would only confuse.
    if log and kind not in ("success", "slow") and room - len(detail) > 120:
        label = "\n\nOutput:\n" if detail else "Output:\n"
        detail += label + cut_middle(log, room - len(detail) - len(label))
    return Feedback(kind, headline, detail, hint)


def cut_middle(text: str, room: int) -> str:
    """Return `text` with its middle left out, so that it has at most `room` characters."""
    if len(text) <= room:
        return text
    mark = f"\n[... {len(text)} characters, middle left out ...]\n"
    keep = room - len(mark)
    if keep < 2:
        return text[: max(0, room)]
    tail = keep // 2
    return text[: keep - tail] + mark + text[len(text) - tail :]


def _headline(kind: str, verdict: Verdict) -> str:
    if kind not in ("success", "slow"):
        return _HEADLINES[kind]
    if verdict.timing is None:
        return "Your kernel is correct. Only correctness was judged here; it was not timed."
    pace = "faster" if verdict.timing.speedup >= 1.0 else "slower"
    return (
        f"Your kernel is correct and {pace} than the reference: speedup "
        f"{verdict.timing.speedup:.2f}x (at least {verdict.timing.speedup_low:.2f}x with 95 % "
        f"confidence)."
    )


def _facts(verdict: Verdict) -> list[str]:
    facts = []
    if verdict.timing is not None:
        timing = verdict.timing
        facts.append(
            f"Kernel {timing.kernel_ms:.4g} ms, reference ({timing.baseline}) "
            f"{timing.reference_ms:.4g} ms, {timing.samples} paired measurements."
        )
    if verdict.trials and verdict.status in (Status.WRONG, Status.CORRECT, Status.RUNTIME_ERROR):
        facts.append(f"Trials passed: {verdict.trials_passed} of {verdict.trials}.")
    if verdict.status is Status.WRONG and verdict.max_abs_error > 0.0:
        facts.append(
            f"Largest error: {verdict.max_abs_error:.3g} absolute, "
            f"{verdict.max_rel_error:.3g} relative."
        )
    return facts


def _notes(findings: tuple[Finding, ...]) -> list[str]:
    serious = sorted(findings, key=lambda finding: finding.severity is not Severity.HARD)
    notes = []
    for finding in serious[:8]:
        place = f" (line {finding.line})" if finding.line else ""
        notes.append(f"Note [{finding.code}]{place}: {cut_middle(finding.message, 240)}")
    if len(findings) > len(notes):
        notes.append(f"... and {len(findings) - len(notes)} more notes.")
    return notes


def _defects(verdict: Verdict, reply: Reply) -> list[str]:
    if verdict.status is not Status.NO_KERNEL and verdict.correct:
        return []
    return [f"Form: {DEFECTS.get(code, code)}." for code in reply.defects]
