"""Takes the network from trusted processes that run problems' own code.

A problem's source is trusted with the worker's memory, but it has no business on the network: what
it could read there it could also send there.

Contract: for the process and all that it starts, irrevocably; Unix sockets stay, which the CUDA
driver needs. Where the host refuses the filter, nothing changes.

Does not cover what listens on a Unix socket of this machine, and passes data on.
"""

from __future__ import annotations

import ctypes
import platform
import struct

from kernelgym.judge.untrusted.sandbox.seccomp import network_filter

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_PR_SET_NO_NEW_PRIVS, _SET_MODE_FILTER = 38, 1
# Threads that exist already are filtered, too. Without the second flag, Linux before 5.16 turns off
# speculative stores for a filtered process, which slows down all that the worker computes.
_ALL_THREADS, _KEEP_SPECULATION = 1, 4


def deny_network() -> bool:
    """Deny this process and its children the network: every socket but Unix ones.

    Returns:
        True if the filter is in place; False if the host does not allow it.
    """
    try:
        program = network_filter()
    except OSError:  # this machine's architecture has no table of system calls
        return False
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
        return False
    number, flags = _SECCOMP[platform.machine()], _ALL_THREADS | _KEEP_SPECULATION
    return bool(libc.syscall(number, _SET_MODE_FILTER, flags, header) == 0)
