"""A session against a made-up process: a thread that speaks the protocol, and lies in one thing."""

import array
import ctypes
import dataclasses
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.conformance import CONSTRUCTOR_FINDING
from kernelgym.judge import arena, device_memory, wire
from kernelgym.judge import session as session_module
from kernelgym.judge.device_outputs import DeviceOutputs
from kernelgym.judge.process import Candidate
from kernelgym.judge.reference import Reference, Seeds
from kernelgym.judge.session import Rejected, Session
from kernelgym.rulesets import RULESETS, Limits
from kernelgym.types import Kernel, Problem, Status

SHAPE = [4, 6]
PROBLEM = Problem(
    "t/twice",
    "t",
    1,
    "twice",
    """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return 2 * x
def get_inputs():
    return [torch.randn(4, 6)]
def get_init_inputs():
    return []
""",
)
WITH_STATE = dataclasses.replace(
    PROBLEM,
    source=PROBLEM.source.replace("2 * x", "self.weight * x").replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(6))\n    def forward",
    ),
)
SEEDS = Seeds("5ec2e7")
RUN_S, SHORT_S = 30.0, 0.2
OUTPUT_BYTES = 20_000

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


class Peer(threading.Thread):
    """The other end: doubles its input, and changes its answers as it is told to."""

    def __init__(self, channel, stdout):
        super().__init__(daemon=True)
        self.channel, self.stdout = channel, stdout
        self.lies = {}  # by request: from the peer and the honest answer to what is sent instead
        self.asked, self.calls = [], []
        self.heard = threading.Semaphore(0)
        self.memory = b""
        self.decoder = wire.Decoder()

    def run(self):
        wire.send(self.channel, {"standby": True})
        while True:
            try:
                request, fds = wire.receive(self.channel, self.decoder, max_fds=1)
            except (EOFError, OSError):
                return
            self.asked.append(request)
            reply = {"nonce": request["nonce"], **self.honest(request, fds)}
            for fd in fds:
                os.close(fd)
            lie = self.lies.get(request["op"])
            reply = lie(self, reply) if lie else reply
            if reply is not None:
                self.say(reply)
            self.heard.release()

    def say(self, reply):
        try:
            wire.send(self.channel, reply)
        except OSError:
            return

    def honest(self, request, fds):
        if request["op"] == "slots":
            self.memory = mmap.mmap(fds[0], request["bytes"])
        elif request["op"] == "prepare":
            self.calls = request["calls"]
        elif request["op"] == "go":
            for call in self.calls[: len(request["seeds"])]:
                for place in call["outputs"]:
                    self.view(place).copy_(2 * self.view(call["args"][0]["tensor"]))
            return {"results": ["fits"] * len(request["seeds"]), "launches": len(request["seeds"])}
        elif request["op"] == "trace":
            return {"seen": {"launches": 1}}
        elif request["op"] == "compilation":
            return {"misses": 3}
        elif request["op"] == "state":
            return {"missing": []}
        return {}

    def view(self, region):
        dtype = getattr(torch, region["dtype"])
        flat = torch.frombuffer(
            self.memory, dtype=dtype, count=region["count"], offset=region["offset"]
        )
        return flat.as_strided(region["shape"], region["strides"])

    def spoil(self):
        """Leave wrong bytes in the first call's output."""
        for place in self.calls[0]["outputs"]:
            self.view(place).fill_(1.5)

    def die(self):
        self.channel.shutdown(socket.SHUT_RDWR)


class Keeper:
    """Says of a harmless process that it is the candidate's, and how that one ended."""

    def __init__(self, process):
        self.process, self.code = process, None

    def pid(self, candidate_id):
        return self.process.pid

    def exit_code(self, candidate_id, timeout_s=0.0):
        return self.code

    def kill(self, candidate_id):
        self.process.kill()


