"""Confine the calling process to a sandbox: namespaces, landlock, seccomp, resource limits.

Three tiers, strongest first; the host decides which of them are available:

- ``ns+landlock+seccomp``: new user, mount, pid, network and IPC namespaces, and the next tier;
- ``landlock+seccomp``: files outside an allow-list are unreadable, only the scratch folder is
  writable; no sockets, no tracing, no signals to other processes, no new processes, no exec;
- ``limits``: resource limits only. Files, network and other processes stay reachable.

This file is also a program: ``python sandbox.py PLAN_JSON [ARGV...]`` runs a compiler in the same
sandbox (exec allowed). Without ARGV it confines itself and then waits for the command, one line of
JSON on standard input.

The sandbox does not cover:

- bugs of the Linux kernel;
- side channels;
- native code that starts threads until its deadline.

Loaded by path in the untrusted process, so it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import signal
import struct
import sys
from dataclasses import dataclass
from types import ModuleType

TIERS = ("ns+landlock+seccomp", "landlock+seccomp", "limits")
OWN_FAILURE = 213
"""Exit status if this program itself failed, not its command; compilers use 1 to 4."""

_libc = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 4096
_MOST_LINKS = 40
_QUIET = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 24, 28, 38
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class SandboxPlan:
    """Files, memory and rights that a sandboxed process may use."""

    tier: str
    scratch: str
    """Path of the only folder that the process may write to; a private tmpfs in the strongest
    tier."""
    readable: tuple[str, ...]
    """Files and folders that the process may read."""
    listable: tuple[str, ...]
    """Folders that the process may list, but whose files it may read only if `readable` holds
    them."""
    memory_bytes: int
    """Bytes of address space beyond what the process has mapped when confined; 0 for no limit."""
    file_bytes: int
    open_files: int
    processes: int
    exec_allowed: bool = False
    """Whether the process may start programs and processes; True for compilers only."""
    scratch_bytes: int = 1 << 30
    """Bytes that the private tmpfs can hold."""
    gpu: bool = False
    """Whether the process may use NVIDIA devices. Address space cannot be limited then, so
    `memory_bytes` limits private writable memory instead."""
    hidden: tuple[str, ...] = ()
    """Paths of NVIDIA device files that the process must not open although `gpu` is True: those of
    the GPUs on which its kernel is not judged."""
    sockets: bool = False
    """Whether the process may use sockets and the GPU after an exec; True for a profiler only. Only
    for the strongest tier: the process sees a root folder of its own, so that it finds no socket of
    another program."""


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def die_with_parent() -> None:
    """Make Linux kill this process when its parent ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PDEATHSIG)")


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that none escapes."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(SUBREAPER)")


