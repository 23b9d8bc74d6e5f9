"""Fork a process into namespaces of its own: user, mount, pid, network and IPC.

One call of clone3 does both. The C library offers none; what it does offer, a fork, an unshare and
a second fork (whose child is the first one to live in the new pid namespace), copies the memory
map of a zygote twice, and that is most of what a fork takes. What the C library does around a fork
is for the sake of other threads, so clone3 is left to a process that has none; all others fork
twice.

Loaded by path in the zygote and in the sandbox: standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal

__all__ = ["enter", "fork", "map_ids"]

_NEW = 0x00020000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_CHILD_CLEARTID, _CHILD_SETTID = 0x00200000, 0x01000000
_CLONE3 = 435  # on every architecture
_PR_GET_TID_ADDRESS = 40

_libc = ctypes.CDLL(None, use_errno=True)
# Keeps Python's lock: there is no thread that could take it, and the child must have it.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


class _CloneArguments(ctypes.Structure):
    """``struct clone_args`` of Linux 5.3."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("flags", "pidfd", "child_tid", "parent_tid"),
            *("exit_signal", "stack", "stack_size", "tls"),
        )
    )


def enter() -> None:
    """Leave for new namespaces; of pids, those are the children's. Ids are to be mapped next.

    Raises:
        OSError: If the host does not allow it.
    """
    if _libc.unshare(_NEW) < 0:
        raise _failure("unshare")


def map_ids(uid: int, gid: int) -> None:
    """Give this process, new in a user namespace, the ids it had outside.

    Without them CUDA cannot open memory that another process shares.

    Args:
        uid: The user's, asked for outside.
        gid: The group's.

    Raises:
        OSError: If the host does not allow it.
    """
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def fork(by_library: bool = False) -> int:
    """Fork as `os.fork` does; the child is the first process of new namespaces, its ids unmapped.

    Args:
        by_library: Leave forks to the C library, also where there is no other thread.

    Returns:
        0 in the child; its process id, as seen from here, in the parent, whose child it is: one
        of several threads must have asked for orphans (``PR_SET_CHILD_SUBREAPER``).

    Raises:
        OSError: In the parent, if the host does not allow it.
    """
    place = 0 if by_library else _place_of_thread_id()
    if place and len(os.listdir("/proc/self/task")) == 1:
        # Containers may know unshare and refuse clone3, whose flags their filters cannot read.
        with contextlib.suppress(OSError):
            return _clone(place)
    return _fork_twice()


@functools.cache
def _place_of_thread_id() -> int:
    """Return where the C library keeps the number of this process's first thread; 0 if unknown."""
    place = ctypes.c_void_p()
    if _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0) < 0:
        return 0  # a kernel without checkpoints
    return place.value or 0


def _clone(place_of_thread_id: int) -> int:
    arguments = _CloneArguments(
        flags=_NEW | _CHILD_SETTID | _CHILD_CLEARTID,
        child_tid=place_of_thread_id,
        exit_signal=signal.SIGCHLD,
    )
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    # What os.fork does around its own call.
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _syscall(ctypes.c_long(_CLONE3), ctypes.byref(arguments), size)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    failure = _failure("clone3") if pid < 0 else None
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if failure is not None:
        raise failure
    return int(pid)


def _fork_twice() -> int:
    adopted_read, adopted_write = os.pipe()
    said_read, said_write = os.pipe()
    if (middle := os.fork()) == 0:
        os.close(adopted_write)
        os.close(said_read)
        try:
            enter()
            pid = os.fork()
        except OSError as error:
            os.write(said_write, f"{error.errno} {error.strerror}".encode())
            os._exit(1)
        if pid:
            os.write(said_write, str(pid).encode())
            os._exit(0)
        os.close(said_write)
        os.read(adopted_read, 1)  # until there is nobody between us and our parent
        os.close(adopted_read)
        return 0
    os.close(adopted_read)
    os.close(said_write)
    said = os.read(said_read, 1 << 10).decode()
    os.waitpid(middle, 0)
    os.close(said_read)
    os.close(adopted_write)
    if said.isdigit():
        return int(said)
    code, _, text = said.partition(" ")
    raise OSError(int(code or 0), text or "the process between this one and its child was killed")


def _failure(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
