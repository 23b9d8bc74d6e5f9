"""Which operators ran where they were counted, and which did not."""

import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compiling.library_symbols import computes
from kernelgym.judge.evidence.reports import uncounted_work
from kernelgym.judge.untrusted.watch import records
from kernelgym.judge.untrusted.watch.operator_work import Counter, computes_alone
from kernelgym.judge.untrusted.watch.records import (
    CallRecord,
    CallRecorder,
    counted_around,
    uncounted,
)

MM, MUL, RELU = "aten::mm", "aten::mul", "aten::relu"


def test_what_runs_in_a_counted_operator_is_its_work():
    named = [(1, 0, 9, 1, "aten::linear"), (1, 1, 8, 2, MM), (1, 2, 3, 3, MUL), (1, 8, 9, 4, MUL)]
    assert counted_around(named, {MM: 1}) == {2: MM, 3: MUL}


def test_a_record_beside_an_operator_takes_its_name():
    named = [(1, 0, 4, 1, MM), (1, 1, 3, 2, MM), (1, 5, 9, 3, MM), (1, 10, 11, 4, RELU)]
    assert counted_around(named, {MM: 2, RELU: 1}) == {1: MM, 2: MM, 3: MM, 4: RELU}
    assert counted_around(named, {MM: 1, RELU: 1}) == {4: RELU}


def test_threads_do_not_nest_in_each_other():
    named = [(1, 0, 9, 1, RELU), (2, 1, 8, 2, MM)]
    assert counted_around(named, {RELU: 1}) == {1: RELU}


def test_kernel_belongs_to_the_innermost_operator_open_in_the_thread_that_launched_it():
    named = [(1, 0, 9, 1, "aten::linear"), (1, 1, 8, 2, MM), (1, 20, 29, 3, MUL)]
    launch = "cudaLaunchKernel"
    calls = [(1, 4, 5, 70, launch), (2, 4, 5, 71, launch), (1, 12, 13, 72, launch)]
    record = CallRecord(named, [*calls, (1, 20, 21, 73, "cuLaunchKernelEx")], [])
    assert record.launched_in({MM: 1, MUL: 1}) == {70: MM, 73: MUL}
    assert record.launched_in({MUL: 1}) == {73: MUL}
    assert record.launched_in({"aten::linear": 1}) == {70: MM}


def test_kernel_in_an_annotation_named_like_an_operator_belongs_to_none():
    named = [(1, 0, 2, 1, MM), (1, 4, 9, 2, MM)]
    record = CallRecord(named, [(1, 5, 6, 70, "cudaLaunchKernel")], [])
    assert record.launched_in({MM: 1}) == {}, "one of the two is an annotation"


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2), st.integers(0, 9), st.integers(0, 9), st.sampled_from([MM, MUL])
        )
    ),
    st.dictionaries(st.sampled_from([MM, MUL]), st.integers(0, 4)),
)
def test_nothing_is_put_down_to_what_was_not_counted(spans, counted):
    named = [(t, s, s + d, i, name) for i, (t, s, d, name) in enumerate(spans)]
    found = counted_around(named, counted)
    assert all(named[i][4] == name for i, name in found.items())
    assert counted or not found


@pytest.fixture
def profiled():
    def profile(call):
        counter, recorder = Counter(), CallRecorder()
        recorder.begin()
        with counter, torch.no_grad():
            call()
        record = recorder.end()
        return record.named, counted_around(record.named, counter.names), counter.names

    return profile


def test_all_of_a_layer_runs_in_counted_operators(profiled):
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(3, 8)
    events, found, _ = profiled(lambda: torch.softmax(layer(x), -1).sort())
    innermost = [
        number
        for thread, start, end, number, _ in events
        if not any(
            t == thread and start <= s and e <= end and n != number for t, s, e, n, _ in events
        )
    ]
    assert innermost and set(innermost) <= set(found)


def test_threads_that_nobody_counts_run_in_none(profiled):
    x = torch.randn(4, 4)

    def call():
        thread = threading.Thread(target=torch.mm, args=(x, x))
        thread.start()
        thread.join()
        torch.relu(x)

    events, found, _ = profiled(call)
    assert MM in {name for *_, name in events}
    assert RELU in found.values() and MM not in found.values()


def test_annotations_do_not_stand_for_operators(profiled):
    x = torch.randn(4, 4)

    def call():
        torch.empty(3)
        with torch.autograd.profiler.record_function("aten::empty"):
            torch.relu(x)

    _, found, _ = profiled(call)
    assert "aten::empty" not in found.values()


def _alone(profiled, call):
    """Return the computing operators that were not counted."""
    events, _, counted = profiled(call)
    return {n for n in uncounted(events, counted) if computes_alone(n) and computes(n)}


def test_operator_in_another_thread_is_not_counted(profiled):
    x = torch.randn(4, 4)

    def call():
        thread = threading.Thread(target=torch.mm, args=(x, x))
        thread.start()
        thread.join()
        torch.relu(x)

    assert _alone(profiled, call) == {MM}


