"""Lay a process's own memory out in huge pages, so that forking it copies few page tables.

A zygote's heap of 160 MB is 40,000 small pages. Their tables are copied at every fork, and undone
at every exit, which takes longer than all else that a fork does; of huge pages there are eighty. A
child that writes to one copies 4 KiB of it, as ever. Needs Linux 6.1, and helps with time only:
where it cannot be had, nothing changes.

Loaded by path in the zygote: standard library only.
"""

from __future__ import annotations

import ctypes

__all__ = ["lay_out"]

_HUGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25  # no flag stays behind: what a child maps there later is in small pages


def lay_out() -> None:
    """Move the anonymous memory of this process to huge pages, as far as the system can."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    with open("/proc/self/maps") as file:
        lines = file.read().splitlines()
    for line in lines:
        span, access, _, _, inode, *name = line.split(maxsplit=5)
        if access != "rw-p" or inode != "0" or (name and name[0] != "[heap]"):
            continue
        start, end = (int(bound, 16) for bound in span.split("-"))
        # One by one: a part that cannot be moved ends the call that it is in.
        for address in range(start + -start % _HUGE_BYTES, end - _HUGE_BYTES + 1, _HUGE_BYTES):
            madvise(address, _HUGE_BYTES, _MADV_COLLAPSE)
