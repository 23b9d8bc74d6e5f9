"""Timed windows of a made-up process: halted in time, read where it says on a device."""

import ctypes
import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch

from kernelgym.errors import DeviceFull
from kernelgym.judge.memory import arena
from kernelgym.judge.memory.device_outputs import DeviceOutputs
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.session import call_buffers
from kernelgym.judge.untrusted import cuda_ipc
from kernelgym.types import Status
from support.peers import PROBLEM, SEEDS, SHAPE, meeting, rejection, says, tensor


def state_of(keeper):
    with open(f"/proc/{keeper.process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def cpu_ns(keeper):
    with open(f"/proc/{keeper.process.pid}/schedstat") as file:
        return int(file.read().split()[0])


def laid_out(session, reference, calls):
    """Lay out a window of calls; returns their inputs."""
    batches = [reference.inputs(seed) for seed in range(calls)]
    output = reference.expect(batches[0], 0).output
    session.buffers.reserve(batches[0], output, calls, timed=True)
    return batches


def window_of(session, reference, calls=2):
    """Lay out a window of calls and run it, keeping the last call's output."""
    batches = laid_out(session, reference, calls)
    session.channel.pause()
    return batches, session.timed_run(batches, [0] * calls, [calls - 1])


def test_a_halted_process_stands_still_until_it_is_let_go(met):
    session, _, keeper, _ = met
    assert state_of(keeper) not in "Tt"
    session.channel.pause()
    assert state_of(keeper) == "T"
    session.channel.resume()
    assert state_of(keeper) != "T"


def test_a_process_that_ran_while_it_was_halted_is_found_out(tmp_path):
    with meeting(tmp_path, busy=True) as (session, _, keeper, _):
        session.channel.pause()
        before = cpu_ns(keeper)
        os.kill(keeper.process.pid, signal.SIGCONT)
        while cpu_ns(keeper) < before + 5_000_000:
            time.sleep(0.001)
        os.kill(keeper.process.pid, signal.SIGSTOP)
        assert rejection(session.channel.resume) == (
            Status.RUNTIME_ERROR,
            "the kernel's process: it ran while it was halted",
        )


def test_a_process_that_ran_only_when_it_was_let_go_is_not(tmp_path):
    with meeting(tmp_path, busy=True) as (session, _, keeper, _):
        for _ in range(5):
            before = cpu_ns(keeper)
            while cpu_ns(keeper) < before + 5_000_000:
                time.sleep(0.001)
            session.channel.pause()
            session.channel.resume()


def test_a_window_leaves_its_process_halted_and_what_it_kept_alone(met):
    session, peer, keeper, reference = met
    batches, window = window_of(session, reference)
    assert state_of(keeper) == "T"
    assert window.results == ["fits", "fits"] and list(window.kept) == [1]
    peer.view(peer.calls[1]["outputs"][0]).fill_(0)
    assert torch.equal(window.kept[1][0], 2 * batches[1][0])
    assert window.window_ms > 0 and (window.claimed_ms, window.layout_ms) == (0.0, 0.0)
    assert (session.tally.calls, session.tally.idle) == (2, 0)


@pytest.mark.parametrize(
    ("said", "claimed_ms"),
    [
        *((1.5, 1.5), (2, 2.0), (0, 0.0), (-1.0, 0.0), (True, 0.0), ("1", 0.0), (None, 0.0)),
        *((float("nan"), 0.0), (float("inf"), 0.0), (1e9, 0.0), (10**400, 0.0), ([1], 0.0)),
    ],
)
def test_only_a_sensible_time_is_taken_down(met, said, claimed_ms):
    session, peer, _, reference = met
    peer.lies["go"] = lambda _, reply: {**reply, "device_ms": said}
    assert window_of(session, reference)[1].claimed_ms == claimed_ms


def test_a_window_without_results_ends_it(met):
    session, peer, _, reference = met
    peer.lies["go"] = says("fits")
    assert rejection(window_of, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process sent no readable results",
    )


def silent(_, reply):
    return {**reply, "results": None}


def test_of_captured_calls_it_counts_what_was_told_when_they_were(met):
    session, peer, _, reference = met
    batches = laid_out(session, reference, 2)
    peer.lies["capture"] = lambda _, reply: {**reply, "results": ["first", "second"]}
    assert session.capture()
    peer.lies["go"] = silent
    session.channel.pause()
    window = session.timed_run(batches, [0, 0], [])
    assert window.results == ["first", "second"]
    session.channel.resume()
    laid_out(session, reference, 2)  # which ends what was captured
    session.channel.pause()
    assert rejection(session.timed_run, batches, [0, 0], [])[0] is Status.RUNTIME_ERROR


@pytest.mark.parametrize("results", [None, ["one"], "two"])
def test_a_capture_that_does_not_tell_of_every_output_is_none(met, results):
    session, peer, _, reference = met
    laid_out(session, reference, 2)
    peer.lies["capture"] = lambda _, reply: {**reply, "results": results}
    assert not session.capture()


def since(peer, count):
    """Return what a peer was asked after so many requests."""
    return [(request["op"], request.get("arenas")) for request in peer.asked[count:]]


def test_memory_of_the_right_size_is_used_again(met):
    session, peer, _, reference = met
    inputs = reference.inputs(1)
    output = reference.expect(inputs, 0).output
    session.buffers.reserve(inputs, output, 1)
    known = len(peer.asked)
    session.buffers.reserve(inputs, output, 1, timed=True)
    assert since(peer, known) == [("prepare", None)]
    session.buffers.reserve(inputs, output, 2, timed=True)  # one page in all, as before
    first, second = (call["args"][0]["tensor"]["offset"] for call in peer.calls)
    assert first != second


# --- a device, with host memory in its place ------------------------------------------------------


class _Located(DeviceOutputs):
    def __init__(self, device):
        super().__init__(torch.device("cpu"))


class _NoCache:
    def __init__(self, device):
        pass

    def flush(self):
        pass


@pytest.fixture
def device(monkeypatch):
    """Let a session take host memory for a device's, its own arena as the only allocation."""

    def span(buffers):
        return ctypes.addressof(ctypes.c_char.from_buffer(buffers._memory)), buffers.bytes

    def view(address, size, device):
        return torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=torch.uint8)

    def refuse(handle):
        raise cuda_ipc.DriverError("no such memory")

    monkeypatch.setattr(arena._HostArena, "span", span)

    def on_host(tensors, size, device, number):
        return arena._HostArena(tensors, size, number)

    monkeypatch.setattr(call_buffers, "new_arena", on_host)
    monkeypatch.setattr(call_buffers, "DeviceOutputs", _Located)
    monkeypatch.setattr(call_buffers, "L2Cache", _NoCache)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(cuda_ipc, "view", view)
    monkeypatch.setattr(cuda_ipc, "open_shared", refuse)
    return torch.device("cuda", 0)


