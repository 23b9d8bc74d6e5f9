"""Find kernels that lose a NaN because they were compiled for finite numbers only.

``-ffast-math``, its part ``-ffinite-math-only`` and ``-Ofast`` let a compiler drop checks for NaN,
as flags and as GCC's pragma or attribute ``optimize`` in a source. A kernel built with them may
turn a NaN into a number, and hide that an earlier layer diverged. Other kernels are not asked:
languages differ in whether a maximum keeps or drops a NaN, and honest kernels differ with them.

The kernel answers in a process of its own, since a NaN may lead it astray. An output that is a
number where the reference has a NaN gives the soft finding ``nan_not_propagated``; no verdict
depends on it.

Not covered: nvcc's ``--use_fast_math``, which assumes nothing about NaN; options that a macro
spells; infinities; references that keep state or that refuse a NaN.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.live_run import LiveRun, Rerun
from kernelgym.judge.tensors import tensors_of
from kernelgym.types import Finding, Severity

_CODE = "nan_not_propagated"


def lost_nan(rerun: Rerun, probe: Callable[[], object] = lambda: None) -> Finding | None:
    """Return a finding if a kernel loses the reference's NaN.

    Args:
        rerun: Runs the kernel in a fresh process.
        probe: Function that is called after the kernel failed; it raises if the device does not
            compute.

    Raises:
        JudgeError: As `probe` does.
    """
    try:
        with rerun.open() as session:
            run = rerun.start(session)
            lost = 0 if run.reference.stateful else _lost(run)
    except Rejected as end:
        probe()
        return Finding(_CODE, f"on inputs with a NaN the kernel failed: {end}", Severity.SOFT)
    except JudgeError:  # a soft finding is not worth a verdict that was reached
        probe()
        return None
    if not lost:
        return None
    message = (
        "the extension is compiled by options that assume finite numbers, and "
        f"{lost} elements that are NaN in the reference are numbers in its output"
    )
    return Finding(_CODE, message, Severity.SOFT)


def _lost(run: LiveRun) -> int:
    """Return the number of elements that are NaN in the reference's output alone."""
    reference, seeds = run.reference, run.case.seeds
    seed, forward_seed = seeds.derive("nan"), seeds.derive("nan-forward")
    try:
        inputs = with_nan(reference.inputs(seed), seed)
        expected = reference.expect(inputs, forward_seed)
    except JudgeError:  # the problem's own code refuses a NaN
        return 0
    result, outputs = run.session.answered(inputs, expected, forward_seed)
    wanted = tensors_of(expected.output)
    if result != "fits" or [t.shape for t in outputs] != [t.shape for t in wanted]:
        return 0
    return sum(int((a.isnan() & ~b.isnan()).sum()) for a, b in zip(wanted, outputs, strict=True))


def with_nan(inputs: list[Any], seed: int) -> list[Any]:
    """Return inputs with one NaN in each floating-point tensor; others unchanged."""
    drawer, given = random.Random(seed), []
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            value = value.clone(memory_format=torch.contiguous_format)
            value.view(-1)[drawer.randrange(value.numel())] = float("nan")
        given.append(value)
    return given
