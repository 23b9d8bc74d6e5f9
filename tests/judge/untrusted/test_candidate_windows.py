"""Windows of calls on a device that is made up: the tensors of a candidate lie on the CPU."""

import functools
import weakref
from types import SimpleNamespace

import pytest
import torch

from kernelgym.judge.untrusted import buffers, candidate, cuda_ipc, outputs, parameters, unseen

CALLS = 6


class Located:
    """Describes an output by its address; refuses memory that is not shareable."""

    def __init__(self):
        self.private, self.given = set(), []

    def locate(self, output):
        if output.data_ptr() in self.private:
            raise cuda_ipc.DriverError("sharing device memory: CUDA error 1")
        self.given.append(output)
        return output.data_ptr()

    def forget_freed_blocks(self):
        pass


@pytest.fixture
def window(monkeypatch):
    """Return a function that makes a state whose six calls run a model on 0, 1, and so on."""
    monkeypatch.setattr(candidate, "_seed_device", lambda _: None)
    nothing = dict.fromkeys(("begin", "end", "finish", "delay"), lambda *_, **how: None)
    monkeypatch.setattr(unseen, "Clock", lambda: SimpleNamespace(**nothing))

    def made(model):
        state = candidate._State.__new__(candidate._State)
        state._model, state._tracer, state._graph, state._streams = model, None, None, None
        state._parameters = parameters.NewParameters(buffers.views_of_file)
        state._device = SimpleNamespace(type="cuda")
        state._launches, state._in_graph = SimpleNamespace(count=0), 0
        state._parts = SimpleNamespace(
            buffers=buffers, outputs=outputs, cuda_ipc=cuda_ipc, unseen=unseen
        )
        state._unseen, state.clock = unseen.Unseen, unseen.Clock()
        state._export, state._copied = outputs.export, outputs.copied
        state._overwrite = functools.partial(outputs.overwrite, below=unseen.below)
        state._touched = torch.zeros(1)
        state._kept, state._compared, state._copies = [], 1, False
        state.buffers = Located()
        state._calls = [([torch.full((3,), float(n))], None) for n in range(CALLS)]
        return state

    return made


def rotating(size):
    """Return a model that writes its results into some buffers that take turns."""
    ring, turn = [torch.zeros(3) for _ in range(size)], [0]

    def model(x):
        turn[0] += 1
        return ring[turn[0] % size].copy_(x + 1)

    return model


def values(state):
    return [output[0].item() for output in state._kept]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_buffers_that_take_turns_are_read_as_they_were_after_their_calls(window, size):
    state = window(rotating(size))
    for _ in range(2):  # the first window finds the buffers out, the second knows of them
        state.go([0] * CALLS, True)
        assert values(state) == [1, 2, 3, 4, 5, 6]
    assert state._copies


def test_buffers_that_outlast_a_window_are_not_copied(window):
    state = window(rotating(CALLS))
    state.go([0] * CALLS, True)
    assert not state._copies
    state.go([0] * CALLS, True)
    assert values(state) == [1, 2, 3, 4, 5, 6]
    assert state._kept[0].data_ptr() == state._model(torch.zeros(3)).data_ptr()


@pytest.mark.parametrize("calls", [1, CALLS])
def test_memory_that_cannot_be_shared_is_copied(window, calls):
    made = []

    def model(x):
        made.append(x + 1)
        state.buffers.private.add(made[-1].data_ptr())
        return made[-1]

    state = window(model)
    assert len(state.go([0] * calls, True)) == calls
    assert state._copies and values(state) == [1, 2, 3, 4, 5, 6][:calls]


def test_outputs_are_overwritten_only_after_they_were_copied(window):
    held = torch.zeros(CALLS, 3)

    def model(x):
        return held[int(x[0])].copy_(x + 1)

    state = window(model)
    state.go([0] * CALLS, False, None, [True])
    assert values(state) == [1, 2, 3, 4, 5, 6] and held.isnan().all()


def test_last_output_is_overwritten_before_a_single_call_and_no_output_is_copied(window):
    held, seen = torch.zeros(3), []

    def model(x):
        seen.append(held.clone())
        return held.copy_(x + 1)

    state = window(model)
    state.go([0], True)
    state.go([0], False, 0, [True])
    assert seen[1].isnan().all() and values(state) == [1]
    assert state._kept[0].data_ptr() == held.data_ptr()
    state.buffers.private.add(held.data_ptr())
    state.go([0], True)  # from now on its outputs are copied
    state.go([0], False, 0, [True])
    assert held.isnan().all() and values(state) == [1]


