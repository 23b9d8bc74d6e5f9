"""Typical broken kernels, each with its defect and its verdict.

`broken_variants` writes one kernel per defect that can be shown on the problem: a defect whose
label could not hold is left out. A kernel differs from a correct one in the defect only.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from kernelgym.suites.synthetic.operators import Target
from kernelgym.suites.synthetic.solve import Flaw, check_reach, styles_of, write_kernel
from kernelgym.suites.synthetic.source import spec_of
from kernelgym.suites.synthetic.spec import RowsStage, Spec, Stage
from kernelgym.suites.synthetic.style import Defect
from kernelgym.suites.synthetic.visible import (
    axis_shows,
    shows,
    slips_that_show,
    steps_of,
)
from kernelgym.types import Kernel, Problem, Status

_TRIES = 24


@dataclass(frozen=True, slots=True)
class BrokenKernel:
    """A kernel with one defect, and the verdict the judge gives it where its language runs."""

    kernel: Kernel
    defect: str
    """Name of the defect, a `Defect` such as ``missing_mask``."""
    expected: Status
    """Status that the judge gives: for Triton and C++ on the CPU, for other languages on a GPU."""


def broken_variants(
    problem: Problem, language: Target = "triton", style_seed: int = 0
) -> tuple[BrokenKernel, ...]:
    """Return one broken kernel per defect that shows on a problem.

    Args:
        problem: A problem of this suite.
        language: ``triton``, ``cpp``, ``gluon``, ``cute`` or ``tilelang``.
        style_seed: Varies the style, and which stage or step is broken.

    Raises:
        ProblemError: If the problem is not one of this suite's.
        UnsupportedLanguage: If no kernel for the problem can be written in `language`.
    """
    spec = spec_of(problem)
    check_reach(language, spec)
    found = []
    for defect in Defect:
        # Only Triton's interpreter sees each access beyond the end of a tensor.
        if defect is Defect.MISSING_MASK and language != "triton":
            continue
        source = _write(spec, defect, language, style_seed)
        if source is not None:
            expected = _expected(defect, language)
            found.append(BrokenKernel(Kernel(source, language), defect.value, expected))
    return tuple(found)


def _expected(defect: Defect, language: Target) -> Status:
    if defect is Defect.MISSING_MASK:
        return Status.RUNTIME_ERROR
    if defect is Defect.NAME_ERROR:
        return Status.RUNTIME_ERROR if language == "triton" else Status.COMPILE_ERROR
    return Status.WRONG


def _write(spec: Spec, defect: Defect, language: Target, style_seed: int) -> str | None:
    """Return a module of a kernel with the defect, in the first style in which the defect shows."""
    rng = random.Random(f"broken/{spec.name}/{spec.sizes}/{defect}/{style_seed}")
    stages = list(range(len(spec.stages)))
    rng.shuffle(stages)
    for number in stages:
        stage = spec.stages[number]
        if defect is Defect.MISSING_STEP:
            changed = _without_step(rng, spec, number)
            if changed is not None:
                return write_kernel(changed, language, style_seed)
            continue
        if defect is Defect.WRONG_AXIS:
            if not axis_shows(spec, stage):
                continue
            if isinstance(stage, RowsStage) and stage.tail:
                return write_kernel(_along_other_axis(spec, number, stage), language, style_seed)
        slips: list[int] = [-1]
        if defect is Defect.WRONG_CONSTANT:
            slips = slips_that_show(spec, stage, language)
            if not slips:
                continue
        flaw = Flaw(defect, number, rng.choice(slips))
        for attempt in range(_TRIES):
            seed = style_seed + 1000 * attempt
            if shows(spec, stage, styles_of(spec, seed, flaw, language)[number], language):
                return write_kernel(spec, language, seed, flaw)
    return None


def _replaced(spec: Spec, number: int, stage: Stage) -> Spec:
    stages = (*spec.stages[:number], stage, *spec.stages[number + 1 :])
    return dataclasses.replace(spec, stages=stages)


def _along_other_axis(spec: Spec, number: int, stage: RowsStage) -> Spec:
    rank = len(stage.shape)
    axis = (stage.axis - 1) % rank if stage.axis % rank else rank - 1
    return _replaced(spec, number, dataclasses.replace(stage, axis=axis))


def _without_step(rng: random.Random, spec: Spec, number: int) -> Spec | None:
    """Return a problem's spec with one step of a stage left out; None if nothing would be left."""
    stage = spec.stages[number]
    steps = steps_of(stage)
    bare = isinstance(stage, RowsStage) and not stage.tail
    if len(steps) < (2 if bare else 1):
        return None
    place = rng.randrange(len(steps))
    kept = steps[:place] + steps[place + 1 :]
    if not isinstance(stage, RowsStage):
        return _replaced(spec, number, dataclasses.replace(stage, after=kept))
    count = len(stage.before) - (place < len(stage.before))
    shorter = dataclasses.replace(stage, before=kept[:count], after=kept[count:])
    return _replaced(spec, number, shorter)