@contextmanager
def meeting(folder, device=None, busy=False):
    limits = Limits(run_s=RUN_S, output_bytes=OUTPUT_BYTES)
    strict = dataclasses.replace(RULESETS["strict"], limits=limits, distributions=())
    body = ["/bin/sh", "-c", "while :; do :; done"] if busy else ["sleep", "600"]
    with subprocess.Popen(body) as process:
        keeper = Keeper(process)
        zygote, theirs = socket.socketpair()
        try:
            with zygote, theirs, Candidate(keeper, 1, folder, limits) as candidate:
                candidate.start(zygote)
                _, fds = wire.receive(theirs, wire.Decoder(), max_fds=3)
                os.close(fds[2])
                with socket.socket(fileno=fds[0]) as channel:
                    peer = Peer(channel, fds[1])
                    peer.start()
                    candidate.wait_ready(5.0)
                    extra = () if device is None else (device,)
                    session = Session(candidate, strict, None, *extra)
                    yield session, peer, keeper, strict
                    session.close()
                    peer.die()
                    peer.join()
                os.close(fds[1])
        finally:
            process.kill()


@pytest.fixture
def met(tmp_path):
    with meeting(tmp_path) as (session, peer, keeper, rules):
        yield session, peer, keeper, Reference(PROBLEM, rules, SEEDS)


def load(session, reference):
    session.load("source", "ModelNew")
    session.await_load()


def construct(session, reference):
    session.construct(reference, SEEDS)


def call(session, reference):
    return session.call(reference, SEEDS, 0)


def trace(session, reference):
    return session.trace("record")


def compilation(session, reference):
    return session.compilation()


# What is asked, by which request it fails, and what it was doing then.
STAGES = [
    (load, "load", "loading the module"),
    (construct, "construct", "constructing ModelNew"),
    (call, "slots", "being set up"),
    (call, "prepare", "being set up"),
    (call, "go", "running forward"),
    (trace, "trace", "being set up to be watched"),
    (compilation, "compilation", "handing out what was compiled"),
]
every_stage = pytest.mark.parametrize(("ask", "request_", "doing"), STAGES)


def rejection(ask, *arguments):
    with pytest.raises(Rejected) as end:
        ask(*arguments)
    return end.value.status, str(end.value)


def go_on(session, reference):
    load(session, reference)
    construct(session, reference)
    return call(session, reference)


def test_an_honest_process_passes(met):
    session, peer, _, reference = met
    outcome = go_on(session, reference)
    assert outcome.passed and outcome.message == ""
    assert [request["op"] for request in peer.asked] == [
        *("load", "slots", "construct", "slots", "prepare", "go")
    ]
    assert len({request["nonce"] for request in peer.asked}) == len(peer.asked)
    assert (session.tally.calls, session.tally.idle) == (1, 0)
    assert session.compilation() == 3 and session.trace("off") == {"launches": 1}
    # The next call's tensors lie where the last one's did.
    assert call(session, reference).passed and peer.asked[-1]["op"] == "go"


@every_stage
@pytest.mark.parametrize("nonce", ["0" * 16, "", None, 0, ["x"]])
def test_an_answer_to_another_request_is_none(met, ask, request_, doing, nonce):
    session, peer, _, reference = met
    peer.lies[request_] = lambda _, reply: {**reply, "nonce": nonce}
    assert rejection(ask, session, reference) == (
        Status.RUNTIME_ERROR,
        f"the kernel's process failed while {doing}: it sent a message nobody asked for",
    )


def test_an_answer_sent_twice_is_not_taken_for_the_next_one(met):
    session, peer, _, reference = met

    def twice(peer, reply):
        peer.say(reply)
        return reply

    peer.lies["load"] = twice
    load(session, reference)
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while being set up: it sent a message nobody asked for",
    )


@every_stage
def test_no_answer_in_time_is_a_timeout(met, monkeypatch, ask, request_, doing):
    session, peer, _, reference = met
    post = session._post

    def post_in_a_hurry(message, fds=()):
        if message["op"] == request_:  # on a slow machine, those before may take their time
            session.grant(SHORT_S)
        post(message, fds)

    monkeypatch.setattr(session, "_post", post_in_a_hurry)
    peer.lies[request_] = lambda *_: None
    assert rejection(ask, session, reference) == (
        Status.TIMEOUT,
        f"no answer within {RUN_S:g} s (while {doing})",
    )


def test_a_late_answer_is_not_taken_for_the_next_one(met):
    session, peer, _, reference = met
    late = []
    peer.lies["load"] = lambda _, reply: late.append(reply)
    session.grant(SHORT_S)
    assert rejection(load, session, reference)[0] is Status.TIMEOUT
    session.grant(RUN_S)
    peer.say(late[0])
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while being set up: it sent a message nobody asked for",
    )


