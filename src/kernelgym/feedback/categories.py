"""Categories of verdicts, twelve of them, with the headline and the hint of each.

Contract: every verdict has one category, and every category one headline and one hint. Where a
verdict says more of a wrong output, a sharper hint takes the place of the category's own.
"""

from __future__ import annotations

import re

from kernelgym.types import Status, Verdict

HINTS = {
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
"""One hint per category."""
CATEGORIES = tuple(HINTS)
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
_BY_RELATION = {
    "nan": "Look for divisions by zero, logarithms and roots of negative numbers, and elements "
    "that are read or left without being written.",
    "zero": "Those elements look as if they were never written: check the grid, the offsets and "
    "the masks of the stores.",
    "constant": "Those elements do not depend on the inputs: check offsets and what is stored.",
    "scaled": "A factor is wrong: check constants, means against sums, and what is divided by.",
    "shifted": "Something constant is missing or added twice: check the bias and constants.",
}
_BY_PATTERN = (
    ("last", "Check the mask and the size of the grid where the sizes are no multiple of a block."),
    ("first", "Check the offsets at the start, and what is initialised before the loop."),
)

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
"""Triton compiles at the first launch, so its errors come while the kernel runs."""


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
        return _HEADLINES[kind]
    timing = verdict.timing
    if timing is None:
        return "Your kernel is correct. Only correctness was judged here; it was not timed."
    pace = "faster" if timing.speedup >= 1.0 else "slower"
    if timing.speedup_high:
        interval = f"95 % interval {timing.speedup_low:.2f}x to {timing.speedup_high:.2f}x"
    else:
        interval = f"at least {timing.speedup_low:.2f}x with 95 % confidence"
    return (
        f"Your kernel is correct and {pace} than the reference: speedup "
        f"{timing.speedup:.2f}x ({interval})."
    )


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
        return _BY_RELATION[where.relation]
    for word, sharper in _BY_PATTERN:
        if re.search(rf"\b{word}\b", where.pattern):
            return sharper
    return HINTS[kind]