def test_operator_out_of_sight_of_modes_is_not_counted(profiled):
    x = torch.randn(4, 4)

    def call():
        torch.mm(x, x)
        with torch._C._DisableTorchDispatch():
            torch.mm(x, x)

    assert _alone(profiled, call) == {MM}


def test_operator_that_runs_while_another_is_handled_is_not_counted(profiled):
    x = torch.randn(4, 4)

    class Busy(Counter):
        def after(self, func, result):
            if func is torch.ops.aten.relu.default:
                torch.mm(x, x)

    counter, recorder = Busy(), CallRecorder()
    recorder.begin()
    with counter, torch.no_grad():
        torch.relu(x)
    record = recorder.end()
    assert uncounted(record.named, counter.names) == {MM}


@pytest.mark.parametrize(("handed_over", "found"), [({MM: 1}, {MM}), ({MM: 2}, set())])
def test_operator_that_a_class_handled_excuses_no_further_call(handed_over, found):
    relu = "aten::relu"
    inside = [(1, 0, 9, 1, MM), (1, 2, 3, 2, relu)]  # a class computes with what is counted
    assert uncounted([*inside, (2, 0, 9, 3, MM)], {relu: 1}, handed_over) == found


def test_ways_past_records_are_noted(tmp_path):
    program = """
import torch
from kernelgym.judge.untrusted.watch.records import watch_ways_past
seen = []
watch_ways_past(seen.append)
x, keys = torch.ones(2), torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
torch.relu(x)
assert not seen
torch.autograd._enable_record_function(True)
torch._C._autograd._enable_record_function(True)
torch.ops.aten.relu.default.redispatch(keys, x)
torch.ops.aten.neg.default._op_dk(torch._C.DispatchKey.CPU, x)
assert seen == [*["_enable_record_function"] * 2, "aten::relu", "aten::neg"], seen
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_layers_leave_nothing_uncounted(profiled):
    layers = torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout()),
        *(torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LazyLinear(8), torch.nn.LayerNorm(8)),
    ).eval()
    x = torch.randn(2, 3, 10, 10)
    layers(x)

    def call():
        y = layers(x).to(torch.float64).reshape(4, 4).transpose(0, 1).contiguous()
        torch.nn.functional.scaled_dot_product_attention(y[None], y[None], y[None])
        torch.einsum("ij,jk->ik", y, y).softmax(-1).sort().values.sum().item()
        torch.stack(list(y)).index_select(0, torch.tensor([1])).pow(2).mean().sqrt_()

    assert _alone(profiled, call) == set()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2), st.integers(0, 9), st.integers(0, 9), st.sampled_from([MM, MUL])
        )
    )
)
def test_all_is_alone_where_nothing_was_counted(spans):
    named = [(t, s, s + d, i, name) for i, (t, s, d, name) in enumerate(spans)]
    assert uncounted(named, {}) == {name for *_, name in named}


def test_a_record_that_cannot_begin_is_none(monkeypatch):
    def busy(*_):
        raise RuntimeError("the profiler is on")

    monkeypatch.setattr("kernelgym.judge.untrusted.watch.records._enable", busy)
    recorder = CallRecorder()
    recorder.begin()
    assert recorder.end() is None and not recorder.running


@pytest.mark.parametrize(
    ("name", "work"),
    [
        *(("aten::mm", True), ("aten::softmax", True), ("mul_", True), ("aten::sum", True)),
        *(("aten::empty_strided", False), ("aten::copy_", False), ("aten::select", False)),
        *(("aten::scalar_tensor", False), ("aten::resolve_conj", False), ("aten::item", False)),
    ],
)
def test_operator_computes_or_only_moves_values(name, work):
    assert computes(name) is work


@pytest.mark.parametrize("names", [[], ["aten::empty", "aten::copy_"]])
def test_uncounted_moves_raise_no_complaint(names):
    assert uncounted_work({"uncounted": names}) == "" == uncounted_work({})


def test_uncounted_work_raises_a_complaint():
    assert "(aten::mm)" in uncounted_work({"uncounted": ["aten::empty", "aten::mm"]})


@pytest.mark.parametrize("seen", [{"uncounted": None}, {"uncounted": 7}])
def test_call_that_was_not_recorded_is_refused(seen):
    assert "cannot be recorded" in uncounted_work(seen)


@pytest.mark.parametrize("restarts", [False, True])
def test_record_of_a_call_that_stops_the_profiler_is_none(restarts):
    recorder = CallRecorder()
    recorder.begin()
    torch.ones(2)
    records._disable()
    if restarts:
        records._begun(False)
    assert recorder.end() is None and not recorder.running
    recorder.begin()
    torch.ones(2)
    record = recorder.end()
    assert record is not None and "aten::ones" in {name for *_, name in record.named}
