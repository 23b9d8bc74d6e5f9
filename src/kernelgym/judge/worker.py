"""The trusted worker: owns the buffers, runs the reference, drives candidates, says the verdict.

Started by `local.py` as ``python -m kernelgym.judge.worker``; takes one job at a time over a
socket. It is a process of its own so that the caller imports no torch and survives whatever the
problem's code does; candidates run in further processes, forked by a zygote.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import secrets
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.judge import wire
from kernelgym.judge.build import Builder
from kernelgym.judge.fork_server import Zygote, readable_paths
from kernelgym.judge.lease import Lease
from kernelgym.judge.local import unavailable
from kernelgym.judge.process import Candidate
from kernelgym.judge.reference import Reference, Seeds
from kernelgym.judge.scratch import claim, sweep
from kernelgym.judge.session import Rejected, Session
from kernelgym.judge.stopwatch import Untimed, measure
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import Limits, Ruleset, TimingProtocol
from kernelgym.types import Kernel, Problem, Status, Timing, Verdict

__all__ = ["Worker", "main"]


class Worker:
    """Judges kernels one at a time on the CPU.

    Args:
        ruleset: The rules.
        timing: Whether correct kernels are timed where the language can be.
        folder: Cache folder, shared with other workers.
        scratch: Folder of its own for temporary files.
        tier: Sandbox tier, or ``auto``.
    """

    def __init__(
        self, ruleset: Ruleset, timing: bool, folder: Path, scratch: Path, tier: str = "auto"
    ) -> None:
        self._ruleset, self._timing, self._tier = ruleset, timing, tier
        self._libraries = folder / "builds"
        self._libraries.mkdir(parents=True, exist_ok=True)
        self._scratch = scratch
        self._lease = Lease(folder / "cpu.lock")
        self._zygotes: dict[bool, Zygote] = {}
        self._builder: Builder | None = None

    def judge(self, problem: Problem, kernel: Kernel, seed: str = "") -> Verdict:
        """Judge one kernel.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: Hexadecimal secret of an earlier verdict, to repeat it; empty for a new one.

        Raises:
            JudgeError: If the judge fails.
        """
        started = time.monotonic()
        seeds = Seeds((seed or secrets.token_hex(16)) if self._ruleset.secret_seed else "")
        zygote = self._zygote(interpreted=kernel.language == "triton")
        candidate = zygote.take()
        session = Session(candidate, self._ruleset, self._build(zygote))
        try:
            session.load(kernel.source, "ModelNew")
            _bound_own_memory()
            reference = Reference(problem, self._ruleset, seeds)
            verdict = self._run(session, reference, seeds, problem, kernel)
            log = verdict.log or session.log()
        finally:
            session.close()
            self._discard(candidate)
        return dataclasses.replace(
            verdict,
            device="cpu",
            isolation=zygote.tier,
            ruleset=self._ruleset.label,
            seed=seeds.secret,
            log=log,
            wall_s=round(time.monotonic() - started, 6),
        )

    def _run(
        self, session: Session, reference: Reference, seeds: Seeds, problem: Problem, kernel: Kernel
    ) -> Verdict:
        calls = seeds.calls(self._ruleset)
        passed, errors, complaint = 0, (0.0, 0.0), ""
        try:
            session.await_load()
            with self._lease.shared():
                session.construct(reference, seeds)
                for index in range(calls):
                    outcome = session.call(reference, seeds, index)
                    passed += outcome.passed
                    errors = (
                        max(errors[0], outcome.max_abs_error),
                        max(errors[1], outcome.max_rel_error),
                    )
                    if not outcome.passed:
                        complaint = complaint or f"call {index + 1} of {calls}: {outcome.message}"
                        if self._ruleset.stop_at_first_failure:
                            break
            judged = Verdict(
                Status.WRONG,
                compiled=True,
                trials_passed=passed,
                trials=calls,
                max_abs_error=errors[0],
                max_rel_error=errors[1],
                message=f"{calls - passed} of {calls} calls failed; {complaint}",
                findings=session.findings(kernel),
            )
            if complaint:
                return judged
            message = f"all {calls} calls agree with the reference"
            try:
                timing = self._time(session, reference, seeds, problem, kernel)
                message += "" if timing else "; not timed"
            except Untimed as reason:
                timing, message = None, f"{message}; not timed: {reason}"
            return dataclasses.replace(
                judged, status=Status.CORRECT, timing=timing, message=message
            )
        except Rejected as end:
            return Verdict(
                end.status,
                compiled=session.loaded,
                trials_passed=passed,
                trials=calls if session.loaded else 0,
                max_abs_error=errors[0],
                max_rel_error=errors[1],
                message=str(end),
                log=end.log,
            )

    def _time(
        self, session: Session, reference: Reference, seeds: Seeds, problem: Problem, kernel: Kernel
    ) -> Timing | None:
        if not self._timing or "cpu" not in LANGUAGES[kernel.language].timed_on:
            return None
        session.grant(self._ruleset.limits.run_s)
        process = self._zygote(interpreted=False).take()
        baseline = Session(process, self._ruleset, None)
        try:
            with self._lease.exclusive():
                return measure(session, baseline, reference, seeds, problem.source)
        finally:
            baseline.close()
            self._discard(process)

    def _discard(self, candidate: Candidate) -> None:
        """End a candidate; a process that will not go costs its zygote, not the verdict."""
        try:
            candidate.discard()
        except JudgeError:
            self.reset()

    def _zygote(self, interpreted: bool) -> Zygote:
        if interpreted not in self._zygotes:
            readable = readable_paths()
            limits = self._ruleset.limits
            zygote = Zygote(interpreted, limits, readable, self._scratch, self._tier)
            try:
                zygote.wait_ready()
            except JudgeError:
                zygote.close()
                raise
            self._zygotes[interpreted] = zygote
        return self._zygotes[interpreted]

    def _build(self, zygote: Zygote) -> Any:
        if self._builder is None:
            self._builder = Builder(
                self._libraries, self._scratch, zygote.tier, self._ruleset.limits, readable_paths()
            )
        return self._builder.build

    def reset(self) -> None:
        """Drop the zygotes after a failure of ours; the next job starts clean."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()

    close = reset


