"""Canonical forms: which problems count as the same, and which part each belongs to.

`simplify` rewrites a chain of element-wise steps into a normal form with the same meaning:
constants folded, scales and shifts pushed to the front, commuting operations sorted, idempotents
and operations that cannot bite removed. `canonical_form` writes that down without the constants'
values, so that problems that differ only in a constant count as the same; for single operators
(level 1) the shape class is part of it. `part_of` hashes the form, so that the three parts share
none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from kernelgym.suites.synthetic.operators import OPERATORS, span
from kernelgym.suites.synthetic.spec import DotStage, ElementStep, RowsStage, Spec, Stage

Part: TypeAlias = Literal["warmstart", "rl", "heldout"]
PARTS: tuple[Part, ...] = ("warmstart", "rl", "heldout")

_SHARES = (50, 80, 100)
_ODD = ("tanh", "softsign", "sin")
_HOMOGENEOUS = ("abs", "leaky_relu")
_INF = math.inf
_REWRITES = 400
_LONG = 128
"""Number of elements above which an axis counts as long."""
_GENERAL: Mapping[str, ElementStep] = {
    "relu": ElementStep("clamp", (0.0, _INF)),
    "relu6": ElementStep("clamp", (0.0, 6.0)),
    "neg": ElementStep("scale", (-1.0,)),
}
"""Operators that are special cases, with the general operator that they are rewritten to."""


def part_of(form: str) -> Part:
    """Return the part of the suite, such as the held-out one, that a canonical form is in."""
    bucket = int.from_bytes(hashlib.sha256(form.encode()).digest()[:4], "big") % 100
    for part, end in zip(PARTS, _SHARES, strict=True):
        if bucket < end:
            return part
    raise AssertionError("the shares add up to 100")


def form_of(spec: Spec) -> str:
    """Return the canonical form of a problem, from its spec."""
    form = " ; ".join(_stage_form(stage) for stage in spec.stages)
    return f"{form} | {_shape_class(spec)}" if spec.level == 1 else form


def simplify(steps: Sequence[ElementStep]) -> tuple[ElementStep, ...]:
    """Return an equivalent chain of element-wise steps in normal form."""
    chain = [_GENERAL.get(step.op, step) for step in steps]
    for _ in range(_REWRITES):
        if not (_drop_idle(chain) or _rewrite_pair(chain)):
            break
    return tuple(chain)


def _drop_idle(chain: list[ElementStep]) -> bool:
    """Remove the first step of an element-wise chain that changes nothing."""
    low, high = -_INF, _INF
    for place, step in enumerate(chain):
        idle = (
            (step.op == "scale" and step.consts == (1.0,))
            or (step.op == "shift" and step.consts == (0.0,))
            or (step.op == "clamp" and step.consts[0] <= low and step.consts[1] >= high)
            or (step.op in ("abs", "leaky_relu") and low >= 0.0)
        )
        if idle:
            del chain[place]
            return True
        if step.op == "abs" and high <= 0.0:
            chain[place] = ElementStep("scale", (-1.0,))
            return True
        if step.op == "clamp" and step.consts[0] != -_INF and step.consts[0] <= low:
            chain[place] = ElementStep("clamp", (-_INF, step.consts[1]))
            return True
        if step.op == "clamp" and step.consts[1] != _INF and step.consts[1] >= high:
            chain[place] = ElementStep("clamp", (step.consts[0], _INF))
            return True
        low, high = span(step, low, high)
    return False


def _rewrite_pair(chain: list[ElementStep]) -> bool:
    """Apply the first rule that fits two neighbouring steps; merging goes before reordering."""
    for rule in (_fold, _swap):
        for place in range(len(chain) - 1):
            pair = rule(chain[place], chain[place + 1])
            if pair is not None:
                chain[place : place + 2] = pair
                return True
    return False


def _fold(first: ElementStep, second: ElementStep) -> tuple[ElementStep, ...] | None:
    """Return the steps that two neighbouring steps can be merged into; None if they cannot."""
    a, b = first.consts, second.consts
    match first.op, second.op:
        case "scale", "scale":
            return (ElementStep("scale", (a[0] * b[0],)),)
        case "shift", "shift":
            return (ElementStep("shift", (a[0] + b[0],)),)
        case "clamp", "clamp":
            ends = tuple(min(max(end, b[0]), b[1]) for end in a)
            return (ElementStep("clamp", ends),)
        case ("abs", "abs") | ("square", "abs"):
            return (first,)
        case "abs", "square":
            return (second,)
        case ("exp", "log") | ("log", "exp") | ("sqrt", "square"):
            return ()
        case "square", "sqrt":
            return (ElementStep("abs"),)
        case "scale", ("abs" | "square") if a[0] < 0:
            return ElementStep("scale", (-a[0],)), second
        case "scale", op if op in _ODD and a[0] < 0:
            return ElementStep("scale", (-a[0],)), second, ElementStep("scale", (-1.0,))
    return None


def _swap(first: ElementStep, second: ElementStep) -> tuple[ElementStep, ...] | None:
    """Return two commuting neighbouring steps in normal order; None if they are in it already."""
    a, b = first.consts, second.consts
    match first.op, second.op:
        case "shift", "scale":
            return ElementStep("scale", b), ElementStep("shift", (a[0] * b[0],))
        case "clamp", "scale":
            ends = sorted(end * b[0] for end in a)
            return ElementStep("scale", b), ElementStep("clamp", (ends[0], ends[1]))
        case "clamp", "shift":
            return ElementStep("shift", b), ElementStep("clamp", (a[0] + b[0], a[1] + b[0]))
        case op, "scale" if op in (*_HOMOGENEOUS, "square") and abs(b[0]) != 1.0:
            size = math.sqrt(abs(b[0])) if op == "square" else abs(b[0])
            sign = () if b[0] > 0 else (ElementStep("scale", (-1.0,)),)
            return ElementStep("scale", (size,)), first, *sign
        case "mul", "scale":
            return second, first
        case (("add" | "sub"), "shift"):
            return second, first
        case ("clamp", "max") if a[1] == _INF:
            return second, first
        case ("clamp", "min") if a[0] == -_INF:
            return second, first
    alike = {first.op, second.op} <= {"add", "sub"} or (
        first.op == second.op and first.op in ("mul", "max", "min")
    )
    if alike and (first.op, first.spread) > (second.op, second.spread):
        return second, first
    return None


def _stage_form(stage: Stage) -> str:
    if isinstance(stage, DotStage):
        layout = ("T" if stage.left_t else "N") + ("T" if stage.right_t else "N")
        kind = "linear" if stage.layer else "matvec" if stage.n == "1" else f"matmul:{layout}"
        if stage.batch:
            kind = f"batched {kind}"
        return _chain_form([kind], stage.after)
    if not isinstance(stage, RowsStage):
        return _chain_form([stage.kind], stage.after)
    before, after = list(simplify(stage.before)), list(stage.after)
    if not stage.tail:
        return _words(simplify(stage.before + stage.after)) or "copy"
    # A scale in front of a linear tail is the same scale behind it.
    if stage.tail in ("sum", "mean", "cumsum", "reverse_cumsum", "norm2", "center"):
        while after and after[0].op in ("scale", "neg"):
            before = list(simplify([*before, after.pop(0)]))
    while before and _invisible(stage.tail, before[-1]):
        before.pop()
    tail = f"{stage.tail}{':learned' if stage.weights else ''}"
    return _chain_form([word for word in (_words(before), tail) if word], after)


def _invisible(tail: str, step: ElementStep) -> bool:
    """Return True if an operation along the axis undoes the step before it."""
    if step.op == "shift":
        return tail in ("softmax", "log_softmax", "layer_norm", "center")
    if step.op == "scale" and step.consts[0] > 0:
        return tail in ("layer_norm", "rms_norm", "unit_norm")
    return False


def _chain_form(words: list[str], steps: Sequence[ElementStep]) -> str:
    chain = _words(simplify(steps))
    return " ".join([*words, chain] if chain else words)


def _words(steps: Sequence[ElementStep]) -> str:
    return " ".join(_word(step) for step in steps)


def _word(step: ElementStep) -> str:
    if step.op == "clamp":
        low, high = step.consts
        return "floor" if high == _INF else "ceiling" if low == -_INF else "clamp"
    return f"{step.op}:{step.spread}" if OPERATORS[step.op].binary else step.op


def _shape_class(spec: Spec) -> str:
    """Return the shape class of a single operator: rank, axis, short or long."""
    stage = spec.stages[0]
    if isinstance(stage, DotStage):
        small = spec.size(stage.k) <= min(spec.size(stage.m), spec.size(stage.n))
        return "flat k" if small else "deep k"
    rank = len(stage.shape)
    last = spec.size(stage.shape[-1])
    if isinstance(stage, RowsStage) and stage.tail:
        length = spec.size(stage.shape[stage.axis])
        reach = "long" if length > _LONG else "short"
        return f"rank {rank} axis {stage.axis % rank} {reach}"
    return f"rank {rank} {'wide' if last > _LONG else 'narrow'}"
