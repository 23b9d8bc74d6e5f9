"""A process with torch and Triton imported that forks one sandboxed process per candidate.

Forking from here costs milliseconds; importing costs seconds. The zygote runs no parallel torch
work (a child forked after an OpenMP region hangs) and never touches CUDA: a candidate on a CUDA
device makes its own context. It is driven over one socket by the trusted side: ``spawn`` (with the
channel, stdout and stderr attached; ``exec`` for a process that may start compilers, which no
verdict rests on; ``streams`` for one whose streams run side by side), ``kill``. It answers
``spawned`` and ``exited``, and takes every child down.

Loaded by path: standard library, torch and triton only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["main"]


def _untrusted(name: str) -> ModuleType:
    """Load a module of this folder by its path, such as ``watch/tracer``: nothing else of ours."""
    module_name = f"_kernelgym_{name.replace('/', '_')}"
    if (known := sys.modules.get(module_name)) is not None:
        return known
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _import_libraries(on_gpu: bool) -> None:
    import numpy  # noqa: F401
    import torch

    # A process that asks whether there is a device can no longer fork one that uses it, and some
    # modules ask when they are imported: there is one, or nobody would be judging on it.
    asked = torch.cuda.is_available
    if on_gpu:
        torch.cuda.is_available = lambda: True
    import torch.nn.functional
    import torch.utils.cpp_extension

    torch.cuda.is_available = asked

    torch.manual_seed(0)
    torch.set_printoptions(profile="default")
    try:
        import triton  # noqa: F401
    except ImportError:
        return
    if os.environ.get("TRITON_INTERPRET") == "1":
        # Here and not in the candidate: if a Triton version does not fit, that is our failure.
        _untrusted("triton/bounds_check").check_interpreter_accesses()
        folder = "triton/fast_interpreter"
        switch = _untrusted(f"{folder}/switch")
        if switch.is_on():
            parts = ("value_types", "values", "launches")
            switch.install(*(_untrusted(f"{folder}/{name}") for name in parts))


def _tracing(launches: Any) -> Callable[[], Any]:
    """Return what gives a child its tracer.

    Interpreted kernels are never timed, so theirs can be there before the fork, and be warm.
    """
    names = ("host_transfers", "operator_work", "host_memory", "fingerprint", "launch_times")
    parts = (_untrusted(f"watch/{name}") for name in names)
    make = functools.partial(_untrusted("watch/tracer").Tracer, launches, *parts)
    if os.environ.get("TRITON_INTERPRET") != "1" or "triton" not in sys.modules:
        return lambda: make().begin()
    tracer = make()
    _untrusted("triton/warm_up").warm_up(tracer, _untrusted("watch/fingerprint").fingerprint)
    begin: Callable[[], Any] = tracer.begin
    return begin


class _Zygote:
    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.protocol = _untrusted("protocol")
        self.sandbox, self.seccomp = _untrusted("sandbox/sandbox"), _untrusted("sandbox/seccomp")
        self.namespaces, self.ids = _untrusted("sandbox/namespaces"), (os.geteuid(), os.getegid())
        self.candidate = _untrusted("candidate")
        launches = _untrusted("watch/launches").Launches()
        names = ("protocol", "channel", "buffers", "cuda_ipc", "outputs", "error_report")
        self.parts = self.candidate.Parts(
            **{name: _untrusted(name) for name in (*names, "extension_stub", "torch_compile")},
            triton_tools=_untrusted("triton/tools"),
            launches=launches,
            new_tracer=_tracing(launches),  # the others have bound torch's own functions by now
        )
        self.device, self.shared = config["device"], ""
        self.compiler_paths = config["compiler_paths"]
        self.control, self.decoder = control, self.protocol.Decoder()
        if self.device != "cpu":
            self._meet_device()
        self.plan = self.sandbox.Plan(tier="limits", scratch="", **config["plan"])
        self.children: dict[int, int] = {}  # pid -> id
        tier = config["tier"]
        if not config["tier_is_known"]:
            tier = self._strongest_tier(tier)
        self.plan = dataclasses.replace(self.plan, tier=tier)
        self.shared = ""

    def _meet_device(self) -> None:
        """Wait to be told of the device, which the trusted side takes up meanwhile."""
        told, _ = self.protocol.receive(self.control, self.decoder)
        self.shared = told["shared"]
        if "triton" in sys.modules:
            self.parts.triton_tools.look_up_tools(told["arch"])

    def _strongest_tier(self, wanted: str) -> str:
        """Try the tiers by running a trial child in each; the whole composition or nothing."""
        tiers = self.sandbox.TIERS
        if wanted.startswith("require:"):
            tiers = tiers[: tiers.index(wanted.removeprefix("require:")) + 1]
        elif wanted != "auto":
            tiers = (wanted,)
        complaint = ""
        for tier in tiers:
            with tempfile.TemporaryDirectory(prefix="kernelgym-probe-") as scratch:
                ours, theirs = socket.socketpair()
                self.plan = dataclasses.replace(self.plan, tier=tier)
                with ours, theirs, tempfile.TemporaryFile() as said:
                    pid = self._fork(scratch, theirs.fileno(), said.fileno(), said.fileno())
                    ours.shutdown(socket.SHUT_WR)  # end of file: the child leaves its loop
                    if pid is not None and os.waitpid(pid, 0)[1] == 0:
                        return str(tier)
                    said.seek(0)
                    complaint = said.read(1 << 16).decode(errors="replace").strip()
        # The last line is what the trusted side shows; the others help whoever runs it by hand.
        print(complaint, file=sys.stderr)
        why = complaint.rpartition("\n")[2]
        raise RuntimeError(f"no sandbox tier of {wanted!r} works on this host: {why}")

    def serve(self) -> None:
        """Serve until the control socket closes."""
        wakeup, notify = socket.socketpair()
        wakeup.setblocking(False)
        notify.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(notify.fileno(), warn_on_full_buffer=False)
        decoder = self.decoder
        self.protocol.send(self.control, {"ready": True, "tier": self.plan.tier})
        while True:
            # What came with the message before makes no channel readable again.
            wait_s = 0.0 if decoder.is_whole else 1.0
            readable, _, _ = select.select([self.control, wakeup], [], [], wait_s)
            if wakeup in readable:
                wakeup.recv(4096)
            self._reap()
            if self.control not in readable and not decoder.is_whole:
                continue
            try:
                request, fds = self.protocol.receive(self.control, decoder, max_fds=3)
            except (EOFError, ConnectionError):
                break
            self._handle(request, fds)
        for pid in self.children:
            self._kill(pid)

    def _handle(self, request: dict[str, Any], fds: list[int]) -> None:
        if request["op"] == "spawn":
            channel, stdout, stderr = fds
            wishes = request["exec"], request["streams"]
            pid = self._fork(request["scratch"], channel, stdout, stderr, *wishes)
            for fd in fds:
                os.close(fd)
            if pid is None:
                self.protocol.send(self.control, {"exited": request["id"], "code": 255})
            else:
                self.children[pid] = request["id"]
                self.protocol.send(self.control, {"spawned": request["id"], "pid": pid})
        else:
            for pid, job in self.children.items():
                if job == request["id"]:
                    self._kill(pid)

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
            # Harmless where a pid namespace has taken the rest down already.
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            if pid in self.children:
                code = os.waitstatus_to_exitcode(status)
                job = self.children.pop(pid)
                self._kill_group(pid)
                self.protocol.send(self.control, {"exited": job, "code": code})
        self._kill_strays()

    def _kill_group(self, pid: int) -> None:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _kill_strays(self) -> None:
        """Kill what candidates left behind; orphans come to us because we are the subreaper."""
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                strays = {int(pid) for pid in file.read().split()} - set(self.children)
        except OSError:
            return
        for pid in strays:
            self._kill(pid)

    def _fork(
        self,
        scratch: str,
        channel: int,
        stdout: int,
        stderr: int,
        exec_allowed: bool = False,
        streams: bool = False,
    ) -> int | None:
        """Fork one candidate; return its pid as seen from here, None if the sandbox failed."""
        plan = dataclasses.replace(self.plan, scratch=scratch, exec_allowed=exec_allowed)
        if exec_allowed:
            readable = (*plan.readable, *self.compiler_paths)
            plan = dataclasses.replace(plan, readable=readable)
        try:
            apart = plan.tier.startswith("ns+")
            pid: int = self.namespaces.fork() if apart else os.fork()
        except OSError as error:
            _complain(stderr, error)
            return None
        if pid == 0:
            try:
                self._become_candidate(plan, channel, stdout, stderr, streams)
                os._exit(0)
            except BaseException as error:
                _complain(stderr, error)
                os._exit(255)
        return pid

    def _become_candidate(
        self, plan: Any, channel: int, stdout: int, stderr: int, streams: bool
    ) -> None:
        self.sandbox.die_with_parent()
        if plan.tier.startswith("ns+"):
            self.namespaces.map_ids(*self.ids)
            self.sandbox.mount_private(plan)
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        # Duplicate upwards first: the numbers given may lie among those they are to become.
        moved = [os.dup(fd) for fd in (null, stdout, stderr, channel)]
        for target, fd in enumerate(moved):
            os.dup2(fd, target, inheritable=target != 3)
        os.closerange(4, 1 << 16)
        environment = _private_environment(plan.scratch)
        if self.device != "cpu" and not streams:
            # Making and ending a context takes the driver a third of the time, one after the other.
            environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = plan.scratch
        os.chdir(plan.scratch)
        self.sandbox.prefer_as_victim()
        self.sandbox.confine(plan, self.seccomp)
        with socket.socket(fileno=3) as sock:
            self.candidate.serve(sock, plan.scratch, self.parts, self.device, self.shared)


def _complain(stderr: int, error: BaseException) -> None:
    """Tell whoever reads a candidate's errors, and whoever reads ours, why there is none."""
    message = f"sandbox: {type(error).__name__}: {error}\n".encode(errors="replace")
    with contextlib.suppress(OSError):  # its number is not open any more, later on
        os.write(stderr, message)
    os.write(2, message)


