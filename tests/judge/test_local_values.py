"""What counts as the right value: precision, state, seeds, structure, honesty."""

import re

import pytest

from kernelgym.types import Status
from support.programs import forward_only, problem
from support.timed_verdicts import timed_verdict

MATMUL = problem("return x @ y", "torch.randn(64, 300), torch.randn(300, 48)", arguments="x, y")


@pytest.mark.slow
def test_half_precision_is_not_single(strict):
    half = forward_only("return (x.half() @ y.half()).float()", "x, y")
    assert strict.evaluate(MATMUL, half).status is Status.WRONG
    bfloat = forward_only("return (x.bfloat16() @ y.bfloat16()).float()", "x, y")
    assert strict.evaluate(MATMUL, bfloat).status is Status.WRONG


def test_another_order_of_summation_is_honest(strict):
    loop = """
total = torch.zeros(64, 48)
for k in range(300):
    total += x[:, k:k + 1] * y[k:k + 1]
return total
"""
    assert strict.evaluate(MATMUL, forward_only(loop, "x, y")).correct


def test_remembering_the_first_answer_fails(strict):
    kernel = forward_only(
        "if self.kept is None:\n    self.kept = x @ y\nreturn self.kept",
        "x, y",
        constructor="self.kept = None",
    )
    verdict = strict.evaluate(MATMUL, kernel)
    assert verdict.status is Status.WRONG and verdict.trials_passed == 1


def test_replay_by_address_fails(strict):
    kernel = forward_only(
        "key = (x.data_ptr(), y.data_ptr())\n"
        "if key not in self.kept:\n    self.kept[key] = x @ y\nreturn self.kept[key]",
        "x, y",
        constructor="self.kept = {}",
    )
    assert strict.evaluate(MATMUL, kernel).status is Status.WRONG


def test_memory_never_written_does_not_look_like_zeros(strict):
    zeros = problem("return torch.zeros_like(x)", "torch.randn(50, 70)")
    kernel = forward_only("return torch.empty_like(x)")
    assert strict.evaluate(zeros, kernel).status is Status.WRONG


@pytest.mark.slow
def test_a_truth_value_never_written_is_not_true(timing):
    always = problem("return x < 10", "torch.randn(50, 70)")
    lazy = (
        "import sys\nframe = sys._getframe()\n"
        "while 'places' not in frame.f_locals:\n    frame = frame.f_back\n"
        "return frame.f_locals['places'][0]"
    )
    assert timing.evaluate(always, forward_only(lazy)).status is Status.WRONG
    assert timing.evaluate(always, forward_only("return x < 10")).correct


def test_changing_an_input_is_refused_unless_the_reference_does(strict, kernelbench):
    pure = problem("return torch.relu(x)", "torch.randn(30, 40)")
    in_place = forward_only("return x.relu_().clone()")
    verdict = strict.evaluate(pure, in_place)
    assert verdict.status is Status.WRONG and "input tensor 0" in verdict.message
    assert kernelbench.evaluate(pure, in_place).correct
    mutating = problem("return x.relu_()", "torch.randn(30, 40)")
    assert strict.evaluate(mutating, in_place).correct


def test_input_returned_for_new_memory_is_wrong_under_strict_alone(strict, kernelbench):
    clipped = problem("return x.clamp(0, 1)", "torch.rand(30, 40).softmax(-1)")
    assert strict.evaluate(clipped, forward_only("return x")).status is Status.WRONG
    assert strict.evaluate(clipped, forward_only("return x.clone()")).correct
    assert kernelbench.evaluate(clipped, forward_only("return x")).correct
    positive = problem("return x.abs()", "torch.rand(30, 40)")  # only as it is drawn here
    assert kernelbench.evaluate(positive, forward_only("return x")).correct
    assert strict.evaluate(positive, forward_only("return x")).status is Status.WRONG


