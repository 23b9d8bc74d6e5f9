"""Static priors: counts of a text, and what follows from them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_train.mcgs.cpp.cost import Cost, cost_of
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.moves.table import MOVES
from kernelgym_train.mcgs.proposing import RuleProposer, source_of
from kernelgym_train.mcgs.static_priors import LEAST, MOST, factors
from kernelgym_train.mcgs.texts import TextProposer
from kernelgym_train.mcgs.variant import Variant, read_variant

STARTS = {name: read_variant(kernel) for name, (_, kernel) in EXAMPLES.items()}


def test_costs_of_the_examples_are_counted() -> None:
    assert cost_of(STARTS["matmul"].file.cpp) == Cost(
        loops=1, depth=3, near=1, far=1, sums=1, operations=2, bytes_moved=8
    )
    softmax = cost_of(STARTS["softmax"].file.cpp)
    assert (softmax.exponentials, softmax.divisions, softmax.far) == (2, 1, 0)
    gelu = STARTS["softmax"].file.cpp.replace("std::exp", "std::erf")
    assert gelu != STARTS["softmax"].file.cpp and cost_of(gelu) == softmax
    changed = cost_of("#pragma omp parallel for\nfor (;;) {\n#pragma omp atomic\nx += 1;}")
    assert changed == Cost(atomics=1, parallel=True)


def prior(start: Variant, move: str, static: bool = True) -> float:
    return dict(RuleProposer(start, static=static).priors(start))[move]


def test_far_elements_speak_for_another_order() -> None:
    assert prior(STARTS["matmul"], "loop_order") > prior(STARTS["matmul"], "loop_order", False)
    rules = RuleProposer(STARTS["matmul"])
    better = next(
        found.variant
        for number in range(2)
        if (found := rules.propose(STARTS["matmul"], "loop_order", number)) is not None
        and found.step.choice == "terms outside"
    )
    far = prior(STARTS["matmul"], "vectorize_global_loads")
    assert dict(rules.priors(better))["vectorize_global_loads"] > far


def test_exponentials_speak_for_hoisting() -> None:
    for name in ("softmax", "layernorm"):
        assert prior(STARTS[name], "hoist") > prior(STARTS[name], "hoist", False)


counts = st.integers(0, 50)


@given(st.builds(Cost, *[counts] * 9, atomics=counts, parallel=st.booleans()))
def test_factors_never_rule_a_move_out(cost: Cost) -> None:
    found = factors(cost)
    assert set(found) <= set(MOVES)
    assert all(LEAST <= factor <= MOST for factor in found.values())


@pytest.mark.parametrize("name", STARTS)
def test_priors_are_shares_of_the_same_moves(name: str) -> None:
    both = [RuleProposer(STARTS[name], static=static) for static in (True, False)]
    shares = [dict(each.priors(STARTS[name])) for each in both]
    assert list(shares[0]) == list(shares[1]) and all(share > 0 for share in shares[0].values())
    assert [sum(each.values()) for each in shares] == pytest.approx([1.0, 1.0])


def test_source_of_priors_is_named() -> None:
    start = STARTS["matmul"]
    assert source_of(RuleProposer(start)) == "static"
    assert source_of(RuleProposer(start, static=False)) == "moves"
    assert source_of(TextProposer(start.kernel(), {})) == "uniform"
    plain = RuleProposer(dataclasses.replace(start, applied=()))
    assert plain.priors(start) == RuleProposer(start).priors(start)