_CUDA_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("CUDA_HOME", "LD_LIBRARY_PATH"),
)


def _private_environment(scratch: str) -> dict[str, str]:
    """The whole environment of a candidate: nothing of the caller's but the interpreter switch."""
    own = {name: scratch for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_HOME")}
    own |= {
        name: os.path.join(scratch, name.lower())
        for name in ("TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR")
    }
    own |= dict.fromkeys(("USER", "LOGNAME"), "kernel")  # no list of users is readable there
    # The same code gives the same text in whatever file it lies: what was assembled for a verdict's
    # first process is there for its second.
    own["TRITON_DISABLE_LINE_INFO"] = "1"
    kept = ("PATH", "LANG", "TRITON_INTERPRET", "OMP_NUM_THREADS", *_CUDA_VARIABLES)
    return own | {name: os.environ[name] for name in kept if name in os.environ}


def main(control_fd: int, config: dict[str, Any]) -> None:
    """Import, probe the sandbox, serve."""
    control = socket.socket(fileno=control_fd)
    _untrusted("sandbox/sandbox").adopt_orphans()
    _import_libraries(config["device"] != "cpu")
    zygote = _Zygote(control, config)
    gc.collect()
    gc.freeze()  # keep the collector from touching, and so copying, the shared pages
    zygote.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
