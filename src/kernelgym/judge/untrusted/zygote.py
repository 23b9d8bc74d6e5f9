"""The zygote: imports torch and Triton once and forks one sandboxed process per candidate.

A fork from the zygote takes milliseconds; the imports take seconds. The zygote runs no parallel
torch work (a child forked after an OpenMP region hangs) and never touches CUDA: a candidate on a
CUDA device makes its own context.

The trusted side drives the zygote over one socket:

- ``spawn`` forks a process; the channel, stdout and stderr come attached. With ``exec`` that
  process may start compilers (no verdict depends on such a process); with ``streams`` work on
  its CUDA streams may run side by side.
- ``kill`` kills one process.
- ``import`` imports modules that the next candidates are likely to import, such as those of
  transformers; what cannot be imported is left to them.

The zygote answers ``spawned`` and ``exited``. When the socket closes it kills every child.

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
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

_ARCH = 90
"""Compute capability for which Triton's tools are looked up where there is no GPU."""


def _untrusted(name: str) -> ModuleType:
    """Load a module of this folder by its path, such as ``watch/tracer``.

    It loads that file and nothing else of kernelgym.
    """
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


def _import_libraries(
    on_gpu: bool, half: ModuleType, compiles: bool
) -> Callable[[bool, bool], None]:
    """Import candidates' libraries; return functions that make the interpreter act like a GPU.

    Args:
        on_gpu: Whether the judge runs on a device.
        half: The language's own module, which imports the language's packages.
        compiles: Whether that module compiles kernels for a GPU that is not there.
    """
    import numpy  # noqa: F401
    import torch

    with _cuda_taken_for_available(on_gpu):
        import torch.nn.functional
        import torch.utils.cpp_extension

        half.import_packages()

    torch.manual_seed(0)
    torch.set_printoptions(profile="default")
    try:
        import triton  # noqa: F401
    except ImportError:
        return lambda *_: None
    if compiles and not on_gpu:  # its kernels are compiled here, and not run
        cuda = _untrusted("triton/cuda_on_cpu")
        _untrusted("triton/stream_order")
        of_cuda = cuda.changes()
        _untrusted("triton/tools").look_up_tools(_ARCH)  # of programs that no kernel may start
        return lambda _, cuda_too: cuda.take_cuda_for_cpu(of_cuda) if cuda_too else None
    if os.environ.get("TRITON_INTERPRET") == "1":
        # In the zygote, so that a Triton version that does not fit fails the judge, not a kernel.
        races = _untrusted("triton/races").Races()
        _untrusted("triton/bounds_check").check_interpreter_accesses(races)
        libdevice = _untrusted("triton/libdevice")
        libdevice.install()
        _untrusted("triton/interpreter_gaps").fill(libdevice.with_semantic)
        turns = _untrusted("triton/autotune").install()
        folder = "triton/fast_interpreter"
        switch = _untrusted(f"{folder}/switch")
        if switch.is_on():
            switch.install(_untrusted(f"{folder}/values"), _untrusted(f"{folder}/launches"))
        # After the replacements, which are made for the interpreter's own text only.
        _untrusted("triton/bf16").compute_in_bf16()
        values = _untrusted("triton/gpu_values").GpuValues()
        races.before_launch = _untrusted("triton/stream_order").ORDER.launch
        cuda = _untrusted("triton/cuda_on_cpu")
        prepared = cuda.changes()

        def as_gpu(values_too: bool, cuda_too: bool) -> None:
            races.on = values.on = turns.on = values_too
            if cuda_too:
                cuda.take_cuda_for_cpu(prepared)

        return as_gpu
    return lambda *_: None


@contextlib.contextmanager
def _cuda_taken_for_available(on_gpu: bool) -> Iterator[None]:
    """Keep imports of a block from asking whether CUDA is there.

    After a real call of is_available a process can no longer fork children that use CUDA, and some
    modules call it when they are imported. Meanwhile the answer is True: `on_gpu` says that the
    judge runs on a device.
    """
    import torch

    asked = torch.cuda.is_available
    if on_gpu:
        torch.cuda.is_available = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_available = asked


