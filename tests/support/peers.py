"""A made-up candidate: a thread that speaks the judge's protocol, and lies in one thing."""

import dataclasses
import mmap
import os
import socket
import subprocess
import threading
from contextlib import contextmanager

import pytest
import torch

from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.processes.candidate_handle import Candidate
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.untrusted import protocol
from kernelgym.rulesets import RULESETS, Limits
from kernelgym.types import Problem

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


class Peer(threading.Thread):
    """The other end: doubles its input, and changes its answers as it is told to."""

    def __init__(self, channel, stdout):
        super().__init__(daemon=True)
        self.channel, self.stdout = channel, stdout
        self.lies = {}  # by request: from the peer and the honest answer to what is sent instead
        self.asked, self.calls = [], []
        self.heard = threading.Semaphore(0)
        self.memory = b""
        self.decoder = protocol.Decoder()

    def run(self):
        protocol.send(self.channel, {"standby": True})
        while True:
            try:
                request, fds = protocol.receive(self.channel, self.decoder, max_fds=1)
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
            protocol.send(self.channel, reply)
        except OSError:
            return

    def honest(self, request, fds):
        if request["op"] == "slots" and fds:
            self.memory = mmap.mmap(fds[0], request["bytes"])
        elif request["op"] == "prepare":
            self.calls = request["calls"]
        elif request["op"] == "go":
            for call in self.calls[: len(request["seeds"])]:
                for place in call["outputs"] or ():
                    self.view(place).copy_(2 * self.view(call["args"][0]["tensor"]))
            return {"results": ["fits"] * len(request["seeds"]), "launches": len(request["seeds"])}
        elif request["op"] == "capture":
            return {"results": ["fits"] * len(self.calls)}
        elif request["op"] == "trace":
            return {"seen": {"launches": 1}}
        elif request["op"] == "compilation":
            return {"misses": 3, "frames": 4}
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

    begin_kill = kill


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
                _, fds = protocol.receive(theirs, protocol.Decoder(), max_fds=3)
                os.close(fds[2])
                with socket.socket(fileno=fds[0]) as channel:
                    peer = Peer(channel, fds[1])
                    peer.start()
                    candidate.wait_ready(5.0)
                    extra = () if device is None else (device,)
                    session = CandidateSession(candidate, strict, None, *extra)
                    yield session, peer, keeper, strict
                    session.buffers.close()
                    peer.die()
                    peer.join()
                os.close(fds[1])
        finally:
            process.kill()


def load(session, reference):
    session.model.load("source", "ModelNew")
    session.model.await_load()


def construct(session, reference):
    session.model.construct(reference)


def call(session, reference):
    return session.call(reference, 0)


def trace(session, reference):
    return session.trace("record")


def compilation(session, reference):
    return session.model.compilation()


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


def says(*results):
    return lambda _, reply: {**reply, "results": list(results)}


def tensor(dtype="float32", shape=SHAPE, *place):
    return {"tensor": [dtype, shape, *place]}
