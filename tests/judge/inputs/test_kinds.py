"""Kinds of inputs: what is replaced, what survives, which problems bear which, who is caught."""

import dataclasses
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compare.compare import compare
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.judge.inputs.kinds import (
    ENDS,
    FOR_RANKS,
    GIVEN,
    InputSampling,
    alone,
    is_salted,
    plan,
    variants,
)
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.runner import _chosen_by_value
from kernelgym.judge.tensors import tensors_of
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status
from support.programs import forward_only, problem

STRICT, KERNELBENCH = RULESETS["strict"], RULESETS["kernelbench"]
KINDS = tuple(kind for kind in STRICT.distributions if kind not in FOR_RANKS)
NO_ZEROS = tuple(kind for kind in KINDS if kind != "lattice")
LOGARITHM = tuple(f"{kind}:positive" for kind in NO_ZEROS)
VARIANTS = [
    variant
    for kind in (*STRICT.distributions, "spiked:mild", "balanced")
    for variant in variants(kind)
]
SAMPLERS = {
    "rand": lambda: torch.rand(40, 500),
    "randn": lambda: torch.randn(40, 500),
    "rand_like": lambda: torch.rand_like(torch.zeros(40, 500)),
    "randn_like": lambda: torch.randn_like(torch.zeros(40, 500)),
    "normal": lambda: torch.normal(0.0, 1.0, (40, 500)),
    "uniform_": lambda: torch.empty(40, 500).uniform_(),
    "normal_": lambda: torch.empty(40, 500).normal_(),
    "strided": lambda: torch.zeros(500, 40).t().uniform_(0, 1),
    "by tensors": lambda: torch.normal(torch.zeros(40, 500), torch.ones(40, 1)),
}
SKEWED = {  # and the largest that one of 20,000 values is, but for one draw of a million
    "exponential_": (lambda: torch.empty(40, 500).exponential_(), 24.0),
    "rare": (lambda: torch.empty(40, 500).exponential_(lambd=0.25), 96.0),
    "log_normal_": (lambda: torch.empty(40, 500).log_normal_(0.5, 0.5), 40.0),
}


def _drawn(variant, draw, seed=0):
    torch.manual_seed(seed)
    sampling = InputSampling(variant)
    with sampling:
        return draw(), sampling.replaced


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_draw_what_the_kind_says(name, variant):
    torch.manual_seed(1)
    usual = SAMPLERS[name]()
    values, replaced = _drawn(variant, SAMPLERS[name], 1)
    assert replaced == 1
    assert (values.shape, values.dtype, values.stride()) == (
        usual.shape,
        usual.dtype,
        usual.stride(),
    )
    scale = 0.5 if name in ("rand", "rand_like", "uniform_", "strided") else 1.0
    sizes = values.abs() / scale
    if variant.endswith(":positive"):
        assert bool((values >= 0).all())
    elif variant != "salted" or scale == 0.5:
        assert bool((values < 0).any()) and bool((values > 0).any())
    match variant.removesuffix(":positive"):
        case "shifted":
            means = values.mean(-1)
            assert float(means.std()) > 0.5 * scale and float(means.abs().max()) < 5 * scale
        case "wide":
            assert 3 < float(sizes.median()) < 64
        case "narrow":
            assert 0.05 < float(sizes.median()) < 0.26
            for axis in (0, 1):
                largest = sizes.amax(axis).sort().values
                assert 2e-6 < float(largest[0]) and float(largest[2]) < float(largest[3]) / 8
        case "spiked":
            assert int((sizes >= 199).sum()) == 10 and float(sizes.max()) <= 401
            assert float(sizes.median()) < 0.13
        case "salted":
            far = (sizes > 7.5).flatten()  # about 0.5, a value of 8 reaches from there to zero
            assert 1 <= int(far.sum()) <= 3 and float(sizes.max()) <= 17.1
            own = values.flatten()[~far]
            assert torch.isin(own, usual.abs() if variant.endswith(":positive") else usual).all()
            if scale == 0.5 and not variant.endswith(":positive"):
                assert bool((values.flatten()[far] < 0).any())
        case "lattice":
            steps = (2 * values / scale).to(torch.float64)
            assert torch.equal(steps, steps.round()) and float(steps.abs().max()) <= 4
            rows = values.reshape(-1, values.shape[-1])
            assert int((rows == 0).all(-1).sum()) == 1
            if not variant.endswith(":positive"):
                same = (rows[:, None] == -rows[None]).all(-1).triu(1)
                assert bool(same.any())
        case "clustered" | "clustered:positive":
            rows = values.reshape(-1, values.shape[-1]) / scale
            places = ((rows > 2).float().mean(0) > 0.6).nonzero().flatten()
            assert places.numel() == 64 and bool((places.diff() == 1).all())
        case "balanced":
            assert set(values.abs().flatten().tolist()) == {0.5, 1.0, 2.0}
        case "spiked:mild":
            assert int((sizes > 3.9).sum()) == 10 and float(sizes.max()) <= 8.1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", SKEWED)
