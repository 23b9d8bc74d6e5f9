"""Large problems: the fp64 twin runs on blocks of rows where rows do not depend on each other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kernelgym.errors import DeviceFull, JudgeError
from kernelgym.judge.compare.compare import Calibration, RowBlocks, byte_copy, compare
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference import reference
from kernelgym.judge.reference import runner as module
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.runner import InputsChanged, ReferenceRunner
from kernelgym.rulesets import RULESETS, ErrorFactors
from support.programs import problem

STRICT = RULESETS["strict"]
CPU = torch.device("cpu")


class _Calling(nn.Module):
    def __init__(self, function, **parameters):
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            setattr(self, name, nn.Parameter(value))

    def forward(self, *inputs):
        return self.function(self, *inputs)


@pytest.fixture
def large(monkeypatch):
    """Runners that take everything for large and nothing for fitting."""

    def make(function, fits=False, **parameters):
        runner = ReferenceRunner(_Calling(function, **parameters), CPU, twin=True)
        monkeypatch.setattr(runner, "_is_large", lambda *_: True)
        monkeypatch.setattr(runner, "_may_fit", lambda *_: fits)
        return runner

    return make


def _check(expected, output):
    claimed = describe_shape_of(output)
    outputs = [byte_copy(t) for t in (output if isinstance(output, tuple) else (output,))]
    return compare(
        claimed,
        outputs,
        expected.output,
        expected.precise,
        STRICT,
        Calibration(ErrorFactors(16.0, 16.0)),
    ).passed


SEPARABLE = {
    "softmax": (lambda _, x: x.softmax(-1), [(64, 200)]),
    "square product": (lambda _, x, y: x @ y, [(80, 80), (80, 80)]),
    "tall product": (lambda _, x, y: x @ y, [(96, 40), (40, 8)]),
    "two of a kind": (lambda _, x, y: x * y + 1, [(64, 9), (64, 9)]),
    "several outputs": (lambda _, x: (x.exp(), x.sum(-1)), [(64, 30)]),
    "images": (lambda m, x: nn.functional.conv2d(x, m.w), [(16, 3, 12, 12)]),
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_rows_that_stand_alone_are_checked_in_blocks(large, name):
    function, shapes = SEPARABLE[name]
    runner = large(function, w=torch.randn(4, 3, 3, 3))
    inputs = [torch.randn(shape) for shape in shapes]
    expected = runner.expect(inputs, 1)
    assert isinstance(expected.precise, RowBlocks) and not runner.too_large
    height = shapes[0][0]
    assert sum(part.stop - part.start for part in expected.precise.rows) <= height // 2
    coarse = [value.bfloat16().float() for value in inputs]
    with torch.no_grad():
        exact = function(runner.model.double(), *[value.double() for value in inputs])
        inexact = function(runner.model.float(), *coarse)
    exact = tuple(e.float() for e in exact) if isinstance(exact, tuple) else exact.float()
    assert _check(expected, exact)
    assert not _check(expected, inexact)
    first = exact[0] if isinstance(exact, tuple) else exact
    outside = next(
        row
        for row in range(height)
        if not any(part.start <= row < part.stop for part in expected.precise.rows)
    )
    first.view(height, -1)[outside, 0] *= 1.01  # in none of the blocks
    assert not _check(expected, exact)


DEPENDENT = {
    "down a column": lambda _, x: x.softmax(0),
    "over all": lambda _, x: x - x.mean(),
    "scan": lambda _, x: x.cumsum(0),
    "upside down": lambda _, x: x.flip(0),
    "one number": lambda _, x: x.sum(),
    "noise": lambda _, x: nn.functional.dropout(x, 0.5),
}


@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize("fits", [True, False])
def test_rows_that_do_not_stand_alone_are_not_cut(large, name, fits):
    runner = large(DEPENDENT[name], fits)
    expected = runner.expect([torch.randn(64, 30)], 1)
    assert not isinstance(expected.precise, RowBlocks)
    assert (expected.precise is not None) == fits == (not runner.too_large)


def test_running_out_of_memory_falls_back_to_blocks(monkeypatch):
    runner = ReferenceRunner(_Calling(lambda _, x: x.exp()), CPU, twin=True)
    whole = runner.run_twin

    def run_twin(inputs, seed, aside=False):
        if inputs[0].shape[0] == 64:
            raise torch.OutOfMemoryError("no room")
        return whole(inputs, seed, aside)

    monkeypatch.setattr(runner, "run_twin", run_twin)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    assert isinstance(runner.expect([torch.randn(64, 30)], 1).precise, RowBlocks)


def test_inputs_too_large_to_be_copied_are_watched(monkeypatch):
    monkeypatch.setattr(module, "_COPIED_BYTES", 0)
    changing = ReferenceRunner(_Calling(lambda _, x: x.relu_()), CPU, twin=True)
    with pytest.raises(InputsChanged, match="changed its inputs"):
        changing.expect([torch.randn(6, 5)], 1)
    inputs = [torch.randn(6, 5)]
    kept = inputs[0].clone()
    expected = changing.expect(inputs, 1)
    assert expected.mutates_inputs and torch.equal(inputs[0], kept)
    still = ReferenceRunner(_Calling(lambda _, x: x.relu()), CPU, twin=True)
    assert not still.expect(inputs, 1).mutates_inputs


def test_large_inputs_that_are_changed_late_are_the_judges_failure(monkeypatch):
    monkeypatch.setattr(module, "_COPIED_BYTES", 0)
    calls = []

    def late(_, x):
        calls.append(x)
        return x.relu_() if len(calls) > 1 else x.relu()

    runner = ReferenceRunner(_Calling(late), CPU, twin=False)
    runner.expect([torch.randn(6, 5)], 1)
    with pytest.raises(JudgeError, match="left alone before") as caught:
        runner.expect([torch.randn(6, 5)], 1)
    assert not isinstance(caught.value, InputsChanged), "nobody may run it again"


@pytest.mark.parametrize("ruleset", RULESETS.values(), ids=RULESETS)
def test_inputs_that_were_changed_before_they_were_copied_are_drawn_again(monkeypatch, ruleset):
    norm = "self.norm = nn.BatchNorm1d(5)"  # keeps state, which must not see a call twice
    changing = problem("return self.norm(x.mul_(2))", "torch.rand(6, 5)", init=norm)
    references = []
    for copied in (0, 1 << 20):
        monkeypatch.setattr(module, "_COPIED_BYTES", copied)
        references.append(Reference(changing, ruleset, Seeds("00")))
        references[-1].prepare()
    for call in range(2):
        (x, first), (y, second) = (
            reference.judged_call(call, call, "given", None) for reference in references
        )
        assert first.mutates_inputs and second.mutates_inputs
        assert torch.equal(x[0], y[0]) and torch.equal(first.output, second.output)
    states = [list(reference.model.buffers()) for reference in references]
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


@given(st.integers(0, 10_000), st.integers(0, 2**40), st.integers(0, 2**62))
def test_blocks_lie_within_the_rows_and_are_small(height, size, seed):
    rows = module._block_rows(height, size, seed)
    assert rows == module._block_rows(height, size, seed)
    for part in rows:
        assert 0 <= part.start < part.stop <= height
        assert part.stop - part.start <= max(1, height // 8)
    assert bool(rows) == (height >= 8)


def test_what_draws_and_what_keeps_state_is_known():
    drawing = ReferenceRunner(_Calling(lambda _, x: nn.functional.dropout(x, 0.5)), CPU, twin=False)
    quiet = ReferenceRunner(nn.BatchNorm1d(5), CPU, twin=False)
    for runner in (drawing, quiet):
        runner.expect([torch.randn(4, 5)], 1)
    assert drawing.draws and not quiet.draws
    assert quiet.stateful and not drawing.stateful


# ------------------------------------------------------------------- want of memory


def _lacking(self, x):
    if x.dtype == torch.float64:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return x.exp()


def test_a_twin_that_does_not_fit_beside_others_is_not_given_up():
    x = torch.rand(64, 40)
    runner = ReferenceRunner(_Calling(_lacking), CPU, twin=True, raise_on_oom=True)
    with pytest.raises(torch.OutOfMemoryError):
        runner.expect([x], 1)
    runner = ReferenceRunner(_Calling(_lacking), CPU, twin=True)
    assert runner.expect([x], 1).precise is None and runner.too_large


WIDE = problem(
    "if x.abs().max() > 6:\n"
    "    raise torch.OutOfMemoryError('CUDA out of memory')\n"
    "return torch.relu(x) * 2",
    "torch.rand(64, 40)",
    name="lacking",
)


def test_large_calls_on_the_cpu_are_checked_in_blocks(monkeypatch):
    x = torch.rand(64, 40)
    runner = ReferenceRunner(_Calling(lambda _, x: x.exp()), CPU, twin=True)
    calls = 2 * x.numel() * x.element_size()  # inputs and outputs
    monkeypatch.setattr(module, "_free_bytes", lambda _: 1 << 30)
    monkeypatch.setattr(module, "_total_bytes", lambda _: 16 * calls)
    assert isinstance(runner.expect([x], 1).precise, torch.Tensor)
    monkeypatch.setattr(module, "_total_bytes", lambda _: 16 * calls - 16)
    assert isinstance(runner.expect([x], 1).precise, RowBlocks)


@pytest.fixture
def nothing_known(monkeypatch):
    monkeypatch.setattr(reference, "_known", {})


@pytest.mark.parametrize("free", [99, 1 << 30])
@pytest.mark.parametrize("total", [99, 1 << 30])
def test_a_twin_that_is_too_large_beside_others_is_not_given_up_either(monkeypatch, free, total):
    def whole(self, x):
        return x / x.sum()

    x = torch.rand(64, 40)
    runner = ReferenceRunner(_Calling(whole), CPU, twin=True, raise_on_oom=True)
    monkeypatch.setattr(runner, "_is_large", lambda *_: True)
    monkeypatch.setattr(module, "_free_bytes", lambda _: free)
    monkeypatch.setattr(module, "_total_bytes", lambda _: total)
    if free < total:
        with pytest.raises(DeviceFull, match="an fp64 run takes"):
            runner.expect([x], 1)
        return
    found = runner.expect([x], 1)  # it fits, or does not even where nobody else is
    assert (found.precise is None) is runner.too_large is (free == 99)


def test_a_twin_that_cannot_be_made_for_want_of_memory_is_not_given_up_either(monkeypatch):
    def full(*_):
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")

    monkeypatch.setattr(module, "place", full)
    with pytest.raises(RuntimeError, match="ALLOC_FAILED"):
        ReferenceRunner(_Calling(_lacking), CPU, twin=True, raise_on_oom=True)
    assert ReferenceRunner(_Calling(_lacking), CPU, twin=True).too_large


def test_what_a_problem_bears_is_not_learned_where_others_have_the_memory(nothing_known):
    def prepared(shares_device):
        model = Reference(WIDE, STRICT, Seeds("5ec2e7"), "cpu", shares_device)
        model.prepare()
        return set(model._conditions.usable)

    with pytest.raises(DeviceFull, match="CUDA out of memory"):
        prepared(shares_device=True)
    kinds = prepared(shares_device=False)
    assert kinds and "wide" not in kinds
    assert prepared(shares_device=True) == kinds  # known by now


def test_a_twin_that_does_not_even_fit_alone_is_not_asked_for_again(nothing_known):
    lacking = problem(
        "if x.dtype == torch.float64:\n"
        "    raise torch.OutOfMemoryError('CUDA out of memory')\n"
        "return torch.relu(x) * 2",
        "torch.rand(64, 40)",
        name="twinless",
    )

    def run(shares_device):
        model = Reference(lacking, STRICT, Seeds("5ec2e7"), "cpu", shares_device)
        model.prepare()
        return model.expect(model.inputs(1), 1).precise

    with pytest.raises(DeviceFull, match="CUDA out of memory"):
        run(shares_device=True)
    assert run(shares_device=False) is None
    assert run(shares_device=True) is None


class _Keeping(nn.Module):
    """Returns memory that it holds, that it was given, and new memory."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.kept = [torch.ones(2)]

    def forward(self, x):
        return {"a": (x + 1, x[:1], self.weight.view(3, 1)), "b": [self.kept[0], None, x.clone()]}


@pytest.mark.parametrize("copies", [True, False])
def test_output_is_new_memory_unless_inputs_or_the_model_hold_it(copies, monkeypatch):
    if not copies:
        monkeypatch.setattr(module, "_COPIED_BYTES", 0)
    found = ReferenceRunner(_Keeping(), CPU, twin=False).expect([torch.zeros(2, 2)], 0)
    assert found.new == (True, False, False, False, True)
