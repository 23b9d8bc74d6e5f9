"""Hypothesis strategies shared by the tests of the pure core."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from kernelgym.feedback import feedback
from kernelgym.rewards import REWARDS, SHAPES, RewardPreset, Weights
from kernelgym.testing import SAMPLE_KERNELS, reply
from kernelgym.types import (
    Build,
    BuiltFunction,
    Finding,
    Kernel,
    KernelTime,
    Mismatch,
    Profile,
    Reply,
    Score,
    Severity,
    Status,
    Timing,
    Turn,
    Verdict,
)

# Any text at all, lone surrogates and control characters included.
any_text = st.text(st.characters(), max_size=400)

_PIECES = (
    "<think>",
    "</think>",
    "<thinking>",
    "</thinking>",
    "<KERNEL>",
    "</KERNEL>",
    "```",
    "```python\n",
    "\n```\n",
    "~~~",
    "class ModelNew(nn.Module):\n    pass\n",
    "class ModelNew",
    "import torch\n",
    "x = (",
    '"""',
    "\\",
    "\x00",
    "\ud800",
    "\r\n",
    "  ",
    *(kernel.source for kernel in SAMPLE_KERNELS.values()),
)
# Text made of the very pieces that the parser looks for, in any order.
shaped_text = st.lists(st.sampled_from(_PIECES) | any_text, max_size=12).map("".join)


@st.composite
def mutated_answers(draw: st.DrawFn) -> str:
    """A valid answer with a stretch removed, replaced or doubled."""
    text = reply(SAMPLE_KERNELS[draw(st.sampled_from(sorted(SAMPLE_KERNELS)))])
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 200)))
    middle = draw(st.sampled_from(["", text[start:end] * 2]) | any_text)
    return text[:start] + middle + text[end:]


texts = any_text | shaped_text | mutated_answers()


@st.composite
def python_like(draw: st.DrawFn) -> str:
    """Source that mostly parses: sample lines in a random order, with random edits."""
    source = SAMPLE_KERNELS[draw(st.sampled_from(sorted(SAMPLE_KERNELS)))].source
    lines = source.splitlines()
    for _ in range(draw(st.integers(0, 3))):
        index = draw(st.integers(0, len(lines) - 1))
        lines[index] = draw(st.sampled_from(lines) | any_text)
    return "\n".join(lines)


findings = st.builds(
    Finding,
    st.sampled_from(["torch_compute_call", "stream_use", "nan_output"]),
    any_text,
    st.sampled_from(Severity),
    st.integers(0, 10_000),
)
speedups = st.floats(0.01, 100.0)


profiles = st.builds(
    Profile,
    st.floats(1e-3, 1e3),
    st.lists(st.builds(KernelTime, any_text, st.integers(1, 9), st.floats(0, 1e3)), max_size=3).map(
        tuple
    ),
)


sizes = st.none() | st.integers(0, 10**6)
functions = st.builds(BuiltFunction, any_text, st.just("0" * 32), sizes, sizes, sizes)
builds = st.builds(
    Build,
    any_text,
    st.sampled_from(("", "1" * 32)),
    st.lists(functions, max_size=3).map(tuple),
)


@st.composite
def mismatches(draw: st.DrawFn) -> Mismatch:
    """Any place where an output is wrong."""
    shape = draw(st.lists(st.integers(1, 9), max_size=4).map(tuple))
    index = st.tuples(*(st.integers(0, size - 1) for size in shape))
    relation = draw(st.sampled_from(("", "nan", "zero", "constant", "scaled", "shifted")))
    return Mismatch(
        draw(st.integers(1, math.prod(shape))),
        shape,
        tuple(draw(st.lists(index, max_size=4))),
        draw(st.none() | index),
        draw(st.integers(0, 9)),
        draw(st.sampled_from(("", "every element", "only the last row", "every row but row 3"))),
        relation,
        draw(st.floats(-1e6, 1e6)) if relation == "scaled" else 0.0,
        call=draw(st.integers(0, 9)),
        calls=9,
        inputs=draw(st.sampled_from(("given", "wide"))),
    )


