"""Integers drawn within bounds: which get both ends of their range, and who is caught by that."""

import pytest
import torch

from kernelgym.judge.inputs.kinds import ENDS, InputSampling
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status
from support.programs import forward_only, problem


def _drawn(draw, seed):
    torch.manual_seed(seed)
    sampling = InputSampling(ENDS)
    with sampling:
        return draw(), sampling.replaced


def _prepared(source, inputs, arguments):
    case = problem(source, inputs, arguments=arguments)
    reference = Reference(case, RULESETS["strict"], Seeds("5eed"))
    reference.prepare()
    return reference


LAST_ROW = "return self.t(x).masked_fill(x[..., None] == 29_999, 0.0)"


def test_leaving_out_the_last_row_of_a_large_table_is_wrong(strict):
    table = "self.t = nn.Embedding(30_000, 4)"
    made = problem("return self.t(x)", "torch.randint(0, 30_000, (4, 8))", init=table)
    verdict = strict.evaluate(made, forward_only(LAST_ROW, constructor=table))
    assert verdict.status is Status.WRONG and f"on {ENDS} inputs" in verdict.message
    assert strict.evaluate(made, forward_only("return self.t(x)", constructor=table)).correct


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randint(3, 50_000, (40, 50)),
        lambda: torch.randint(3, high=50_000, size=(40, 50), dtype=torch.float32),
        lambda: torch.randint(low=3, high=50_000, size=(40, 50)),
        lambda: torch.randint(50_000 - 3, (40, 50)) + 3,
        lambda: torch.randint_like(torch.zeros(40, 50), 3, 50_000),
        lambda: torch.empty(50, 40, dtype=torch.int32).t().random_(3, 50_000),
        lambda: torch.empty(40, 50).random_(to=49_997) + 3,
    ],
)
def test_integers_within_bounds_get_both_ends_at_secret_places(draw):
    places = set()
    for seed in range(20):
        torch.manual_seed(seed)
        usual = draw()
        values, replaced = _drawn(draw, seed)
        assert replaced == 1 and (values.dtype, values.stride()) == (usual.dtype, usual.stride())
        assert int(values.min()) == 3 and int(values.max()) == 49_999
        assert values.unique().numel() < values.numel() and int((values != usual).sum()) <= 3
        places.add(int(values.flatten().argmax()))
    assert len(places) > 10


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randperm(40),
        lambda: torch.randint(7, (3,)),
        lambda: torch.randint(2, 3, (40,)),
        lambda: torch.empty(40).random_(),
        lambda: torch.randn(40),
    ],
)
def test_what_is_no_integer_of_a_known_range_stays(draw):
    torch.manual_seed(0)
    usual = draw()
    values, replaced = _drawn(draw, 0)
    assert torch.equal(values, usual) and not replaced


def test_integers_that_are_rarely_equal_stay_different():
    for seed in range(50):
        values, _ = _drawn(lambda: torch.randint(2**40, (16,)), seed)
        assert values.unique().numel() == 16 and int(values.max()) == 2**40 - 1


def test_other_integers_tell_of_timed_calls_where_nothing_else_does():
    alone = _prepared("return w[x]", "torch.randint(9, (40,)), torch.ones(9, 5)", arguments="x, w")
    assert alone.telltales == (ENDS,)
    both = _prepared("return w[x]", "torch.randint(9, (40,)), torch.rand(9, 5)", arguments="x, w")
    assert ENDS in both.usable_kinds and both.telltales == ("salted",)
