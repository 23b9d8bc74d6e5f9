"""Build C++ extensions for candidates: elsewhere, confined, once per content, and fast.

A candidate's `load_inline` sends its arguments here. The source is compiled against thin headers
(the tensor, and only those operators whose names occur in it) in parallel with the binding unit,
which is the same for every kernel and therefore compiled once per toolchain. Only if the compiler
misses something that torch's headers do declare is it compiled again with the real ones; a
genuine error is never compiled twice. Libraries are filed by content in a folder that neither
candidates nor compilers can read; a candidate is handed a sealed copy of its own.

The arguments come from untrusted code: types are checked, and flags must be on an allow-list.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.feedback import cut_middle
from kernelgym.judge import extension_source as source
from kernelgym.judge.sandbox import OWN_FAILURE, Plan
from kernelgym.judge.toolchain import Toolchain, find_compiler
from kernelgym.judge.toolchain import toolchain as find_toolchain
from kernelgym.rulesets import Limits

__all__ = ["Builder", "Built", "sealed_copy"]

_LOG_CHARACTERS = 8000
_MEMORY_BYTES = 6 << 30
_BINDING_S = 600.0  # compiled once per toolchain, so no kernel's own time is spent on it
_MAX_FAILURES = 256


@dataclass(frozen=True, slots=True)
class Built:
    """The outcome of one build."""

    path: str
    """The library; empty if it did not build."""
    module: str
    """Name under which Python imports it: no two libraries share one."""
    log: str
    """What the compiler said, bounded."""
    cached: bool
    wall_s: float
    may_pass_later: bool = False
    """True for a failure for want of time or memory, which says little about the source."""


class Builder:
    """Builds extensions for one worker.

    Args:
        cache: Folder of finished libraries; shared with other workers.
        scratch_root: Folder for intermediate files.
        tier: Sandbox tier of the compiler.
        limits: `build_s` bounds one build.
        readable: Paths that a sandboxed Python needs, from `process.readable_paths`.
    """

    def __init__(
        self,
        cache: Path,
        scratch_root: Path,
        tier: str,
        limits: Limits,
        readable: tuple[str, ...],
    ) -> None:
        self._cache, self._scratch_root = cache, scratch_root
        self._tier, self._limits, self._readable = tier, limits, readable
        self._failures: dict[str, Built] = {}
        cache.mkdir(parents=True, exist_ok=True)

    def build(self, arguments: Any) -> Built:
        """Build what a candidate asked for. Never raises for the candidate's mistakes."""
        started = time.monotonic()
        try:
            request = source.read_request(arguments)
        except source.BadRequest as error:
            return Built("", "", str(error), False, 0.0)
        toolchain = find_toolchain(find_compiler())
        key = _key(toolchain, dataclasses.astuple(request))
        folder = self._cache / key
        if (finished := _finished(folder)) is not None:
            return dataclasses.replace(finished, wall_s=time.monotonic() - started)
        if key in self._failures:
            return dataclasses.replace(self._failures[key], cached=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=self._scratch_root) as scratch:
            built = self._compile(request, toolchain, Path(scratch), started)
            if built.path:
                # pybind11 takes modules of one name for the same one; the initializer is named
                # after the last part alone.
                unique = f"kernelgym_{key}.{built.module}"
                built = _file(dataclasses.replace(built, module=unique), folder)
        if not built.path and not built.may_pass_later:
            self._failures[key] = built
            if len(self._failures) > _MAX_FAILURES:
                del self._failures[next(iter(self._failures))]
        return dataclasses.replace(built, wall_s=time.monotonic() - started)

    def _compile(
        self, request: source.Request, toolchain: Toolchain, scratch: Path, started: float
    ) -> Built:
        deadline = started + self._limits.build_s
        if source.can_be_thin(request):
            with self._binding(toolchain) as binding:
                (scratch / "kernelgym_needed.h").write_text(source.needed_header(request))
                log = self._compile_unit(request, toolchain, scratch, thin=True, deadline=deadline)
                waiting_since = time.monotonic()
                binding_object = binding.finish()
                deadline += time.monotonic() - waiting_since
            if not log.startswith(_FAILED):
                # A copy, since the linker may not see the folder the binding unit lies in.
                shutil.copyfile(binding_object, scratch / "binding.o")
                objects = [scratch / "kernel.o", scratch / "binding.o"]
                return self._link(request, toolchain, scratch, objects, log, deadline)
            if not source.missing_from_thin(log):
                return _failed(log)
        log = self._compile_unit(request, toolchain, scratch, thin=False, deadline=deadline)
        if log.startswith(_FAILED):
            return _failed(log)
        return self._link(request, toolchain, scratch, [scratch / "kernel.o"], log, deadline)

    def _compile_unit(
        self,
        request: source.Request,
        toolchain: Toolchain,
        scratch: Path,
        *,
        thin: bool,
        deadline: float,
    ) -> str:
        for file_name, text in source.compose(request, thin).items():
            (scratch / file_name).write_text(text, encoding="utf-8", errors="replace")
        includes = [f"-I{source.THIN_HEADERS}", f"-I{scratch}"] if thin else []
        command = [toolchain.compiler, *toolchain.flags, *includes, *toolchain.includes(thin)]
        name = source.module_name(request, thin)
        command += [f"-DTORCH_EXTENSION_NAME={name}", *source.compile_flags(request, thin)]
        command += ["-c", source.UNIT, "-o", "kernel.o"]
        return self._start(command, scratch).finish(deadline)

    def _link(
        self,
        request: source.Request,
        toolchain: Toolchain,
        scratch: Path,
        objects: list[Path],
        log: str,
        deadline: float,
    ) -> Built:
        library = scratch / "extension.so"
        command = [toolchain.compiler, "-shared", *map(str, objects), *toolchain.libraries]
        command += [*request.ldflags, "-o", str(library)]
        link_log = self._start(command, scratch).finish(deadline)
        if link_log.startswith(_FAILED):
            return _failed(link_log)
        name = source.module_name(request, thin=len(objects) == 2)
        return Built(str(library), name, _bounded(log + link_log), False, 0.0)

    def _binding(self, toolchain: Toolchain) -> _Binding:
        """Begin to compile the binding unit, unless it is there already."""
        path = self._binding_path(toolchain)
        if path.exists():
            return _Binding(None, path)
        scratch = tempfile.mkdtemp(prefix="binding-", dir=self._scratch_root)
        command = [toolchain.compiler, *toolchain.flags, f"-I{source.THIN_HEADERS}"]
        command += [*toolchain.includes(False), "-c", str(source.BINDING_UNIT), "-o", "binding.o"]
        return _Binding(self._start(command, Path(scratch), _BINDING_S), path)

    def _binding_path(self, toolchain: Toolchain) -> Path:
        return self._cache / f"binding-{_key(toolchain)}.o"

    def _start(self, command: list[str], scratch: Path, allowed_s: float = 0.0) -> _Running:
        plan = Plan(
            tier=self._tier,
            scratch=str(scratch),
            readable=(
                *self._readable,
                "/usr",
                "/etc/alternatives",
                "/bin",
                sysconfig.get_paths()["include"],
                str(source.THIN_HEADERS),
            ),
            listable=(),
            memory_bytes=_MEMORY_BYTES,
            file_bytes=self._limits.file_bytes,
            open_files=self._limits.open_files,
            processes=self._limits.processes,
            exec_allowed=True,
        )
        wrapper = [sys.executable, "-I", "-S", "-B", str(Path(__file__).with_name("sandbox.py"))]
        log = (scratch / "log").open("wb")
        with log:
            process = subprocess.Popen(
                [*wrapper, json.dumps(dataclasses.asdict(plan)), *command],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": str(scratch)}
                | {"LC_ALL": "C.UTF-8", "HOME": str(scratch)},
                start_new_session=True,
            )

        return _Running(process, scratch, allowed_s or self._limits.build_s)


