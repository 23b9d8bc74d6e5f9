"""Put the calling process into a sandbox: namespaces, landlock, seccomp, limits.

Three tiers, strongest first; the host decides which can be had:

- ``ns+landlock+seccomp``: new user, mount, pid, network and IPC namespaces on top of the next;
- ``landlock+seccomp``: files outside an allow-list unreadable, scratch alone writable, no
  sockets, no tracing, no signals to others, no new processes, no exec;
- ``limits``: resource limits only. Files, network and other processes stay reachable.

Loaded by path in the untrusted process, so it imports nothing but the standard library. Also a
program: ``python sandbox.py PLAN_JSON [ARGV...]`` runs a compiler inside the same walls (exec
allowed); without ARGV it raises them and waits to be told, by one line of JSON on standard input.
It does not cover kernel bugs, side channels, or native code that spins up threads
until its deadline.
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

__all__ = [
    "OWN_FAILURE",
    "TIERS",
    "Plan",
    "adopt_orphans",
    "confine",
    "die_with_parent",
    "mount_private",
    "prefer_as_victim",
]

TIERS = ("ns+landlock+seccomp", "landlock+seccomp", "limits")
OWN_FAILURE = 213
"""Exit status of this program when it, and not what it was to run, failed; compilers use 1 to 4."""

_libc = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 24, 28, 38
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Plan:
    """What a sandboxed process may have."""

    tier: str
    scratch: str
    """The one folder it may write to; a private tmpfs in the strongest tier."""
    readable: tuple[str, ...]
    """Files and folders it may read."""
    listable: tuple[str, ...]
    """Folders whose names it may list without reading the files, unless they are readable."""
    memory_bytes: int
    """Address space beyond what the process maps when it is confined; 0 for no limit."""
    file_bytes: int
    open_files: int
    processes: int
    exec_allowed: bool = False
    """True for compilers only: may start programs and processes."""
    scratch_bytes: int = 1 << 30
    """Size of the private tmpfs."""
    gpu: bool = False
    """True if it may use NVIDIA devices. Their address space cannot be limited, so `memory_bytes`
    then bounds its private writable memory."""


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PDEATHSIG)")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none escapes."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(SUBREAPER)")


def prefer_as_victim() -> None:
    """If memory runs out, let the kernel kill this process before any of the trusted ones."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def mount_private(plan: Plan) -> None:
    """As the first process of a pid namespace: own /proc, own bounded scratch folder.

    Raises:
        OSError: If a mount is refused (containers often mask /proc).
    """
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount(private)")
    quiet = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check(_libc.mount(b"proc", b"/proc", b"proc", quiet, None), "mount(/proc)")
    if not plan.exec_allowed:
        options = f"size={plan.scratch_bytes},mode=700".encode()
        target = os.fsencode(plan.scratch)
        flags = _MS_NOSUID | _MS_NODEV
        _check(_libc.mount(b"tmpfs", target, b"tmpfs", flags, options), "mount(scratch)")


def confine(plan: Plan, seccomp: ModuleType) -> None:
    """Apply limits and, by tier, landlock and seccomp to this process, for good.

    Args:
        plan: What it may have.
        seccomp: The module of that name beside this file, which cannot import it.

    Raises:
        OSError: If a layer of the plan's tier cannot be had.
    """
    _limit(plan)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")
    if plan.tier == "limits":
        return
    _restrict_files(plan)
    if plan.tier.startswith("ns+"):
        _drop_capabilities()
    # Not traceable by siblings of the same user; restored by exec, so compilers are unaffected.
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(DUMPABLE)")
    # Old kernels' landlock does not know of signals, and a compiler's processes end each other.
    apart = plan.tier.startswith("ns+") or plan.exec_allowed
    alone = 0 if apart else os.getpid()
    _filter_syscalls(seccomp.syscall_filter(plan.exec_allowed, plan.gpu, alone))


def _limit(plan: Plan) -> None:
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
    """Count this user's threads: RLIMIT_NPROC counts them all, not those of one process."""
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
    _libc.prctl(_PR_SET_SECUREBITS, 0x2F, 0, 0, 0)  # no root privileges on exec, locked
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.capset(header, struct.pack("6I", *([0] * 6))), "capset")


# --- landlock -----------------------------------------------------------------------------------
_LL_CREATE, _LL_ADD, _LL_RESTRICT = 444, 445, 446
_LL_EXECUTE, _LL_WRITE, _LL_READ, _LL_READ_DIR = 1, 2, 4, 8
_LL_TRUNCATE, _LL_IOCTL = 1 << 14, 1 << 15
_LL_FILE_RIGHTS = 1 | 2 | 4 | _LL_TRUNCATE | _LL_IOCTL


def _restrict_files(plan: Plan) -> None:
    abi = _libc.syscall(_LL_CREATE, None, 0, 1)
    _check(abi, "landlock")
    all_rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    network = 3 if abi >= 4 else 0
    scoped = 3 if abi >= 6 else 0  # no signals and no abstract sockets to the outside
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
        devices = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]
        if plan.gpu:
            devices += [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia")]
        for path in devices:
            rights = _LL_READ | _LL_WRITE | _LL_READ_DIR
            _allow(ruleset, path, rights | (_LL_IOCTL if plan.gpu else 0), all_rights)
        # Another process's entries would show its environment: only a namespace's own /proc.
        own = "/proc" if plan.tier.startswith("ns+") else "/proc/self"
        _allow(ruleset, own, _LL_READ | _LL_READ_DIR, all_rights)
        if plan.gpu:  # the driver names its threads there
            rights = _LL_READ | _LL_READ_DIR | _LL_WRITE | _LL_TRUNCATE
            _allow(ruleset, "/proc/self", rights, all_rights)
        for path in ("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system"):
            _allow(ruleset, path, _LL_READ | _LL_READ_DIR, all_rights)
        _check(_libc.syscall(_LL_RESTRICT, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, all_rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what does not exist needs no rule
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
    """Wait to be told what to run; exits if nobody wants anything any more."""
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
    """Run `argv` confined by the plan; exits with its status (128 + signal if it was killed).

    An empty `argv` is asked for when everything else is done. Exits with `OWN_FAILURE`, and the
    reason on stderr, if `argv` could not be run so.
    """
    try:
        plan = Plan(**json.loads(plan_json))
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
            confine(plan, seccomp)
            argv = argv or _told()
            os.execvp(argv[0], argv)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
    except BaseException as error:  # in either process: the caller must not blame the program
        os.write(2, f"sandbox: {type(error).__name__}: {error}\n".encode(errors="replace"))
        os._exit(OWN_FAILURE)
    os._exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
