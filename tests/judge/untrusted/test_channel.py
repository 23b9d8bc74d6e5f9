"""One channel read by several threads: every message, and every descriptor, reaches its own."""

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.judge.untrusted import protocol
from kernelgym.judge.untrusted.channel import Inbox

SOON_S = 10.0


@pytest.fixture
def ends():
    """The trusted side's end of a channel, and an inbox at the other."""
    ours, theirs = socket.socketpair()
    ours.settimeout(SOON_S)
    with ours, theirs:
        yield ours, Inbox(theirs, protocol)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as made:
        yield made


def send(channel, message, text=None):
    """Send a message; with a text, a descriptor of a file that holds it."""
    if text is None:
        protocol.send(channel, message)
        return
    fd = os.memfd_create("sent")
    os.pwrite(fd, text.encode(), 0)
    protocol.send(channel, message, (fd,))
    os.close(fd)


def opened(received):
    """A received message, and the texts behind its descriptors."""
    message, fds = received
    texts = [os.pread(fd, 100, 0).decode() for fd in fds]
    for fd in fds:
        os.close(fd)
    return message, texts


def until(condition):
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def waiting(inbox):
    """How many wait: the one who reads, and those whom he may wake."""
    return inbox._has_reader + len(inbox._changed._waiters)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.booleans())
def test_messages_in_any_order_reach_those_they_are_for(sent, builds_first):
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        inbox, expected = Inbox(theirs, protocol), {True: [], False: []}
        for number, (is_request, has_fd) in enumerate(sent):
            message = {"op": "go", "n": number} if is_request else {"n": number}
            text = f"file {number}" if has_fd else None
            send(ours, message, text)
            expected[is_request].append((message, [text] if has_fd else []))

        def build():
            return [opened(inbox.build({})) for _ in expected[False]]

        building = pool.submit(build)
        if builds_first:
            building.exception(SOON_S)
        asked = [opened(inbox.request()) for _ in expected[True]]
        assert asked == expected[True]
        assert building.result(SOON_S) == expected[False]


@pytest.mark.parametrize("reader", ["request", "build"])
@pytest.mark.parametrize("first", ["request", "build"])
def test_who_reads_hands_over_what_is_for_the_other(ends, pool, reader, first):
    channel, inbox = ends
    calls = {"request": inbox.request, "build": lambda: inbox.build({"name": "x"})}
    other = {"request": "build", "build": "request"}
    messages = {"request": {"op": "go", "nonce": "1"}, "build": {"module": "m"}}
    waits = {}
    for count, name in enumerate((reader, other[reader]), 1):
        waits[name] = pool.submit(calls[name])
        until(lambda count=count: waiting(inbox) == count)
    decoder = protocol.Decoder()
    assert protocol.receive(channel, decoder)[0] == {"build": {"name": "x"}}
    send(channel, messages[first], first)
    assert opened(waits[first].result(SOON_S)) == (messages[first], [first])
    assert not waits[other[first]].done()
    send(channel, messages[other[first]])
    assert opened(waits[other[first]].result(SOON_S)) == (messages[other[first]], [])


def test_the_end_of_the_channel_reaches_all_who_wait(ends, pool):
    channel, inbox = ends
    waits = [pool.submit(inbox.request), pool.submit(inbox.build, {}), pool.submit(inbox.request)]
    until(lambda: waiting(inbox) == 3)
    channel.shutdown(socket.SHUT_WR)
    for wait in waits:
        assert isinstance(wait.exception(SOON_S), EOFError)
    with pytest.raises(EOFError):
        inbox.request()


def test_builds_in_threads_get_their_own_answers(ends, pool):
    channel, inbox = ends
    request = pool.submit(inbox.request)
    builds = [pool.submit(inbox.build, {"name": str(number)}) for number in range(6)]
    decoder = protocol.Decoder()
    for _ in builds:
        message, _ = protocol.receive(channel, decoder)
        assert decoder.next() is None, "one at a time"
        name = message["build"]["name"]
        send(channel, {"module": name}, name)
    for number, build in enumerate(builds):
        assert opened(build.result(SOON_S)) == ({"module": str(number)}, [str(number)])
    assert not request.done()
    send(channel, {"op": "go"})
    assert opened(request.result(SOON_S)) == ({"op": "go"}, [])


def test_messages_of_several_threads_do_not_mix(ends, pool):
    channel, inbox = ends
    messages = [{"text": str(number) * (1 << 20)} for number in range(8)]
    sent = [pool.submit(inbox.send, message) for message in messages]
    decoder = protocol.Decoder()
    received = [protocol.receive(channel, decoder)[0] for _ in messages]
    assert sorted(received, key=lambda message: message["text"]) == messages
    for each in sent:
        each.result(SOON_S)


def test_it_starts_no_thread(ends):
    channel, inbox = ends
    before = threading.active_count()
    send(channel, {"op": "go"})
    send(channel, {"module": "m"})
    assert opened(inbox.build({})) == ({"module": "m"}, [])
    assert opened(inbox.request()) == ({"op": "go"}, [])
    assert threading.active_count() == before


def test_it_is_known_whether_a_whole_message_is_left():
    decoder = protocol.Decoder()
    data = protocol.pack({"op": "kill"}) + protocol.pack({"op": "spawn"})
    assert not decoder.is_whole
    for count, byte in enumerate(data[:-1], 1):
        decoder.feed(bytes([byte]))
        assert decoder.is_whole == (count >= len(protocol.pack({"op": "kill"})))
    assert decoder.next() == {"op": "kill"} and not decoder.is_whole
    decoder.feed(data[-1:])
    assert decoder.is_whole and decoder.next() == {"op": "spawn"} and not decoder.is_whole