_FAILED = "\0failed\0"
_TOO_LONG = f"{_FAILED}the build took longer than "
_SILENT = "the compiler exited with "
_TRANSIENT = (
    _SILENT,
    *("killed", "cannot allocate memory", "virtual memory exhausted", "out of memory"),
    *("no space left on device", "resource temporarily unavailable"),
)


@dataclass(frozen=True, slots=True)
class _Running:
    """A compiler at work in a folder of its own."""

    process: subprocess.Popen[bytes]
    scratch: Path
    allowed_s: float

    def finish(self, deadline: float) -> str:
        """Wait; return the log, with `_FAILED` in front if the command failed.

        Raises:
            JudgeError: If it could not even be started.
        """
        try:
            code = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            return f"{_TOO_LONG}{self.allowed_s:g} s"
        with (self.scratch / "log").open("rb") as file:
            log = file.read(1 << 20).decode("utf-8", "replace")
        log = log.replace(f"{self.scratch}/", "")
        if code == OWN_FAILURE:
            raise JudgeError(f"the compiler could not be run: {_bounded(log)}")
        return log if code == 0 else f"{_FAILED}{log or f'{_SILENT}{code}'}"

    def end(self) -> None:
        """Kill it with everything it started, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(frozen=True, slots=True)
class _Binding:
    """The binding unit, there already or being compiled, and where it is to go."""

    running: _Running | None
    path: Path

    def finish(self) -> Path:
        """Wait for it.

        Raises:
            JudgeError: If it does not compile.
        """
        if self.running is not None:
            log = self.running.finish(time.monotonic() + _BINDING_S)
            if log.startswith(_FAILED):
                raise JudgeError(f"the binding unit does not compile: {_bounded(log)}")
            # Of two workers that compile it at once the later one wins; both are the same.
            os.replace(self.running.scratch / "binding.o", self.path)
        return self.path

    def __enter__(self) -> _Binding:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running is not None:
            self.running.end()
            shutil.rmtree(self.running.scratch, ignore_errors=True)


def _key(toolchain: Toolchain, *parts: Any) -> str:
    text = json.dumps([dataclasses.astuple(toolchain), *parts], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _finished(folder: Path) -> Built | None:
    try:
        record = json.loads((folder / "built.json").read_text())
        return Built(str(folder / "extension.so"), record["module"], record["log"], True, 0.0)
    except (OSError, ValueError, KeyError):
        return None


def _file(built: Built, folder: Path) -> Built:
    """Move a finished library into the cache; whoever is first wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix="staging-", dir=folder.parent))
    shutil.move(built.path, staging / "extension.so")
    (staging / "built.json").write_text(json.dumps({"module": built.module, "log": built.log}))
    try:
        staging.rename(folder)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
    return dataclasses.replace(built, path=str(folder / "extension.so"))


def _failed(log: str) -> Built:
    lower = log.lower()
    transient = log.startswith(_TOO_LONG) or any(sign in lower for sign in _TRANSIENT)
    return Built("", "", _bounded(log), False, 0.0, may_pass_later=transient)


def sealed_copy(path: str) -> int:
    """Return a descriptor of a copy of a file that nobody can write to; the caller closes it."""
    fd = os.memfd_create("extension", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(path, "rb") as file, os.fdopen(os.dup(fd), "wb") as copy:
            shutil.copyfileobj(file, copy)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _bounded(log: str) -> str:
    return cut_middle(log.removeprefix(_FAILED).strip(), _LOG_CHARACTERS)
