"""Which launches on streams are ordered where the device ``cuda`` means the CPU."""

import pytest

from kernelgym.judge.untrusted.triton.stream_order import StreamOrder, StreamOrderError
from kernelgym.types import Status
from kernelgym.verdict import INTERPRETER_CHECK
from support.interpreted import RELU, relu

LAUNCH = "relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"
JOINED = "with torch.cuda.stream(side): " + LAUNCH
CURRENT = "torch.cuda.current_stream()"

ORDERED = {
    "streams": (f"side.wait_stream({CURRENT})", JOINED, f"{CURRENT}.wait_stream(side)"),
    "events": (
        f"side.wait_event({CURRENT}.record_event())",
        JOINED,
        "end = torch.cuda.Event()",
        "end.record(side)",
        "end.wait()",
    ),
    "host": ("torch.cuda.synchronize()", JOINED, "side.synchronize()"),
    "no launch there": (f"with torch.cuda.stream(side): {CURRENT}", LAUNCH),
    "through a third": (
        "third = torch.cuda.Stream()",
        f"third.wait_stream({CURRENT})",
        "side.wait_stream(third)",
        JOINED,
        "third.wait_stream(side)",
        f"{CURRENT}.wait_stream(third)",
    ),
}
UNORDERED = {
    "never": (JOINED,),
    "not at its end": (f"side.wait_stream({CURRENT})", JOINED),
    "not at its beginning": (JOINED, f"{CURRENT}.wait_stream(side)"),
    "the wrong way": (f"{CURRENT}.wait_stream(side)", JOINED, f"side.wait_stream({CURRENT})"),
    "swapped": ("torch.cuda.set_stream(side)", LAUNCH, "torch.cuda.set_stream(first)"),
}


def judged(asking, lines):
    start = (f"first, side = {CURRENT}, torch.cuda.Stream()",)
    return asking.evaluate(RELU, relu(launch="\n        ".join([*start, *lines])))


@pytest.mark.parametrize("way", ORDERED)
def test_launch_on_a_stream_that_waits_and_is_waited_for_is_right(asking, way):
    verdict = judged(asking, ORDERED[way])
    assert verdict.correct, verdict.message


@pytest.mark.parametrize("way", UNORDERED)
def test_launch_on_a_stream_out_of_order_is_refused(asking, way):
    verdict = judged(asking, UNORDERED[way])
    assert verdict.status is Status.RUNTIME_ERROR and "StreamOrderError" in verdict.message
    assert INTERPRETER_CHECK in [finding.code for finding in verdict.findings]


def test_call_is_blamed_for_its_own_launches_alone():
    order = StreamOrder()
    side = order.new()
    order.wait(side, order.marks(0))
    order.begin_call()
    order.wait(side, order.marks(0))
    order.current = side
    order.launch()
    order.current = 0
    with pytest.raises(StreamOrderError, match="write the output later"):
        order.end_call()
    order.begin_call()
    order.launch()
    order.end_call()