def _bound_own_memory() -> None:
    """Let a problem too large for this machine raise, instead of inviting the OOM killer."""
    with open("/proc/meminfo") as file:
        available_kib = next(int(line.split()[1]) for line in file if "MemAvailable" in line)
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(available_kib * 1024 * 0.9), hard))


def read_ruleset(data: dict[str, Any]) -> Ruleset:
    """Rebuild a ruleset from `dataclasses.asdict` after JSON."""
    values = dict(data)
    values["timing"] = TimingProtocol(**values["timing"])
    values["limits"] = Limits(**values["limits"])
    for name in ("hard_findings", "distributions"):
        values[name] = tuple(values[name])
    values["error_factors"] = tuple((name, factor) for name, factor in values["error_factors"])
    return Ruleset(**values)


def _exit_with_parent(lifeline: int) -> None:
    """End this process, and with it the zygotes, as soon as the parent is gone."""

    def watch() -> None:
        os.read(lifeline, 1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main(job_fd: int, lifeline_fd: int) -> None:
    """Serve jobs until the socket closes."""
    _exit_with_parent(lifeline_fd)
    jobs = socket.socket(fileno=job_fd)
    decoder = wire.Decoder(1 << 30)
    setup, _ = wire.receive(jobs, decoder)
    folder, scratch = Path(setup["folder"]), Path(setup["scratch"])
    claim(scratch)
    sweep(scratch.parent)
    worker = Worker(read_ruleset(setup["ruleset"]), setup["timing"], folder, scratch, setup["tier"])
    wire.send(jobs, {"ready": True})
    while True:
        try:
            job, _ = wire.receive(jobs, decoder)
        except EOFError:
            break
        problem = Problem(**job["problem"])
        try:
            verdict = worker.judge(problem, Kernel(**job["kernel"]), job["seed"])
        except Exception as error:  # the boundary: whatever it is, it is not the kernel's fault
            worker.reset()
            verdict = unavailable(f"{type(error).__name__}: {error}")
        wire.send(jobs, {"job": job["job"], "verdict": verdict.to_dict()})
    worker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
