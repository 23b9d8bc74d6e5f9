"""Counts of launches: calls without one, and CUDA graphs that hold some."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.session.launch_count import LaunchTally
from kernelgym.judge.untrusted.watch import launches as module
from kernelgym.types import Kernel, Severity

KERNEL = Kernel("", "cuda")


@pytest.fixture
def graph_class(monkeypatch):
    class Graph:
        replays = 0

        def capture_begin(self, *args, **kwargs):
            pass

        def capture_end(self):
            pass

        def replay(self):
            self.replays += 1

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    return Graph


@pytest.mark.parametrize("inside, counted", [(0, 0), (1, 3), (5, 3)])
def test_a_replay_counts_if_something_was_launched_while_the_graph_was_captured(
    graph_class, inside, counted
):
    launches = SimpleNamespace(count=7, watcher=None)
    module._count_graphs(launches)
    graph = graph_class()
    graph.capture_begin()
    launches.count += inside
    graph.capture_end()
    for _ in range(3):
        graph.replay()
    assert graph.replays == 3
    assert launches.count == 7 + inside + counted


@pytest.mark.parametrize("inside", [False, True])
def test_a_replay_is_unseen_if_the_graph_was_captured_outside_of_calls(graph_class, inside):
    told = []
    watcher = SimpleNamespace(inside=lambda: inside, unseen_replay=lambda: told.append(1))
    module._count_graphs(SimpleNamespace(count=0, watcher=watcher))
    graph = graph_class()
    graph.capture_begin()
    graph.capture_end()
    graph.replay()
    assert bool(told) is not inside


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(-3, 10**6)), min_size=1))
def test_calls_are_idle_only_where_fewer_launches_are_claimed(answers):
    tally = LaunchTally()
    for calls, launched in answers:
        tally.add(calls, launched)
    assert 0 <= tally.idle <= tally.calls
    assert (tally.idle == 0) == all(launched >= calls for calls, launched in answers)
    assert (tally.finding(KERNEL, Severity.SOFT) is None) == (tally.idle == 0)


@pytest.mark.parametrize("claim", [None, "9", 2.0, True, [], {}])
def test_a_claim_that_is_no_count_is_none(claim):
    tally = LaunchTally()
    tally.add(2, claim)
    assert tally.idle == 2


@pytest.mark.parametrize(
    "calls, idle, watched, said",
    [
        (4, 4, 0, "no custom CUDA kernel was launched while"),
        (4, 4, 2, "only while it was watched"),
        (4, 1, 2, "in 1 of 4 calls"),
    ],
)
def test_messages_say_which_calls_launched_nothing(calls, idle, watched, said):
    finding = LaunchTally(calls, idle).finding(KERNEL, Severity.HARD, watched)
    assert said in finding.message and finding.code == "no_kernel_launch"


def _written(name):
    """Return a function as a kernel's file, or an installed package's, defines it."""
    found = {}
    exec(compile("def kernel(x): pass", name, "exec"), found)
    return found["kernel"]


def test_kernel_of_an_installed_package_is_no_custom_one():
    sparse = f"{torch.__path__[0]}/sparse/_triton_ops.py"
    anew = SimpleNamespace(fn=SimpleNamespace(fn=_written(sparse)))
    assert module._is_installed(anew) and module._is_installed(_written(sparse))
    assert not module._is_installed(SimpleNamespace(fn=_written("/tmp/scratch/kernel.py")))
    assert not module._is_installed(None)


def test_launch_of_an_installed_kernel_is_told_to_the_watcher_and_not_counted():
    told = []
    launches = SimpleNamespace(count=0, watcher=None)
    made = module.Launches.of_a_library(launches, lambda x: x + 1, (1,), {})
    launches.watcher = SimpleNamespace(launch_of_a_library=lambda *given: told.append(given))
    module.Launches.of_a_library(launches, print, (1,), {})
    assert made == 2 and launches.count == 0 and told == [(print, (1,), {})]