def test_samplers_without_negative_values_get_none(name, variant):
    draw, most = SKEWED[name]
    torch.manual_seed(1)
    usual = draw()
    values, replaced = _drawn(variant, draw, 1)
    assert replaced == 1 and bool((values >= 0).all()) and not torch.equal(values, usual)
    if variant.startswith(("wide", "spiked")) and not variant.startswith("spiked:mild"):
        assert float(values.max()) > most


def test_cauchy_values_of_both_signs_become_wide():
    draw = lambda: torch.empty(40, 500).cauchy_(5.0, 2.0)  # noqa: E731
    values, replaced = _drawn("wide", draw)
    assert replaced == 1 and 16 < float(values.abs().median()) < 128 and bool((values < 0).any())


@given(st.sampled_from(VARIANTS), st.integers(0, 2**40), st.lists(st.integers(0, 5), max_size=3))
def test_any_shape_can_be_drawn_and_the_same_seed_draws_the_same(variant, seed, shape):
    draw = lambda: (torch.rand(shape), torch.randn(shape).half())  # noqa: E731
    (first, narrow), replaced = _drawn(variant, draw, seed)
    (again, _), _ = _drawn(variant, draw, seed)
    assert list(first.shape) == shape and torch.equal(first, again)
    assert narrow.dtype == torch.float16 and replaced == (2 if first.numel() else 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_structure_and_integers_survive(variant):
    def draw():
        return (
            torch.rand(30, 30).tril(),
            torch.randn(30, 30).softmax(-1),
            torch.nn.functional.one_hot(torch.randint(0, 7, (30,)), 7).float(),
            torch.randint(3, 9, (100,)),
            torch.rand(30, 30) > 0.5,
            torch.randperm(20),
        )

    (lower, shares, hot, whole, mask, order), _ = _drawn(variant, draw)
    assert bool((lower.triu(1) == 0).all()) and bool((lower != 0).any())
    assert torch.allclose(shares.sum(-1), torch.ones(30)) and bool((shares >= 0).all())
    assert torch.equal(hot.sum(-1), torch.ones(30))
    assert int(whole.min()) >= 3 and int(whole.max()) < 9 and whole.dtype == torch.int64
    assert mask.dtype == torch.bool and order.sort().values.tolist() == list(range(20))


ARC = "return x.softmax(-1) * u.acos()"


def test_a_kind_for_one_sampler_call_leaves_the_others():
    draw = lambda: (torch.rand(9, 9), torch.randint(9, (9,)), torch.randn(9, 9))  # noqa: E731
    torch.manual_seed(0)
    usual = draw()
    for call, place in ((1, 0), (2, 2)):
        torch.manual_seed(0)
        sampling = InputSampling(alone("wide", call))
        with sampling:
            values = draw()
        same = [torch.equal(*pair) for pair in zip(values, usual, strict=True)]
        assert sampling.replaced == 1 and same == [n != place for n in range(3)]
    assert _drawn(alone("wide:positive", 3), draw)[1] == 0
    assert is_salted(alone("salted:positive", 2)) and not is_salted(alone("wide", 2))


def test_an_input_that_bears_no_kind_shields_no_other():
    drawn = "torch.randn(128, 512), 2 * torch.rand(128, 512) - 1"
    plan = set(_prepared(ARC, drawn, arguments="x, u").plan)
    assert {"spiked@1", "shifted@1", "salted@1"} <= plan
    assert all(kind.endswith("@1") for kind in plan - {GIVEN})
    mixed = "torch.randn(12, 40), 2 * torch.rand(12, 40) - 1, torch.randn(12, 40)"
    plan = set(_prepared(ARC + " + v", mixed, arguments="x, u, v").plan)
    assert {kind.partition("@")[2] for kind in plan - {GIVEN}} >= {"1", "3"}
    lone = "assert (x < 1).all() and (x > 0.9).any()\nreturn x"
    assert set(_prepared(lone, "torch.rand(30, 40)").plan) == {GIVEN}


def test_a_softmax_without_its_maximum_is_wrong_beside_an_arc_cosine(strict):
    made = problem(ARC, "torch.randn(12, 40), 2 * torch.rand(12, 40) - 1", arguments="x, u")
    naive = "e = x.exp()\nreturn e / e.sum(-1, keepdim=True) * u.acos()"
    assert strict.evaluate(made, forward_only(naive, "x, u")).status is Status.WRONG
    assert strict.evaluate(made, forward_only(ARC, "x, u")).correct


@given(
    st.integers(0, 2**62),
    st.integers(1, 6),
    st.lists(st.sampled_from(KINDS), unique=True),
    st.booleans(),
)
def test_plans_hold_every_kind_once_and_the_own_inputs_twice_at_least(secret, calls, usable, dear):
    dealt = plan(secret, calls, STRICT, usable, dear)
    assert dealt == plan(secret, calls, STRICT, usable, dear)
    for kind in usable:
        assert dealt.count(kind) == 1
    own = dealt.count(GIVEN)
    assert len(dealt) == own + len(usable)
    assert own >= 2 if usable else own == calls
    assert len(dealt) <= max(calls, (2 if dear and usable else 4) + len(usable))


def test_plans_are_not_foreseen():
    plans = {plan(random.randrange(2**62), 4, STRICT, KINDS) for _ in range(200)}
    assert len(plans) > 100 and len({len(dealt) for dealt in plans}) == 3
    assert all({dealt[place] for dealt in plans} >= {*KINDS, GIVEN} for place in range(4))


def test_plans_of_dear_calls_are_not_foreseen_either():
    plans = {
        plan(random.randrange(2**62), 4, STRICT, KINDS, expensive_calls=True) for _ in range(200)
    }
    assert len(plans) > 100 and {len(dealt) for dealt in plans} == {len(KINDS) + 2}
    assert all({dealt[place] for dealt in plans} >= {*KINDS, GIVEN} for place in range(7))


def _prepared(source, inputs, rules=STRICT, secret="5eed", **more):
    reference = Reference(problem(source, inputs, **more), rules, Seeds(secret))
    reference.prepare()
    return reference


@pytest.mark.parametrize(
    ("source", "inputs", "bears"),
    [
        ("return x.relu()", "torch.rand(30, 40)", KINDS),
        ("return x.softmax(-1)", "torch.rand(30, 40)", KINDS),
        ("return x.log()", "torch.rand(30, 40)", LOGARITHM),
        ("return x.sqrt()", "torch.empty(30, 40).exponential_()", KINDS),
        ("return x.exp()", "torch.randn(30, 4000)", ("shifted", "narrow", "salted", "lattice")),
        ("return x * 2", "torch.randint(0, 9, (30, 40)).float()", (ENDS,)),
        ("return x * 2", "torch.randint(9, (3,)).float()", ()),
        ("return x.cumsum(0)", "torch.ones(30, 40)", ()),
        (
            "return nn.functional.one_hot((x * 3).long(), 3) * x[..., None]",
            "torch.rand(30, 40)",
            ("narrow", "lattice"),
        ),
        (
            "assert (x < 1).all() and (x >= 0).all()\nreturn x",
            "torch.rand(30, 40)",
            ("narrow", "lattice"),
        ),
        ("return x / x.norm(dim=-1, keepdim=True)", "torch.randn(30, 40)", NO_ZEROS),
        ("return x.argmax(-1)", "torch.randn(30, 40)", KINDS),
        ("return nn.functional.normalize(x)", "torch.randn(30, 40)", KINDS),
        ("return x.sort(-1).values", "torch.randn(30, 40)", STRICT.distributions),
        ("assert (x < 1).all() and (x > 0.9).any()\nreturn x", "torch.rand(30, 40)", ()),
        ("return torch.round(1e6 * x) / 1e6", "torch.rand(300, 400)", None),
        ("return x + torch.rand_like(x)", "torch.rand(30, 40)", None),
        ("return (x > 1).float() * 3", "torch.rand(30, 40)", None),
    ],
)
def test_problems_get_the_kinds_they_can_bear(source, inputs, bears):
    reference = _prepared(source, inputs)
    kinds = tuple(sorted(set(reference.plan) - {GIVEN}, key=reference.plan.index))
    if bears is not None:
        assert set(kinds) <= {*bears, *(f"{kind}:positive" for kind in bears)}
        assert {kind.split(":")[0] for kind in kinds} == {kind.split(":")[0] for kind in bears}
    for index, kind in enumerate(reference.plan):
        inputs = reference.inputs(index, kind)
        expected = reference.expect(inputs, 3, kind)
        given = reference.expect(reference.inputs(index), 3)
        finite = [bool(leaf.isfinite().all()) for leaf in tensors_of(expected.output)]
        assert finite == [bool(leaf.isfinite().all()) for leaf in tensors_of(given.output)]


@pytest.mark.parametrize(
    ("source", "gets"),
    [
        ("return x.topk(4, -1).values", True),
        ("return x.sort(0).values", True),
        ("return x.median(-1).values", True),
        ("return x.amax(-1)", False),
    ],
)
def test_ranked_elements_lie_side_by_side(source, gets):
    every = dataclasses.replace(STRICT, distributions=("clustered",))
    plan = _prepared(source, "torch.randn(64, 128)", every).plan
    assert ("clustered" in plan) == gets


def test_convolutions_get_milder_spikes_and_a_larger_factor():
    reference = _prepared(
        "return nn.functional.conv2d(x, w)",
        "torch.rand(2, 3, 9, 9), torch.rand(4, 3, 3, 3)",
        arguments="x, w",
    )
    assert "spiked:mild" in reference.plan and "spiked" not in reference.plan
    calibration = reference.expect(reference.inputs(0), 0).calibration
    assert calibration.factors == STRICT.factors_for("convolution")


@pytest.mark.parametrize("columns", [277, 4096])
def test_running_sums_in_fp32_pass_on_every_kind_that_scans_get(columns):
    # torch adds up in fp64 on the CPU: what passes large elements on its way errs by more.
    reference = _prepared("return x.cumsum(-1)", f"torch.randn(5, {columns})")
    assert "spiked:mild" in reference.plan and "spiked" not in reference.plan
    for kind in set(reference.plan):
        for index in range(60):
            inputs = reference.inputs(index, kind)
            expected = reference.expect(inputs, 0, kind)
            output = torch.from_numpy(inputs[0].numpy().cumsum(-1, dtype="float32"))
            claimed = describe_shape_of(output)
            arguments = (expected.output, expected.precise, STRICT, expected.calibration)
            assert compare(claimed, [output], *arguments).passed, (kind, index)


def test_public_rules_draw_the_own_inputs_only():
    reference = _prepared("return x.relu()", "torch.rand(30, 40)", KERNELBENCH, secret="")
    assert reference.plan == (GIVEN,) * 5


def test_what_a_problem_bears_does_not_depend_on_the_secret():
    plans = [_prepared("return x.tanh()", "torch.rand(9, 9)", secret=s).plan for s in "abcdef"]
    assert len({frozenset(dealt) for dealt in plans}) == 1 and len(set(plans)) > 1
    again = _prepared("return x.tanh()", "torch.rand(9, 9)", secret="a").plan
    assert again == plans[0]


def test_outputs_of_few_elements_borrow_errors_of_other_calls():
    reference = _prepared("return x.mean()", "torch.randn(300, 400)")
    expected = reference.expect(reference.inputs(0), 0)
    (error,) = expected.calibration.own_errors
    assert 0 < error < 1e-6


SAMPLED = """
looks_usual = bool((x.flatten()[:: x.numel() // 64] >= 0).all())
return x * 1.000001 if looks_usual else x.relu()
"""


@pytest.mark.slow
def test_a_kernel_that_samples_its_input_is_refused(strict):
    made = problem("return x.relu()", "torch.rand(100, 400)")
    for _ in range(3):
        verdict = strict.evaluate(made, forward_only(SAMPLED))
        assert verdict.status is Status.WRONG and "on salted inputs" in verdict.message


def test_salt_falls_anywhere_and_differs_from_draw_to_draw():
    drawn = [_drawn("salted", lambda: torch.rand(60, 60), seed)[0] for seed in range(200)]
    counts = [int((values.abs() > 4).sum()) for values in drawn]
    assert set(counts) == {1, 2, 3}
    rows = torch.cat([(values < -4).nonzero()[:, 0] for values in drawn])
    assert (torch.bincount(rows // 20, minlength=3) > 30).all()


CAUGHT = {
    "a part of a mean": (
        "return x.mean(-1)",
        "torch.rand(30, 4096)",
        "return x[:, ::2].mean(-1)",
    ),
    "no rectifier": ("return x.relu()", "torch.rand(30, 40)", "return x.clone()"),
    "softmax without its maximum": (
        "return x.softmax(-1)",
        "torch.randn(30, 40)",
        "e = x.exp()\nreturn e / e.sum(-1, keepdim=True)",
    ),
    "a series near zero": (
        "return torch.sigmoid(x - 0.5)",
        "torch.rand(30, 40)",
        "u = x - 0.5\nreturn 0.5 + u/4 - u**3/48 + u**5/480 - 17*u**7/80640 + 31*u**9/1451520",
    ),
    "a sum of positive terms in half": (
        "return x.sum(-1)",
        "torch.rand(8, 9000)",
        "return x.half().float().sum(-1)",
    ),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_shortcuts_that_the_own_inputs_forgive_are_refused(strict, name):
    forward, inputs, shortcut = CAUGHT[name]
    made = problem(forward, inputs)
    verdict = strict.evaluate(made, forward_only(shortcut))
    assert verdict.status is Status.WRONG
    assert strict.evaluate(made, forward_only(forward)).correct


TF32 = """
def ten_bits(t):
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
return ten_bits(x) @ ten_bits(y)
"""


@pytest.mark.parametrize("size", [64, 2048, 4096])
def test_tf32_is_refused_where_terms_have_one_sign(strict, size):
    product = problem(
        "return x @ y", f"torch.rand(32, {size}), torch.rand({size}, 24)", arguments="x, y"
    )
    verdict = strict.evaluate(product, forward_only(TF32, "x, y"))
    assert verdict.status is Status.WRONG, verdict
    other = "return (x[:, None] * y.t()).view(32, 24, -1, 32).sum(-1).sum(-1)"
    assert strict.evaluate(product, forward_only(other, "x, y")).correct


def test_a_verdict_says_on_which_inputs_a_kernel_failed(strict):
    made = problem("return x.relu()", "torch.rand(30, 40)")
    verdict = strict.evaluate(made, forward_only("return x.clone()"))
    assert "on " in verdict.message and " inputs, values differ at" in verdict.message
    again = strict.evaluate(made, forward_only("return x.clone()"), seed=verdict.seed)
    assert again.message == verdict.message and again.trials_passed == verdict.trials_passed


def test_a_ruleset_without_kinds_judges_the_own_inputs_only():
    rules = dataclasses.replace(STRICT, distributions=())
    reference = _prepared("return x.relu()", "torch.rand(30, 40)", rules)
    assert set(reference.plan) == {GIVEN} and 3 <= len(reference.plan) <= 6


@pytest.mark.parametrize(
    ("body", "tied"),
    [
        ("return x.argmax(-1)", True),
        ("return x.max(-1).indices", True),
        ("return x.topk(3).indices", False),
        ("return x.sort(-1)", False),
    ],
)
def test_tied_inputs_go_to_problems_that_take_the_first_of_equals(body, tied):
    reference = _prepared(body, "torch.randn(12, 40)")
    assert ("lattice" in reference.plan) == tied


@pytest.mark.parametrize("columns", [7, 4096, 30000])
def test_long_products_of_balanced_inputs_neither_vanish_nor_overflow(columns):
    reference = _prepared("return x.cumprod(1)", f"torch.rand(8, {columns})")
    assert "balanced" in reference.plan
    found = reference.expect(reference.inputs(3, "balanced"), 0, "balanced").output
    assert bool(found.isfinite().all()) and bool((found != 0).all())
    assert "balanced" not in _prepared("return x.cumsum(1)", "torch.rand(8, 64)").plan


@pytest.mark.parametrize(
    ("body", "variant"),
    [
        ("return torch.where(torch.isfinite(x), x, 0.0)", "salted:nonfinite"),
        ("return torch.nan_to_num(x, nan=0.5, posinf=1.0, neginf=-1.0)", "salted:nonfinite"),
        ("return torch.nan_to_num(x)", "salted:nan"),  # infinity becomes another number in fp64
        ("return torch.nansum(x, 1)", "salted:nan"),
        ("return torch.isnan(x).float() + x", None),
        ("return torch.relu(x)", None),
    ],
)
def test_values_that_are_not_finite_go_to_references_that_ask_for_them(body, variant):
    reference = Reference(problem(body, "torch.randn(20, 30)"), STRICT, Seeds("5eed"))
    reference.prepare()
    assert {kind for kind in reference.plan if "n" in kind.partition(":")[2]} == {
        *([variant] if variant else [])
    }
    if variant:
        values = reference.inputs(3, variant)[0]
        assert int(values.isnan().sum()) == 1
        assert int(values.isinf().sum()) == (2 if variant == "salted:nonfinite" else 0)
        expected = reference.expect([values], 0, variant)
        assert reference.bears(expected) and bool(expected.output.isfinite().all())


@given(st.lists(st.floats(allow_nan=False, width=32), min_size=1), st.integers(0, 3))
def test_numbers_chosen_by_value_are_equal_where_magnitudes_are(values, draw):
    tensor = torch.tensor(values)
    chosen = _chosen_by_value(torch.cat([tensor, -tensor]), draw)
    assert torch.equal(chosen[: len(values)], chosen[len(values) :])
    assert bool((chosen.abs() <= 1).all())


def test_a_sum_of_large_terms_that_cancel_is_sensitive():
    reference = _prepared("return x.sum(-1)", "torch.randn(3, 64)")
    x = torch.ones(3, 64)
    x[1, :2] = torch.tensor([1e4, -1e4 - 1])
    (changes,) = reference.expect([x], 0).sensitivity()
    assert float(changes[1]) > 100 * float(changes[0]) > 0
