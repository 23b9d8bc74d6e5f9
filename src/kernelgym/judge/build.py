"""Build C++ and CUDA extensions for candidates: elsewhere, confined, once per content, and fast.

A candidate's `load_inline` sends its arguments here. Its C++ and its CUDA sources are compiled side
by side against thin headers (the tensor, and only those operators whose names occur), beside the
binding unit, which is the same for every kernel and therefore compiled once per toolchain. Only if
a compiler misses something that torch's headers do declare is that unit compiled again with the
real ones; a genuine error is never compiled twice. A candidate is handed a sealed copy of its
library (`sealed_copy`).

Does not cover headers of the candidate's own, and compiles the files of `load` as one unit per
language.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError, UnsupportedLanguage
from kernelgym.judge import compiler_process
from kernelgym.judge import extension_source as source
from kernelgym.judge.compiler_errors import missing_from_thin
from kernelgym.judge.compiler_process import Ready, Running, bounded, has_failed, is_transient
from kernelgym.judge.cuda_toolkit import CudaToolkit, cuda_toolkit, find_nvcc
from kernelgym.judge.extension_request import (
    BadRequest,
    Request,
    names_architecture,
    read_request,
)
from kernelgym.judge.library_cache import CACHE_BYTES, Built, LibraryCache
from kernelgym.judge.library_symbols import RULES, library_work, needed_symbols
from kernelgym.judge.sandbox import Plan
from kernelgym.judge.thin_headers import THIN_HEADERS, thin_headers
from kernelgym.judge.toolchain import Toolchain, compiler_folders, find_compiler
from kernelgym.judge.toolchain import toolchain as find_toolchain
from kernelgym.judge.triton_builds import Away, assemble, build_launcher
from kernelgym.rulesets import Limits

__all__ = ["Away", "Builder", "Built", "sealed_copy"]

_MEMORY_BYTES = 8 << 30
"""Address space of one compiler process; nvcc's passes over torch's headers take 3 GiB."""
_FILE_BYTES = 256 << 20
"""Least size of a compiler's file: preprocessed CUDA is longer than any kernel may write."""
_BINDING_S = 600.0  # compiled once per toolchain, so no kernel's own time is spent on it
_MAX_FAILURES = 256
_PYTHON = (sys.executable, "-I", "-S", "-B")
_STAGES = Path(__file__).with_name("nvcc_stages.py")


