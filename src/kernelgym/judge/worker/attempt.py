"""One kernel judged in a fresh process: loaded, compared, watched, timed.

Candidates run in processes of their own; everything here is done by trusted code, from the bytes
they leave and by this side's clock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.compare.compare import Comparison
from kernelgym.judge.compiling.library_symbols import with_library_work
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.evidence.evidence import Evidence, gather, prepare, with_evidence
from kernelgym.judge.evidence.inline import Watch, can_be_watched
from kernelgym.judge.out_of_memory import lacked_memory
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.reference.reference import Reference, Seeds
from kernelgym.judge.session.launcher import Processes
from kernelgym.judge.session.session import Rejected, Session
from kernelgym.judge.tensors import bytes_of
from kernelgym.judge.timing.timer import Timekeeper
from kernelgym.languages import LANGUAGES, REFERENCE_LANGUAGE
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Mismatch, Problem, Severity, Status, Verdict

__all__ = ["Attempt", "Equipment"]


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a worker judges kernels with."""

    ruleset: Ruleset
    """The rules."""
    timing: bool
    """Whether correct kernels are timed where the language can be."""
    device: str
    """``cpu`` or such as ``cuda:0``."""
    accelerator: Accelerator
    """The same, as the worker sees it."""
    processes: Processes
    """Opens processes on it."""
    public: PublicCalls
    """What is known of calls on values that everybody knows."""
    timekeeper: Timekeeper
    """Times kernels."""


class Attempt:
    """One try at judging a kernel. `verdict` is asked for once.

    Args:
        equipment: What it is judged with.
        problem: The problem.
        kernel: The kernel.
        seeds: What inputs and parameters are drawn from.
        watched: Whether it may be watched among its judged calls, if it bears that.
    """

    def __init__(
        self,
        equipment: Equipment,
        problem: Problem,
        kernel: Kernel,
        seeds: Seeds,
        watched: bool = False,
    ) -> None:
        self._equipment, self._problem, self._kernel = equipment, problem, kernel
        self._seeds = seeds
        self._ruleset, self._accelerator = equipment.ruleset, equipment.accelerator
        self._processes, self._clock = equipment.processes, equipment.accelerator.clock
        self._may_watch = watched and self._ruleset.require_custom_kernel and can_be_watched(kernel)
        self._watch: Watch | None = None
        self._calls = _Calls()

    @property
    def was_watched(self) -> bool:
        """Whether a judged call was watched."""
        return self._watch is not None and self._watch.begun

    def verdict(self) -> Verdict:
        """Judge the kernel.

        Raises:
            JudgeError: If the judge fails.
        """
        kernel, clock = self._kernel, self._clock
        if self._accelerator.is_alone:
            self._reference()  # what is learned of a problem is learned while there is no kernel
        with clock.stage("load"), self._processes.open(kernel.language, kernel.source) as session:
            session.public = None if self._ruleset.secret_seed else self._equipment.public
            try:
                if self._may_watch:
                    prepare(session)
                session.model.load(kernel.source, "ModelNew")
                with self._accelerator.room(self._problem), self._accelerator.device_lock.shared():
                    reference = self._reference()
                    self._accelerator.tidy()  # what a problem was examined in is others' room now
                if self._may_watch:
                    self._watch = Watch(session, reference, kernel, clock)
                with ExitStack() as stack:
                    verdict = self._judged(stack, session, reference)
            except Rejected as end:
                verdict = Verdict(
                    end.status,
                    compiled=end.compiled,
                    message=str(end),
                    log=end.log,
                    findings=end.findings,
                )
            return dataclasses.replace(verdict, log=verdict.log or session.channel.log())

    def _reference(self) -> Reference:
        reference = Reference(
            self._problem,
            self._ruleset,
            self._seeds,
            self._equipment.device,
            self._accelerator.shares_device,
        )
        reference.prepare()
        return reference

    def _judged(self, stack: ExitStack, session: Session, reference: Reference) -> Verdict:
        """Run the kernel; what it holds of the device's memory is held until `stack` is closed."""
        calls = self._calls
        calls.planned = len(reference.plan)
        try:
            session.model.await_load()
            stack.enter_context(self._accelerator.room(reference.problem))
            # One share, from the first call until the kernel is about to be timed: who gives it up
            # in between waits for everybody who is timed. Contexts have as long to be made.
            share = stack.enter_context(ExitStack())
            if self._accelerator.on_cuda:
                stack.callback(self._clear, session)
            share.enter_context(self._accelerator.device_lock.shared())
            if self._accelerator.on_cuda:
                share.callback(self._processes.settle)
            with self._clock.stage("check"):
                self._processes.ask_for_contexts()
                session.model.construct(reference)
                self._call(session, reference)
            findings = (*session.findings(self._kernel), *reference.findings())
            judged = dataclasses.replace(calls.verdict(), findings=findings)
            if judged.correct and self._ruleset.require_custom_kernel:
                judged = self._custom(judged, session, reference)
            if not judged.correct:
                return judged
            if not self._is_timed():
                return dataclasses.replace(judged, message=f"{judged.message}; not timed")
            with self._clock.stage("timing"):
                timekeeper = self._equipment.timekeeper
                timed = timekeeper.timed(judged, session, reference, self._kernel, share)
            return self._unless_idle(timed, session)
        except Rejected as end:
            return self._ended(session, end)
        except Exception as full:
            # In company there is a try alone, whoever it was.
            if not lacked_memory(full) or self._accelerator.shares_device:
                raise
            traceback.clear_frames(full.__traceback__)  # which hold tensors
            if not self._has_room_without(session, reference):
                raise
            message = "its process took so much device memory that the reference had none left"
            return self._ended(session, Rejected(Status.RUNTIME_ERROR, f"{message}: {full}"))

    def _call(self, session: Session, reference: Reference) -> None:
        """Make the judged calls, until one fails."""
        watch = self._watch
        for index in range(self._calls.planned):
            outcome = session.call(reference, index) if watch is None else watch.call(index)
            self._calls.add(index, outcome)
            if not outcome.passed and self._ruleset.stop_at_first_failure:
                break
        if watch is not None:
            watch.end()

    def _custom(self, judged: Verdict, session: Session, reference: Reference) -> Verdict:
        """Have it shown that a custom kernel did the work of a correct one."""
        judged = with_library_work(judged, session.channel.library_work)
        if not judged.correct:
            return judged
        evidence = None if self._watch is None else self._watch.found
        with self._clock.stage("evidence"):
            evidence = evidence or self._evidence(session, reference)
        return with_evidence(judged, evidence, session.tally, self._kernel)

    def _evidence(self, session: Session, reference: Reference) -> Evidence:
        """Have a second process show that a custom kernel did the work."""
        session.buffers.vacate()  # one process at a time holds inputs and outputs
        kernel = self._kernel

        def unused() -> Reference:
            # Its state changes from call to call, and timing goes on with this one.
            return self._reference() if reference.stateful else reference

        def load(session: Session) -> None:
            session.model.load(kernel.source, "ModelNew")
            self._processes.ask_for_contexts()  # made while this one compiles

        evidence = gather(
            lambda: self._processes.open(kernel.language, kernel.source), load, unused, kernel
        )
        if evidence.crashed:
            self._accelerator.canary()
        return evidence

    def _is_timed(self) -> bool:
        language = self._kernel.language
        return (
            self._equipment.timing
            and language != REFERENCE_LANGUAGE
            and LANGUAGES[language].is_timed(self._equipment.device)
        )

    def _unless_idle(self, timed: Verdict, session: Session) -> Verdict:
        """Refuse a kernel that launched in every judged call, but not in every timed one."""
        idle = session.tally.finding(self._kernel, Severity.HARD, watched=1)
        if idle is None or not self._ruleset.require_custom_kernel:
            return timed
        return dataclasses.replace(
            timed,
            status=Status.REJECTED,
            message=f"once it was timed, {idle.message}",
            timing=None,
            findings=(idle, *timed.findings),
        )

    def _ended(self, session: Session, end: Rejected) -> Verdict:
        """Return the verdict on a kernel whose run is over.

        An exception that a local variable names in a frame it has come through is part of a cycle,
        and keeps that frame's tensors: here it is named in a frame of its own.
        """
        return dataclasses.replace(
            self._calls.so_far(session.model.loaded),
            status=end.status,
            message=str(end),
            log=end.log,
            findings=end.findings,
            mismatch=end.mismatch,
        )

    def _has_room_without(self, session: Session, reference: Reference) -> bool:
        """End the kernel's process, and say whether the reference has room enough then.

        Raises:
            DeviceFull: If there is too little even to see.
        """
        with self._accelerator.while_nobody_is_timed():
            session.end()
            torch.cuda.empty_cache()
            inputs = reference.inputs(0)
            expected = reference.expect(inputs, 0)
            # What its slots, its output and our copy of that would take beside these.
            needed = 2 * bytes_of(inputs) + 3 * bytes_of(expected.output)
            torch.cuda.empty_cache()
            return bool(torch.cuda.mem_get_info(self._accelerator.device)[0] >= needed)

    def _clear(self, session: Session) -> None:
        """Give back what a kernel and its comparison took, before another one gets its room."""
        if session.ended and not self._accelerator.is_untidy():
            return  # done when it had been timed: to wait for the device lock once more takes long
        with self._accelerator.while_nobody_is_timed():
            with contextlib.suppress(JudgeError):  # met again where it is discarded
                session.end()
            self._accelerator.tidy()


