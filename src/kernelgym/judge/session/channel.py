"""Carries requests to one candidate, and its answers back, within its time limit.

Contract: the caller waits for the answer to each request before it sends another one. All waits
share one budget of seconds, which the caller grants. A failure on the candidate's side is
raised as `Rejected`, with the status it earns.

Not covered:
- the requests: `kernelgym.judge.session.model`, `call_buffers` and `session` compose them;
- sockets, pipes and signals: `kernelgym.judge.processes.candidate_handle`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.feedback import cut_middle
from kernelgym.judge.compiling.builder import sealed_copy
from kernelgym.judge.compiling.library_cache import BuiltLibrary
from kernelgym.judge.compiling.library_symbols import NOTHING_LEFT
from kernelgym.judge.compiling.request import assumes_finite
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.memory.arena import Arena
from kernelgym.judge.out_of_memory import is_out_of_memory
from kernelgym.judge.processes.candidate_handle import (
    Candidate,
    CandidateEnded,
    CandidateTimedOut,
)
from kernelgym.judge.processes.threads import RunTimes
from kernelgym.judge.retries import Failure
from kernelgym.judge.session.yielding import Yielding
from kernelgym.rulesets import Ruleset
from kernelgym.types import Finding, Mismatch, Severity, Status
from kernelgym.verdict import CONSTRUCTOR_FINDING

_LONGEST_PRINT = 4000
_MOST_BUILDS = 1000  # remembered of one kernel


class Rejected(Exception):
    """A kernel's run ended before its last stage.

    Args:
        status: Status that the kernel earns.
        message: Reason, for the reader of the verdict.
        log: Compiler's output, if that is the reason.
        findings: Findings for the verdict.
        mismatch: Place of the difference, if an output differed.
        failure: Failure that decides about another attempt; by default the one that the status
            stands for.
        kernel: Index of the kernel, among those that are judged together.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        log: str = "",
        findings: tuple[Finding, ...] = (),
        mismatch: Mismatch | None = None,
        failure: Failure | None = None,
        kernel: int = 0,
    ) -> None:
        super().__init__(message)
        self.status, self.log, self.findings = status, log, findings
        self.mismatch, self.failure = mismatch, failure or Failure.of(status)
        self.kernel = kernel