def test_an_answer_that_came_in_time_counts_however_late_it_is_read(met):
    session, peer, _, _ = met
    session.load("source", "ModelNew")
    assert peer.heard.acquire(timeout=30.0)
    session.grant(0.0)
    session.await_load()
    assert session.loaded


def test_an_answer_in_drips_does_not_hold_up_a_deadline(met):
    session, peer, _, reference = met

    def drip(peer, reply):
        peer.channel.sendall(struct.pack("!I", 1 << 20))
        while True:
            try:
                peer.channel.sendall(b" ")
            except OSError:
                return None

    peer.lies["load"] = drip
    session.grant(SHORT_S)
    assert rejection(load, session, reference)[0] is Status.TIMEOUT


def test_all_requests_share_one_budget(met):
    session, peer, _, reference = met
    session.grant(RUN_S)

    def slow(_, reply):
        time.sleep(SHORT_S)
        return reply

    peer.lies["load"] = slow
    load(session, reference)
    assert 0.0 < session._left_s <= RUN_S - SHORT_S


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (
            struct.pack("!I", wire.MAX_MESSAGE_BYTES + 1),
            f"a message of {wire.MAX_MESSAGE_BYTES + 1} bytes (at most {wire.MAX_MESSAGE_BYTES})",
        ),
        (struct.pack("!I", 2) + b"{]", "a message that is not JSON (JSONDecodeError)"),
        (struct.pack("!I", 1) + b"\xff", "a message that is not JSON (UnicodeDecodeError)"),
        (struct.pack("!I", 2) + b"[]", "a message that is a list, not an object"),
        (struct.pack("!I", 0), "a message that is not JSON (JSONDecodeError)"),
        (
            struct.pack("!I", 1 << 20) + b"[" * (1 << 20),
            "a message that is not JSON (RecursionError)",
        ),
    ],
    ids=["too long", "no JSON", "no text", "a list", "nothing", "deep"],
)
def test_what_is_no_message_ends_it(met, sent, complaint):
    session, peer, _, reference = met
    peer.lies["go"] = lambda peer, _: peer.channel.sendall(sent)
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        f"the kernel's process failed while running forward: it sent {complaint}",
    )


@every_stage
def test_descriptors_that_come_with_an_answer_are_dropped(met, ask, request_, doing):
    session, peer, _, reference = met
    read_end, write_end = os.pipe()

    def attach(peer, reply):
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [write_end] * 3))
        peer.channel.sendmsg([wire.pack(reply)], [rights])
        os.close(write_end)
        peer.lies.clear()

    peer.lies[request_] = attach
    ask(session, reference)
    assert select.select([read_end], [], [], 0)[0], "somebody holds its other end"
    assert os.read(read_end, 1) == b""
    os.close(read_end)


def test_output_beyond_bounds_ends_it(met):
    session, peer, _, reference = met

    def flood(peer, reply):
        os.write(peer.stdout, b"x" * (OUTPUT_BYTES + 1))

    peer.lies["go"] = flood
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while running forward: "
        f"it wrote more than {OUTPUT_BYTES} bytes of output",
    )
    assert "bytes cut" in session.log()


# --- builds ---------------------------------------------------------------------------------------


def test_a_build_where_none_is_allowed_is_refused_and_no_fault(met):
    session, peer, _, reference = met
    refusals = []

    def build(peer, reply):
        peer.say({"build": {"name": "x"}})
        refusals.append(wire.receive(peer.channel, peer.decoder, max_fds=1))
        return reply

    peer.lies["load"] = build
    load(session, reference)
    assert refusals == [({"failed": "no extension may be built here"}, [])]


def test_builds_without_end_end_it(met):
    session, peer, _, reference = met
    answers = []

    def build_on(peer, reply):
        while True:
            peer.say({"build": {"name": "x"}})
            try:
                answers.append(wire.receive(peer.channel, peer.decoder)[0])
            except (EOFError, OSError):
                return

    peer.lies["load"] = build_on
    assert rejection(load, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while loading the module: it asked for more than 16 builds",
    )
    assert len(answers) <= 16


# --- what a process says it raised ----------------------------------------------------------------

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
    assert not session.loaded


# --- outputs --------------------------------------------------------------------------------------


def says(*results):
    return lambda _, reply: {**reply, "results": list(results)}


