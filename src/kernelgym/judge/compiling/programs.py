"""Runs the programs that a language's compiler would start, in the sandbox of compilers.

A candidate may start no program. Where its language's compiler would start one, the file that runs
beside the candidate sends the program's name, its input texts and its options here instead. A
module of this room composes the command from them (`triton_tools` does for Triton), and `run` runs
it. The output is cached by the command and its texts, so another kernel with the same ones gets it
at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.judge.compiling.compiler_process import (
    BuildLimit,
    ReadyCompiler,
    RunningCompiler,
    bounded,
    has_failed,
    is_transient,
)
from kernelgym.judge.compiling.library_cache import BuiltLibrary, LibraryCache
from kernelgym.judge.compiling.machine_code import NO_CODE, MachineCode, device_code

Away = Callable[[], AbstractContextManager[object]]
"""Function that returns a context in which the device can be yielded, since the candidate waits for
a build."""

_PROMPT_S = 0.25
_REPORT = ".report"
_LONGEST_REPORT = 100_000


class ProgramRefused(ValueError):
    """A candidate's request for a program is invalid or not allowed."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A command composed from a candidate's request."""

    command: list[str]
    """Program with its arguments; relative names lie in a folder of the run's own."""
    texts: Mapping[str, str]
    """Contents of the files that the program reads, by name."""
    made: str
    """Name of the file that the program writes as its result."""
    language: str
    """Language of the kernel, which the answer to the candidate names."""
    starts_others: bool = False
    """Whether the program starts further programs, as nvcc does."""
    is_build: bool = False
    """Whether the time limit is that of an extension's build, not the shorter one of a step of
    Triton's."""
    readable: tuple[str, ...] = ()
    """Further paths that the program reads."""
    seen: tuple[str, ...] = ()
    """Further facts that the output depends on, such as a version, beside the command and its
    texts."""


@dataclass(frozen=True, slots=True)
class ProgramSandbox:
    """Functions that start a program in the sandbox of compilers."""

    scratch_root: Path
    """Folder for intermediate files."""
    start: Callable[[list[str], Path], RunningCompiler]
    """Function that starts a command in a folder."""
    take: Callable[[], ReadyCompiler]
    """Function that returns a sandboxed process on standby, for programs that start no others."""


def run(
    asked: ProgramRun, cache: LibraryCache, sandbox: ProgramSandbox, allowed_s: float, away: Away
) -> BuiltLibrary:
    """Run a program on texts, or return its cached output.

    Args:
        asked: The command and its texts.
        cache: Cache that keeps the output.
        sandbox: Starts the program.
        allowed_s: Limit on the program in seconds.
        away: Entered if the program takes more than 0.25 s.

    Raises:
        JudgeError: If the program cannot be run.
    """
    parts = [*asked.command, *asked.seen, *(part for pair in asked.texts.items() for part in pair)]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    name = f"{digest}-{asked.made}"
    if (path := cache.find_object(name)) is not None:
        code = _reported(cache.find_object(f"{name}{_REPORT}"))
        return BuiltLibrary(str(path), asked.language, "", cached=True, code=code)
    process = _Process(asked, sandbox)
    try:
        running, scratch = process.running, process.scratch
        # Most commands end sooner than the device could be yielded.
        with nullcontext() if running.ends_within(_PROMPT_S) else away():
            # The limit starts here, so that it does not count the time until `away` was entered.
            limit = BuildLimit(allowed_s)
            limit.watch(running)
            log = running.finish(limit)
        if has_failed(log):
            transient = is_transient(log)
            return BuiltLibrary("", "", bounded(log), may_pass_later=transient)
        if not (scratch / asked.made).is_file():  # an option may ask for a version only
            message = f"error: {asked.command[0]} wrote no {asked.made}"
            return BuiltLibrary("", "", message)
        report = None
        if asked.made.endswith(".cubin"):  # registers and spills, which the assembler told
            (scratch / "report").write_text(log[:_LONGEST_REPORT], encoding="utf-8")
            report = cache.file_object(scratch / "report", f"{name}{_REPORT}")
        path = cache.file_object(scratch / asked.made, name)
    finally:
        process.end()
    cache.cut_back()
    starved_s, code = limit.starvation.missed_s, _reported(report)
    return BuiltLibrary(str(path), asked.language, "", starved_s=starved_s, code=code)


class _Process:
    """A running program of a language's compiler, with its input files in a folder."""

    def __init__(self, asked: ProgramRun, sandbox: ProgramSandbox) -> None:
        self._ready: ReadyCompiler | None = None
        if not asked.starts_others:
            self._ready = sandbox.take()
            self.scratch = self._ready.scratch
        else:
            self.scratch = Path(tempfile.mkdtemp(prefix="program-", dir=sandbox.scratch_root))
        try:
            for file, text in asked.texts.items():
                path = self.scratch / file
                path.write_text(text, encoding="utf-8", errors="surrogatepass")
            if self._ready is not None:
                self.running = self._ready.run(asked.command)
            else:
                self.running = sandbox.start(asked.command, self.scratch)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Kill the program, if it still runs, and remove its folder."""
        if self._ready is not None:
            self._ready.end()
            return
        if hasattr(self, "running"):
            self.running.end()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _reported(report: Path | None) -> MachineCode:
    """Return the registers, spills and sizes that an assembler reports for its kernel."""
    try:
        code = NO_CODE if report is None else device_code(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return NO_CODE
    return code if code.functions else NO_CODE


def package_folder(name: str, title: str) -> Path:
    """Return an installed package's folder, without importing it.

    Raises:
        ProgramRefused: If it is not installed.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ProgramRefused(f"a kernel asks for {title}'s tools, but {name} is not installed")
    return Path(os.path.realpath(found.origin)).parent


def text_of(arguments: Mapping[str, Any], key: str) -> str:
    """Return a text field of a candidate's request for a program.

    Raises:
        ProgramRefused: If it is none.
    """
    value = arguments.get(key)
    if not isinstance(value, str):
        raise ProgramRefused(f"error: the request's {key!r} is no text")
    return value