@pytest.fixture
def memory(monkeypatch):
    """How much memory the device has."""
    properties = SimpleNamespace(total_memory=1 << 37)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return properties


def test_the_room_of_outputs_stays_where_timed_calls_need_none(tmp_path, device, memory):
    with meeting(tmp_path, device=device) as (session, peer, _, rules):
        reference = Reference(PROBLEM, rules, SEEDS)
        inputs = reference.inputs(1)
        output = reference.expect(inputs, 0).output
        session.buffers.reserve(inputs, output, 1)
        ((call,), known) = peer.calls, len(peer.asked)
        session.buffers.reserve(inputs, output, 1, timed=True)
        assert since(peer, known) == [("prepare", None)]
        assert peer.calls == [{**call, "outputs": None}]
        known = len(peer.asked)
        session.buffers.reserve(inputs, output, 1)
        assert since(peer, known) == [("prepare", None)] and peer.calls == [call]
        known = len(peer.asked)
        session.buffers.reserve([torch.zeros(1 << 20)], output, 1, timed=True)
        assert since(peer, known) == [("release", [0, 1]), ("slots", None), ("prepare", None)]


@pytest.mark.parametrize("large", [False, True])
def test_inputs_that_are_to_move_lie_elsewhere_in_the_next_call_and_stay_there(
    tmp_path, device, memory, large
):
    memory.total_memory = 1 << 20 if large else 1 << 37
    with meeting(tmp_path, device=device) as (session, peer, _, rules):
        reference = Reference(PROBLEM, rules, SEEDS)
        inputs = reference.inputs(1)
        output = reference.expect(inputs, 0).output
        session.buffers.reserve(inputs, output, 1)
        first, known = session.buffers._arenas[0], len(peer.asked)
        session.buffers.move()
        assert not session.buffers.fits(inputs, output)
        session.buffers.reserve(inputs, output, 1)
        given_back = [("release", [0])] if large else []
        assert since(peer, known) == [*given_back, ("slots", None), ("prepare", None)]
        second = session.buffers._arenas[0]
        assert second is not first and not first._finalizer.alive and second._finalizer.alive
        session.buffers.reserve(inputs, output, 1)
        assert session.buffers._arenas[0] is second


