"""Gives advice where strict rules refuse an honest style.

Two styles give values that differ from the reference's by design: parameters that were folded or
packed before the judge replaced them, and long running sums in fp32. The advice names
neither the reference's values nor the judge's. A reference that draws random numbers is named.

Two more are undefined on a GPU and right in Triton's interpreter by chance: see
`interpreted_advice`. A kernel that is wrong in some calls may be so in some of its configs.

Not covered: parameters under other names than the reference's (`model`).
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from kernelgym.judge.compare.compare import OutputComparison, compare
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.rulesets import Ruleset

_ROUNDING = 2e-4  # a running fp32 sum of a million numbers errs less, TF32 more


def advice(
    compared: OutputComparison,
    claimed: Any,
    outputs: list[torch.Tensor],
    inputs: list[Any],
    forward_seed: int,
    expected: ExpectedOutput,
    reference: Reference,
    rules: Ruleset,
) -> str:
    """Return what to do about a wrong call; empty if unknown.

    Args:
        compared: The failed comparison.
        claimed: The candidate's description of its output.
        outputs: Its output tensors.
        inputs: The call's inputs.
        forward_seed: Seed set before the call.
        expected: What the reference gave.
        reference: The reference.
        rules: The rules at the problem's precision.
    """
    if not outputs or compared.mismatch is None:
        return ""
    if reference.state and _is_stale(claimed, outputs, inputs, forward_seed, reference, rules):
        return (
            "the output is right for earlier values of parameters, and the judge has replaced "
            f"{', '.join(sorted(reference.state))} since: read, fold or pack them in forward, on "
            "every call, not in the constructor nor in the first call alone"
        )
    is_fp32 = all(output.dtype == torch.float32 for output in outputs)
    small = 0.0 < compared.max_rel_error <= _ROUNDING and not compared.mismatch.nonfinite
    if expected.precise is not None and rules.tolerance == "fp64" and is_fp32 and small:
        return (
            "errors this small come from rounding: instead of one running fp32 sum over many "
            "numbers, add up partial sums of short blocks, or accumulate in fp64; elsewhere use a "
            "formula that keeps its digits"
        )
    if reference.draws:
        return (
            "the reference draws random numbers in forward, so that no kernel that draws its own "
            "agrees with it: call torch's own random functions, in the same order"
        )
    return ""


def _is_stale(
    claimed: Any,
    outputs: list[torch.Tensor],
    inputs: list[Any],
    forward_seed: int,
    reference: Reference,
    rules: Ruleset,
) -> bool:
    """Return True if the output fits earlier values of the parameters."""
    return any(
        compare(claimed, outputs, each.output, each.precise, rules, each.calibration).passed
        for each in reference.with_outdated_state(inputs, forward_seed)
    )


def interpreted_advice(source: str, nonfinite: bool) -> str:
    """Return which lines are wrong on a GPU, judging by their text.

    Args:
        source: The kernel's module.
        nonfinite: Whether the output is NaN or infinite where the reference is not.

    Returns:
        For NaN the loads with a mask and without ``other``, otherwise the `tl.dot` without
        ``input_precision``; empty if there are none.
    """
    loads, dots = [], []
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError):
        return ""
    for call in calls:
        given = {keyword.arg for keyword in call.keywords}
        name = ast.unparse(call.func)
        if name in ("tl.dot", "triton.language.dot"):
            if not given & {"input_precision", "allow_tf32"}:
                dots.append(call.lineno)
        elif name in ("tl.load", "triton.language.load"):
            masked = "mask" in given or "boundary_check" in given or len(call.args) > 1
            if masked and not given & {"other", "padding_option"} and len(call.args) < 3:
                loads.append(call.lineno)
    if nonfinite and loads:
        return (
            f"lanes that a mask turns off load no value, and are NaN here: give tl.load `other=` "
            f"({_lines(loads)})"
        )
    if not nonfinite and dots:
        return (
            "tl.dot rounds fp32 operands to TF32, here as on a GPU: pass "
            f'input_precision="ieee" ({_lines(dots)})'
        )
    return ""


def config_advice(source: str) -> str:
    """Return advice on configs if a kernel's text autotunes; empty otherwise."""
    if "autotune" not in source:
        return ""
    return (
        "calls take the configs of triton.autotune in turn, since each may be the fastest on a "
        "GPU: every config must be right"
    )


def _lines(numbers: list[int]) -> str:
    told = ", ".join(map(str, sorted(set(numbers))[:8]))
    return f"line {told}" if len(set(numbers)) == 1 else f"lines {told}"
