"""The system calls that a sandboxed process may make, as a program for Linux's seccomp filter.

Data only: `sandbox.py` installs the program. Loaded by path in the untrusted process, so it imports
only the standard library.
"""

from __future__ import annotations

import errno
import platform


def _table(text: str) -> dict[str, tuple[int, int | None]]:
    """Return system call numbers by name, on x86_64 and aarch64.

    A `-` marks a call that does not exist there.
    """
    return {
        name: (int(first), None if second == "-" else int(second))
        for name, first, second in (row.split() for row in text.split(";"))
    }


# From Linux's system call tables.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_NEVER = _table("""
socket 41 198; ptrace 101 117; process_vm_readv 310 270; process_vm_writev 311 271;
pidfd_getfd 438 438; kcmp 312 272; io_uring_setup 425 425; io_uring_enter 426 426;
io_uring_register 427 427; bpf 321 280; perf_event_open 298 241; userfaultfd 323 282;
add_key 248 217; request_key 249 218; keyctl 250 219; mount 165 40; umount2 166 39;
pivot_root 155 41; chroot 161 51; open_tree 428 428; move_mount 429 429; fsopen 430 430;
mount_setattr 442 442; setns 308 268; unshare 272 97; kexec_load 246 104; init_module 175 105;
finit_module 313 273; reboot 169 142; swapon 167 224; open_by_handle_at 304 265; shmget 29 194;
msgget 68 186; semget 64 190; mq_open 240 180
""")
# With these a candidate could pin or slow other processes of the same user, even the reference.
_NEVER |= _table("""
sched_setaffinity 203 122; sched_setparam 142 118; sched_setscheduler 144 119;
sched_setattr 314 274; setpriority 141 140; ioprio_set 251 30
""")
# The address-space limit does not bound memory in memory files. A timer could send the signal that
# lets a halted process go on.
_NO_EXEC = _table("""
execve 59 221; execveat 322 281; fork 57 -; vfork 58 -; memfd_create 319 279;
memfd_secret 447 447; timer_create 222 107
""")
# A signal could stop or end other processes of the same user: standby processes, even the worker.
_SIGNAL_TO = _table("""
kill 62 129; tgkill 234 131; rt_sigqueueinfo 129 138; rt_tgsigqueueinfo 297 240
""")
_SIGNAL = _table("tkill 200 130; pidfd_send_signal 424 424")
_FCNTL, _F_SETSIG, _F_SETOWN, _F_SETOWN_EX = (72, 25), 10, 8, 15
_IOCTL, _FIOSETOWN, _SIOCSPGRP = (16, 29), 0x8901, 0x8902
_CONNECT = _table("connect 42 203")
_AF_UNIX, _SOCK_SEQPACKET = 1, 5
_FAMILIES = (_AF_UNIX, 16)  # and netlink, which is all that ncu 2025.3 uses
_CLONE, _CLONE3, _CLONE_THREAD = (56, 220), (435, 435), 0x00010000
_PRLIMIT = (302, 261)
_ALLOW, _KILL, _DENY = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AND = 0x54


def syscall_filter(
    exec_allowed: bool, gpu: bool, alone: int = 0, sockets: bool = False
) -> list[tuple[int, int, int, int]]:
    """Return this machine's filter steps: code, two jumps and operand.

    Args:
        exec_allowed: True if the process may start programs and processes.
        gpu: True to allow what the CUDA driver needs.
        alone: The id of a process that may send signals only to itself; 0 if it may send them to
            every process that it sees.
        sockets: True to allow Unix and netlink sockets of every kind, which a network namespace
            and a root folder of its own keep apart from others.

    Raises:
        OSError: If this file has no table for the machine.
    """
    column, program = _beginning()
    denied = dict(_NEVER) if exec_allowed else {**_NEVER, **_NO_EXEC}
    if alone:
        denied |= _SIGNAL
    if sockets:
        last = len(_FAMILIES)
        families = [(_JUMP_EQUAL, last - i, 0, each) for i, each in enumerate(_FAMILIES)]
        program += [
            (_JUMP_EQUAL, 0, 3 + len(_FAMILIES), denied.pop("socket")[column] or 0),
            (_LOAD, 0, 0, 16),
            *families,
            (_RETURN, 0, 0, _DENY | errno.EPERM),
            (_LOAD, 0, 0, 0),
        ]
    elif gpu:
        # The CUDA driver listens on a Unix SOCK_SEQPACKET socket: allow that kind only. With
        # `connect` denied, the process can reach no other through it.
        denied = {**denied, **_CONNECT}
        socket_number = denied.pop("socket")[column] or 0
        program += [
            (_JUMP_EQUAL, 0, 6, socket_number),
            (_LOAD, 0, 0, 16),
            (_JUMP_EQUAL, 0, 3, _AF_UNIX),
            (_LOAD, 0, 0, 24),
            (_AND, 0, 0, 0xF),  # the rest are flags
            (_JUMP_EQUAL, 1, 0, _SOCK_SEQPACKET),
            (_RETURN, 0, 0, _DENY | errno.EPERM),
            (_LOAD, 0, 0, 0),
        ]
    for numbers in denied.values():
        number = numbers[column]
        if number is not None:
            program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY | errno.EPERM)]
    program += [
        # prlimit for the calling process (pid 0) only.
        (_JUMP_EQUAL, 0, 4, _PRLIMIT[column]),
        (_LOAD, 0, 0, 16),
        (_JUMP_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _DENY | errno.EPERM),
        (_LOAD, 0, 0, 0),
        # Deny F_SETSIG: it would choose which signal announces a ready descriptor.
        (_JUMP_EQUAL, 0, 4, _FCNTL[column]),
        (_LOAD, 0, 0, 24),
        (_JUMP_EQUAL, 0, 1, _F_SETSIG),
        (_RETURN, 0, 0, _DENY | errno.EPERM),
        (_LOAD, 0, 0, 0),
    ]
    if alone:
        # Deny setting a descriptor's owner: its ready signal (SIGIO) ends the owner, which could be
        # another process.
        for numbers, codes in (
            (_FCNTL, (_F_SETOWN, _F_SETOWN_EX)),
            (_IOCTL, (_FIOSETOWN, _SIOCSPGRP)),
        ):
            program += [
                (_JUMP_EQUAL, 0, 5, numbers[column]),
                (_LOAD, 0, 0, 24),
                (_JUMP_EQUAL, 1, 0, codes[0]),
                (_JUMP_EQUAL, 0, 1, codes[1]),
                (_RETURN, 0, 0, _DENY | errno.EPERM),
                (_LOAD, 0, 0, 0),
            ]
    for numbers in _SIGNAL_TO.values() if alone else ():
        program += [
            (_JUMP_EQUAL, 0, 4, numbers[column] or 0),
            (_LOAD, 0, 0, 16),
            (_JUMP_EQUAL, 1, 0, alone),
            (_RETURN, 0, 0, _DENY | errno.EPERM),
            (_LOAD, 0, 0, 0),
        ]
    if not exec_allowed:
        program += [
            # A filter cannot read clone3's flags, which lie in memory; libc falls back to clone.
            (_JUMP_EQUAL, 0, 1, _CLONE3[column]),
            (_RETURN, 0, 0, _DENY | errno.ENOSYS),
            (_JUMP_EQUAL, 0, 3, _CLONE[column]),
            (_LOAD, 0, 0, 16),
            (_JUMP_SET, 1, 0, _CLONE_THREAD),
            (_RETURN, 0, 0, _DENY | errno.EPERM),
            (_LOAD, 0, 0, 0),
        ]
    program.append((_RETURN, 0, 0, _ALLOW))
    return program


def network_filter() -> list[tuple[int, int, int, int]]:
    """Return filter steps that deny only sockets other than Unix ones.

    Raises:
        OSError: If this file has no table for the machine.
    """
    column, program = _beginning()
    # io_uring makes sockets without the system call `socket`.
    for name in ("io_uring_setup", "io_uring_enter", "io_uring_register"):
        number = _NEVER[name][column] or 0
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY | errno.EPERM)]
    program += [
        (_JUMP_EQUAL, 0, 3, _NEVER["socket"][column] or 0),
        (_LOAD, 0, 0, 16),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, _DENY | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return program


def _beginning() -> tuple[int, list[tuple[int, int, int, int]]]:
    """Return this machine's column in the table, and filter steps that load the call's number.

    Calls of a foreign architecture end the process: their numbers mean other calls.

    Raises:
        OSError: If this file has no table for the machine.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"seccomp: no system call table for {machine}")
    architecture, column = _ARCHITECTURES[machine]
    return column, [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_JUMP_GREATER_EQUAL, 0, 1, 0x40000000),  # x32 calls alias the 64-bit ones
        (_RETURN, 0, 0, _KILL),
    ]