def prefer_as_victim() -> None:
    """Make Linux kill this process before trusted ones if memory runs out."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def mount_private(plan: SandboxPlan) -> None:
    """Mount a private /proc and a bounded scratch folder; for a profiler, a root folder of its own.

    Only for the first process of a pid namespace.

    Raises:
        OSError: If a mount is refused (containers often mask /proc).
    """
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount(private)")
    if not plan.sockets:
        _check(_libc.mount(b"proc", b"/proc", b"proc", _QUIET, None), "mount(/proc)")
    if plan.sockets or not plan.exec_allowed:
        options = f"size={plan.scratch_bytes},mode=700".encode()
        target = os.fsencode(plan.scratch)
        flags = _MS_NOSUID | _MS_NODEV
        _check(_libc.mount(b"tmpfs", target, b"tmpfs", flags, options), "mount(scratch)")
    if plan.sockets:
        _enter_own_root(plan)


def _enter_own_root(plan: SandboxPlan) -> None:
    """Make the scratch folder the root, with readable files, devices and /proc mounted in it.

    Landlock restricts neither connecting to a socket's file nor, where a process may write to all
    of /proc, to files of the machine that root owns (`/proc/driver/nvidia/suspend`).
    """
    root = plan.scratch
    for path in sorted({path for path in plan.readable if not path.startswith("/proc")}):
        inside = f"{root}{path}"
        if os.path.exists(path) and not os.path.exists(inside):
            _bind(path, inside)
    for path in _devices(plan):
        _bind(path, f"{root}{path}")
    # /lib64 is a link in most distributions, and the interpreter may be named through links.
    for link in (*(f"/{name}" for name in os.listdir("/")), *_links_to(sys.executable)):
        if os.path.islink(link) and not os.path.lexists(f"{root}{link}"):
            os.makedirs(os.path.dirname(f"{root}{link}"), exist_ok=True)
            os.symlink(os.readlink(link), f"{root}{link}")
    os.makedirs(f"{root}/proc")
    os.makedirs(f"{root}{plan.scratch}")
    _check(_libc.mount(b"proc", f"{root}/proc".encode(), b"proc", _QUIET, None), "mount(/proc)")
    os.chroot(root)
    os.chdir(plan.scratch)
    # The driver writes to /proc/PID of each process that the profiler starts.
    for name in os.listdir("/proc"):
        path = f"/proc/{name}"
        if not name.isdigit() and not os.path.islink(path):
            _bind(path, path)
            flags = _QUIET | _MS_BIND | _MS_REMOUNT | _MS_RDONLY
            _check(_libc.mount(None, path.encode(), None, flags, None), f"mount({path})")


def _links_to(path: str) -> list[str]:
    """Return the symbolic links that lead to a file, in the order in which they are followed."""
    found: list[str] = []
    while len(found) < _MOST_LINKS:
        parts = path.split("/")
        above = ["/".join(parts[:number]) for number in range(2, len(parts) + 1)]
        link = next((each for each in above if os.path.islink(each)), None)
        if link is None:
            return found
        found.append(link)
        target = os.path.join(os.path.dirname(link), os.readlink(link))
        path = os.path.normpath(target + path[len(link) :])
    return found


def _bind(path: str, target: str) -> None:
    """Make a file or folder visible at a second place, which is created if it is missing."""
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    source, flags = os.fsencode(path), _MS_BIND | _MS_REC
    _check(_libc.mount(source, os.fsencode(target), None, flags, None), f"mount({path})")


def _devices(plan: SandboxPlan) -> list[str]:
    """Return the devices that a sandboxed process may open."""
    found = ["/dev/null"]
    if plan.gpu or not plan.exec_allowed:
        # A compiler would read `#include "/dev/zero"` until it has no memory left.
        found += ["/dev/zero", "/dev/urandom", "/dev/random"]
    if plan.gpu:
        found += [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia")]
    return [path for path in found if path not in plan.hidden]


def confine(plan: SandboxPlan, seccomp: ModuleType) -> None:
    """Apply limits and, by tier, landlock and seccomp to this process, irrevocably.

    Args:
        plan: Files, memory and rights that the process may use.
        seccomp: The module `seccomp.py`; this file, loaded by path, cannot import it.

    Raises:
        OSError: If the host lacks a layer of the plan's tier.
    """
    _limit(plan)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")
    if plan.tier == "limits":
        return
    _restrict_files(plan)
    if plan.tier.startswith("ns+"):
        _drop_capabilities()
    # Siblings of the same user cannot trace this process now. An exec undoes this, so compilers
    # are unaffected.
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(DUMPABLE)")
    # Landlock of older Linux versions does not restrict signals, so seccomp does. A compiler's
    # processes are exempt: they end each other.
    apart = plan.tier.startswith("ns+") or plan.exec_allowed
    alone = 0 if apart else os.getpid()
    _filter_syscalls(seccomp.syscall_filter(plan.exec_allowed, plan.gpu, alone, plan.sockets))


def _limit(plan: SandboxPlan) -> None:
    def cap(what: int, value: int) -> None:
        _, hard = resource.getrlimit(what)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))

    cap(resource.RLIMIT_CORE, 0)
    cap(resource.RLIMIT_FSIZE, plan.file_bytes)
    cap(resource.RLIMIT_NOFILE, plan.open_files)
    cap(resource.RLIMIT_NPROC, plan.processes + _own_processes())
    if plan.memory_bytes:
        with open("/proc/self/statm") as file:
            pages = [int(number) for number in file.read().split()]
        which, used = (resource.RLIMIT_DATA, 5) if plan.gpu else (resource.RLIMIT_AS, 0)
        cap(which, pages[used] * resource.getpagesize() + plan.memory_bytes)


def _own_processes() -> int:
    """Return the number of this user's threads: RLIMIT_NPROC limits their sum."""
    uid, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


def _drop_capabilities() -> None:
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(_PR_SET_SECUREBITS, 0x2F, 0, 0, 0)  # exec grants no root privileges; locked
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.capset(header, struct.pack("6I", *([0] * 6))), "capset")


