"""Builds C++ and CUDA extensions for candidates, in sandboxed processes of their own.

A candidate's `load_inline` sends its arguments here, and gets a sealed copy of the library back
(`sealed_copy`).

Contract:

- the same content is built once, and then served from a cache;
- the C++ and the CUDA sources are compiled at the same time, against thin headers: the tensor, and
  only those operators whose names occur in the source;
- the binding unit is the same for every kernel, so it is compiled once per toolchain;
- a unit is compiled again with torch's real headers only if the compiler misses a name that those
  declare. A genuine error is never compiled twice.

Does not cover:

- headers that a candidate brings along: a language's own (`Language.headers`) may be included;
- separate units within a language: the files of `load` are compiled as one unit per language.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling import (
    compiler_process,
    programs,
    tilelang_tools,
    triton_tools,
)
from kernelgym.judge.compiling.compilation import (
    HIP_STAGES,
    STAGES,
    BuildTools,
    Compilation,
    content_key,
)
from kernelgym.judge.compiling.compiler_process import BuildLimit, ReadyCompiler, RunningCompiler
from kernelgym.judge.compiling.complaints import explained
from kernelgym.judge.compiling.cpp_compiler import (
    compiler_folders,
    find_compiler,
    searched_folders,
)
from kernelgym.judge.compiling.cpp_compiler import toolchain as find_toolchain
from kernelgym.judge.compiling.cuda_toolkit import cuda_toolkit, find_nvcc
from kernelgym.judge.compiling.hip_compiler import find_hip_clang, hip_compiler
from kernelgym.judge.compiling.library_cache import CACHE_BYTES, BuiltLibrary, LibraryCache
from kernelgym.judge.compiling.library_symbols import RULES
from kernelgym.judge.compiling.programs import (
    Away,
    ProgramRefused,
    ProgramRun,
    ProgramSandbox,
)
from kernelgym.judge.compiling.request import BadRequest, read_request
from kernelgym.judge.compiling.requirements import header_paths
from kernelgym.judge.compiling.thin_headers import THIN_HEADERS
from kernelgym.judge.untrusted.sandbox.sandbox import SandboxPlan
from kernelgym.languages import Language
from kernelgym.rulesets import Limits

_MEMORY_BYTES = 8 << 30
"""Address space of one compiler process; nvcc needs 3 GiB for torch's headers."""
_FILE_BYTES = 256 << 20
"""Least limit on a compiler's files: preprocessed CUDA exceeds the limit on a kernel's files."""
_MAX_FAILURES = 256
_PROGRAMS: Mapping[str, Callable[[Mapping[str, Any]], ProgramRun]] = {
    "launcher": triton_tools.launcher,
    "ptxas": triton_tools.assembler,
    "device_code": tilelang_tools.device_code,
    "host_library": tilelang_tools.host_library,
}
"""Functions that compose a program's command from a candidate's request, by the request's name of
the program."""