class _Calls:
    """What came of the judged calls so far."""

    def __init__(self) -> None:
        self.planned = 0
        self._passed = self._failed = 0
        self._max_abs = self._max_rel = 0.0
        self._complaint = ""
        self._mismatch: Mismatch | None = None

    def add(self, index: int, outcome: Comparison) -> None:
        """Take in one call's outcome."""
        self._max_abs = max(self._max_abs, outcome.max_abs_error)
        self._max_rel = max(self._max_rel, outcome.max_rel_error)
        if outcome.passed:
            self._passed += 1
            return
        self._failed += 1
        self._mismatch = self._mismatch or outcome.mismatch
        if not self._complaint:
            self._complaint = f"call {index + 1} of {self.planned}: {outcome.message}"

    def verdict(self) -> Verdict:
        """Return the verdict on these calls alone."""
        if self._failed:
            return dataclasses.replace(
                self.so_far(),
                message=f"{self._failed} of {self.planned} calls failed; {self._complaint}",
                mismatch=self._mismatch,
            )
        message = f"all {self.planned} calls agree with the reference"
        return dataclasses.replace(self.so_far(), status=Status.CORRECT, message=message)

    def so_far(self, loaded: bool = True) -> Verdict:
        """Return a verdict that counts the calls, without a reason.

        Args:
            loaded: Whether the kernel got as far as being called.
        """
        return Verdict(
            Status.WRONG,
            compiled=loaded,
            trials_passed=self._passed,
            trials=self.planned if loaded else 0,
            max_abs_error=self._max_abs,
            max_rel_error=self._max_rel,
        )