def test_strides_are_the_references(strict, kernelbench):
    plain = problem("return x + 0", "torch.randn(30, 40)")
    turned = forward_only("return x.t().contiguous().t()")
    verdict = strict.evaluate(plain, turned)
    assert verdict.status is Status.WRONG
    assert "stride mismatch: expected [40, 1], got [1, 30]" in verdict.message
    assert kernelbench.evaluate(plain, turned).correct
    for body in ("return (x + 0).expand(1, 30, 40)[0]", "return nn.Parameter(x + 0)"):
        assert strict.evaluate(plain, forward_only(body)).correct


def test_where_the_reference_is_not_contiguous_the_kernel_may_be(strict):
    transposed = problem("return (x + 0).t()", "torch.randn(30, 40)")
    for body in ("return (x + 0).t()", "return (x + 0).t().contiguous()"):
        assert strict.evaluate(transposed, forward_only(body)).correct
    other = forward_only("return torch.zeros(40, 60)[:, ::2].copy_(x.t())")
    assert strict.evaluate(transposed, other).status is Status.WRONG
    several = problem("return x.t(), x + 0", "torch.randn(30, 40)")
    swapped = forward_only("return x.t().contiguous(), (x + 0).t().contiguous().t()")
    assert strict.evaluate(several, swapped).status is Status.WRONG


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return x.to_sparse()", "no readable|differ|shape|plain|tensor"),
        ("return x.numpy()", "ndarray"),
        ("return None", "scalar"),
        ("return (x + 0,)", "sequence"),
        ("return Lazy(x)", "Lazy"),
        ("return x.double()", "dtype mismatch: expected float32, got float64"),
        ("return x[:3] + 0", r"shape mismatch: expected \[30, 40\], got \[3, 40\]"),
        ("return x * float('nan')", "NaN or infinite"),
    ],
)
def test_outputs_of_another_kind(strict, body, says):
    plain = problem("return x + 0", "torch.randn(30, 40)")
    kernel = forward_only(body)
    source = kernel.source.replace(
        "\n\nclass ModelNew",
        "\n\nclass Lazy(torch.Tensor):\n    pass\n\n\nclass ModelNew",
    ).replace("Lazy(x)", "x.as_subclass(Lazy)")
    verdict = strict.evaluate(plain, type(kernel)(source, "triton"))
    assert verdict.status is Status.WRONG
    assert re.search(says, verdict.message), verdict.message


def test_tuples_integers_and_numbers(strict):
    several = problem("v, i = x.max(dim=1)\nreturn v, {'where': i, 'n': 3}", "torch.randn(30, 41)")
    right = "v, i = x.max(dim=1)\nreturn [v, {'where': i, 'n': 3}]"
    assert strict.evaluate(several, forward_only(right)).correct
    off = right.replace("'n': 3", "'n': 4")
    assert strict.evaluate(several, forward_only(off)).status is Status.WRONG
    off = right.replace("'where': i", "'where': (i + 1) % 41")
    assert strict.evaluate(several, forward_only(off)).status is Status.WRONG


def test_integer_inputs_stay_integers(strict, kernelbench):
    gather = problem(
        "return x[i]", "torch.randn(90, 7), torch.randint(0, 90, (33,))", arguments="x, i"
    )
    kernel = forward_only("assert i.dtype == torch.int64\nreturn x.index_select(0, i)", "x, i")
    assert strict.evaluate(gather, kernel).correct
    assert kernelbench.evaluate(gather, kernel).correct


def test_numbers_among_the_inputs_reach_the_kernel(strict):
    scale = problem("return x * s", "torch.randn(9, 9), float(torch.rand(()))", arguments="x, s")
    assert strict.evaluate(scale, forward_only("return s * x", "x, s")).correct


@pytest.mark.slow
def test_numbers_that_change_can_be_timed(timing):
    scale = problem("return x * s", "torch.randn(9, 9), float(torch.rand(()))", arguments="x, s")
    kernel = forward_only("return s * x", "x, s", language="cpp")
    verdict = timed_verdict(timing, scale, kernel)
    assert verdict.correct and verdict.timed, verdict