def tensor(dtype="float32", shape=SHAPE, *place):
    return {"tensor": [dtype, shape, *place]}


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (tensor(shape=[2, 3]), "output shape mismatch: expected [4, 6], got [2, 3]"),
        (tensor(shape=[6, 4]), "output shape mismatch: expected [4, 6], got [6, 4]"),
        (tensor("float64"), "output dtype mismatch: expected float32, got float64"),
        (
            tensor("float32", SHAPE, {"strides": [1, 4]}),
            "output stride mismatch: expected [6, 1], got [1, 4]",
        ),
        (tensor("float32", SHAPE, {}), "output has no readable description"),
        (tensor("float32", SHAPE, None), "output has no readable description"),
        (tensor("float32", None), "output has no readable description"),
        ({"tensor": []}, "output has no readable description"),
        ({"sequence": ["fits"]}, "output is a sequence, the reference gives a tensor"),
        ({"scalar": 1.0}, "output is a scalar, the reference gives a tensor"),
        ({"other": "a Fraction"}, "output is a Fraction"),
        ({"tensor": 1, "scalar": 1}, "output has no readable description"),
        ("fit", "output has no readable description"),
        (None, "output has no readable description"),
        (float("nan"), "output has no readable description"),
    ],
)
def test_a_description_that_is_not_the_references_is_wrong(met, claim, message):
    session, peer, _, reference = met
    peer.lies["go"] = says(claim)
    outcome = call(session, reference)
    assert (outcome.passed, outcome.message) == (False, message)


@pytest.mark.parametrize("offset", [0, -1, 1 << 20, 1 << 62])
def test_where_a_process_says_its_output_lies_is_not_looked_at_on_the_cpu(met, offset):
    session, peer, _, reference = met
    claim = tensor("float32", SHAPE, {"strides": [6, 1], "offset": offset, "memory": "ab"})
    peer.lies["go"] = says(claim)
    assert call(session, reference).passed

    def wrong(peer, reply):
        peer.spoil()
        return {**reply, "results": [claim]}

    peer.lies["go"] = wrong
    assert not call(session, reference).passed


def test_an_output_that_was_never_written_is_wrong(met):
    session, peer, _, reference = met
    assert call(session, reference).passed  # right values lay there before
    peer.honest = lambda request, fds: {"results": ["fits"], "launches": 1}
    outcome = call(session, reference)
    assert not outcome.passed and "24 of 24 elements" in outcome.message


def test_an_input_that_was_changed_is_told(met):
    session, peer, _, reference = met

    def change(peer, reply):
        peer.view(peer.calls[0]["args"][0]["tensor"])[0, 0] += 1
        return reply

    peer.lies["go"] = change
    outcome = call(session, reference)
    assert (outcome.passed, outcome.message) == (False, "the kernel changed input tensor 0")


@pytest.mark.parametrize("results", [None, {}, "fits", [], ["fits", "fits"], 0])
def test_results_that_are_not_one_for_each_call_end_it(met, results):
    session, peer, _, reference = met
    peer.lies["go"] = lambda _, reply: {**reply, "results": results}
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process sent no readable results",
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(json_values, st.dictionaries(st.text(), json_values)), min_size=8),
)
def test_nothing_that_is_said_makes_wrong_bytes_right(tmp_path_factory, answers):
    with meeting(tmp_path_factory.mktemp("peer")) as (session, peer, _, rules):
        reference = Reference(PROBLEM, rules, SEEDS)
        for claim, fields in answers:

            def lie(peer, reply, claim=claim, fields=fields):
                peer.spoil()
                return {**reply, "results": [claim], **fields, "nonce": reply["nonce"]}

            peer.lies["go"] = lie
            try:
                assert not call(session, reference).passed
            except Rejected as end:
                assert end.status is Status.RUNTIME_ERROR


@pytest.mark.parametrize("launches", [None, True, "1", 1.0, -7, 0])
def test_launches_that_cannot_be_read_are_none(met, launches):
    session, peer, _, reference = met
    peer.lies["go"] = lambda _, reply: {**reply, "launches": launches}
    assert call(session, reference).passed
    assert (session.tally.calls, session.tally.idle) == (1, 1)
    (finding,) = session.findings(Kernel("source", "triton"))
    assert finding.code == "no_kernel_launch"


@pytest.mark.parametrize("seen", [None, [], "launches", 1])
def test_what_cannot_be_read_was_not_seen(met, seen):
    session, peer, _, _ = met
    peer.lies["trace"] = lambda _, reply: {**reply, "seen": seen}
    assert session.trace("record") == {}


