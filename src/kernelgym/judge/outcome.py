"""Outcomes of the stages for one kernel, and the only functions that compose a verdict.

A worker fills a `JudgeOutcome` stage by stage: calls judged, library symbols read, evidence
gathered, times measured, or the run ended early. `verdict_of` turns it into a `Verdict`;
`verdict_of_failures` does so if the judge itself failed, and `moved_verdict` notes that a device
failed before another gave the verdict. No other code in the judge composes or changes a verdict, so
an audit has to read these three functions only.

Pure: no clocks, no processes, no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelgym.judge.retries import Failure
from kernelgym.types import Build, Finding, Mismatch, Severity, Status, Timing, Verdict
from kernelgym.verdict import Stages, unavailable

if TYPE_CHECKING:
    from kernelgym.judge.compare.compare import OutputComparison
    from kernelgym.judge.compiling.library_symbols import LibraryWork
    from kernelgym.judge.evidence.evidence import Evidence
    from kernelgym.judge.session.channel import Rejected


@dataclass(slots=True)
class JudgedCalls:
    """Counts of the judged calls so far, and the first failure."""

    planned: int = 0
    passed: int = 0
    failed: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    complaint: str = ""
    mismatch: Mismatch | None = None
    standard: str = "the reference"
    """Standard that passed calls agree with, in words."""

    def add(self, index: int, compared: OutputComparison) -> None:
        """Count one judged call and its result."""
        self.max_abs_error = max(self.max_abs_error, compared.max_abs_error)
        self.max_rel_error = max(self.max_rel_error, compared.max_rel_error)
        if compared.passed:
            self.passed += 1
            return
        self.failed += 1
        self.mismatch = self.mismatch or compared.mismatch
        if not self.complaint:
            self.complaint = f"call {index + 1} of {self.planned}: {compared.message}"


@dataclass(frozen=True, slots=True)
class TimingOutcome:
    """The outcome of timing a correct kernel."""

    timing: Timing | None = None
    """Measured times; None if the kernel was not timed."""
    untimed: str = ""
    """Reason why the kernel was not timed."""
    findings: tuple[Finding, ...] = ()
    idle: Finding | None = None
    """Hard finding on timed calls, which launched no custom kernel or leave to libraries what the
    watched calls did not; the kernel is rejected then."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The reason why a kernel's run ended before its last stage."""

    status: Status
    message: str
    log: str = ""
    findings: tuple[Finding, ...] = ()
    mismatch: Mismatch | None = None
    failure: Failure = Failure.NONE
    """Failure that decides about another attempt."""

    @classmethod
    def of(cls, rejected: Rejected) -> RunEnd:
        """Return the reason that a session's `Rejected` exception holds, as the end of the run."""
        return cls(
            status=rejected.status,
            message=str(rejected),
            log=rejected.log,
            findings=rejected.findings,
            mismatch=rejected.mismatch,
            failure=rejected.failure,
        )