@st.composite
def verdicts(draw: st.DrawFn, statuses: tuple[Status, ...] = tuple(Status)) -> Verdict:
    """Any verdict that keeps the invariants."""
    status = draw(st.sampled_from(statuses))
    trials = draw(st.integers(1 if status is Status.CORRECT else 0, 6))
    # A wrong kernel failed at least once; anything but a correct one may have passed some.
    most = trials if status is Status.CORRECT else max(0, trials - 1)
    passed = trials if status is Status.CORRECT else draw(st.integers(0, most))
    timing = None
    if status is Status.CORRECT and draw(st.booleans()):
        speedup = draw(speedups)
        low = speedup * draw(st.floats(0.5, 1.0))
        high = draw(st.sampled_from((0.0, speedup * 1.1)))
        samples = draw(st.integers(1, 100))
        floor = draw(st.sampled_from((0.0, 1e-3, 0.5)))
        moved = draw(st.integers(0, 10**12))
        times = st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
        windows = tuple(draw(st.lists(times, max_size=3)))
        known = {"speedup_high": high, "floor_ms": floor, "moved_bytes": moved, "windows": windows}
        timing = Timing(1.0, speedup, speedup, low, samples, **known)
    return Verdict(
        status,
        compiled=status in (Status.CORRECT, Status.WRONG) or draw(st.booleans()),
        trials_passed=passed,
        trials=trials,
        max_abs_error=draw(st.floats(0, 1e30)),
        max_rel_error=draw(st.floats(0, 1e30)),
        timing=timing,
        findings=tuple(draw(st.lists(findings, max_size=3))),
        message=draw(any_text),
        log=draw(any_text),
        custom_share=draw(st.floats(0, 1)),
        wall_s=draw(st.floats(0, 1e3)),
        profile=draw(st.none() | profiles),
        build=draw(st.none() | builds),
        mismatch=draw(st.none() | mismatches()) if status is Status.WRONG else None,
    )


kernels = st.builds(Kernel, any_text | python_like(), st.sampled_from(sorted(SAMPLE_KERNELS)))


def as_turn(index: int, found: Verdict, total: float = 0.0) -> Turn:
    """Return a turn with that verdict and that score."""
    answered = Reply(SAMPLE_KERNELS["triton"])
    return Turn(index, "", answered, found, feedback(found, answered), Score(total))


weights = st.floats(0, 3)


@st.composite
def own_presets(draw: st.DrawFn) -> RewardPreset:
    """Any preset that can be built, not only those that ship."""
    correct = draw(weights)
    untidy = draw(st.floats(0, 1))
    # What form may cost a correct answer is at most what being correct pays.
    thinking = correct * draw(st.floats(0, 0.999))
    most = (correct - thinking) / (1 - untidy) if untidy < 1 else 3.0
    values = Weights(
        format=draw(st.floats(0, min(3.0, most) * 0.999)),
        correct=correct,
        thinking=thinking,
        **{name: draw(weights) for name in _FREE_WEIGHTS},
    )
    return RewardPreset(
        "own",
        values,
        speed=draw(st.sampled_from(["optional", "required"])),
        shape=draw(st.sampled_from(SHAPES)),
        cap=draw(st.floats(0.5, 50)),
        milestones=tuple(sorted(draw(st.sets(st.floats(0.1, 20), min_size=1, max_size=4)))),
        untidy=untidy,
        length_chars=(draw(st.integers(0, 500)), draw(st.integers(501, 9_000))),
        thinking_chars=(draw(st.integers(0, 5)), draw(st.integers(6, 100))),
        format_penalty=draw(st.floats(-2, 0)),
        cheating_penalty=draw(st.floats(-2, 0)),
    )


_FREE_WEIGHTS = ("compile", "trials", "speed", "improvement", "custom", "length")
presets = st.sampled_from(list(REWARDS.values())) | own_presets()
replies = st.builds(
    Reply,
    st.sampled_from(sorted(SAMPLE_KERNELS)).map(SAMPLE_KERNELS.__getitem__),
    st.text(max_size=120),
    st.sampled_from([(), ("no_kernel_tag",)]),
)