class Channel:
    """Carries requests to one candidate, and its answers back.

    Args:
        candidate: A fresh process.
        ruleset: The rules; their limits are the candidate's first budget.
        build: Builds extensions for the candidate; None if the candidate may ask for none.
        device_lock: The lock that the worker may hold meanwhile; None if no other worker needs it.
        on_device: Whether the candidate computes on a GPU, whose memory others share.
    """

    def __init__(
        self,
        candidate: Candidate,
        ruleset: Ruleset,
        build: Any,
        device_lock: DeviceLock | None = None,
        on_device: bool = False,
    ) -> None:
        self._candidate, self._ruleset, self._build = candidate, ruleset, build
        self._on_device = on_device
        self._yielding = Yielding(candidate, device_lock)
        self._left_s = ruleset.limits.run_s
        self._failed_build: BuiltLibrary | None = None
        self.library_work = NOTHING_LEFT
        """Work that the extensions leave to libraries, read from the files that were built."""
        self.made: dict[str, BuiltLibrary] = {}
        """Extensions that were built, by the names of their files."""
        self.assumes_finite = False
        """Whether an extension was compiled by flags that assume finite numbers."""
        self.loads_builds = True
        """Whether the candidate loads its builds; False if they are for a device that is not
        present."""
        self.build_failed = False
        """Whether a request failed because an extension did not compile."""

    @property
    def scratch(self) -> Path:
        """Folder of the candidate; visible here only if it may start programs."""
        return Path(self._candidate.scratch)

    def log(self) -> str:
        """Return what the kernel printed, up to a limit."""
        return self._candidate.output()

    def grant(self, seconds: float) -> None:
        """Set the budget of all further requests, in wall seconds."""
        self._left_s = seconds

    @property
    def left_s(self) -> float:
        """The budget that is left, in wall seconds."""
        return self._left_s

    def pause(self) -> None:
        """Halt the candidate, until its next timed window or `resume`."""
        self._guarded(self._candidate.stop)

    def resume(self) -> None:
        """Let the candidate go on."""
        self._guarded(self._candidate.resume)

    def _guarded(self, signal_it: Callable[[], None]) -> None:
        try:
            signal_it()
        except CandidateEnded as end:
            raise Rejected(Status.RUNTIME_ERROR, f"the kernel's process: {end}") from None

    def threads(self) -> int:
        """Return the number of threads and child processes, counted by the worker."""
        return self._candidate.threads()

    def run_times(self) -> RunTimes | None:
        """Return the threads' processor times so far; None if unknown."""
        return self._candidate.run_times()

    def has_ended(self) -> bool:
        """Return True if the candidate's process is known to have ended."""
        return self._candidate.ended()

    def begin_kill(self) -> None:
        """Kill the candidate's process without waiting for its end."""
        self._candidate.begin_kill()

    def kill(self) -> None:
        """Kill the candidate's process; its printed output stays readable."""
        self._candidate.kill()

    def share(self, arena: Arena) -> None:
        """Have the candidate map an arena."""
        fields, fds = arena.handle()
        self.post({"op": "slots", **fields}, fds)
        self.answer("slots")

    def post(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a request; `answer` waits for its answer.

        Args:
            message: The request, with its name under ``op``.
            fds: Descriptors to send along; the caller still closes its own.
        """
        self._candidate.post(message, fds)

    def answer(self, stage: str) -> dict[str, Any]:
        """Wait for the last request's answer, and serve builds meanwhile.

        The budget pays for the wait alone. What the worker does between `post` and this call, such
        as preparing the reference while the module loads, is not the kernel's time.

        Args:
            stage: The candidate's work until it answers, a key of `_DOING`.

        Raises:
            Rejected: If the candidate fails, ends or exceeds its budget.
        """
        put_off_before, begun = self._candidate.put_off_s, time.monotonic()
        try:
            with self._yielding.answering():
                answer = self._candidate.answer(
                    begun + self._left_s, self._serve_build, self._yielding.yield_device
                )
        except CandidateTimedOut:
            # Kill it while the device lock is held: a launched kernel may run for ever, and would
            # run beside the next timing.
            with contextlib.suppress(JudgeError):  # `Processes.discard` raises it again
                self._candidate.kill()
            raise Rejected(
                Status.TIMEOUT,
                f"no answer within {self._ruleset.limits.run_s:g} s (while {_DOING[stage]})",
            ) from None
        except CandidateEnded as end:
            message = f"the kernel's process failed while {_DOING[stage]}: {end}"
            raise Rejected(Status.RUNTIME_ERROR, message) from None
        spent = time.monotonic() - begun
        self._left_s -= max(0.0, spent - (self._candidate.put_off_s - put_off_before))
        if "error" in answer:
            raise self._blame(answer["error"], stage)
        return answer

    def _serve_build(self, arguments: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
        if self._build is None:
            return {"failed": "no extension may be built here"}, ()
        built: BuiltLibrary = self._build(arguments, self._yielding.clear)
        self._candidate.building_s -= built.starved_s
        if built.path:
            self.library_work |= built.work
            if len(self.made) < _MOST_BUILDS:
                self.made[built.path] = built
            self.assumes_finite = self.assumes_finite or assumes_finite(arguments)
            if not self.loads_builds:
                return {"unloaded": built.module}, ()
            return {"module": built.module}, (sealed_copy(built.path),)
        self._failed_build = built
        return {"failed": built.log}, ()

    def _blame(self, error: Any, stage: str) -> Rejected:
        fields = error if isinstance(error, dict) else {}
        kind, text, where = (_printable(fields.get(key, "")) for key in ("type", "text", "where"))
        place = f" ({where})" if where else ""
        status, message, log = Status.RUNTIME_ERROR, f"{kind}: {text}{place}", ""
        findings: tuple[Finding, ...] = ()
        if self._failed_build is not None and kind == "BuildFailed":
            self.build_failed = True
            status, log = Status.COMPILE_ERROR, self._failed_build.log
            first = next((line for line in log.splitlines() if "error" in line), log[:300])
            message = f"the extension did not compile: {first[:300]}"
        elif fields.get("compile") is True:  # the language's own module tells its compiler's errors
            status, log = Status.COMPILE_ERROR, text
            if "\n" not in text.strip():  # what it says of lines may be in what was printed
                printed = self.log().partition("\nmodule ")[0]  # the rest is a compiler's own text
                log = f"{text}{place}\n{cut_middle(printed, _LONGEST_PRINT)}".strip()
            message = f"the kernel did not compile: {_headline(text)}{place}"
        elif stage == "load":
            status, message = Status.COMPILE_ERROR, f"the module did not load: {message}"
        elif stage == "construct":
            # KernelBench has a separate status for errors in a constructor.
            findings = (Finding(CONSTRUCTOR_FINDING, f"{kind}: {text}"[:300], Severity.INFO),)
        lacked_memory = self._on_device and is_out_of_memory(message)
        failure = Failure.MEMORY if lacked_memory else None
        return Rejected(status, message, log, findings, failure=failure)


_DOING = {
    "slots": "being set up",
    "load": "loading the module",
    "construct": "constructing ModelNew",
    "prepare": "being set up",
    "go": "running forward",
    "trace": "being set up to be watched",
    "launches": "telling its launches",
    "compiled": "telling what was compiled",
    "compilation": "handing out what was compiled",
}


def _headline(text: str) -> str:
    """Return the first line of a compiler's complaint that says something."""
    lines = (line.strip() for line in text.splitlines())
    return next(filter(None, lines), "")[:300]


def _printable(text: Any) -> str:
    """Return text, cut to a limit, that is valid UTF-8."""
    return str(text)[:8000].encode("utf-8", "replace").decode("utf-8")