@dataclass(slots=True)
class JudgeOutcome:
    """Outcome of one attempt at judging a kernel; a stage that was not reached is None."""

    calls: JudgedCalls = field(default_factory=JudgedCalls)
    loaded: bool = False
    """Whether the kernel's module was imported and its extensions were built."""
    noticed: tuple[Finding, ...] = ()
    """Findings of the judged calls, such as an unusual use of memory."""
    library: LibraryWork | None = None
    """Work that the kernel's extensions leave to libraries, found by their symbols."""
    build: Build | None = None
    """Facts on the compiled extensions; None without any."""
    checked_for: str = ""
    """Name of the GPU that Triton's front end was asked to compile interpreted launches for."""
    refusal: RunEnd | None = None
    """Refusal of Triton's front end: no GPU would have run a call, so none counts as passed."""
    evidence: Evidence | None = None
    """Evidence that the custom kernel, not torch, did the work."""
    timing: TimingOutcome | None = None
    end: RunEnd | None = None
    log: str = ""
    """The kernel's output."""

    def note(self, *found: Finding) -> None:
        """Add findings for the verdict, however the attempt ends."""
        self.noticed = (*self.noticed, *found)
        if self.end is not None:
            self.end = dataclasses.replace(self.end, findings=(*self.end.findings, *found))
        if self.refusal is not None:
            refused = (*self.refusal.findings, *found)
            self.refusal = dataclasses.replace(self.refusal, findings=refused)

    @property
    def is_right(self) -> bool:
        """Whether neither the judged calls nor the extensions' symbols speak against the kernel."""
        hidden = self.library is not None and self.library.hidden
        ended = self.end is not None or self.refusal is not None
        return not (ended or self.calls.failed or hidden)

    @property
    def failure(self) -> Failure:
        """Failure of the first stage that failed: it decides about another attempt."""
        if (end := self.end or self.refusal) is not None:
            return end.failure
        if self.calls.failed:
            return Failure.WRONG
        if self.evidence is not None and self.evidence.complaint:
            return self.evidence.failure
        if self.timing is not None and self.timing.idle is not None:
            return Failure.IDLE
        return Failure.NONE


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The device, sandbox, ruleset, seed and time of a verdict."""

    device: str = ""
    isolation: str = ""
    ruleset: str = ""
    seed: str = ""
    wall_s: float = 0.0
    stages: Stages | None = None


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """A failure of the judge, in place of a verdict."""

    message: str
    code: str = "judge_failed"
    """``judge_failed``, or ``worker_lost`` or ``device_lost`` where a kernel may be the cause;
    ``no_device`` if no device was in service."""
    device: str = ""
    """The device of the attempt."""

    @property
    def may_be_the_kernels(self) -> bool:
        """Whether the kernel may be the cause; false for the judge's exceptions."""
        return self.code in ("worker_lost", "device_lost")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Result of all stages together, from which a verdict is composed."""

    status: Status
    message: str
    findings: tuple[Finding, ...] = ()
    mismatch: Mismatch | None = None
    timing: Timing | None = None


def verdict_of(outcome: JudgeOutcome, at: Circumstances) -> Verdict:
    """Return the verdict on an outcome.

    Args:
        outcome: The outcome of the kernel's last attempt.
        at: Device, sandbox, ruleset, seed and time of the judging.
    """
    reading = _read(outcome)
    calls, evidence, end = outcome.calls, outcome.evidence, outcome.end or outcome.refusal
    # A run that ended early has no custom share (None), even if its evidence had been gathered.
    counted = evidence if evidence and not evidence.complaint and end is None else None
    return Verdict(
        reading.status,
        compiled=outcome.loaded,
        trials_passed=calls.passed if outcome.loaded and outcome.refusal is None else 0,
        trials=calls.planned if outcome.loaded else 0,
        max_abs_error=calls.max_abs_error,
        max_rel_error=calls.max_rel_error,
        timing=reading.timing,
        findings=reading.findings,
        message=reading.message,
        log=(end.log if end else "") or outcome.log,
        device=at.device,
        custom_share=_custom_share(counted) if counted else None,
        isolation=at.isolation,
        ruleset=at.ruleset,
        seed=at.seed,
        wall_s=at.wall_s,
        stages=at.stages,
        mismatch=reading.mismatch,
        checked_for=outcome.checked_for,
        profile=counted.profile if counted else None,
        build=outcome.build,
    )


def _custom_share(evidence: Evidence) -> float:
    """Return the custom kernels' share of a call's device time, or else of its work."""
    share = evidence.device_share
    return round(1.0 - min(1.0, evidence.torch_share) if share is None else share, 6)


def _read(outcome: JudgeOutcome) -> _Reading:
    """Return the result of the first failed stage; of the last stage if none failed."""
    calls, evidence, timing = outcome.calls, outcome.evidence, outcome.timing
    end = outcome.end or outcome.refusal
    findings = outcome.noticed
    if end is not None:
        return _Reading(end.status, end.message, end.findings, end.mismatch)
    if calls.failed:
        message = f"{calls.failed} of {calls.planned} calls failed; {calls.complaint}"
        return _Reading(Status.WRONG, message, findings, calls.mismatch)
    message = f"all {calls.planned} calls agree with {calls.standard}"
    if outcome.library is not None:
        findings = (*outcome.library.findings(), *findings)
        if outcome.library.hidden:
            return _Reading(Status.REJECTED, findings[0].message, findings)
    if evidence is not None:
        # The judged calls' finding on launches is weaker than the evidence: drop it.
        kept = (found for found in findings if found.code != "no_kernel_launch")
        findings = (*evidence.findings, *kept)
        if evidence.complaint:
            return _Reading(Status.REJECTED, evidence.complaint, findings)
    if timing is None:
        return _Reading(Status.CORRECT, f"{message}; not timed", findings)
    findings = (*findings, *timing.findings)
    if timing.idle is not None:
        found = timing.idle
        message = f"once it was timed, {found.message}"
        return _Reading(Status.REJECTED, message, (found, *findings))
    if timing.timing is None:
        return _Reading(Status.CORRECT, f"{message}; not timed: {timing.untimed}", findings)
    return _Reading(Status.CORRECT, message, findings, timing=timing.timing)


def verdict_of_failures(
    failures: Sequence[JudgeFailure], circumstances: Circumstances, blamed: bool = False
) -> Verdict:
    """Return the verdict if every attempt ended in a judge failure.

    Args:
        failures: Failures of the attempts, at least one.
        circumstances: Device, ruleset and time of the judging.
        blamed: Whether the kernel is the cause: it brought the judge down each time, and the
            reference, judged on the same devices afterwards, did not. Without blame, a kernel that
            is about to fail could avoid its verdict by bringing the judge down.
    """
    last, at = failures[-1], circumstances
    if not blamed:
        return unavailable(last.message, last.code, at.device, at.ruleset, at.wall_s)
    return Verdict(
        Status.RUNTIME_ERROR,
        message=f"the judge failed each time on this kernel and on no other: {last.message}",
        findings=(Finding(last.code, last.message, Severity.INFO),),
        device=at.device,
        ruleset=at.ruleset,
        wall_s=at.wall_s,
    )


def moved_verdict(verdict: Verdict, failures: Sequence[JudgeFailure], device: str) -> Verdict:
    """Return a verdict with the finding that another device had failed.

    Args:
        verdict: Verdict of the last attempt.
        failures: The attempts before it, if any.
        device: The device of the last attempt.
    """
    failed = [failure for failure in failures if failure.device != device]
    if not failed:
        return verdict
    last = failed[-1]
    message = f"judged on {device} after {last.device} had failed: {last.message}"
    moved = Finding("device_moved", message, Severity.INFO)
    return dataclasses.replace(verdict, findings=(*verdict.findings, moved))
