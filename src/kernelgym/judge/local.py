"""`LocalEvaluator`: judges kernels on this machine through worker processes.

The caller's process imports no torch and never runs candidate code. A worker that dies or
overruns its deadline is replaced and the job tried once more; after that the verdict is
`unavailable`. It does not cache verdicts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.judge import wire
from kernelgym.judge.build import find_compiler
from kernelgym.languages import check_language
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Finding, Job, Kernel, Problem, Severity, Status, Verdict

__all__ = ["LocalEvaluator", "cache_folder", "shared_evaluator"]

_ATTEMPTS = 2
_REFERENCE_S = 300.0  # what the problem's own code may take before we give up


def cache_folder() -> Path:
    """Folder for built extensions: ``$KERNELGYM_CACHE``, or one under the XDG cache folder."""
    if own := os.environ.get("KERNELGYM_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kernelgym"


class LocalEvaluator:
    """Judges kernels in sandboxed processes of this machine.

    Args:
        device: ``cpu``; CUDA devices come with a later version.
        ruleset: A ruleset or the name of one.
        workers: Kernels judged at the same time.
        timing: Whether correct kernels are timed, where their language can be.
        cache_dir: Folder for built extensions; by default `cache_folder`.
        isolation: A sandbox tier (see `kernelgym.judge.sandbox`), or ``auto`` for the strongest
            that the host allows.

    Raises:
        UnknownName: If there is no such ruleset.
        UsageError: If the device or another argument cannot be used.
    """

    def __init__(
        self,
        device: str = "cpu",
        ruleset: str | Ruleset = "strict",
        workers: int = 1,
        timing: bool = True,
        cache_dir: str | Path | None = None,
        isolation: str = "auto",
    ) -> None:
        if device != "cpu":
            raise UsageError(f"device {device!r} cannot be judged on; known: cpu")
        if workers < 1:
            raise UsageError(f"workers must be at least 1, got {workers}")
        self._device, self._ruleset, self._timing = device, find_ruleset(ruleset), timing
        self._folder = Path(cache_dir) if cache_dir is not None else cache_folder()
        self._isolation = isolation
        self._idle: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        self._workers: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.workers = workers
        for _ in range(workers):
            self._idle.put(None)

    @property
    def device(self) -> str:
        """The device kernels run on."""
        return self._device

    @property
    def ruleset(self) -> Ruleset:
        """The rules of its verdicts."""
        return self._ruleset

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Judge one kernel; waits for a free worker.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: `Verdict.seed` of an earlier verdict, to repeat it on the same inputs.

        Raises:
            UnsupportedLanguage: If this device or machine cannot run the kernel's language.
        """
        check_language(kernel.language, self._device)
        if kernel.language == "cpp":
            find_compiler()
        started = time.monotonic()
        verdict = _unavailable("no attempt was made")
        for _ in range(_ATTEMPTS):
            verdict = self._attempt(problem, kernel, seed)
            if verdict.valid:
                break
        if not verdict.valid:
            verdict = dataclasses.replace(
                verdict,
                device=self._device,
                ruleset=self._ruleset.label,
                wall_s=time.monotonic() - started,
            )
        return verdict

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many, as many at once as there are workers; yields in order of completion.

        Jobs are taken from the iterable only as workers come free. An error that `evaluate`
        would raise for a job is raised here.
        """
        waiting = enumerate(jobs)
        done: queue.SimpleQueue[tuple[int, Verdict | BaseException]] = queue.SimpleQueue()

        def run(index: int, job: Job) -> None:
            try:
                done.put((index, self.evaluate(job.problem, job.kernel)))
            except BaseException as error:
                done.put((index, error))

        running = 0
        exhausted = False
        while True:
            while running < self.workers and not exhausted:
                try:
                    index, job = next(waiting)
                except StopIteration:
                    exhausted = True
                    break
                threading.Thread(target=run, args=(index, job), daemon=True).start()
                running += 1
            if not running:
                return
            index, outcome = done.get()
            running -= 1
            if isinstance(outcome, BaseException):
                raise outcome
            yield index, outcome

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many; verdicts in the order of the jobs."""
        verdicts = dict(self.evaluate_iter(jobs))
        return [verdicts[index] for index in range(len(jobs))]

    def close(self) -> None:
        """End the workers and everything below them. Jobs in flight become `unavailable`."""
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, set()
        for worker in workers:
            worker.close()

    def __enter__(self) -> LocalEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, problem: Problem, kernel: Kernel, seed: str) -> Verdict:
        worker = self._idle.get()
        try:
            if worker is None:
                worker = self._start()
            return worker.judge(problem, kernel, seed)
        except (OSError, EOFError, wire.WireError, ValueError, KeyError) as error:
            if worker is not None:
                worker.close()
                with self._lock:
                    self._workers.discard(worker)
                worker = None
            return _unavailable(f"the worker failed: {type(error).__name__}: {error}")
        finally:
            self._idle.put(worker)

    def _start(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise ValueError("this evaluator is closed")
        worker = _Worker(self._ruleset, self._timing, self._folder, self._isolation)
        with self._lock:
            self._workers.add(worker)
        return worker


class _Worker:
    """Handle on one worker process."""

    def __init__(self, ruleset: Ruleset, timing: bool, folder: Path, tier: str) -> None:
        limits = ruleset.limits
        # A worker bounds the kernel itself; this bounds the worker and the problem's own code.
        self._job_s = limits.run_s + 2 * limits.build_s + ruleset.timing.budget_s + _REFERENCE_S
        self._socket, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._errors = tempfile.TemporaryFile()
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "TRITON_INTERPRET": "0"}
        command = [sys.executable, "-m", "kernelgym.judge.worker"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(lifeline)],
                pass_fds=(theirs.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
        os.close(lifeline)
        self._decoder = wire.Decoder(1 << 30)
        self._finalizer = weakref.finalize(
            self, _end, self._process, self._socket, self._lifeline, self._errors
        )
        self._ask(
            {
                "ruleset": dataclasses.asdict(ruleset),
                "timing": timing,
                "folder": str(folder.absolute()),
                "tier": tier,
            }
        )

    def judge(self, problem: Problem, kernel: Kernel, seed: str) -> Verdict:
        """Have one kernel judged; OSError or EOFError if the worker is lost."""
        answer = self._ask(
            {
                "problem": _fields(problem),
                "kernel": _fields(kernel),
                "seed": seed,
            }
        )
        return Verdict.from_dict(answer["verdict"])

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self._socket.settimeout(self._job_s)
        try:
            wire.send(self._socket, message)
            return wire.receive(self._socket, self._decoder)[0]
        except EOFError:
            raise EOFError(self._complaint()) from None

    def _complaint(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it exited with {self._process.returncode}"

    def close(self) -> None:
        """End the process and all below it."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], sock: socket.socket, lifeline: int, errors: Any) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
    sock.close()
    os.close(lifeline)
    try:
        process.wait(3.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    errors.close()


def _fields(noun: Problem | Kernel) -> dict[str, Any]:
    return {f.name: getattr(noun, f.name) for f in dataclasses.fields(noun) if f.init}


def _unavailable(message: str) -> Verdict:
    finding = Finding("judge_failed", message, Severity.INFO)
    return Verdict(Status.UNAVAILABLE, message=message, findings=(finding,))


class _Shared(LocalEvaluator):
    """An evaluator that closes when the last of its users has closed it."""

    users = 0
    key: tuple[Any, ...] = ()

    def close(self) -> None:
        with _shared_lock:
            self.users -= 1
            if self.users > 0:
                return
            if _shared.get(self.key) is self:
                del _shared[self.key]
        super().close()


_shared: dict[tuple[Any, ...], _Shared] = {}
_shared_lock = threading.Lock()


def shared_evaluator(
    device: str = "cpu", ruleset: str | Ruleset = "strict", workers: int = 1, timing: bool = True
) -> LocalEvaluator:
    """Return this process's evaluator for these arguments: 64 environments need not be 64 pools.

    Every call counts as a user and needs one `close`.
    """
    rules = find_ruleset(ruleset)
    key = (os.getpid(), device, rules.digest, rules.name, workers, timing)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = _Shared(device, rules, workers, timing)
            _shared[key].key = key
        _shared[key].users += 1
        return _shared[key]
