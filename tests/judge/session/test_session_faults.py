"""What becomes of errors, failed builds and ends in the middle of a request."""

import pytest

from kernelgym.judge.retries import Failure
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.untrusted import protocol
from kernelgym.types import Status
from kernelgym.verdict import CONSTRUCTOR_FINDING
from support.peers import SHORT_S, call, construct, every_stage, load, rejection, trace

NO = {"type": "ValueError", "text": "no", "where": "line 3"}


@pytest.mark.parametrize(
    ("ask", "request_", "status", "message"),
    [
        (load, "load", Status.COMPILE_ERROR, "the module did not load: ValueError: no (line 3)"),
        (construct, "construct", Status.RUNTIME_ERROR, "ValueError: no (line 3)"),
        (call, "prepare", Status.RUNTIME_ERROR, "ValueError: no (line 3)"),
        (call, "go", Status.RUNTIME_ERROR, "ValueError: no (line 3)"),
        (trace, "trace", Status.RUNTIME_ERROR, "ValueError: no (line 3)"),
    ],
)
def test_what_is_raised_earns_a_status_by_when(met, ask, request_, status, message):
    session, peer, _, reference = met
    peer.lies[request_] = lambda _, reply: {**reply, "error": NO}
    with pytest.raises(Rejected) as end:
        ask(session, reference)
    assert (end.value.status, str(end.value)) == (status, message)
    codes = [finding.code for finding in end.value.findings]
    assert codes == ([CONSTRUCTOR_FINDING] if request_ == "construct" else [])


@pytest.mark.parametrize("error", [None, 0, "no", [], {}, {"type": None, "text": ["\ud800"]}])
def test_an_error_that_is_none_is_one_all_the_same(met, error):
    session, peer, _, reference = met
    peer.lies["go"] = lambda _, reply: {**reply, "error": error}
    status, message = rejection(call, session, reference)
    assert status is Status.RUNTIME_ERROR and message.encode()


def test_a_failed_build_that_never_was_is_an_error_like_others(met):
    session, peer, _, reference = met
    error = {"type": "BuildFailed", "text": "kernel.cpp:1: error: no"}
    peer.lies["load"] = lambda _, reply: {**reply, "error": error}
    assert rejection(load, session, reference) == (
        Status.COMPILE_ERROR,
        "the module did not load: BuildFailed: kernel.cpp:1: error: no",
    )
    assert not session.model.loaded


def test_a_capture_that_fails_is_no_fault_while_its_process_lives(met):
    session, peer, keeper, _ = met
    assert session.capture() is True
    peer.lies["capture"] = lambda _, reply: {**reply, "error": NO}
    assert session.capture() is False
    keeper.code = -6
    assert rejection(session.capture) == (Status.RUNTIME_ERROR, "ValueError: no (line 3)")


def test_a_capture_that_never_ends_is_a_timeout(met):
    session, peer, _, _ = met
    peer.lies["capture"] = lambda *_: None
    session.channel.grant(SHORT_S)
    assert rejection(session.capture)[0] is Status.TIMEOUT


@every_stage
@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-9, "it was killed by SIGKILL"),
        (-250, "it exited with status -250 before answering"),
        (3, "it exited with status 3 before answering"),
        (0, "it exited with status 0 before answering"),
        (None, "it closed its channel"),
    ],
)
def test_an_end_in_the_middle_of_a_request_is_told(met, ask, request_, doing, code, how):
    session, peer, keeper, reference = met

    def die(peer, reply):
        keeper.code = code
        peer.die()

    peer.lies[request_] = die
    assert rejection(ask, session, reference) == (
        Status.RUNTIME_ERROR,
        f"the kernel's process failed while {doing}: {how}",
    )


def test_an_end_before_a_request_is_told_when_it_is_answered(met):
    session, peer, keeper, reference = met
    load(session, reference)
    keeper.code = -11
    peer.die()
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while being set up: it was killed by SIGSEGV",
    )


def test_an_end_in_half_a_message_is_an_end(met):
    session, peer, keeper, reference = met

    def half(peer, reply):
        keeper.code = 1
        peer.channel.sendall(protocol.pack(reply)[:-1])
        peer.die()

    peer.lies["go"] = half
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while running forward: "
        "it exited with status 1 before answering",
    )


@pytest.mark.parametrize("stage", ["load", "construct", "go"])
def test_lack_of_memory_of_a_device_is_a_failure_of_its_own(met, stage):
    session, peer, _, reference = met
    error = {"type": "OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 1 GiB"}
    peer.lies[stage] = lambda _, reply: {**reply, "error": error}
    ask = {"load": load, "construct": construct, "go": call}[stage]
    with pytest.raises(Rejected) as on_cpu:
        ask(session, reference)
    assert on_cpu.value.failure is Failure.of(on_cpu.value.status)
    session.channel._on_device = True
    with pytest.raises(Rejected) as on_device:
        ask(session, reference)
    assert on_device.value.failure is Failure.MEMORY
