"""Compiles one extension: its units at the same time, with thin headers if possible; links them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.judge.compiling import source as source
from kernelgym.judge.compiling.compiler_process import (
    FAILED,
    BuildLimit,
    RunningCompiler,
    bounded,
    has_failed,
    is_transient,
)
from kernelgym.judge.compiling.cpp_compiler import Toolchain
from kernelgym.judge.compiling.cuda_toolkit import CudaToolkit
from kernelgym.judge.compiling.hip_compiler import HipCompiler
from kernelgym.judge.compiling.library_cache import BuiltLibrary, LibraryCache
from kernelgym.judge.compiling.library_symbols import library_work, needed_symbols
from kernelgym.judge.compiling.machine_code import (
    device_code,
    machine_code,
    own_reports,
    without_report,
)
from kernelgym.judge.compiling.missing_headers import missing_from_thin
from kernelgym.judge.compiling.request import BuildRequest, names_architecture
from kernelgym.judge.compiling.thin_headers import THIN_HEADERS, thin_headers

STAGES = Path(__file__).with_name("nvcc_stages.py")
"""Path of the program that runs nvcc's stages at the same time."""
HIP_STAGES = Path(__file__).with_name("hip_stages.py")
"""Path of the program that translates CUDA's names to HIP's and runs clang."""
_BINDING_S = 600.0  # compiled once per toolchain; does not count against a kernel's build time
_MADE = "kernel.s"
_STAND_FOR_THRUST = ("thrust/complex.h", "c10/util/complex_math.h")
_PYTHON = (sys.executable, "-I", "-S", "-B")


@dataclass(frozen=True, slots=True)
class BuildTools:
    """The C++ compiler and, if CUDA or HIP can be built, the CUDA toolkit or HIP's headers."""

    host: Toolchain
    cuda: CudaToolkit | None
    hip: HipCompiler | None = None
    """Headers and GPU for which clang compiles every unit as HIP; None for CUDA and C++."""


