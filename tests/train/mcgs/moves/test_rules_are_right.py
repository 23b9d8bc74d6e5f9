"""Rules are right: what moves make of kernels for every Synthetic family is correct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym import Kernel, LocalEvaluator, get_problem
from kernelgym.suites.synthetic.solve import solve
from kernelgym.suites.synthetic.source import spec_of
from kernelgym.types import Job, Problem, Verdict
from kernelgym_train.mcgs.proposing import Proposal, RuleProposer
from kernelgym_train.mcgs.variant import read_variant, state_key

FAMILIES = {
    "matmul": "L1/1",
    "elementwise": "L1/2",
    "norm": "L1/3",
    "binary": "L1/4",
    "scan": "L1/5",
    "gather": "L1/18",
    "transpose": "L1/26",
    "reduction": "L1/28",
    "softmax": "L1/34",
    "matvec": "L1/56",
    "chain_norm": "L2/1",
    "linear_chain": "L2/2",
    "chain": "L2/4",
    "chain_reduction": "L2/6",
    "gather_chain": "L2/7",
    "chain_softmax": "L2/8",
    "matmul_chain": "L2/50",
    "gated_mlp": "L3/1",
    "mlp": "L3/2",
    "norm_mlp": "L3/4",
    "attention": "L3/5",
    "linear_norm": "L3/6",
    "residual_norm": "L3/9",
}
"""A problem of each family."""


def realisations(kernel: Kernel) -> list[Proposal]:
    """Return one proposal for each state that one exact or reassociating move leads to."""
    start = read_variant(kernel)
    proposer = RuleProposer(start)
    found: dict[str, Proposal] = {}
    for move, _ in proposer.priors(start):
        number = 0
        while (each := proposer.propose(start, move, number)) is not None:
            found.setdefault(state_key(each.variant), each)
            number += 1
    return list(found.values())


def test_families_are_all_there() -> None:
    drawn = {
        spec_of(get_problem(f"Synthetic/L{level}/{number}")).family
        for level in (1, 2, 3)
        for number in range(1, 60)
    }
    assert drawn <= set(FAMILIES)
    for family in ("norm", "chain", "attention"):
        assert spec_of(get_problem(f"Synthetic/{FAMILIES[family]}")).family == family


@pytest.mark.parametrize("family", ["norm", "elementwise", "mlp"])
def test_kernels_with_buffers_and_threads_are_read(family: str) -> None:
    found = realisations(solve(get_problem(f"Synthetic/{FAMILIES[family]}"), "cpp"))
    assert any(each.step.move == "vectorize_global_loads" for each in found)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEvaluator]:
    cache: Path = tmp_path_factory.mktemp("builds")
    with LocalEvaluator(workers=2, timing=False, cache_dir=cache) as evaluator:
        yield evaluator


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_realisations_on_a_family_are_correct(family: str, judge: LocalEvaluator) -> None:
    problem = get_problem(f"Synthetic/{FAMILIES[family]}")
    assert spec_of(problem).family == family
    found = realisations(solve(problem, "cpp"))
    start = solve(problem, "cpp")
    verdicts = judge.evaluate_many([Job(problem, each.variant.kernel()) for each in found])
    wrong = {
        f"{each.step.move} {each.step.target} {each.step.choice}": verdict.message
        for each, verdict in zip(found, verdicts, strict=True)
        if not verdict.correct and is_worse(judge, problem, start, each.variant.kernel(), verdict)
    }
    assert found and not wrong


def is_worse(
    judge: LocalEvaluator, problem: Problem, start: Kernel, kernel: Kernel, verdict: Verdict
) -> bool:
    """Return True if a kernel is wrong on more than one seed on which its start is right.

    Rounding alone makes some starts wrong on a few seeds: the judge's bound on the errors' root
    mean square is close to what ``exp(x) - 1`` in floats gives.
    """
    seeds = (verdict.seed, "second", "third")
    worse = (
        judge.evaluate(problem, start, seed=seed).correct
        and not judge.evaluate(problem, kernel, seed=seed).correct
        for seed in seeds
    )
    return sum(worse) > 1