def _tracing(launches: Any) -> Callable[[], Any]:
    """Return a function that gives a child of the zygote its tracer.

    Interpreted kernels are never timed, so their tracer is made and warmed up before the fork.
    """
    names = ("host_transfers", "operator_work", "host_memory", "fingerprint", "launch_times")
    _untrusted("watch/operator_work").remember_implementations()
    parts = (_untrusted(f"watch/{name}") for name in (*names, "records", "device_kernels"))
    make = functools.partial(_untrusted("watch/tracer").Tracer, launches, *parts)
    if os.environ.get("TRITON_INTERPRET") != "1" or "triton" not in sys.modules:
        return lambda: make().begin()
    tracer = make()
    _untrusted("triton/warm_up").warm_up(tracer, _untrusted("watch/fingerprint").fingerprint)
    begin: Callable[[], Any] = tracer.begin
    return begin


def _recorder() -> Any:
    """Return the zygote's recorder of interpreted launches; None without an interpreter."""
    if os.environ.get("TRITON_INTERPRET") != "1" or "triton" not in sys.modules:
        return None
    return _untrusted("triton/launch_record").Recorder()


class _Zygote:
    def __init__(
        self,
        control: socket.socket,
        config: dict[str, Any],
        as_gpu: Callable[[bool, bool], None],
        half: ModuleType,
    ) -> None:
        self.protocol = _untrusted("protocol")
        self.sandbox, self.seccomp = _untrusted("sandbox/sandbox"), _untrusted("sandbox/seccomp")
        self.namespaces, self.ids = _untrusted("sandbox/namespaces"), (os.geteuid(), os.getegid())
        self.candidate = _untrusted("candidate")
        launches = _untrusted("watch/launches").Launches()
        half.count_launches(launches)
        turns = _untrusted("triton/autotune").turns
        for each in turns:
            each.is_skipping = launches.are_left_out
        names = ("protocol", "channel", "buffers", "cuda_ipc", "graph_order", "captured_graph")
        more = ("outputs", "unseen", "parameters", "error_report")
        last = ("extension_stub", "torch_compile")
        self.parts = self.candidate.CandidateParts(
            **{name: _untrusted(name) for name in (*names, *more, *last)},
            triton_tools=_untrusted("triton/tools"),
            front_end=_untrusted("triton/front_end"),
            device_kernels=_untrusted("watch/device_kernels"),
            records=_untrusted("watch/records"),
            half=half,
            as_gpu=as_gpu,
            launches=launches,
            recorder=_recorder(),
            streams=_untrusted("triton/stream_order").ORDER if turns else None,
            untried_configs=turns[0].untried if turns else lambda: 0,
            new_tracer=_tracing(launches),  # after the others have bound torch's own functions
        )
        self.device, self.shared = config["device"], ""
        self.compiler_paths, self.variables = config["compiler_paths"], config["variables"]
        self.control, self.decoder = control, self.protocol.Decoder()
        self.hidden: tuple[str, ...] = ()
        if self.device != "cpu":
            self._meet_device()
        self.plan = self.sandbox.SandboxPlan(
            tier="limits", scratch="", hidden=self.hidden, **config["plan"]
        )
        self.children: dict[int, int] = {}  # pid -> id
        tier = config["tier"]
        if not config["tier_is_known"]:
            tier = self._strongest_tier(tier)
        self.plan = dataclasses.replace(self.plan, tier=tier)
        self.shared = ""

    def _meet_device(self) -> None:
        """Wait until the trusted side, which opens the device meanwhile, describes it."""
        told, _ = self.protocol.receive(self.control, self.decoder)
        self.shared, self.hidden = told["shared"], tuple(told["hidden"])
        if self.hidden:
            # The driver counts only the GPUs that a process can open, so the number of this one
            # would be wrong in a candidate, which opens no other.
            self.variables = {**self.variables, "CUDA_VISIBLE_DEVICES": told["gpu"]}
        if "triton" in sys.modules:
            self.parts.triton_tools.look_up_tools(told["arch"])

    def _strongest_tier(self, wanted: str) -> str:
        """Return the strongest tier in which a trial child can be confined.

        A tier counts only with all of its layers.
        """
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
                    ours.shutdown(socket.SHUT_WR)  # end of file ends the child's loop
                    if pid is not None and os.waitpid(pid, 0)[1] == 0:
                        return str(tier)
                    said.seek(0)
                    complaint = said.read(1 << 16).decode(errors="replace").strip()
        # The trusted side shows the last line only; the others help an engineer who runs a zygote
        # by hand.
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
            # A message already in the decoder does not make the socket readable: without this
            # test it would wait for the next one.
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
            wishes = request["exec"], request["streams"], request["weight_bytes"]
            pid = self._fork(request["scratch"], channel, stdout, stderr, *wishes)
            for fd in fds:
                os.close(fd)
            if pid is None:
                self.protocol.send(self.control, {"exited": request["id"], "code": 255})
            else:
                self.children[pid] = request["id"]
                self.protocol.send(self.control, {"spawned": request["id"], "pid": pid})
        elif request["op"] == "import":
            with _cuda_taken_for_available(self.device != "cpu"):
                for name in request["modules"]:
                    with contextlib.suppress(ImportError):
                        importlib.import_module(name)
            gc.collect()
            gc.freeze()
        else:
            for pid, job in self.children.items():
                if job == request["id"]:
                    self._kill(pid)

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
            # Harmless if the end of a pid namespace has killed the group already.
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
        """Kill processes that candidates left behind, which the zygote has adopted."""
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
        weight_bytes: int = 0,
    ) -> int | None:
        """Fork one candidate; return its pid here, None if that failed."""
        plan = dataclasses.replace(self.plan, scratch=scratch, exec_allowed=exec_allowed)
        if weight_bytes and plan.memory_bytes:
            # Files are mapped while they are copied into the model.
            plan = dataclasses.replace(plan, memory_bytes=plan.memory_bytes + 3 * weight_bytes)
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
        # Duplicate upwards first: the given numbers may be among the targets 0 to 3, and dup2
        # would close them.
        moved = [os.dup(fd) for fd in (null, stdout, stderr, channel)]
        for target, fd in enumerate(moved):
            os.dup2(fd, target, inheritable=target != 3)
        os.closerange(4, 1 << 16)
        environment = _private_environment(plan.scratch) | self.variables
        environment |= self.parts.half.environment(plan.scratch)
        if self.device != "cpu" and not streams:
            # With one connection the driver makes and ends a context in a third of the time, but
            # streams run one after the other.
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
    """Report a failed start on the candidate's stderr and on the zygote's."""
    message = f"sandbox: {type(error).__name__}: {error}\n".encode(errors="replace")
    with contextlib.suppress(OSError):  # the child closes this number when it moves it
        os.write(stderr, message)
    os.write(2, message)


