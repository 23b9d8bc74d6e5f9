"""No problem is passed by zeros, a constant, one of its inputs or another seed's output.

The references really run, on the CPU, on a sample over all levels and families.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelgym.judge.lint.process import lint
from kernelgym.rulesets import RULESETS
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.types import Problem

TOLERANCE = 1e-4
GOOD_PART = 0.25


def sample() -> list[Problem]:
    """Five problems of each level-1 family, three of each other: 89 in all."""
    chosen: dict[tuple[int, str], list[Problem]] = defaultdict(list)
    for problem in SyntheticSuite(seed=5, per_level=200).problems():
        group = chosen[problem.level, problem.family]
        if len(group) < (5 if problem.level == 1 else 3):
            group.append(problem)
    return [problem for group in chosen.values() for problem in group]


def run(problem: Problem, seed: int) -> tuple[torch.Tensor, list[torch.Tensor], Any]:
    names: dict[str, Any] = {}
    exec(compile(problem.source, problem.id, "exec"), names)
    torch.manual_seed(17)
    model = names["Model"](*names["get_init_inputs"]())
    torch.manual_seed(seed)
    inputs = names["get_inputs"]()
    with torch.no_grad():
        return model(*inputs), inputs, model


def share_apart(output: torch.Tensor, other: torch.Tensor) -> float:
    """Share of elements at which `other` fails ``allclose(other, output)``."""
    apart = (output - other).abs() > TOLERANCE + TOLERANCE * output.abs()
    return float(apart.float().mean())


def share_near_best_constant(output: torch.Tensor) -> float:
    """Largest share of elements that one constant can be close enough to."""
    values = output.flatten().double().sort().values
    reach = values + 2 * (TOLERANCE + TOLERANCE * values.abs())
    ends = torch.searchsorted(values, reach, right=True)
    return float((ends - torch.arange(len(values))).max()) / len(values)


SAMPLE = sample()


def test_the_sample_is_broad() -> None:
    assert len(SAMPLE) >= 60
    assert len({(p.level, p.family) for p in SAMPLE}) == 23


@pytest.mark.parametrize("problem", SAMPLE, ids=lambda p: f"{p.id}-{p.family}")
def test_trivial_answers_fail_at_a_good_part_of_the_elements(problem: Problem) -> None:
    output, inputs, model = run(problem, 1)
    other, _, _ = run(problem, 2)
    assert output.isfinite().all() and output.abs().max() < 1e4
    assert output.dtype is torch.float32 and output.is_contiguous()
    assert share_apart(output, torch.zeros_like(output)) > GOOD_PART
    assert share_near_best_constant(output) < 1 - GOOD_PART
    assert share_apart(output, other) > GOOD_PART
    for given in inputs:
        if given.is_floating_point() and broadcasts(given, output):
            assert share_apart(output, given) > GOOD_PART
    weights = list(model.parameters())
    if weights:
        # Other weights give another output: a kernel cannot leave them out.
        for weight in weights:
            with torch.no_grad():
                kept = weight.clone()
                weight.mul_(-1.5)
                assert share_apart(output, model(*inputs)) > 0.1
                weight.copy_(kept)


def broadcasts(given: torch.Tensor, output: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(given.shape, output.shape) == output.shape
    except RuntimeError:
        return False


@pytest.mark.parametrize("problem", SAMPLE[::4], ids=lambda p: f"{p.id}-{p.family}")
def test_references_run_in_double_without_warnings(problem: Problem) -> None:
    # The judge takes its error bound from a double-precision twin.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output, inputs, model = run(problem, 1)
        twin = model.double()(*[x.double() if x.is_floating_point() else x for x in inputs])
    assert twin.dtype is torch.float64
    torch.testing.assert_close(output.double(), twin, atol=2e-5, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["strict", "kernelbench"])
def test_the_degeneracy_gate_passes_the_sample(name: str, tmp_path: Path) -> None:
    results = dict(lint(SAMPLE, RULESETS[name], folder=tmp_path))
    assert len(results) == len(SAMPLE)
    assert [r for r in results.values() if not (r.passes and r.tested)] == []