# --- landlock -----------------------------------------------------------------------------------
_LL_CREATE, _LL_ADD, _LL_RESTRICT = 444, 445, 446
_LL_EXECUTE, _LL_WRITE, _LL_READ, _LL_READ_DIR = 1, 2, 4, 8
_LL_TRUNCATE, _LL_IOCTL = 1 << 14, 1 << 15
_LL_FILE_RIGHTS = 1 | 2 | 4 | _LL_TRUNCATE | _LL_IOCTL


def _restrict_files(plan: SandboxPlan) -> None:
    abi = _libc.syscall(_LL_CREATE, None, 0, 1)
    _check(abi, "landlock")
    all_rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    network = 3 if abi >= 4 else 0
    scoped = 3 if abi >= 6 else 0  # no signals or abstract sockets to outside
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    attributes = struct.pack("QQQ", all_rights, network, scoped)[:size]
    ruleset = _check(_libc.syscall(_LL_CREATE, attributes, size, 0), "landlock_create_ruleset")
    read = _LL_READ | _LL_READ_DIR | (_LL_EXECUTE if plan.exec_allowed else 0)
    try:
        for path in plan.readable:
            _allow(ruleset, path, read, all_rights)
        for path in plan.listable:
            _allow(ruleset, path, _LL_READ_DIR, all_rights)
        _allow(ruleset, plan.scratch, all_rights, all_rights)
        for path in _devices(plan):
            rights = _LL_READ | _LL_WRITE | _LL_READ_DIR
            _allow(ruleset, path, rights | (_LL_IOCTL if plan.gpu else 0), all_rights)
        # Without a pid namespace, /proc would show the environments of other processes.
        own = "/proc" if plan.tier.startswith("ns+") else "/proc/self"
        _allow(ruleset, own, _LL_READ | _LL_READ_DIR, all_rights)
        if plan.gpu:  # the CUDA driver names its threads there
            rights = _LL_READ | _LL_READ_DIR | _LL_WRITE | _LL_TRUNCATE
            _allow(ruleset, "/proc" if plan.sockets else "/proc/self", rights, all_rights)
        for path in ("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system"):
            _allow(ruleset, path, _LL_READ | _LL_READ_DIR, all_rights)
        _check(_libc.syscall(_LL_RESTRICT, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, all_rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing path needs no rule
    try:
        if not os.path.isdir(path):
            rights &= _LL_FILE_RIGHTS
        rule = struct.pack("=Qi", rights & all_rights, fd)
        _check(_libc.syscall(_LL_ADD, ruleset, 1, rule, 0), f"landlock_add_rule({path})")
    finally:
        os.close(fd)


# --- seccomp ------------------------------------------------------------------------------------
def _filter_syscalls(program: list[tuple[int, int, int, int]]) -> None:
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")


def _beside(name: str) -> ModuleType:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _told() -> list[str]:
    """Return the command to run from standard input; exit at its end of file."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            os._exit(0)
        line += part
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    told: list[str] = json.loads(line)
    return told


def main(plan_json: str, argv: list[str]) -> None:
    """Run `argv` in the plan's sandbox and exit with its status.

    The status is 128 + the signal's number if a signal killed the command. An empty `argv` is read
    from standard input once the sandbox is set up. If the sandbox or the command cannot be
    started, the program exits with `OWN_FAILURE` and writes the reason to stderr.
    """
    try:
        plan = SandboxPlan(**json.loads(plan_json))
        seccomp = _beside("seccomp")
        die_with_parent()
        if plan.tier.startswith("ns+"):
            namespaces, ids = _beside("namespaces"), (os.geteuid(), os.getegid())
            namespaces.enter()
            namespaces.map_ids(*ids)
        child = os.fork()
        if child == 0:
            die_with_parent()
            if plan.tier.startswith("ns+"):
                mount_private(plan)
            if plan.sockets:  # candidate code runs under the profiler
                prefer_as_victim()
            confine(plan, seccomp)
            argv = argv or _told()
            os.execvp(argv[0], argv)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
    except BaseException as error:  # in parent or child: the command is not to blame
        os.write(2, f"sandbox: {type(error).__name__}: {error}\n".encode(errors="replace"))
        os._exit(OWN_FAILURE)
    os._exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
