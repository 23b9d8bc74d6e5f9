"""Windows of calls on a device that is made up: the tensors of a candidate lie on the CPU."""

import functools
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
    for name in ("_sleep_on_device", "_seed_device", "_synchronize"):
        monkeypatch.setattr(candidate, name, lambda _: None)
    for name in ("_sleep_on_device", "_synchronize"):
        monkeypatch.setattr(buffers, name, lambda _: None)

    def made(model):
        state = candidate._State.__new__(candidate._State)
        state._model, state._tracer, state._graph, state._streams = model, None, None, None
        state._parameters = parameters.NewParameters(buffers.views_of_file)
        state._device = SimpleNamespace(type="cuda")
        state._launches, state._in_graph = SimpleNamespace(count=0), 0
        state._parts = SimpleNamespace(
            buffers=buffers, outputs=outputs, cuda_ipc=cuda_ipc, unseen=unseen
        )
        state._unseen = unseen.Unseen
        state._export, state._copied = outputs.export, outputs.copied
        state._overwrite = functools.partial(outputs.overwrite, below=unseen.below)
        state._touched = torch.zeros(1)
        state._began = state._ended = SimpleNamespace(record=lambda: None)
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
