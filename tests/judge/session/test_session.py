"""A session against a made-up process: whose answers count, and until when."""

import array
import os
import select
import socket
import struct
import threading
import time
from types import SimpleNamespace

import pytest

from kernelgym.judge.session import channel
from kernelgym.judge.starvation import HostTooBusy
from kernelgym.judge.untrusted import protocol
from kernelgym.types import Status
from support.peers import OUTPUT_BYTES, RUN_S, SHORT_S, call, every_stage, go_on, load, rejection


def test_an_honest_process_passes(met):
    session, peer, _, reference = met
    outcome = go_on(session, reference)
    assert outcome.passed and outcome.message == ""
    assert [request["op"] for request in peer.asked] == [
        *("load", "slots", "construct", "slots", "prepare", "go")
    ]
    assert len({request["nonce"] for request in peer.asked}) == len(peer.asked)
    assert (session.tally.calls, session.tally.idle) == (1, 0)
    assert session.model.compilation() == (3, 4) and session.trace("off") == {"launches": 1}
    # The next call's tensors lie where the last one's did.
    assert call(session, reference).passed and peer.asked[-1]["op"] == "go"


@every_stage
@pytest.mark.parametrize("nonce", ["0" * 16, "", None, 0, ["x"]])
def test_an_answer_to_another_request_is_none(met, ask, request_, doing, nonce):
    session, peer, _, reference = met
    peer.lies[request_] = lambda _, reply: {**reply, "nonce": nonce}
    assert rejection(ask, session, reference) == (
        Status.RUNTIME_ERROR,
        f"the kernel's process failed while {doing}: it sent a message without a request",
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
        "the kernel's process failed while being set up: it sent a message without a request",
    )


@every_stage
def test_no_answer_in_time_is_a_timeout(met, monkeypatch, ask, request_, doing):
    session, peer, _, reference = met
    post = session.channel.post

    def post_in_a_hurry(message, fds=()):
        if message["op"] == request_:  # on a slow machine, those before may take their time
            session.channel.grant(SHORT_S)
        post(message, fds)

    monkeypatch.setattr(session.channel, "post", post_in_a_hurry)
    peer.lies[request_] = lambda *_: None
    assert rejection(ask, session, reference) == (
        Status.TIMEOUT,
        f"no answer within {RUN_S:g} s (while {doing})",
    )


class _Starved:
    """Counts seconds that other programs took, as the test wants them."""

    due_s = 0.01

    def __init__(self, *more_s, is_hosts_fault=False):
        self.more, self.is_hosts_fault = [*more_s], is_hosts_fault

    def begin(self, *pids):
        pass

    def more_s(self, at_once=False):
        return self.more.pop() if self.more and at_once else 0.0

    def blame_host(self, doing):
        if self.is_hosts_fault:
            raise HostTooBusy(f"other programs kept {doing} from the processors")


def test_time_that_other_programs_took_extends_the_budget(met, monkeypatch):
    session, peer, *_ = met
    monkeypatch.setattr(session.channel._candidate, "_starvation", _Starved(RUN_S))
    late = []
    peer.lies["load"] = lambda _, reply: late.append(reply)
    session.channel.grant(SHORT_S)
    session.model.load("", "ModelNew")
    threading.Timer(2 * SHORT_S, lambda: peer.say(late[0])).start()
    session.model.await_load()
    assert session.model.loaded


def test_starved_process_is_no_timeout_of_the_kernel(met, monkeypatch):
    session, peer, _, reference = met
    starved = _Starved(is_hosts_fault=True)
    monkeypatch.setattr(session.channel._candidate, "_starvation", starved)
    peer.lies["load"] = lambda *_: None
    session.channel.grant(SHORT_S)
    with pytest.raises(HostTooBusy, match="kept a kernel's process from the processors"):
        load(session, reference)


def test_a_late_answer_is_not_taken_for_the_next_one(met):
    session, peer, _, reference = met
    late = []
    peer.lies["load"] = lambda _, reply: late.append(reply)
    session.channel.grant(SHORT_S)
    assert rejection(load, session, reference)[0] is Status.TIMEOUT
    session.channel.grant(RUN_S)
    peer.say(late[0])
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while being set up: it sent a message without a request",
    )


def test_an_answer_that_came_in_time_counts_however_late_it_is_read(met):
    session, peer, _, _ = met
    session.model.load("source", "ModelNew")
    assert peer.heard.acquire(timeout=30.0)
    session.channel.grant(0.0)
    session.model.await_load()
    assert session.model.loaded


def test_work_before_the_wait_costs_no_budget(met, monkeypatch):
    session, peer, _, _ = met
    later = 0.0
    monkeypatch.setattr(
        channel, "time", SimpleNamespace(monotonic=lambda: later + time.monotonic())
    )
    session.channel.grant(RUN_S)
    session.model.load("source", "ModelNew")
    assert peer.heard.acquire(timeout=30.0)
    later = 1000.0  # the worker prepared the reference meanwhile
    session.model.await_load()
    assert session.channel.left_s > 0.0


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
    session.channel.grant(SHORT_S)
    assert rejection(load, session, reference)[0] is Status.TIMEOUT


def test_all_requests_share_one_budget(met):
    session, peer, _, reference = met
    session.channel.grant(RUN_S)

    def slow(_, reply):
        time.sleep(SHORT_S)
        return reply

    peer.lies["load"] = slow
    load(session, reference)
    assert 0.0 < session.channel.left_s <= RUN_S - SHORT_S


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (
            struct.pack("!I", protocol.MAX_MESSAGE_BYTES + 1),
            f"a message of {protocol.MAX_MESSAGE_BYTES + 1} bytes "
            f"(at most {protocol.MAX_MESSAGE_BYTES})",
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
        peer.channel.sendmsg([protocol.pack(reply)], [rights])
        os.close(write_end)
        peer.lies.clear()

    peer.lies[request_] = attach
    ask(session, reference)
    # The peer closes its own end only after it has answered.
    assert select.select([read_end], [], [], 5.0)[0], "somebody holds its other end"
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
    assert "bytes cut" in session.channel.log()


# --- builds ---------------------------------------------------------------------------------------


def test_a_build_where_none_is_allowed_is_refused_and_no_fault(met):
    session, peer, _, reference = met
    refusals = []

    def build(peer, reply):
        peer.say({"build": {"name": "x"}})
        refusals.append(protocol.receive(peer.channel, peer.decoder, max_fds=1))
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
                answers.append(protocol.receive(peer.channel, peer.decoder)[0])
            except (EOFError, OSError):
                return

    peer.lies["load"] = build_on
    assert rejection(load, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process failed while loading the module: it asked for more than 1024 builds",
    )
    assert len(answers) <= 1024
