"""Categories of verdicts, twelve of them, with the headline and the hint of each.

Contract: every verdict has one category, and every category one headline and one hint. Where a
verdict says more of a wrong output, a sharper hint takes the place of the category's own. The
texts are in categories.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from kernelgym.types import Status, Verdict

_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HINTS: dict[str, str] = _TEXTS["hints"]
"""Hint for each category of feedback."""
CATEGORIES = tuple(HINTS)
"""Names of the categories that a feedback can have."""

_BY_STATUS = {
    Status.NO_KERNEL: "format",
    Status.REJECTED: "policy",
    Status.COMPILE_ERROR: "compile",
    Status.RUNTIME_ERROR: "runtime",
    Status.TIMEOUT: "timeout",
    Status.WRONG: "numerics",
    Status.UNAVAILABLE: "infrastructure",
}

# The message is bounded before it is searched, and no pattern nests repetitions.
_MEMORY = re.compile(
    r"out of memory|out of resource|memoryerror|bad_alloc|can't allocate memory"
    r"|cannot allocate memory|memory limit|exceeded .{0,40}memory",
    re.IGNORECASE,
)
_SHAPE = re.compile(r"\bshapes?\b|size mismatch|size of tensor|\bdimensions?\b", re.IGNORECASE)
_DTYPE = re.compile(
    r"\bdtypes?\b|\bscalar ?type\b|data type|expected .{0,20}\b(?:float|double|half|int|long)\b",
    re.IGNORECASE,
)
_MUTATION = re.compile(r"changed (?:its |an |the )?inputs?\b", re.IGNORECASE)
_AT_LAUNCH = re.compile(
    r"(?:\w+\.)*(?:CompilationError|CompileTimeAssertionFailure|UnsupportedLanguageConstruct):"
)
"""Note that Triton compiles at the first launch, so that its errors come while the kernel runs."""


def category(verdict: Verdict) -> str:
    """Return the category of a verdict, one of `CATEGORIES`."""
    if verdict.correct:
        return "slow" if verdict.timed and verdict.speedup < 1.0 else "success"
    if verdict.mismatch is not None:
        return "numerics"
    if verdict.status is Status.UNAVAILABLE or verdict.status is Status.REJECTED:
        return _BY_STATUS[verdict.status]
    message = verdict.message[:2_000]
    if verdict.status is Status.RUNTIME_ERROR:
        if _AT_LAUNCH.match(message):
            return "compile"
        if _MEMORY.search(message):
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


def headline(kind: str, verdict: Verdict) -> str:
    """Return the first sentence of a feedback of category `kind`."""
    if kind not in ("success", "slow"):
        return str(_TEXTS["headlines"][kind])
    timing = verdict.timing
    if timing is None:
        return "Your kernel is correct. Only correctness was judged here; it was not timed."
    pace = "faster" if timing.speedup >= 1.0 else "slower"
    if timing.speedup_high:
        interval = f"95 % interval {_x(timing.speedup_low)} to {_x(timing.speedup_high)}"
    else:
        interval = f"at least {_x(timing.speedup_low)} with 95 % confidence"
    return (
        f"Your kernel is correct and {pace} than the reference: speedup "
        f"{_x(timing.speedup)} ({interval})."
    )


def _x(speedup: float) -> str:
    """Return a speedup as text: two decimals, or two significant digits if it is small."""
    return f"{speedup:.2f}x" if speedup >= 0.1 else f"{speedup:.2g}x"


def hint(kind: str, verdict: Verdict, places: bool) -> str:
    """Return the last sentence of a feedback of category `kind`.

    Args:
        kind: The category.
        verdict: The verdict.
        places: Whether the feedback tells where an output is wrong; a hint tells no more.
    """
    where = verdict.mismatch
    if kind != "numerics" or where is None or not places:
        return HINTS[kind]
    if where.relation:
        return str(_TEXTS["relations"][where.relation])
    for word, sharper in _TEXTS["patterns"].items():
        if re.search(rf"\b{word}\b", where.pattern):
            return str(sharper)
    return HINTS[kind]