class Compilation:
    """The compilation of one extension.

    Args:
        request: The candidate's request.
        tools: The compilers.
        scratch: An empty folder for this compilation. The binding unit gets another one beside it.
        start: Starts a command, sandboxed, in a folder.
        cache: Cache that keeps the binding unit.
    """

    def __init__(
        self,
        request: BuildRequest,
        tools: BuildTools,
        scratch: Path,
        start: Callable[[list[str], Path], RunningCompiler],
        cache: LibraryCache,
    ) -> None:
        self._request, self._tools, self._scratch = request, tools, scratch
        self._start, self._cache = start, cache

    def run(self, limit: BuildLimit) -> BuiltLibrary:
        """Compile every unit, with thin headers if possible, and link them.

        Units of HIP are not linked: their result is the assembly.

        Args:
            limit: Limit of the extension's units together. The wait for the binding unit extends
                it.

        Raises:
            JudgeError: If a compiler cannot be run.
        """
        request, scratch = self._request, self._scratch
        units = source.units(request)
        hip = self._tools.hip is not None
        bound = not hip and any(unit.tabled and unit.can_be_thin for unit in units)
        with contextlib.ExitStack() as running:

            def start(unit: source.SourceUnit, thin: bool) -> RunningCompiler:
                folder = scratch / f"{unit.file}-{'thin' if thin else 'full'}"
                folder.mkdir()
                process = self._start_unit(unit, folder, thin)
                running.callback(process.end)
                limit.watch(process)
                return process

            binding = running.enter_context(self._binding()) if bound else None
            first = [(unit, start(unit, unit.can_be_thin)) for unit in units]
            done: list[tuple[source.SourceUnit, RunningCompiler, str]] = []
            again: list[tuple[source.SourceUnit, RunningCompiler]] = []
            for unit, process in first:
                log = process.finish(limit)
                text = "\n".join(unit.sources)
                if unit.can_be_thin and has_failed(log) and missing_from_thin(log, text):
                    again.append((unit, start(unit, False)))
                else:
                    done.append((unit, process, log))
            if not any(has_failed(said) for _, _, said in done):
                done += [(unit, process, process.finish(limit)) for unit, process in again]
            if failed := [said for _, _, said in done if has_failed(said)]:
                return _failed("\n".join(failed))
            log = own_reports("".join(said for _, _, said in done))
            if hip:
                return self._assembly([process.scratch for _, process, _ in done], log)
            device = any(unit.cuda for unit, _, _ in done)
            objects = []
            for unit, process, _ in done:
                objects.append(scratch / f"{unit.file}.o")
                made = process.scratch / "kernel.o"
                if not made.is_file():  # some flags make a compiler succeed without compiling
                    return _failed(f"error: the compiler wrote no object file for {unit.file}")
                os.replace(made, objects[-1])
            code = device_code(log) if device else machine_code(objects)
            if binding is not None and not any(unit.tabled for unit, _ in again):
                waiting_since = time.monotonic()
                finished = binding.finish()
                limit.extend(time.monotonic() - waiting_since)
                # Copied, since the sandboxed linker cannot read the folder of the binding unit.
                objects.append(scratch / "binding.o")
                shutil.copyfile(finished, objects[-1])
            else:
                binding = None
        module = source.module_name(request, tabled=binding is not None)
        built = self._link(module, objects, log, limit)
        return dataclasses.replace(built, code=code) if built.path else built

    def _start_unit(self, unit: source.SourceUnit, scratch: Path, thin: bool) -> RunningCompiler:
        request = self._request
        for name, text in source.compose(request, unit, thin).items():
            (scratch / name).write_text(text, encoding="utf-8", errors="replace")
        host, toolkit, hip = self._tools.host, self._tools.cuda, self._tools.hip
        if hip is not None:
            command = self._hip_command(hip, scratch, thin)
        elif unit.cuda:
            assert toolkit is not None  # the builder refuses CUDA sources without one
            own = not names_architecture(unit.flags)
            command = [*_PYTHON, str(STAGES), toolkit.nvcc, "-ccbin", host.compiler]
            # With a report of registers and spills: see `machine_code.ptxas_report`.
            command += [*host.defines, *toolkit.flags(own), "-Xptxas=-v"]
        else:
            command = [host.compiler, *host.flags, *(toolkit.defines if toolkit else ())]
        if thin:
            headers = thin_headers(unit.sources, Path(host.torch_include))
            (scratch / "kernelgym_needed.h").write_text(headers.needed)
            without = "-DKERNELGYM_COMPLEX" if hip is not None and not hip.has_thrust else ""
            command += [macro for macro in headers.macros if macro != without]
            command += [f"-I{THIN_HEADERS}", f"-I{scratch}"]
        command += host.includes(python=not thin or unit.binds)
        command += [part for folder in request.include_paths for part in ("-isystem", folder)]
        if toolkit is not None and not unit.cuda:
            command += toolkit.includes()
        name = source.module_name(request, tabled=thin and unit.tabled)
        command += [f"-DTORCH_EXTENSION_NAME={name}", *source.compile_flags(unit, thin)]
        made = (
            ["-c", unit.file, "-o", "kernel.o"] if hip is None else ["-S", unit.file, "-o", _MADE]
        )
        return self._start([*command, *made], scratch)

    def _hip_command(self, hip: HipCompiler, scratch: Path, thin: bool) -> list[str]:
        """Return the start of the command that compiles a unit of HIP in a folder."""
        sources = "translated" if self._request.cuda_sources else "kept"
        torch = os.path.dirname(self._tools.host.torch_include)
        command = [*_PYTHON, str(HIP_STAGES), torch, str(THIN_HEADERS), sources]
        command += [self._tools.host.compiler, *self._tools.host.flags, *hip.flags()]
        if self._request.cuda_sources:
            command += ["-include", "hip/hip_runtime.h"]  # as torch's translation adds it
        if thin:
            command += ["-Ithin_hip"]
        elif not hip.has_thrust:  # which torch's headers of complex numbers would include
            for name in _STAND_FOR_THRUST:
                (scratch / "no_thrust" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(THIN_HEADERS / name, scratch / "no_thrust" / name)
            command += ["-Ino_thrust"]
        return [*command, "-Itorch_hip"]

    def _assembly(self, folders: list[Path], log: str) -> BuiltLibrary:
        """Return the assembly of HIP's units as one file."""
        text = "".join((folder / _MADE).read_text(errors="replace") for folder in folders)
        path = self._scratch / _MADE
        path.write_text(text)
        return BuiltLibrary(str(path), self._request.name, bounded(log))

    def _link(self, module: str, objects: list[Path], log: str, limit: BuildLimit) -> BuiltLibrary:
        request, tools, scratch = self._request, self._tools, self._scratch
        library = scratch / "extension.so"
        command = [tools.host.compiler, "-shared", *map(str, objects), *tools.host.libraries]
        flags: tuple[str | None, ...] = request.ldflags
        if tools.cuda is not None:
            command += tools.cuda.libraries
            flags = tuple(map(tools.cuda.link_flag, request.ldflags))
        command += [*filter(None, flags), "-o", str(library)]
        linking = self._start(command, scratch)
        limit.watch(linking)
        link_log = linking.finish(limit)
        if has_failed(link_log):
            return _failed(link_log)
        try:
            work = library_work(needed_symbols(library))
        except (OSError, ValueError) as error:  # linker flags made no shared library of it
            return _failed(f"error: {error}")
        return BuiltLibrary(str(library), module, bounded(log + link_log), work=work)

    def _binding(self) -> _Binding:
        """Start compiling the binding unit, unless the cache holds it."""
        host = self._tools.host
        name = f"binding-{content_key(dataclasses.astuple(host))}.o"
        if (path := self._cache.find_object(name)) is not None:
            return _Binding(None, path, self._cache, name)
        scratch = Path(tempfile.mkdtemp(prefix="binding-", dir=self._scratch.parent))
        command = [host.compiler, *host.flags, f"-I{THIN_HEADERS}"]
        command += [*host.includes(python=True), "-c", str(source.BINDING_UNIT), "-o", "binding.o"]
        running = self._start(command, scratch)
        return _Binding(running, scratch / "binding.o", self._cache, name)


@dataclass(frozen=True, slots=True)
class _Binding:
    """The unit that binds an extension's functions, either compiled already or being compiled."""

    running: RunningCompiler | None
    path: Path
    cache: LibraryCache
    name: str

    def finish(self) -> Path:
        """Wait until the binding unit is compiled, and return its path in the cache.

        Raises:
            JudgeError: If it does not compile.
        """
        if self.running is None:
            return self.path
        limit = BuildLimit(_BINDING_S)
        limit.watch(self.running)
        log = self.running.finish(limit)
        if has_failed(log):
            raise JudgeError(f"the binding unit does not compile: {bounded(log)}")
        return self.cache.file_object(self.path, self.name)

    def __enter__(self) -> _Binding:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running is not None:
            self.running.end()
            shutil.rmtree(self.running.scratch, ignore_errors=True)


def content_key(*parts: Any) -> str:
    """Return a digest of values that JSON can hold, as a name."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _failed(log: str) -> BuiltLibrary:
    said = without_report(log.replace(FAILED, ""))
    return BuiltLibrary("", "", bounded(said), may_pass_later=is_transient(log))