class Builder:
    """Builds extensions for one worker.

    Args:
        cache: Folder of finished libraries; shared with other workers.
        scratch_root: Folder for intermediate files.
        tier: Sandbox tier of the compiler.
        limits: `build_s` bounds one build.
        readable: Paths that a sandboxed Python needs, from `sandbox_paths.readable_paths`.
        capability: Compute capability of the worker's CUDA device; None on a CPU, where CUDA
            sources are refused.
        cache_bytes: Size above which the folder is cut back.
    """

    def __init__(
        self,
        cache: Path,
        scratch_root: Path,
        tier: str,
        limits: Limits,
        readable: tuple[str, ...],
        capability: tuple[int, int] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._cache, self._scratch_root = LibraryCache(cache, cache_bytes), scratch_root
        self._tier, self._limits, self._readable = tier, limits, readable
        self._capability = capability
        self._failures: dict[str, Built] = {}
        self._standing: Ready | None = None

    def stand_by(self) -> None:
        """Have a process stand in its sandbox for the next kernel that is assembled."""
        if self._standing is None:
            self._standing = self._ready()

    def close(self) -> None:
        """End what stands by."""
        if self._standing is not None:
            self._standing.end()
            self._standing = None

    def build(self, arguments: Any, away: Away = nullcontext) -> Built:
        """Build what a candidate asked for. Never raises for the candidate's mistakes.

        Args:
            arguments: What it asked for.
            away: Entered for as long as anything slow is done: others may go first meanwhile.

        Raises:
            UnsupportedLanguage: If there is no compiler; a missing nvcc fails the build instead,
                since C++ kernels on a CUDA device do without.
            JudgeError: If a compiler cannot be run.
        """
        started = time.monotonic()
        allowed_s = self._limits.build_s
        if isinstance(arguments, dict) and arguments.keys() == {"launcher"}:
            text = str(arguments["launcher"])
            return build_launcher(text, self._cache, self._ready, allowed_s, away)
        if isinstance(arguments, dict) and arguments.keys() == {"ptx", "options"}:
            text, named = str(arguments["ptx"]), arguments["options"]
            return assemble(text, named, self._cache, self._take, allowed_s, away)
        try:
            request = read_request(arguments, cuda=self._capability is not None)
        except BadRequest as error:
            return Built("", "", str(error), False, 0.0)
        toolkit = None
        if self._capability is not None:
            try:
                toolkit = cuda_toolkit(find_nvcc(), self._capability)
            except UnsupportedLanguage as error:
                if request.cuda_sources:
                    return Built("", "", str(error), False, 0.0, may_pass_later=True)
        if toolkit is not None and toolkit.root not in self._readable:
            self._readable = (*self._readable, toolkit.root)
        tools = _Tools(find_toolchain(find_compiler()), toolkit)
        key = _key(RULES, dataclasses.astuple(tools), dataclasses.astuple(request))
        if (finished := self._cache.find(key)) is not None:
            return dataclasses.replace(finished, wall_s=time.monotonic() - started)
        if key in self._failures:
            return dataclasses.replace(self._failures[key], cached=True)
        scratch_folder = tempfile.TemporaryDirectory(prefix="build-", dir=self._scratch_root)
        with away(), scratch_folder as scratch:
            built = self._compile(request, tools, Path(scratch), started)
            if built.path:
                # pybind11 takes modules of one name for the same one; the initializer is named
                # after the last part alone.
                unique = f"kernelgym_{key}.{built.module}"
                built = self._cache.file(dataclasses.replace(built, module=unique), key)
        if not built.path and not built.may_pass_later:
            self._failures[key] = built
            if len(self._failures) > _MAX_FAILURES:
                del self._failures[next(iter(self._failures))]
        return dataclasses.replace(built, wall_s=time.monotonic() - started)

    def _compile(self, request: Request, tools: _Tools, scratch: Path, started: float) -> Built:
        """Compile every unit, thin where possible, and link them."""
        deadline = started + self._limits.build_s
        units = source.units(request)
        bound = any(unit.tabled and unit.can_be_thin for unit in units)
        with contextlib.ExitStack() as running:

            def start(unit: source.Unit, thin: bool) -> Running:
                folder = scratch / f"{unit.file}-{'thin' if thin else 'full'}"
                folder.mkdir()
                process = self._start_unit(request, unit, tools, folder, thin)
                running.callback(process.end)
                return process

            binding = running.enter_context(self._binding(tools)) if bound else None
            first = [(unit, start(unit, unit.can_be_thin)) for unit in units]
            done: list[tuple[source.Unit, Running, str]] = []
            again: list[tuple[source.Unit, Running]] = []
            for unit, process in first:
                log = process.finish(deadline)
                text = "\n".join(unit.sources)
                if unit.can_be_thin and has_failed(log) and missing_from_thin(log, text):
                    again.append((unit, start(unit, False)))
                else:
                    done.append((unit, process, log))
            if not any(has_failed(said) for _, _, said in done):
                done += [(unit, process, process.finish(deadline)) for unit, process in again]
            if failed := [said for _, _, said in done if has_failed(said)]:
                return _failed("\n".join(failed))
            log = "".join(said for _, _, said in done)
            objects = []
            for unit, process, _ in done:
                objects.append(scratch / f"{unit.file}.o")
                os.replace(process.scratch / "kernel.o", objects[-1])
            if binding is not None and not any(unit.tabled for unit, _ in again):
                waiting_since = time.monotonic()
                finished = binding.finish()
                deadline += time.monotonic() - waiting_since
                # A copy, since the linker may not see the folder the binding unit lies in.
                objects.append(scratch / "binding.o")
                shutil.copyfile(finished, objects[-1])
            else:
                binding = None
        module = source.module_name(request, tabled=binding is not None)
        return self._link(request, module, tools, scratch, objects, log, deadline)

    def _start_unit(
        self, request: Request, unit: source.Unit, tools: _Tools, scratch: Path, thin: bool
    ) -> Running:
        for name, text in source.compose(request, unit, thin).items():
            (scratch / name).write_text(text, encoding="utf-8", errors="replace")
        host, toolkit = tools.host, tools.cuda
        if unit.cuda:
            assert toolkit is not None  # or the request would have been refused
            own = not names_architecture(unit.flags)
            command = [*_PYTHON, str(_STAGES), toolkit.nvcc, "-ccbin", host.compiler]
            command += [*host.defines, *toolkit.flags(own)]
        else:
            command = [host.compiler, *host.flags, *(toolkit.defines if toolkit else ())]
        if thin:
            headers = thin_headers(unit.sources, Path(host.torch_include))
            for name, text in headers.files.items():
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).write_text(text)
            command += [*headers.macros, f"-I{THIN_HEADERS}", f"-I{scratch}"]
        command += host.includes(python=not thin or unit.binds)
        if toolkit is not None and not unit.cuda:
            command += toolkit.includes()
        name = source.module_name(request, tabled=thin and unit.tabled)
        command += [f"-DTORCH_EXTENSION_NAME={name}", *source.compile_flags(unit, thin)]
        command += ["-c", unit.file, "-o", "kernel.o"]
        return self._start(command, scratch)

    def _link(
        self,
        request: Request,
        module: str,
        tools: _Tools,
        scratch: Path,
        objects: list[Path],
        log: str,
        deadline: float,
    ) -> Built:
        library = scratch / "extension.so"
        command = [tools.host.compiler, "-shared", *map(str, objects), *tools.host.libraries]
        flags: tuple[str | None, ...] = request.ldflags
        if tools.cuda is not None:
            command += tools.cuda.libraries
            flags = tuple(map(tools.cuda.link_flag, request.ldflags))
        command += [*filter(None, flags), "-o", str(library)]
        link_log = self._start(command, scratch).finish(deadline)
        if has_failed(link_log):
            return _failed(link_log)
        try:
            work = library_work(needed_symbols(library))
        except ValueError as error:  # linker flags of its own made something else of it
            return _failed(f"error: {error}")
        return Built(str(library), module, bounded(log + link_log), False, 0.0, work=work)

    def _binding(self, tools: _Tools) -> _Binding:
        """Begin to compile the binding unit, unless it is there already."""
        host, name = tools.host, f"binding-{_key(dataclasses.astuple(tools.host))}.o"
        if (path := self._cache.find_object(name)) is not None:
            return _Binding(None, path, self._cache, name)
        scratch = Path(tempfile.mkdtemp(prefix="binding-", dir=self._scratch_root))
        command = [host.compiler, *host.flags, f"-I{THIN_HEADERS}"]
        command += [*host.includes(python=True), "-c", str(source.BINDING_UNIT), "-o", "binding.o"]
        running = self._start(command, scratch, _BINDING_S)
        return _Binding(running, scratch / "binding.o", self._cache, name)

    def _start(self, command: list[str], scratch: Path, allowed_s: float = 0.0) -> Running:
        plan = self._plan(scratch)
        return compiler_process.start(command, plan, allowed_s or self._limits.build_s)

    def _take(self) -> Ready:
        """Return what stands by, or another that does from now on."""
        ready, self._standing = self._standing, None
        if ready is not None and not ready.stands():
            ready.end()  # whatever became of it
            ready = None
        return ready or self._ready()

    def _ready(self) -> Ready:
        scratch = Path(tempfile.mkdtemp(prefix="triton-", dir=self._scratch_root))
        try:
            return Ready(self._plan(scratch))
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _plan(self, scratch: Path) -> Plan:
        return Plan(
            tier=self._tier,
            scratch=str(scratch),
            readable=(
                *(*self._readable, "/usr", "/etc/alternatives", "/bin"),
                *compiler_folders(find_compiler()),
                sysconfig.get_paths()["include"],
                str(THIN_HEADERS),
                str(_STAGES),
            ),
            listable=(),
            memory_bytes=_MEMORY_BYTES,
            file_bytes=max(self._limits.file_bytes, _FILE_BYTES),
            open_files=self._limits.open_files,
            processes=self._limits.processes,
            exec_allowed=True,
        )


@dataclass(frozen=True, slots=True)
class _Tools:
    """What builds: the host's compiler and, where CUDA can be built, a toolkit."""

    host: Toolchain
    cuda: CudaToolkit | None


@dataclass(frozen=True, slots=True)
class _Binding:
    """The binding unit, there already or being compiled, and where it is to go."""

    running: Running | None
    path: Path
    cache: LibraryCache
    name: str

    def finish(self) -> Path:
        """Wait for it.

        Raises:
            JudgeError: If it does not compile.
        """
        if self.running is None:
            return self.path
        log = self.running.finish(time.monotonic() + _BINDING_S)
        if has_failed(log):
            raise JudgeError(f"the binding unit does not compile: {bounded(log)}")
        return self.cache.file_object(self.path, self.name)

    def __enter__(self) -> _Binding:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running is not None:
            self.running.end()
            shutil.rmtree(self.running.scratch, ignore_errors=True)


def _key(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _failed(log: str) -> Built:
    return Built("", "", bounded(log), False, 0.0, may_pass_later=is_transient(log))


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
