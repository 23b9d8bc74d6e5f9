"""Constant state: what counts as such, what takes its place, and who has to keep its names."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference import examine
from kernelgym.judge.reference.fixed_state import (
    fixed_state,
    partly,
    put_state,
    renewed_together,
    vary,
)
from kernelgym.judge.reference.reference import Reference
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status
from support.programs import forward_only, problem

STRICT = RULESETS["strict"]
NORM = problem("return self.ln(x)", "torch.randn(20, 64)", init="self.ln = nn.LayerNorm(64)")
CENTRED = (
    "c = x - x.mean(-1, keepdim=True)\ny = c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-5)\n"
)
FULL = CENTRED + "return y * self.ln.weight + self.ln.bias"
LAYER = "self.ln = nn.LayerNorm(64)"


class _Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5)
        self.linear = nn.Linear(4, 5)
        self.tied = self.norm.weight
        self.register_buffer("mask", torch.full((3,), float("-inf")))
        self.register_buffer("shadow", torch.zeros(3), persistent=False)
        self.register_buffer("empty", torch.zeros(0))
        self.slope = nn.Parameter(torch.tensor(0.25))


def test_constant_state_is_what_holds_one_finite_number():
    found = fixed_state(_Mixed(), _Mixed())
    assert set(found) == {
        "tied",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "slope",
    } or set(found) == {
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "slope",
    }


@given(
    st.floats(-1e3, 1e3, width=32).filter(lambda value: abs(value) > 1e-3 or value == 0),
    st.integers(0, 2**62),
)
def test_values_keep_their_sign_and_size(centre, seed):
    constants = {"a": torch.full((40, 3), centre), "b": torch.full((), centre).half()}
    drawn = vary(constants, seed)
    again = vary(constants, seed)
    for name, value in drawn.items():
        assert value.shape == constants[name].shape and value.dtype == constants[name].dtype
        assert torch.equal(value, again[name])
        low, high = sorted((centre * 0.499, centre * 1.501)) if centre else (-0.5, 0.5)
        assert bool((value >= low).all()) and bool((value <= high).all())
    assert drawn["a"].unique().numel() > 50
    assert not torch.equal(vary(constants, seed + 1)["a"], drawn["a"])


@given(st.integers(0, 2**62), st.integers(1, 40), st.sampled_from((1e-4, 1e-3)))
def test_some_variances_are_small_but_not_too_small(seed, size, smallest):
    constants = {"norm.running_var": torch.ones(size), "norm.weight": torch.ones(size)}
    drawn = vary(constants, seed, smallest)
    variance = drawn["norm.running_var"]
    small = variance < 0.4
    assert bool((variance > 0.49 * smallest).all()) and 1 <= int(small.sum())
    assert bool((variance[small] <= 0.016).all()) and bool((drawn["norm.weight"] > 0.4).all())


def test_unsteady_variances_are_less_small(monkeypatch):
    answers = iter([False, True])
    monkeypatch.setattr(examine, "_is_steady", lambda *_: next(answers, True))
    norm = "self.norm = nn.BatchNorm1d(64).eval()"
    case = problem("return self.norm(x)", "torch.randn(20, 64)", init=norm)
    reference = Reference(case, dataclasses.replace(STRICT, small_variances=True), Seeds("5eed"))
    reference.prepare()
    variance = reference.state["norm.running_var"]
    assert 0.49e-3 < float(variance.min()) < 0.016


@pytest.mark.parametrize(
    ("init", "forward", "expected"),
    [
        (
            "self.n = nn.LayerNorm(64)\nself.register_buffer('bound', torch.ones(64))",
            "return torch.asin(self.bound * torch.tanh(self.n(x)))",
            {"n.weight": 0.5, "n.bias": 0.5},
        ),
        (  # an arc sine bears 0.99 times anything below 1 changed by up to 0.5 %
            "self.register_buffer('near', torch.full((64,), 0.99))",
            "return x * torch.asin(self.near)",
            {"near": 0.005},
        ),
        (
            "for n in range(40):\n"
            "    self.register_buffer(f'b{n}', torch.full((8,), 1.0 + n / 40))",
            "all_of_them = sum(dict(self.named_buffers()).values())\n"
            "return x[:, :8] * (2 + all_of_them) * (1 - self.b0).sqrt()",
            {f"b{n}": 0.5 for n in range(1, 40)},
        ),
    ],
)
def test_a_constant_that_cannot_change_shields_no_other(init, forward, expected):
    reference = Reference(problem(forward, "torch.randn(20, 64)", init=init), STRICT, Seeds("ab"))
    reference.prepare()
    assert dict(reference.examine().varied) == expected
    assert reference.state.keys() == expected.keys()


def test_variances_become_small_beside_a_constant_that_cannot_change():
    init = "self.norm = nn.BatchNorm1d(64).eval()\nself.register_buffer('one', torch.ones(64))"
    forward = "return self.norm(x) + torch.log(2 - self.one) + torch.sqrt(1 - self.one)"
    case = problem(forward, "torch.randn(20, 64)", init=init)
    reference = Reference(case, dataclasses.replace(STRICT, small_variances=True), Seeds("5eed"))
    reference.prepare()
    assert "one" not in reference.state and "norm.weight" in reference.state
    assert bool((reference.state["norm.running_var"] < 0.02).any())


def test_small_variances_need_a_layer_that_bears_them():
    rules = dataclasses.replace(STRICT, small_variances=True)
    norm = "self.norm = nn.BatchNorm1d(64).eval()"
    plain = problem("return self.norm(x)", "torch.randn(20, 64)", init=norm)
    without = problem("return (x / self.norm.running_var).exp()", "torch.randn(20, 64)", init=norm)
    for case, expected in ((plain, True), (without, False)):
        reference = Reference(case, rules, Seeds("5eed"))
        reference.prepare()
        assert bool((reference.state["norm.running_var"] < 0.02).any()) == expected


class _Shaped(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.drawn = nn.Linear(4, 4)
        self.scalar = nn.Parameter(torch.randn(()))
        self.given = nn.Parameter(given)
        self.square = nn.Linear(4, 4, bias=False)
        nn.init.eye_(self.square.weight)
        self.rates = nn.Parameter(torch.log(torch.arange(1.0, 9.0)))
        self.register_buffer("mask", torch.tril(torch.ones(4, 4)))
        self.register_buffer("shift", torch.eye(4))
        self.register_buffer("index", torch.arange(4))
        self.register_buffer("places", torch.arange(6.0), persistent=False)
        self.register_buffer("bias", torch.tensor([0.5, float("-inf"), 2.0]))


def test_fixed_state_is_what_two_constructions_have_in_common():
    first, second = (_Shaped(torch.randn(3)) for _ in range(2))
    assert set(fixed_state(first, second)) == {"square.weight", "rates", "shift", "bias"}


def test_structured_state_moves_everywhere_and_keeps_what_it_needs():
    model = _Shaped(torch.randn(3))
    drawn = vary(fixed_state(model, _Shaped(torch.randn(3))), 7)
    square = drawn["square.weight"]
    assert bool((square.diagonal() >= 0.5).all()) and bool((square != torch.eye(4)).all())
    assert float(square.abs().fill_diagonal_(0.0).max()) <= 0.25  # half of the root mean square
    assert bool((drawn["rates"].diff() > 0).all())
    assert drawn["bias"].isinf().tolist() == [False, True, False]


@given(st.integers(0, 2**62), st.sampled_from((0.5, 0.05, 0.005)))
def test_a_strength_bounds_the_changes(seed, strength):
    table = torch.linspace(0.25, 4.0, 40).reshape(5, 8)
    moved = vary({"table": table}, seed, strengths={"table": strength})["table"]
    assert bool((moved.diff() > 0).all()) and not torch.equal(moved, table)
    assert float(moved.min()) >= 0.25 * (1 - strength) - 1e-6
    assert float(moved.max()) <= 4.0 * (1 + strength) + 1e-6


@pytest.mark.parametrize(
    ("table", "forward", "change"),
    [
        ("torch.linspace(0.1, 2, 64)", "return x * self.t", 0.5),
        ("torch.linspace(0.01, 0.99, 64)", "return x * torch.log(1 - self.t)", 0.005),
        ("torch.linspace(0.01, 0.999999, 64)", "return x * torch.log(1 - self.t)", 0.0),
    ],
)
def test_structured_state_moves_as_far_as_the_reference_bears(table, forward, change):
    init = f"self.t = nn.Parameter({table})\nself.w = nn.Parameter(torch.randn(3))"
    reference = Reference(problem(forward, "torch.randn(20, 64)", init=init), STRICT, Seeds("ab"))
    reference.prepare()
    assert set(reference.state) == ({"t"} if change else set())
    for value in reference.state.values():
        before = eval(table)
        assert 0.2 * change < float((value / before - 1).abs().max()) <= change + 1e-5


@given(st.integers(0, 2**62), st.sampled_from([(), (1,), (300,), (40, 30)]))
def test_few_values_of_every_tensor_are_replaced_together(seed, shape):
    old, new = {"a": torch.zeros(shape)}, {"a": torch.rand(shape) + 1}
    changed = partly(old, new, seed, {"a"})["a"] != 0
    assert 1 <= int(changed.sum()) <= max(1, changed.numel() // 8)
    if len(shape) > 1:  # some columns of some rows
        assert torch.equal(changed, changed.any(1)[:, None] & changed.any(0)[None])


@given(st.integers(0, 2**62))
def test_no_row_and_no_column_tells_whether_a_table_changed(seed):
    old, new = {"a": torch.zeros(400, 300)}, {"a": torch.ones(400, 300)}
    changed = partly(old, new, seed, {"a"})["a"] != 0
    assert 1 <= int(changed.any(1).sum()) < 100 and 1 <= int(changed.any(0).sum()) < 100


@given(st.sets(st.text(max_size=3), min_size=1, max_size=9), st.integers(0, 2**62))
def test_of_two_tensors_each_changes_while_the_other_stays(names, seed):
    pairs = max(1, (len(names) - 1).bit_length())
    renewals = [renewed_together(names, 1 + n, seed) for n in range(2 * pairs)]
    for first, second in zip(renewals[::2], renewals[1::2], strict=True):
        assert len(names) == 1 or (first and second and not first & second)
        assert first | second == names
    for one, other in itertools.permutations(names, 2):
        assert any(one in changed and other not in changed for changed in renewals)


def test_tensors_that_are_not_named_stay():
    old, new = ({name: torch.full((8,), value) for name in "ab"} for value in (0.0, 1.0))
    mixed = partly(old, new, 5, {"b"})
    assert torch.equal(mixed["a"], old["a"]) and not torch.equal(mixed["b"], old["b"])


@given(st.integers(0, 2**62), st.sampled_from([1.0, -1.0]))
def test_vector_that_rises_or_falls_keeps_doing_so(seed, sign):
    old = torch.linspace(0, sign, 50)
    moved = partly({"a": old}, {"a": old + 1}, seed, {"a"})["a"]
    assert 1 <= int((moved != old).sum()) <= 25 and bool((sign * moved.diff() > 0).all())


def test_renewed_state_reaches_the_model_and_its_twin():
    reference = Reference(NORM, STRICT, Seeds("5eed"))
    reference.prepare()
    first, inputs = reference.state["ln.weight"], reference.inputs(0)
    before = reference.expect(inputs, 0)
    changed = []
    for _ in range(2):
        last = reference.state
        reference.renew_state()
        changed += [name for name in last if not torch.equal(last[name], reference.state[name])]
    assert sorted(changed) == ["ln.bias", "ln.weight"]
    renewed = reference.state["ln.weight"]
    assert 1 <= int((first != renewed).sum()) < 16
    after = reference.expect(inputs, 0)
    assert not torch.equal(before.output, after.output)
    assert torch.allclose(after.output.double(), after.precise, atol=1e-5)
    outdated = reference.with_outdated_state(inputs, 0)[1]
    assert not torch.equal(outdated.output, after.output)
    reference.begin_state()
    assert torch.equal(reference.state["ln.weight"], first)


def renewals(secret, calls, elements=64):
    """Return whether state is renewed, by the index of the judged call."""
    reference = Reference(NORM, STRICT, Seeds(f"{secret:x}"))
    reference.plan, reference.state = [GIVEN] * calls, {"weight": torch.ones(elements)}
    return [reference.is_renewed_at(index) for index in range(calls)]


@given(st.integers(0, 2**32), st.integers(2, 20))
def test_state_is_renewed_before_every_call_from_one_in_the_first_half_on(secret, calls):
    renewed = renewals(secret, calls)
    assert not renewed[0] and renewed == sorted(renewed)
    assert renewed.index(True) <= max(1, calls // 2)


@given(st.integers(0, 2**32), st.integers(4, 20))
def test_large_state_is_renewed_twice(secret, calls):
    assert sum(renewals(secret, calls, 2 << 20)) == 2


def test_call_at_which_renewal_begins_is_secret():
    assert len({renewals(secret, 10).index(True) for secret in range(30)}) > 2


def test_problem_without_fixed_state_renews_none():
    reference = Reference(problem("return x.relu()", "torch.randn(20, 64)"), STRICT, Seeds("5eed"))
    reference.prepare()
    assert not any(map(reference.is_renewed_at, range(len(reference.plan))))


def test_put_state_writes_by_name():
    model = _Mixed()
    values = vary(fixed_state(model, _Mixed()), 5)
    put_state(model, values)
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in values.items())
    assert bool((state["norm.running_var"] > 0).all()) and bool(state["mask"].isinf().all())


def test_both_sides_get_the_same_values_and_they_are_secret():
    made = [Reference(NORM, STRICT, Seeds(secret)) for secret in ("a", "a", "b")]
    assert made[0].state == {}
    for reference in made:
        reference.prepare()
    first, again, other = (reference.state["ln.weight"] for reference in made)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(made[0].model.state_dict()["ln.weight"], first)
    expected = made[0].expect(made[0].inputs(0), 0)
    assert torch.allclose(expected.output.double(), expected.precise, atol=1e-5)


def test_honest_kernels_read_their_parameters(strict, timing, kernelbench):
    kernel = forward_only(FULL, constructor=LAYER)
    for evaluator in (strict, kernelbench):
        assert evaluator.evaluate(NORM, kernel).correct
    timed = timing.evaluate(NORM, dataclasses.replace(kernel, language="cpp"))
    assert timed.correct, timed  # the same state reached the process that times the reference


def test_parameters_kept_from_the_first_call_are_wrong_unless_made_anew(strict):
    kept = (
        "if self.kept is None or {again}:\n"
        "    self.kept = self.ln.weight.detach().clone(), self.ln.bias.detach().clone()\n"
        "    self.version = self.ln.weight._version, self.ln.bias._version\n"
        + CENTRED
        + "return y * self.kept[0] + self.kept[1]"
    )
    start = LAYER + "\nself.kept = None"
    verdict = strict.evaluate(NORM, forward_only(kept.format(again="False"), constructor=start))
    assert verdict.status is Status.WRONG and "nor in the first call alone" in verdict.message
    anew = kept.format(again="self.version != (self.ln.weight._version, self.ln.bias._version)")
    assert strict.evaluate(NORM, forward_only(anew, constructor=start)).correct
    for one in ("weight", "bias"):
        again = f"self.version[{int(one == 'bias')}] != self.ln.{one}._version"
        kernel = forward_only(kept.format(again=again), constructor=start)
        assert strict.evaluate(NORM, kernel).status is Status.WRONG


def test_parameters_kept_until_some_of_them_change_are_wrong(strict):
    body = (
        "if self.kept is None or bool((self.ln.weight[:8] != self.kept[0][:8]).any()):\n"
        "    self.kept = self.ln.weight.detach().clone(), self.ln.bias.detach().clone()\n"
        + CENTRED
        + "return y * self.kept[0] + self.kept[1]"
    )
    kernel = forward_only(body, constructor=LAYER + "\nself.kept = None")
    # Of one change of a few values, the kernel notices every seventh.
    for seed in range(20):
        assert strict.evaluate(NORM, kernel, seed=str(seed)).status is Status.WRONG


def test_skipping_constant_parameters_is_wrong(strict, kernelbench):
    skipping = forward_only(CENTRED + "return y", constructor=LAYER)
    assert strict.evaluate(NORM, skipping).status is Status.WRONG
    assert kernelbench.evaluate(NORM, skipping).correct  # as in KernelBench


@pytest.mark.parametrize(
    ("constructor", "body"),
    [
        ("", "return y"),
        (
            "self.w = nn.Parameter(torch.ones(64))\nself.b = nn.Parameter(torch.zeros(64))",
            "return y",
        ),
        ("self.ln = nn.LayerNorm((1, 64))", "return y"),
        ("self.ln = 3", "return y"),
    ],
)
def test_names_and_shapes_must_be_kept(strict, kernelbench, constructor, body):
    kernel = forward_only(CENTRED + body, constructor=constructor)
    verdict = strict.evaluate(NORM, kernel)
    assert verdict.status is Status.RUNTIME_ERROR
    assert "no parameter 'ln.weight' of shape [64]: keep the reference's names" in verdict.message
    assert kernelbench.evaluate(NORM, kernel).correct


def test_plain_attributes_and_other_classes_of_module_count(strict):
    for holder in ("nn.Module()", "type('Holder', (), {})()"):
        constructor = f"self.ln = {holder}\nself.ln.weight = torch.ones(64)\n"
        constructor += "self.ln.bias = torch.zeros(64)"
        assert strict.evaluate(NORM, forward_only(FULL, constructor=constructor)).correct


def test_state_without_influence_may_be_missing(strict):
    norm = problem("return self.n(x)", "torch.randn(40, 5)", init="self.n = nn.BatchNorm1d(5)")
    kernel = forward_only(
        "m = x.mean(0)\nv = x.var(0, unbiased=False)\n"
        "return (x - m) / torch.sqrt(v + 1e-5) * self.n.weight + self.n.bias",
        constructor="self.n = nn.Module()\nself.n.weight = nn.Parameter(torch.ones(5))\n"
        "self.n.bias = nn.Parameter(torch.zeros(5))",
    )
    assert strict.evaluate(norm, kernel).correct
    idle = problem("return x + 1", "torch.randn(4, 5)", init="self.n = nn.BatchNorm1d(5)")
    assert strict.evaluate(idle, forward_only("return 1 + x")).correct


def test_evaluation_mode_reads_running_statistics(strict):
    fixed = "return nn.functional.batch_norm(x, self.n.running_mean, self.n.running_var, eps=1e-5)"
    norm = problem(fixed, "torch.randn(40, 5)", init="self.n = nn.BatchNorm1d(5)")
    assert strict.evaluate(
        norm, forward_only(fixed, constructor="self.n = nn.BatchNorm1d(5)")
    ).correct
    verdict = strict.evaluate(norm, forward_only("return x / (1 + 1e-5) ** 0.5"))
    assert verdict.status is Status.RUNTIME_ERROR and "'n.running_mean'" in verdict.message


def test_packing_random_weights_is_legal_and_packing_constants_is_not(strict):
    layers = "self.fc = nn.Linear(30, 20)\nself.ln = nn.LayerNorm(20)"
    both = problem("return self.ln(self.fc(x))", "torch.randn(9, 30)", init=layers)
    body = (
        "y = x @ self.packed + self.fc.bias\n"
        "return nn.functional.layer_norm(y, (20,), {weight}, self.ln.bias)"
    )
    packed = layers + "\nself.packed = self.fc.weight.detach().t().contiguous()"
    kernel = forward_only(body.format(weight="self.ln.weight"), constructor=packed)
    assert strict.evaluate(both, kernel).correct
    stale = packed + "\nself.stale = self.ln.weight.detach().clone()"
    kernel = forward_only(body.format(weight="self.stale"), constructor=stale)
    assert strict.evaluate(both, kernel).status is Status.WRONG


def test_constants_that_the_problem_needs_as_they_are_stay(strict):
    needed = problem(
        "return x * torch.sqrt(1 - self.one)",
        "torch.randn(9, 30)",
        init="self.register_buffer('one', torch.zeros(30))\nself.one += 1",
    )
    reference = Reference(needed, STRICT, Seeds("ab"))
    reference.prepare()
    assert reference.state == {}


def test_without_the_rule_nothing_is_replaced():
    rules = dataclasses.replace(STRICT, perturb_state=False)
    reference = Reference(NORM, rules, Seeds("ab"))
    reference.prepare()
    assert reference.state == {} and "wide" in reference.plan
    assert bool((reference.model.state_dict()["ln.weight"] == 1).all())