def test_last_output_of_a_single_call_is_freed_before_the_next_call(window):
    made, there = [], []

    def model(x):
        there.append([output() is not None for output in made])
        output = x + 1
        made.append(weakref.ref(output))
        return output

    state = window(model)
    state.go([0], True)
    state.buffers.given.clear()
    state.go([0], False, 0, [True])
    assert there == [[], [False]]


def test_inputs_of_a_late_call_are_written_right_before_it(window):
    seen = []

    def model(x):
        seen.append([given[0][0].item() for given, _ in state._calls])
        return x + 1

    state = window(model)
    state.go([0] * CALLS, False, 3, [True])
    absent, present = [0, 1, 2, 0, 4, 5], [0, 1, 2, 3, 4, 5]
    assert seen == [absent] * 3 + [present] * 3
    assert values(state) == [1, 2, 3, 4, 5, 6]


def test_graph_is_asked_with_late_inputs_over_overwritten_outputs(window):
    state = window(None)
    state._kept, state._graph_results = [torch.ones(3)], None
    kept = []
    held = []
    state._graph = SimpleNamespace(
        hold_back=lambda: held.append(len(kept)),
        replay=lambda late: kept.append((late, state._kept[0].clone())),
    )
    assert state.go([0], False, 0, [True]) is None
    assert kept[0][0] and kept[0][1].isnan().all() and held == [0]
    assert state.go([0], True) is None
    assert not kept[1][0] and held == [0]


class Captured:
    """A graph that is made up: its calls run once while it is captured, and again when replayed."""

    def __init__(self, calls, order, held_back=()):
        self.calls, self.held, self.replays = list(calls), list(held_back), []
        for call in self.calls:
            call()

    def hold_back(self):
        for each in self.held:
            each.hold()

    def replay(self, late):
        self.replays.append(late)
        for n, call in enumerate(self.calls):
            if late:
                self.held[n].write()
            call()


@pytest.fixture
def capturing(window):
    """Return a function that makes a state whose calls multiply by a parameter, and capture it."""

    def made(model, change_at):
        state = window(model)
        state._parts.captured_graph, state._parts.graph_order = (
            SimpleNamespace(CapturedGraph=Captured),
            None,
        )
        state.buffers.forget_blocks = lambda: None
        send(state, 2.0)
        state._parameters.copy_to(model)
        state.capture(False, True, change_at)
        state._kept = []
        return state

    return made


def send(state, value):
    coming = [torch.full((3,), value)]
    state._parameters._views_of_file = lambda *_: coming
    state._parameters.receive([["weight", {}]], -1, 0)


class Multiplies:
    def __init__(self, once=False):
        self.weight, self.once, self.kept, self.version = torch.ones(3), once, None, -1

    def __call__(self, x):
        if self.kept is None or (not self.once and self.version != self.weight._version):
            self.kept, self.version = self.weight.clone(), self.weight._version
        return x * (self.kept if self.once else self.weight)


def test_parameters_change_inside_a_captured_window_that_is_asked(capturing):
    state = capturing(Multiplies(), 2)
    send(state, 5.0)
    assert state.go([0] * CALLS, False, 3, [True]) is None
    assert values(state) == [0, 2, 10, 15, 20, 25]  # from the third call on
    state._kept = []
    send(state, 2.0)
    state._parameters.copy_to(state._model)
    state.go([0] * CALLS, True)
    assert values(state) == [0, 2, 4, 6, 8, 10]
    assert state._graph.replays == [True, False]


def test_what_the_first_call_of_a_graph_makes_of_parameters_is_old_after_they_change(capturing):
    state = capturing(Multiplies(once=True), 2)
    send(state, 5.0)
    state.go([0] * CALLS, False, 3, [True])
    assert values(state) == [0, 2, 4, 6, 8, 10]


def test_parameters_of_a_stateful_model_stay_in_a_graph(capturing):
    state = capturing(Multiplies(), -1)
    send(state, 5.0)
    state.go([0] * CALLS, False, 3, [True])
    assert values(state) == [0, 5, 10, 15, 20, 25]  # before the window
