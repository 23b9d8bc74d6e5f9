"""The facts of a verdict in sentences: where an output is wrong, how fast a kernel is.

Contract: what is told of a wrong output depends on places and sizes alone, and sizes are told to
one digit: of an output that is zero everywhere, the largest error is the reference's largest
value. A factor is told only where the judge found that the reference varies (see `Mismatch`).
"""

from __future__ import annotations

from kernelgym.counters import Counters
from kernelgym.types import Finding, Mismatch, Severity, Status, Timing, Verdict

_NOTES, _NOTE_CHARS = 8, 240
_LARGEST = "Largest error"
_RELATIONS = {
    "nan": "Your output is NaN at all of them.",
    "zero": "Your output is 0 at all of them.",
    "constant": "Your output is one and the same number at all of them.",
    "scaled": "There your output is about {ratio:g} times the reference's.",
    "shifted": "There your output differs from the reference's by the same amount everywhere.",
}


def trial_facts(verdict: Verdict) -> list[str]:
    """Return a sentence on how many judged calls passed; empty if that is no news."""
    told = verdict.status in (Status.WRONG, Status.CORRECT) or (
        verdict.status is Status.RUNTIME_ERROR and verdict.trials_passed > 0
    )
    if not verdict.trials or not told:
        return []
    return [f"Trials passed: {verdict.trials_passed} of {verdict.trials}."]


def wrong_facts(verdict: Verdict) -> list[str]:
    """Return sentences on where and by how much an output is wrong."""
    where = verdict.mismatch
    if where is None:
        if not verdict.max_abs_error:
            return []
        return [f"{_LARGEST}: {_sizes(verdict)}."]
    facts = [
        f"{_call(where)}{where.differing} of {where.elements} elements of {_output(where)} differ "
        f"({_percent(where.differing / where.elements)})."
    ]
    if where.pattern and where.differing < where.elements:
        facts.append(f"Where: {where.pattern}.")
    if where.first and where.shape:
        listed = ", ".join(str(list(index)) for index in where.first)
        facts.append(f"The first: {listed}.")
    if verdict.max_abs_error and where.call:  # a timed call is not among those
        largest = "Largest finite error" if where.nonfinite else _LARGEST
        facts.append(f"{largest} over all calls: {_sizes(verdict)}.")
    if where.worst_at:
        facts.append(f"In this call it is largest at {list(where.worst_at)}.")
    if where.nonfinite and where.relation != "nan":
        facts.append(f"NaN or infinite where the reference is finite: {where.nonfinite} elements.")
    if where.relation:
        facts.append(_RELATIONS[where.relation].format(ratio=where.ratio))
    return facts


def places_told(verdict: Verdict) -> str:
    """Return where an output is wrong in one short phrase."""
    where = verdict.mismatch
    if where is None:
        return ""
    if where.differing == where.elements:
        return "every element differs"
    share = _percent(where.differing / where.elements)
    return f"{share} of the elements differ" + (f", {where.pattern}" if where.pattern else "")


def speed_facts(verdict: Verdict) -> list[str]:
    """Return sentences on a correct kernel's time, the reference's, and the memory bandwidth."""
    timing = verdict.timing
    facts = []
    if timing is not None:
        facts.append(
            f"Kernel {timing.kernel_ms:.4g} ms, reference ({timing.baseline}) "
            f"{timing.reference_ms:.4g} ms, {timing.samples} paired measurements."
        )
        if timing.floor_ms and timing.moved_bytes:
            facts.append(_floor(timing))
    if verdict.correct and verdict.custom_share:
        share = _percent(verdict.custom_share)
        facts.append(
            "Your own kernels do all of the reference's work."
            if share == "100 %"
            else f"Your own kernels do {share} of the reference's work, PyTorch the rest."
        )
    if verdict.profile is not None:
        share = _percent(verdict.profile.kernel_share)
        facts.append(f"Of a call's time, {share} passes in your own kernels.")
    return facts


def figures(verdict: Verdict) -> list[str]:
    """Return the figures that only feedback at the level ``profile`` contains."""
    timing = verdict.timing
    told = []
    if timing is not None and timing.moved_bytes:
        told.append(
            f"Inputs and outputs of a call: {timing.moved_bytes / 1e6:.4g} MB; moved at "
            f"{timing.bandwidth_gb_s:.0f} GB/s."
        )
    if timing is not None and timing.floor_ms:
        told.append(
            "Speedup of a kernel as fast as that copy: "
            f"{timing.reference_ms / timing.floor_ms:.3g}x."
        )
    if verdict.profile is not None:
        told.append(f"Profile of one call, {verdict.profile.call_ms:.4g} ms:")
        for kernel in verdict.profile.kernels:
            share = _percent(min(1.0, kernel.ms / verdict.profile.call_ms))
            times = f"{kernel.launches} launches" if kernel.launches > 1 else "1 launch"
            told.append(f"    {kernel.name}: {times}, {kernel.ms:.4g} ms ({share})")
    if verdict.counters is not None:
        told += _counters(verdict.counters)
    return told


def _counters(counters: Counters) -> list[str]:
    """Return lines on what hardware counters show, the strongest limits first."""
    if counters.status != "measured":
        return [f"No hardware counters ({counters.status}): {counters.message}"]
    limits = sorted(counters.bottlenecks.items(), key=lambda each: -each[1])
    shares = ", ".join(f"{name} {_percent(share)}" for name, share in limits)
    return [
        f"Hardware counters of {counters.kernel}, shares of each limit: {shares}.",
        *(f"    {name}: {value:.4g}" for name, value in counters.values.items()),
    ]


def notes(findings: tuple[Finding, ...], least: Severity) -> list[str]:
    """Return findings as notes for the model, hard ones first.

    Args:
        findings: The findings.
        least: The least severity that is told.
    """
    order = (Severity.HARD, Severity.SOFT, Severity.INFO)
    told = [found for found in findings if order.index(found.severity) <= order.index(least)]
    told.sort(key=lambda found: found.severity is not Severity.HARD)
    lines = []
    for found in told[:_NOTES]:
        place = f" (line {found.line})" if found.line else ""
        text = found.message
        if len(text) > _NOTE_CHARS:
            text = text[: _NOTE_CHARS - 4] + " ..."
        lines.append(f"Note [{found.code}]{place}: {text}")
    if len(told) > len(lines):
        lines.append(f"... and {len(told) - len(lines)} more notes.")
    return lines


def _sizes(verdict: Verdict) -> str:
    absolute, relative = (
        float(f"{size:.1g}") for size in (verdict.max_abs_error, verdict.max_rel_error)
    )
    return f"about {absolute:g} absolute, {relative:g} relative"


def _call(where: Mismatch) -> str:
    if not where.call:
        return "While it was timed, "
    kind = "" if where.inputs == "given" else f" (inputs of kind {where.inputs!r})"
    return f"In call {where.call} of {where.calls}{kind}, "


def _output(where: Mismatch) -> str:
    name = f"output {where.output}" if where.outputs > 1 else "the output"
    return f"{name} (shape {list(where.shape)})" if where.shape else name


def _floor(timing: Timing) -> str:
    times = timing.kernel_ms / timing.floor_ms
    share = _percent(timing.floor_share)
    peak = timing.moved_bytes / timing.floor_ms / 1e6
    told = f"{timing.bandwidth_gb_s:.0f} of {peak:.0f} GB/s, {share} of the device's bandwidth"
    return (
        "Moving as many bytes as inputs and outputs have takes a copy "
        f"{timing.floor_ms:.3g} ms here; your kernel takes {times:.3g} times that ({told})."
    )


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.995 else f"{share * 100:.0f} %"