class Builder:
    """Builds extensions for one worker.

    Args:
        cache: Folder of finished libraries, shared with other workers.
        scratch_root: Folder for intermediate files.
        tier: Sandbox tier of the compiler.
        limits: `build_s` limits one build of an extension, `triton_build_s` one program that
            Triton starts. `ProgramRun.is_build` says which one other programs have.
        readable: Paths that a sandboxed Python needs, from `kernelgym.judge.sandbox.paths`.
        capability: Compute capability of the worker's CUDA device; None on a CPU, where CUDA
            sources are refused.
        cache_bytes: Size above which the least recently used libraries are removed.
        suffix: Letter of the CUDA architecture, such as ``a`` for sm_90a.
        hip: GPU of AMD, such as ``gfx942``, for which every extension is compiled as far as
            assembly; empty to build libraries for this machine.
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
        suffix: str = "",
        hip: str = "",
    ) -> None:
        self._cache, self._scratch_root = LibraryCache(cache, cache_bytes), scratch_root
        self._tier, self._limits, self._readable = tier, limits, readable
        self._capability, self._suffix, self._hip = capability, suffix, hip
        self._failures: dict[str, BuiltLibrary] = {}
        self._standing: ReadyCompiler | None = None

    def stand_by(self) -> None:
        """Start a sandboxed process that will assemble the next kernel."""
        if self._standing is None:
            self._standing = self._ready()

    def close(self) -> None:
        """End the process on standby."""
        if self._standing is not None:
            self._standing.end()
            self._standing = None

    def build(
        self, arguments: Any, away: Away = nullcontext, language: Language | None = None
    ) -> BuiltLibrary:
        """Build an extension for a candidate, or run a program. Never raises for its mistakes.

        Args:
            arguments: The candidate's request.
            away: Entered during slow steps, so that the device can be yielded meanwhile.
            language: The kernel's language: an extension may include its headers, is built for its
                architecture, and gets its advice on a complaint; None if it has none of these.

        Raises:
            UnsupportedLanguage: If there is no C++ compiler. A missing nvcc fails the build
                instead, since C++ kernels on a CUDA device do not need it.
            JudgeError: If a compiler cannot be run.
        """
        if isinstance(arguments, dict) and "program" in arguments:
            return self._run_program(arguments, away)
        built = self._build_extension(arguments, away, language)
        if not built.path:
            texts = [] if language is None else language.advice
            return dataclasses.replace(built, log=explained(built.log, arguments, texts))
        return built

    def _build_extension(
        self, arguments: Any, away: Away, language: Language | None
    ) -> BuiltLibrary:
        headers = () if language is None else header_paths(language)
        compiler = self._compiler()
        folders = searched_folders(compiler)
        try:
            on_cuda = self._capability is not None
            request = read_request(arguments, on_cuda, folders, headers, hip=bool(self._hip))
        except BadRequest as error:
            return BuiltLibrary("", "", str(error))
        toolkit = None
        if self._capability is not None:
            try:
                suffix = self._suffix or (language.architecture_suffix if language else "")
                toolkit = cuda_toolkit(find_nvcc(), self._capability, suffix)
            except UnsupportedLanguage as error:
                if request.cuda_sources:
                    return BuiltLibrary("", "", str(error), may_pass_later=True)
        try:
            hip = hip_compiler(self._hip) if self._hip else None
        except UnsupportedLanguage as error:
            return BuiltLibrary("", "", str(error), may_pass_later=True)
        self._let_read(*([toolkit.root] if toolkit is not None else ()), *request.include_paths)
        self._let_read(*([hip.headers] if hip is not None else ()))
        tools = BuildTools(find_toolchain(compiler), toolkit, hip)
        key = content_key(
            RULES,
            dataclasses.astuple(tools),
            dataclasses.astuple(request),
            folder_versions(request.include_paths),
        )
        if (finished := self._cache.find(key)) is not None:
            return finished
        if key in self._failures:
            return dataclasses.replace(self._failures[key], cached=True)
        scratch_folder = tempfile.TemporaryDirectory(prefix="build-", dir=self._scratch_root)
        with away(), scratch_folder as scratch:
            compilation = Compilation(request, tools, Path(scratch), self._start, self._cache)
            limit = BuildLimit(self._limits.build_s)
            built = compilation.run(limit)
            built = dataclasses.replace(built, starved_s=limit.starvation.missed_s)
            if built.path:
                # pybind11 treats two modules of the same name as one, so the name holds the key.
                # Python derives the initializer's name from the last part only.
                unique = f"kernelgym_{key}.{built.module}"
                built = self._cache.file(dataclasses.replace(built, module=unique), key)
        if not built.path and not built.may_pass_later:
            self._failures[key] = built
            if len(self._failures) > _MAX_FAILURES:
                del self._failures[next(iter(self._failures))]
        return built

    def _compiler(self) -> str:
        """Return the compiler of C++ units, which for HIP compiles all."""
        return find_hip_clang() if self._hip else find_compiler()

    def note(self, kernel: str, paths: Iterable[str]) -> None:
        """Record which files were built for a kernel.

        Args:
            kernel: Digest of the kernel.
            paths: The files, in the cache.
        """
        self._cache.note(kernel, [Path(path) for path in paths], self._scratch_root)

    def _run_program(self, arguments: Mapping[str, Any], away: Away) -> BuiltLibrary:
        compose = _PROGRAMS.get(str(arguments["program"]))
        try:
            if compose is None:
                raise ProgramRefused(f"error: no program {arguments['program']!r:.80} is run here")
            asked = compose(arguments)
        except ProgramRefused as error:
            return BuiltLibrary("", "", str(error))
        except UnsupportedLanguage as error:  # of a compiler, or of an architecture that is asked
            return BuiltLibrary("", "", str(error), may_pass_later=True)
        self._let_read(*asked.readable)
        allowed_s = self._limits.build_s if asked.is_build else self._limits.triton_build_s
        sandbox = ProgramSandbox(self._scratch_root, self._start, self._take)
        return programs.run(asked, self._cache, sandbox, allowed_s, away)

    def _let_read(self, *paths: str) -> None:
        """Let compilers that are started from now on read further paths."""
        self._readable = tuple(dict.fromkeys((*self._readable, *paths)))

    def _start(self, command: list[str], scratch: Path) -> RunningCompiler:
        return compiler_process.start(command, self._plan(scratch))

    def _take(self) -> ReadyCompiler:
        """Return the compiler process on standby if it is alive; otherwise start one."""
        ready, self._standing = self._standing, None
        if ready is not None and not ready.stands():
            ready.end()  # it died; this removes its folder
            ready = None
        return ready or self._ready()

    def _ready(self) -> ReadyCompiler:
        scratch = Path(tempfile.mkdtemp(prefix="triton-", dir=self._scratch_root))
        try:
            return ReadyCompiler(self._plan(scratch))
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _plan(self, scratch: Path) -> SandboxPlan:
        return SandboxPlan(
            tier=self._tier,
            scratch=str(scratch),
            readable=(
                *(*self._readable, "/usr", "/etc/alternatives", "/bin"),
                *compiler_folders(self._compiler()),
                sysconfig.get_paths()["include"],
                str(THIN_HEADERS),
                str(STAGES),
                str(HIP_STAGES),
            ),
            listable=(),
            memory_bytes=_MEMORY_BYTES,
            file_bytes=max(self._limits.file_bytes, _FILE_BYTES),
            open_files=self._limits.open_files,
            processes=self._limits.processes,
            exec_allowed=True,
        )


def folder_versions(folders: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return the path, size and time of change of every file in folders, sorted."""
    found = []
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(place, name)
                facts = os.stat(path)
                found.append((path, facts.st_size, facts.st_mtime_ns))
    return sorted(found)


def sealed_copy(path: str) -> int:
    """Return a descriptor of a read-only copy of a file in memory.

    The caller closes it. Seals keep every process from changing the copy.
    """
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
