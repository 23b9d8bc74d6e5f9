"""The filter of system calls by itself, in a process that nothing else confines."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, errno, fcntl, json, os, signal, socket, struct, sys, threading
from kernelgym.judge.untrusted.sandbox import sandbox, seccomp

exec_allowed, scope, other = json.loads(sys.argv[1])
own, libc = os.getpid(), ctypes.CDLL(None, use_errno=True)
pidfd = os.pidfd_open(other)
libc.prctl(38, 1, 0, 0, 0)  # no new privileges
alone = own if scope == "alone" else 0
sandbox._filter_syscalls(seccomp.syscall_filter(exec_allowed, gpu=False, alone=alone))

def number(name):
    tables = {**seccomp._SIGNAL_TO, **seccomp._SIGNAL}
    return tables[name][seccomp._ARCHITECTURES[os.uname().machine][1]]

def call(name, *arguments):
    ctypes.set_errno(0)
    failed = libc.syscall(number(name), *arguments) != 0
    return errno.errorcode.get(ctypes.get_errno(), "?") if failed else "sent"

queued = struct.pack("iii", 0, 0, -1).ljust(128, b"\\0")  # from a process, not from a kernel
received = []
signal.signal(signal.SIGUSR1, lambda *_: received.append(1))
signal.raise_signal(signal.SIGUSR1)
os.kill(own, signal.SIGUSR1)
signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
ends, pair = os.pipe(), socket.socketpair()

def told(do, *arguments):
    try:
        do(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "sent"

print(json.dumps({
    "owner": told(fcntl.fcntl, ends[0], fcntl.F_SETOWN, other),
    "owner, at length": told(fcntl.fcntl, ends[0], 15, struct.pack("ii", 1, other)),
    "owner of a socket": told(fcntl.ioctl, pair[0], 0x8901, struct.pack("i", other)),
    "group of a socket": told(fcntl.ioctl, pair[0], 0x8902, struct.pack("i", other)),
    "own": len(received),
    "kill": call("kill", other, 0),
    "group": call("kill", -os.getpgid(0), 0),
    "everybody": call("kill", -1, 0),
    "tgkill": call("tgkill", other, other, 0),
    "tkill": call("tkill", other, 0),
    "pidfd": call("pidfd_send_signal", pidfd, 0, None, 0),
    "queue": call("rt_sigqueueinfo", other, 0, queued),
    "queue to a thread": call("rt_tgsigqueueinfo", other, other, 0, queued),
}))
"""


def tried(exec_allowed, scope):
    other = subprocess.Popen(["sleep", "60"])
    try:
        asked = json.dumps([exec_allowed, scope, other.pid])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, asked],
            capture_output=True,
            text=True,
            check=True,
            start_new_session=True,
        )
    finally:
        other.kill()
        other.wait()
    seen = json.loads(done.stdout)
    assert seen.pop("own") == 3
    return seen


@pytest.mark.parametrize("exec_allowed", [True, False])
def test_a_process_alone_signals_itself_and_nobody_else(exec_allowed):
    assert set(tried(exec_allowed, "alone").values()) == {"EPERM"}


def test_others_may_signal_whom_they_see():
    assert set(tried(False, "all").values()) == {"sent"}
