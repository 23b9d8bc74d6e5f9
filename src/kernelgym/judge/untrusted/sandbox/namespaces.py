"""Fork a process into its own user, mount, pid, network and IPC namespaces.

`fork` forks, unshares and forks again: after an unshare only children of the process enter the new
pid namespace. Both forks go through the C library, whose fork handlers drivers and other threads
may rely on.

Loaded by path in the zygote and in the sandbox: standard library only.
"""

from __future__ import annotations

import ctypes
import os

_NEW = 0x00020000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Move this process, and its children's pids, to new namespaces.

    Call `map_ids` next.

    Raises:
        OSError: If the host does not allow it.
    """
    if _libc.unshare(_NEW) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"unshare: {os.strerror(code)}")


def map_ids(uid: int, gid: int) -> None:
    """Keep this process's user and group ids in its new user namespace.

    Without them CUDA cannot open memory that another process shares.

    Args:
        uid: The user id, read before the process entered the namespace.
        gid: The group id, read at the same time.

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


def fork() -> int:
    """Fork like `os.fork`, but with the child in new namespaces.

    The child is the first process of the new pid namespace; it calls `map_ids` next.

    Returns:
        0 in the child; in the parent the child's process id as the parent sees it. The parent
        becomes the child's own parent only if it adopts orphans (``PR_SET_CHILD_SUBREAPER``).

    Raises:
        OSError: In the parent, if the host does not allow it.
    """
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
        os.read(adopted_read, 1)  # until the intermediate process has ended
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
