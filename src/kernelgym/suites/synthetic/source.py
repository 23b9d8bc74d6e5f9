"""Map between ids and specs: an id always names the same source.

``Synthetic/L2/17`` is problem 17 of level 2 for seed 0 in ``cpu`` sizes; another seed or size is
part of the id, as in ``Synthetic/L2/17@seed3-gpu``. A spec is a pure function of the four.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re

from kernelgym.errors import ProblemError
from kernelgym.suites.synthetic.draw import draw_single
from kernelgym.suites.synthetic.draw_blocks import draw_block, draw_fused, glance
from kernelgym.suites.synthetic.reference import write_reference
from kernelgym.suites.synthetic.spec import Preset, Spec
from kernelgym.types import Problem

LEVELS = (1, 2, 3)
_FLOAT_BYTES, _INDEX_BYTES = 4, 8
_DRAW = {1: draw_single, 2: draw_fused, 3: draw_block}
_ID = re.compile(r"Synthetic/L([123])/([1-9][0-9]{0,8})(?:@seed(0|-?[1-9][0-9]{0,17})-(cpu|gpu))?")


def make_id(seed: int, size: Preset, level: int, index: int) -> str:
    """Return the id of a Synthetic problem."""
    suffix = "" if (seed, size) == (0, "cpu") else f"@seed{seed}-{size}"
    return f"Synthetic/L{level}/{index}{suffix}"


def parse_id(problem_id: str) -> tuple[int, Preset, int, int] | None:
    """Return (seed, size, level, index), or None if the text is no id of this suite."""
    found = _ID.fullmatch(problem_id)
    if found is None:
        return None
    level, index, seed, size = found.groups()
    preset: Preset = "gpu" if size == "gpu" else "cpu"
    parts = (int(seed or 0), preset, int(level), int(index))
    return parts if make_id(*parts) == problem_id else None


@functools.lru_cache(maxsize=4096)
def spec_for(seed: int, size: Preset, level: int, index: int) -> Spec:
    """Return the spec of a Synthetic problem, from seed, size, level and number."""
    rng = _source(seed, size, level, index)
    spec = _DRAW[level](rng, size)
    return dataclasses.replace(spec, spelling=rng.randrange(1 << 30))


def sizes_of(problem_id: str) -> tuple[int, int, int] | None:
    """Return the bytes of a Synthetic problem's inputs, output and weights.

    None if the text is no id of this suite.
    """
    parts = parse_id(problem_id)
    if parts is None:
        return None
    spec = spec_for(*parts)
    inputs = sum(
        spec.elements(tensor.shape) * (_INDEX_BYTES if tensor.draw == "index" else _FLOAT_BYTES)
        for tensor in spec.inputs
    )
    weights = 0
    for param in spec.params:
        offset = param.kind == "layer_norm" or (param.kind == "linear" and param.bias)
        weights += spec.elements(param.dims) + (spec.size(param.dims[-1]) if offset else 0)
    outputs = spec.elements(spec.out_shape)
    return inputs, outputs * _FLOAT_BYTES, weights * _FLOAT_BYTES


def glance_at(seed: int, size: Preset, index: int) -> tuple[tuple[str, ...], int]:
    """Return family and length of a level-2 problem without drawing it whole; see `glance`."""
    return glance(_source(seed, size, 2, index), size)


def _source(seed: int, size: Preset, level: int, index: int) -> random.Random:
    return random.Random(f"kernelgym/synthetic/{seed}/{size}/{level}/{index}")


@functools.lru_cache(maxsize=4096)
def make_problem(seed: int, size: Preset, level: int, index: int) -> Problem:
    """Return a Synthetic problem, from seed, size, level and number."""
    spec = spec_for(seed, size, level, index)
    return Problem(
        id=make_id(seed, size, level, index),
        suite="Synthetic",
        level=level,
        name=f"{index}_{spec.name}",
        source=write_reference(spec),
        family=spec.family,
    )


def spec_of(problem: Problem) -> Spec:
    """Return the spec behind a problem of this suite.

    Raises:
        ProblemError: If the problem is not one of this suite's.
    """
    parts = parse_id(problem.id)
    if parts is None or make_problem(*parts).digest != problem.digest:
        raise ProblemError(
            f"problem {problem.id!r} is not one that the Synthetic suite wrote; "
            "kernels and canonical forms exist for its own problems only"
        )
    return spec_for(*parts)