_CUDA_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("CUDA_HOME", "LD_LIBRARY_PATH"),
)


_HUB_VARIABLES = (
    *("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"),
    "TRANSFORMERS_VERBOSITY",
)


def _private_environment(scratch: str) -> dict[str, str]:
    """Return all environment variables of a candidate.

    Of the caller's variables it keeps the path, the language, the interpreter switch, the number
    of OpenMP threads, those of CUDA, and those by which pretrained models are read offline.
    """
    own = {name: scratch for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_HOME")}
    own |= {
        name: os.path.join(scratch, name.lower())
        for name in ("TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR")
    }
    own |= dict.fromkeys(("USER", "LOGNAME"), "kernel")  # the sandbox hides the list of users
    # Without line numbers the same code gives the same PTX in any file: what was assembled for a
    # verdict's first process is found again for its second.
    own["TRITON_DISABLE_LINE_INFO"] = "1"
    own["KINETO_LOG_LEVEL"] = "99"  # else torch's profiler writes into the kernel's output
    kept = (
        "PATH",
        "LANG",
        "TRITON_INTERPRET",
        "OMP_NUM_THREADS",
        *_CUDA_VARIABLES,
        *_HUB_VARIABLES,
    )
    return own | {name: os.environ[name] for name in kept if name in os.environ}


def main(control_fd: int, config: dict[str, Any]) -> None:
    """Import the libraries, choose a sandbox tier and serve requests."""
    control = socket.socket(fileno=control_fd)
    _untrusted("sandbox/sandbox").adopt_orphans()
    half = _untrusted(f"languages/{config['half'] or 'plain'}")
    as_gpu = _import_libraries(config["device"] != "cpu", half, bool(config["half"]))
    zygote = _Zygote(control, config, as_gpu, half)
    gc.collect()
    gc.freeze()  # keep the collector from touching, and so copying, the shared pages
    zygote.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
