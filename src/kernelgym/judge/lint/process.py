"""The caller's side of the degeneracy gate: starts its processes, keeps deadlines and results.

Contract: the caller imports no torch. If a test overruns its deadline, this module kills its
process, and the result keeps the reasons found until then. Only complete results are kept on disk,
under ``hygiene`` in the cache folder; see `kernelgym.hygiene`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import signal
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.hygiene import Hygiene, read_kept, write_kept
from kernelgym.judge.environment import of_trusted
from kernelgym.judge.processes.trusted_process import TrustedProcess, fields_of
from kernelgym.judge.untrusted import protocol
from kernelgym.paths import hygiene_folder
from kernelgym.pretrained import what_is_missing
from kernelgym.rulesets import Ruleset
from kernelgym.suites.known_memory import needed_bytes, too_large
from kernelgym.types import Problem

_START_S = 300.0
_GRACE_S = 0.9  # share of a test's time; after it, the process tries no further parameter


class HygieneProcess:
    """Tests problems one by one; used by one thread at a time.

    Args:
        rules: The ruleset that decides comparison and precision.
        device: Device on which references run.
        memory_bytes: Most memory that a test may take, for problems whose inputs say that they
            need more; 0 sets no limit.

    Raises:
        JudgeError: If the process does not start.
    """

    def __init__(self, rules: Ruleset, device: str, memory_bytes: int = 0) -> None:
        self._rules, self._device, self._memory_bytes = rules, device, memory_bytes
        self._decoder = protocol.Decoder()
        # -P: otherwise a file in the current folder could replace a library that the judge imports.
        self._process = TrustedProcess(
            ["-P", "-m", "kernelgym.judge.lint"], of_trusted() | {"OMP_WAIT_POLICY": "PASSIVE"}
        )
        self._finalizer = weakref.finalize(self, _end, self._process)
        try:
            self._receive(time.monotonic() + _START_S)
        except (OSError, EOFError, protocol.ProtocolError) as error:
            text = f"{type(error).__name__} {self._process.complaint()}".strip()
            self.close()
            raise JudgeError(f"the process that tests problems did not start: {text}") from None

    @property
    def alive(self) -> bool:
        """Whether the process has been neither closed nor killed."""
        return self._finalizer.alive

    def examine(self, problem: Problem, timeout_s: float) -> Hygiene:
        """Return the result of testing one problem.

        Args:
            problem: The problem.
            timeout_s: Wall seconds after which the test's process is killed.
        """
        found: list[tuple[str, str]] = []
        deadline = time.monotonic() + timeout_s
        job = {
            "problem": fields_of(problem),
            "ruleset": dataclasses.asdict(self._rules),
            "device": self._device,
            "seconds": timeout_s * _GRACE_S,
            "memory_bytes": self._memory_bytes,
        }
        untested = None
        try:
            protocol.send(self._process.socket, job)
            while "ended" not in (message := self._receive(deadline)):
                if "reason" in message:
                    found.append((str(message["reason"]), str(message["detail"])))
                elif "untested" in message:
                    untested = str(message["untested"])
                elif "failed" in message:
                    found.append(("broken_reference", str(message["failed"])))
                    untested = ""
            if untested is None and message["ended"] == -signal.SIGKILL:
                untested = "its process was killed, perhaps because memory ran out"
            elif untested is None:
                found.append(("broken_reference", _how_it_ended(int(message["ended"]))))
                untested = ""
        except TimeoutError:
            untested = f"not done after {timeout_s:g} s"
            self.close()
        except (OSError, EOFError, protocol.ProtocolError) as error:
            untested = (
                f"the testing process was lost: {type(error).__name__} {self._process.complaint()}"
            )
            self.close()
        return _result(problem, self._rules, self._device, found, untested)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while (message := self._decoder.next()) is None:
            self._process.socket.settimeout(max(1e-3, deadline - time.monotonic()))
            data = self._process.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._decoder.feed(data)
        return message

    def close(self) -> None:
        """End the process and its children; a second call does nothing."""
        self._finalizer()


def lint(
    problems: Sequence[Problem],
    rules: Ruleset,
    device: str = "cpu",
    *,
    workers: int = 1,
    timeout_s: float = 600.0,
    refresh: bool = False,
    folder: Path | None = None,
    memory_bytes: int = 0,
) -> Iterator[tuple[int, Hygiene]]:
    """Yield (index, result) for each problem as tests end, kept results first.

    Args:
        problems: The problems.
        rules: The ruleset that decides comparison and precision.
        device: Device on which references run.
        workers: Number of problems tested at the same time.
        timeout_s: Wall seconds for one problem.
        refresh: Whether to test again problems that have a kept result.
        folder: Folder in which results are kept; `hygiene_folder()` if None.
        memory_bytes: The memory budget; a problem that needs more is not tested. 0 sets no limit.

    Raises:
        JudgeError: If a process does not start.
    """
    folder = hygiene_folder() if folder is None else folder
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting = 0
    for index, problem in enumerate(problems):
        kept = None if refresh else read_kept(folder, problem, rules, device)
        needed = needed_bytes(problem) or 0
        if kept is not None:
            yield index, kept
        elif missing := what_is_missing(problem):
            yield index, _result(problem, rules, device, (), missing)
        elif 0 < memory_bytes < needed:
            why = too_large(problem.id, needed, memory_bytes, device)
            yield index, _result(problem, rules, device, (), why)
        else:
            todo.put(index)
            waiting += 1
    done: queue.SimpleQueue[tuple[int, Hygiene] | BaseException] = queue.SimpleQueue()
    running: list[HygieneProcess] = []
    stopped = threading.Event()

    def work() -> None:
        process: HygieneProcess | None = None
        try:
            while not stopped.is_set():
                index = todo.get_nowait()
                if process is None or not process.alive:
                    process = HygieneProcess(rules, device, memory_bytes)
                    running.append(process)
                done.put((index, process.examine(problems[index], timeout_s)))
        except queue.Empty:
            pass
        except BaseException as error:
            done.put(error)
        finally:
            if process is not None:
                process.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, waiting))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(waiting):
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            index, result = outcome
            if result.tested:
                write_kept(folder, problems[index], rules, device, result)
            yield index, result
    finally:
        stopped.set()
        for process in list(running):
            process.close()
        for thread in threads:
            thread.join(5.0)


def _result(
    problem: Problem,
    rules: Ruleset,
    device: str,
    found: Sequence[tuple[str, str]],
    untested: str | None,
) -> Hygiene:
    """Return the result of the degeneracy tests of a problem.

    Args:
        problem: The problem.
        rules: The ruleset.
        device: Device that the reference ran on.
        found: Reasons against the problem, with details.
        untested: Reason why tests were not made; empty or None if all were.
    """
    details = [f"{reason}: {text}" for reason, text in found if text]
    details += [f"not tested: {untested}"] if untested else []
    return Hygiene(
        problem.id,
        rules.label,
        rules.precision,
        device.partition(":")[0],
        tuple(reason for reason, _ in found),
        "; ".join(details),
        tested=not untested,
    )


def _how_it_ended(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


def _end(process: TrustedProcess) -> None:
    process.hang_up()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.popen.pid, signal.SIGKILL)
    process.end()
