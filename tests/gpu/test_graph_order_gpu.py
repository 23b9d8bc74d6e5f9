"""A captured graph whose calls run on streams that do not wait for each other."""

import pytest
import torch

from kernelgym.judge.untrusted.graph_order import CapturedCalls

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

CALLS = 8
CYCLES = 2_000_000  # about 1 ms: calls that ran beside each other would all read the first value


def captured(call):
    """Return a graph of eight calls, and the calls that were counted in it."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        calls = CapturedCalls(torch.cuda.current_stream().cuda_stream)
        for _ in range(CALLS):
            call()
            calls.end_call()
    return graph, calls


def test_branches_of_a_graph_run_one_after_the_other_once_ordered():
    value, first, sides = torch.zeros((), device="cuda"), [], []

    def add_one_on_a_branch():
        current = torch.cuda.current_stream()
        if not first:
            first.append(current.record_event())
        side = torch.cuda.Stream()
        sides.append(side)
        side.wait_event(first[0])
        with torch.cuda.stream(side):
            read = value + 1
            torch.cuda._sleep(CYCLES)
            value.copy_(read)
        current.wait_stream(side)

    torch.zeros((), device="cuda").copy_(value + 1)  # loads the kernels: no capture can
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    graph, calls = captured(add_one_on_a_branch)
    assert calls.order(graph.raw_cuda_graph()) == CALLS - 1
    calls.instantiate(graph.raw_cuda_graph())
    calls.launch(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    assert value.item() == CALLS


def test_delayed_graph_writes_each_calls_input_after_the_call_before():
    value, place = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    given = torch.arange(1.0, CALLS + 1, device="cuda")
    value.add_(place)
    torch.cuda.synchronize()
    graph, calls = captured(lambda: value.mul_(10).add_(place))
    calls.order(graph.raw_cuda_graph())
    calls.instantiate(graph.raw_cuda_graph())
    calls.delay(
        graph.raw_cuda_graph(), [[(place.data_ptr(), each.data_ptr(), 4)] for each in given]
    )
    for launched, wanted in ((False, 0.0), (True, 12345678.0)):
        value.zero_()
        place.zero_()
        calls.launch(torch.cuda.current_stream().cuda_stream, launched)
        torch.cuda.synchronize()
        assert value.item() == wanted


def test_graph_of_one_stream_is_left_as_it_is():
    value = torch.zeros((), device="cuda")
    value.add_(1)
    torch.cuda.synchronize()
    graph, calls = captured(lambda: value.add_(1))
    assert calls.order(graph.raw_cuda_graph()) == 0
    calls.instantiate(graph.raw_cuda_graph())
    calls.launch(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    assert value.item() == 1 + CALLS