def test_inputs_whose_shape_changes_from_call_to_call(timing):
    ragged = problem("return x.cumsum(0)", "torch.randn(int(torch.randint(5, 400, ())), 3)")
    kernel = forward_only("return torch.cumsum(x, 0)", language="cpp")
    verdict = timing.evaluate(ragged, kernel)
    assert verdict.correct and not verdict.timed
    assert "shapes of its inputs change" in verdict.message


def test_expanded_inputs(strict):
    wide = problem("return x * 2", "torch.randn(5, 1).expand(5, 7)")
    assert strict.evaluate(wide, forward_only("return x + x")).correct


def test_a_model_that_counts_its_calls(timing):
    counting = problem(
        "self.calls += 1\nreturn x * self.calls",
        "torch.randn(30, 40)",
        init="self.register_buffer('calls', torch.zeros(()))",
    )
    kernel = forward_only(
        "self.calls += 1\nreturn x * self.calls",
        constructor="self.register_buffer('calls', torch.zeros(()))",
        language="cpp",
    )
    verdict = timed_verdict(timing, counting, kernel)
    assert verdict.correct and verdict.timed, verdict


def test_empty_and_scalar_tensors(strict):
    empty = problem("return x.t()", "torch.randn(0, 7)")
    assert strict.evaluate(empty, forward_only("return x.t().clone()")).correct
    scalar = problem("return x.sum()", "torch.randn(8, 9)")
    assert strict.evaluate(scalar, forward_only("return x.sum()")).correct


def test_weights_match_by_seed_in_both_rulesets(strict, kernelbench):
    layer = "self.layer = nn.Linear(31, 17)"
    linear = problem("return self.layer(x)", "torch.randn(20, 31)", init=layer)
    same = forward_only(
        "return x @ self.layer.weight.t() + self.layer.bias",
        constructor=layer,
    )
    other = forward_only(
        "return x @ self.w.t() + self.b",
        constructor="self.b = torch.zeros(17)\nself.w = torch.randn(17, 31)",
    )
    for evaluator in (strict, kernelbench):
        assert evaluator.evaluate(linear, same).correct
        assert evaluator.evaluate(linear, other).status is Status.WRONG


def test_constructor_arguments_reach_the_kernel(strict):
    made = problem(
        "return x * self.scale + self.shift",
        "torch.randn(20, 31)",
        init="self.scale = scale\nself.shift = shift",
        init_inputs="scale, shift",
    )
    source = made.source.replace("return []", "return [3, torch.arange(31.0)]")
    made = type(made)(made.id, made.suite, 1, made.name, source)
    kernel = forward_only("return x * self.scale + self.shift")
    source = kernel.source.replace("def __init__(self)", "def __init__(self, scale, shift)")
    source = source.replace(
        "super().__init__()", "super().__init__()\n        self.scale, self.shift = scale, shift"
    )
    assert strict.evaluate(made, type(kernel)(source, "triton")).correct


def test_dropout_draws_the_same_mask_on_both_sides(strict, kernelbench):
    dropout = problem("return torch.nn.functional.dropout(x, 0.2)", "torch.randn(40, 40)")
    kernel = forward_only("return nn.functional.dropout(x, 0.2, training=True)")
    assert strict.evaluate(dropout, kernel).correct
    assert kernelbench.evaluate(dropout, kernel).correct


def test_train_mode_batch_statistics(strict):
    norm = problem("return self.n(x)", "torch.randn(40, 5)", init="self.n = nn.BatchNorm1d(5)")
    kernel = forward_only(
        "m = x.mean(0)\nv = x.var(0, unbiased=False)\n"
        "return (x - m) / torch.sqrt(v + 1e-5) * self.n.weight + self.n.bias",
        constructor="self.n = nn.BatchNorm1d(5)",
    )
    assert strict.evaluate(norm, kernel).correct


def test_nan_must_stand_where_the_reference_has_it(strict):
    logarithm = problem("return torch.log(x)", "torch.randn(30, 40)")
    assert strict.evaluate(logarithm, forward_only("return torch.log(x)")).correct
    filled = forward_only("return torch.log(x).nan_to_num()")
    assert strict.evaluate(logarithm, filled).status is Status.WRONG
