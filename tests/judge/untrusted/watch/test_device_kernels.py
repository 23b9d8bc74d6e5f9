"""Which operators a device kernel may be put down to."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.untrusted.watch.device_kernels import counted_around
from kernelgym.judge.untrusted.watch.operator_work import Counter

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
        counter, events = Counter(), []
        extra = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        config = torch.autograd.ProfilerConfig(
            torch.autograd.ProfilerState.KINETO, *[False] * 5, extra
        )
        kinds = {torch.profiler.ProfilerActivity.CPU}
        torch._C._autograd._prepare_profiler(config, kinds)
        torch._C._autograd._enable_profiler(config, kinds)
        with counter, torch.no_grad():
            call()
        for event in torch._C._autograd._disable_profiler().events():
            if "::" in event.name():
                start, thread = event.start_ns(), event.start_thread_id()
                end = start + event.duration_ns()
                events.append((thread, start, end, event.correlation_id(), event.name()))
        return events, counted_around(events, counter.names)

    return profile


def test_all_of_a_layer_runs_in_counted_operators(profiled):
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(3, 8)
    events, found = profiled(lambda: torch.softmax(layer(x), -1).sort())
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

    events, found = profiled(call)
    assert MM in {name for *_, name in events}
    assert RELU in found.values() and MM not in found.values()


def test_annotations_do_not_stand_for_operators(profiled):
    x = torch.randn(4, 4)

    def call():
        torch.empty(3)
        with torch.autograd.profiler.record_function("aten::empty"):
            torch.relu(x)

    _, found = profiled(call)
    assert "aten::empty" not in found.values()