def test_a_move_that_fails_leaves_nothing_behind(tmp_path, device, memory, monkeypatch):
    with meeting(tmp_path, device=device) as (session, _, _, rules):
        reference = Reference(PROBLEM, rules, SEEDS)
        inputs = reference.inputs(1)
        output = reference.expect(inputs, 0).output
        session.buffers.reserve(inputs, output, 1)
        first = session.buffers._arenas[0]
        monkeypatch.setattr(call_buffers, "new_arena", full)
        session.buffers.move()
        with pytest.raises(DeviceFull):
            session.buffers.reserve(inputs, output, 1)
        session.buffers.close()
        assert not first._finalizer.alive


def full(*_):
    raise DeviceFull("the device has too little memory")


def test_on_the_host_inputs_move_too(met):
    session, peer, _, reference = met
    batches = laid_out(session, reference, 1)
    memory = peer.memory
    session.buffers.move()
    laid_out(session, reference, 1)
    assert peer.memory is not memory
    session.run(batches, [0])
    view = peer.calls[0]["args"][0]["tensor"]
    assert torch.equal(peer.view(view), batches[0][0])


@pytest.mark.parametrize("alone", [False, True])
def test_only_outputs_are_given_back_where_they_take_much(tmp_path, device, memory, alone):
    memory.total_memory = 1 << 37 if alone else 1 << 20
    with meeting(tmp_path, device=device) as (session, peer, _, rules):
        session.buffers.alone = alone
        reference = Reference(PROBLEM, rules, SEEDS)
        inputs = reference.inputs(1)
        output = reference.expect(inputs, 0).output
        session.buffers.reserve(inputs, output, 1)
        assert since(peer, 0) == [("slots", None), ("slots", None), ("prepare", None)]
        ((call,), known) = peer.calls, len(peer.asked)
        assert call["args"][0]["tensor"]["arena"] != call["outputs"][0]["arena"]
        session.buffers.reserve(inputs, output, 1, timed=True)
        assert since(peer, known) == [("release", [1]), ("prepare", None)]
        assert peer.calls == [{**call, "outputs": None}]
        known = len(peer.asked)
        session.buffers.reserve([torch.zeros(1 << 20)], output, 1, timed=True)
        assert since(peer, known) == [("release", [0]), ("slots", None), ("prepare", None)]
        known = len(peer.asked)
        session.buffers.vacate()
        session.buffers.vacate()
        assert since(peer, known) == [("release", [0])]


def place(offset, strides=(6, 1), memory=""):
    return tensor("float32", SHAPE, {"memory": memory, "offset": offset, "strides": list(strides)})


def arena_bytes(peer):
    return next(request["bytes"] for request in reversed(peer.asked) if request["op"] == "slots")


def test_an_output_on_a_device_is_read_where_it_lies(tmp_path, device):
    with meeting(tmp_path, device=device) as (session, peer, keeper, rules):

        def second_input(peer, reply):
            found = [place(call["args"][0]["tensor"]["offset"]) for call in peer.calls]
            return {**reply, "results": found, "device_ms": 1.0}

        peer.lies["go"] = second_input
        batches, window = window_of(session, Reference(PROBLEM, rules, SEEDS))
        assert torch.equal(window.kept[1][0], batches[1][0])
        assert window.claimed_ms == 1.0 and state_of(keeper) == "T"


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (lambda size: place(size), "an output reaches past the memory it lies in"),
        (lambda size: place(size - 92), "an output reaches past the memory it lies in"),
        (lambda size: place(2), "an output reaches past the memory it lies in"),
        (lambda size: place(0, (1 << 40, 1)), "an output reaches past the memory it lies in"),
        (lambda size: place(0, (0, 0)), "an output reaches past the memory it lies in"),
        (
            lambda size: place(0, memory="ab" * 64),
            "an output's memory cannot be opened: no such memory",
        ),
        (
            lambda size: {"sequence": [place(0), place(0)]},
            "the output has 2 tensors instead of 1",
        ),
    ],
)
def test_an_output_that_lies_elsewhere_ends_it(tmp_path, device, lie, message):
    with meeting(tmp_path, device=device) as (session, peer, _, rules):

        def elsewhere(peer, reply):
            return {**reply, "results": [lie(arena_bytes(peer))] * 2}

        peer.lies["go"] = elsewhere
        reference = Reference(PROBLEM, rules, SEEDS)
        assert rejection(window_of, session, reference) == (Status.RUNTIME_ERROR, message)


@pytest.mark.parametrize("claim", [place(-4), place(1 << 60), tensor(), "fits", None])
def test_an_output_without_a_readable_place_ends_it(tmp_path, device, claim):
    with meeting(tmp_path, device=device) as (session, peer, _, rules):
        peer.lies["go"] = says(claim, claim)
        status, message = rejection(window_of, session, Reference(PROBLEM, rules, SEEDS))
        assert status is Status.RUNTIME_ERROR and "output" in message