# --- state ----------------------------------------------------------------------------------------


@pytest.fixture
def with_state(tmp_path):
    with meeting(tmp_path) as (session, peer, _, rules):
        reference = Reference(WITH_STATE, rules, SEEDS)
        reference.prepare()
        assert list(reference.state) == ["weight"]
        load(session, reference)
        yield session, peer, reference


@pytest.mark.parametrize("missing", [["weight"], ["weight", "other"], None, "weight", {}, 1])
def test_a_missing_parameter_is_told_by_its_name(with_state, missing):
    session, peer, reference = with_state
    peer.lies["state"] = lambda _, reply: {**reply, "missing": missing}
    assert rejection(construct, session, reference) == (
        Status.RUNTIME_ERROR,
        "strict replaces constant parameters after construction, and ModelNew has no parameter "
        "'weight' of shape [6]: keep the reference's names",
    )


@pytest.mark.parametrize("missing", [[], ["other"], [None, 1, ["weight"]]])
def test_names_that_are_not_the_references_are_not_missed(with_state, missing):
    session, peer, reference = with_state
    peer.lies["state"] = lambda _, reply: {**reply, "missing": missing}
    construct(session, reference)


# --- windows --------------------------------------------------------------------------------------


def state_of(keeper):
    with open(f"/proc/{keeper.process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def cpu_ns(keeper):
    with open(f"/proc/{keeper.process.pid}/schedstat") as file:
        return int(file.read().split()[0])


def window_of(session, reference, calls=2):
    """Lay out a window of calls and run it, keeping the last call's output."""
    batches = [reference.inputs(seed) for seed in range(calls)]
    output = reference.expect(batches[0], 0).output
    session.reserve(batches[0], output, calls, timed=True)
    session.pause()
    return batches, session.timed_run(batches, [0] * calls, [calls - 1])


def test_a_halted_process_stands_still_until_it_is_let_go(met):
    session, _, keeper, _ = met
    assert state_of(keeper) not in "Tt"
    session.pause()
    assert state_of(keeper) == "T"
    session.resume()
    assert state_of(keeper) != "T"


def test_a_process_that_ran_while_it_was_halted_is_found_out(tmp_path):
    with meeting(tmp_path, busy=True) as (session, _, keeper, _):
        session.pause()
        before = cpu_ns(keeper)
        os.kill(keeper.process.pid, signal.SIGCONT)
        while cpu_ns(keeper) < before + 5_000_000:
            time.sleep(0.001)
        os.kill(keeper.process.pid, signal.SIGSTOP)
        assert rejection(session.resume) == (
            Status.RUNTIME_ERROR,
            "the kernel's process: it ran while it was halted",
        )


def test_a_process_that_ran_only_when_it_was_let_go_is_not(tmp_path):
    with meeting(tmp_path, busy=True) as (session, _, keeper, _):
        for _ in range(5):
            before = cpu_ns(keeper)
            while cpu_ns(keeper) < before + 5_000_000:
                time.sleep(0.001)
            session.pause()
            session.resume()


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


# --- a device, with host memory in its place ------------------------------------------------------


class _Located(DeviceOutputs):
    def __init__(self, device):
        super().__init__(torch.device("cpu"))

    def flush_cache(self):
        return None


@pytest.fixture
def device(monkeypatch):
    """Let a session take host memory for a device's, its own arena as the only allocation."""

    def span(buffers):
        return ctypes.addressof(ctypes.c_char.from_buffer(buffers._memory)), buffers.bytes

    def view(address, size, device):
        return torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=torch.uint8)

    def refuse(handle):
        raise device_memory.DriverError("no such memory")

    monkeypatch.setattr(arena._HostArena, "span", span)
    monkeypatch.setattr(session_module, "new_arena", lambda n, size, _: arena._HostArena(n, size))
    monkeypatch.setattr(session_module, "DeviceOutputs", _Located)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(device_memory, "view", view)
    monkeypatch.setattr(device_memory, "open_shared", refuse)
    return torch.device("cuda", 0)


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


# --- captures and ends ----------------------------------------------------------------------------


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
    session.grant(SHORT_S)
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
        peer.channel.sendall(wire.pack(reply)[:-1])
        peer.die()

    peer.lies["go"] = half
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while running forward: "
        "it exited with status 1 before answering",
    )
