"""What becomes of one kernel: run, compared, watched, timed. The trusted worker's heart.

Candidates run in processes of their own; everything here is done by trusted code, from the bytes
they leave and by this side's clock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from kernelgym.baseline import Baseline
from kernelgym.errors import DeviceFull, JudgeError
from kernelgym.judge.accelerator import Accelerator, bound_own_memory
from kernelgym.judge.baselines import Baselines, Kept, device_name
from kernelgym.judge.evidence import Evidence, gather, prepare, with_evidence
from kernelgym.judge.library_symbols import with_library_work
from kernelgym.judge.processes import Processes
from kernelgym.judge.public_calls import PublicCalls
from kernelgym.judge.reference import Reference, Seeds
from kernelgym.judge.runner import bytes_of
from kernelgym.judge.session import Rejected, Session
from kernelgym.judge.timekeeper import Timekeeper
from kernelgym.judge.watch import Watch, can_be_watched
from kernelgym.languages import LANGUAGES, REFERENCE_LANGUAGE
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Mismatch, Problem, Severity, Status, Verdict

__all__ = ["Worker"]

_FAILED = (Status.WRONG, Status.RUNTIME_ERROR, Status.TIMEOUT)


class Worker:
    """Judges kernels one at a time on one device.

    Args:
        ruleset: The rules.
        timing: Whether correct kernels are timed where the language can be.
        folder: Cache folder, shared with other workers.
        scratch: Folder of its own for temporary files.
        tier: Sandbox tier, or ``auto``.
        device: ``cpu`` or such as ``cuda:0``.
        called: What the caller calls it, whose processes may see other devices; as above if empty.
        ready: Processes that `prepare_ahead` keeps ready.
        beside: Workers that share the device, this one included.

    Raises:
        JudgeError: If the device cannot be used.
    """

    def __init__(
        self,
        ruleset: Ruleset,
        timing: bool,
        folder: Path,
        scratch: Path,
        tier: str = "auto",
        device: str = "cpu",
        called: str = "",
        ready: int = 1,
        beside: int = 1,
    ) -> None:
        self._ruleset, self._timing, self._name = ruleset, timing, device
        self._called, self._ready = called or device, ready
        folder.mkdir(parents=True, exist_ok=True)
        self._accelerator = Accelerator(device, folder, self._called, beside * (ready - 1))
        self._on_cuda = self._accelerator.on_cuda
        self._processes = Processes(ruleset, self._accelerator, folder, scratch, tier, device)
        self._accelerator.lease.before_ceding = functools.partial(self._settle, ahead=True)
        self._public = PublicCalls(self._accelerator.device)
        self._baselines = Baselines(
            Kept(folder / "baselines", ruleset, device_name(self._accelerator.device)),
            ruleset,
            device,
            self._accelerator.lease,
            functools.partial(self._processes.open, REFERENCE_LANGUAGE),
            self._called,
        )
        self._timekeeper = Timekeeper(ruleset, self._accelerator, self._processes, self._baselines)

    def judge(self, problem: Problem, kernel: Kernel, seed: str = "") -> Verdict:
        """Judge one kernel.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: Hexadecimal secret of an earlier verdict, to repeat it; empty for a new one.

        Raises:
            JudgeError: If the judge fails.
            ProblemError: If the device has too little memory for the problem.
        """
        started, moment = time.monotonic(), time.time()
        seeds = Seeds((seed or secrets.token_hex(16)) if self._ruleset.secret_seed else "")
        zygote = self._processes.zygote(kernel.language)
        self._accelerator.check_room(problem)
        if not self._on_cuda:
            bound_own_memory()
        clock = self._accelerator.clock
        clock.read()
        verdict, was_watched = self._attempt(problem, kernel, seeds, watched=True)
        if was_watched and (verdict.status in _FAILED or _is_idle(verdict)):
            self._look_after(verdict)
            verdict, _ = self._attempt(problem, kernel, seeds)  # it may not have borne that
        if self._accelerator.shares_memory and _ran_out_of_memory(verdict):
            with self._accelerator.alone():  # others' work may have been in its way
                verdict, _ = self._attempt(problem, kernel, seeds)
        elif self._on_cuda and verdict.status is Status.TIMEOUT:
            self._accelerator.hangs.note()
            if self._accelerator.hangs.others_since(moment):  # it may have been held up
                verdict, _ = self._attempt(problem, kernel, seeds)
        broke = verdict.status in (Status.RUNTIME_ERROR, Status.TIMEOUT)
        if self._on_cuda and (broke or self._is_untidy()):
            with self._accelerator.while_nobody_is_timed():
                if broke:
                    self._accelerator.canary()
                self._accelerator.tidy()
                self._settle()
        return dataclasses.replace(
            verdict,
            device=self._called,
            isolation=zygote.tier,
            ruleset=self._ruleset.label,
            seed=seeds.secret,
            wall_s=round(time.monotonic() - started, 6),
            stages=clock.read(),
        )

    def prepare_ahead(self) -> bool:
        """Do one step towards having processes stand ready, for who has no kernel to judge.

        A step forks a process, or has it make its context. It never waits for others, neither for
        who is timed nor for those that are at it already: a kernel may come meanwhile.

        Returns:
            Whether there is more to do; False as well if no context can be had now.

        Raises:
            JudgeError: If no process can be forked now.
        """
        settled = self._processes.are_settled()
        if settled and not self._processes.lack(self._ready):
            return False
        with self._accelerator.making.taken() as is_mine:
            if is_mine and settled:
                self._processes.add(self._ready)
            elif is_mine:
                with self._accelerator.lease.shared_now() as is_held:
                    return not is_held or self._processes.settle(ahead=True)
        return True

    def _look_after(self, failed: Verdict) -> None:
        """Make sure that what failed has left the device as it was, before it is tried again.

        Raises:
            DeviceLost: If it has not.
        """
        if not self._on_cuda or failed.status is Status.WRONG:
            return
        if failed.status is Status.TIMEOUT:
            self._accelerator.hangs.note()
        with self._accelerator.while_nobody_is_timed():
            self._accelerator.canary()

    def _is_untidy(self) -> bool:
        return self._accelerator.is_untidy() or not self._processes.are_settled()

    def _clear(self, session: Session) -> None:
        """Give back what a kernel and its comparison took, before another one gets its room."""
        if session.ended and not self._accelerator.is_untidy():
            return  # done when it had been timed: to wait for the lease once more takes long
        with self._accelerator.while_nobody_is_timed():
            with contextlib.suppress(JudgeError):  # met again where it is discarded
                session.end()
            self._accelerator.tidy()

    def _settle(self, ahead: bool = False) -> None:
        """Let no context be made on the device while somebody is timed.

        Args:
            ahead: Somebody waits, and nothing waits for the contexts: give up sooner.
        """
        if self._on_cuda:
            self._processes.settle(ahead)

    def _attempt(
        self, problem: Problem, kernel: Kernel, seeds: Seeds, watched: bool = False
    ) -> tuple[Verdict, bool]:
        """Judge a kernel in a fresh process; says whether it was watched among its judged calls."""
        clock, watch = self._accelerator.clock, None
        watched &= self._ruleset.require_custom_kernel and can_be_watched(kernel)
        with clock.stage("load"), self._processes.open(kernel.language, kernel.source) as session:
            session.public = None if self._ruleset.secret_seed else self._public
            try:
                if watched:
                    prepare(session)
                session.load(kernel.source, "ModelNew")
                with self._accelerator.room(problem), self._accelerator.lease.shared():
                    reference = Reference(problem, self._ruleset, seeds, self._name)
                    reference.prepare()
                watch = Watch(session, reference, kernel, clock) if watched else None
                with ExitStack() as stack:
                    verdict = self._run(stack, session, reference, kernel, watch)
            except Rejected as end:
                verdict = Verdict(
                    end.status,
                    compiled=end.compiled,
                    message=str(end),
                    log=end.log,
                    findings=end.findings,
                )
            verdict = dataclasses.replace(verdict, log=verdict.log or session.log())
            return verdict, watch is not None and watch.begun

    def _run(
        self,
        stack: ExitStack,
        session: Session,
        reference: Reference,
        kernel: Kernel,
        watch: Watch | None = None,
    ) -> Verdict:
        call = functools.partial(session.call, reference) if watch is None else watch.call
        calls, clock = len(reference.plan), self._accelerator.clock
        passed, failed, errors, complaint = 0, 0, (0.0, 0.0), ""
        mismatch: Mismatch | None = None
        try:
            session.await_load()
            stack.enter_context(self._accelerator.room(reference.problem))
            # One share, from the first call until the kernel is about to be timed: who gives it up
            # in between waits for everybody who is timed. Contexts have as long to be made.
            share = stack.enter_context(ExitStack())
            if self._on_cuda:
                stack.callback(self._clear, session)
            share.enter_context(self._accelerator.lease.shared())
            share.callback(self._settle)
            with clock.stage("check"):
                self._processes.ask_for_contexts()
                session.construct(reference)
                for index in range(calls):
                    outcome = call(index)
                    passed += outcome.passed
                    errors = (
                        max(errors[0], outcome.max_abs_error),
                        max(errors[1], outcome.max_rel_error),
                    )
                    if not outcome.passed:
                        failed += 1
                        mismatch = mismatch or outcome.mismatch
                        complaint = complaint or f"call {index + 1} of {calls}: {outcome.message}"
                        if self._ruleset.stop_at_first_failure:
                            break
                if watch is not None:
                    watch.end()
            judged = Verdict(
                Status.WRONG,
                compiled=True,
                trials_passed=passed,
                trials=calls,
                max_abs_error=errors[0],
                max_rel_error=errors[1],
                message=f"{failed} of {calls} calls failed; {complaint}",
                findings=(*session.findings(kernel), *reference.findings()),
            )
            if complaint:
                return dataclasses.replace(judged, mismatch=mismatch)
            message = f"all {calls} calls agree with the reference"
            judged = dataclasses.replace(judged, status=Status.CORRECT, message=message)
            if self._ruleset.require_custom_kernel:
                judged = with_library_work(judged, session.library_work)
                if judged.correct:
                    evidence = None if watch is None else watch.found
                    with clock.stage("evidence"):
                        evidence = evidence or self._evidence(session, reference, kernel)
                    judged = with_evidence(judged, evidence, session.tally, kernel)
                if not judged.correct:
                    return judged
            if not self._timing or not _is_timed(kernel.language, self._name):
                return dataclasses.replace(judged, message=f"{message}; not timed")
            with clock.stage("timing"):
                timed = self._timekeeper.timed(judged, session, reference, kernel, share)
            return self._unless_idle(timed, session, kernel)
        except (Rejected, DeviceFull, torch.OutOfMemoryError) as reason:
            end = (
                reason if isinstance(reason, Rejected) else self._blame(reason, session, reference)
            )
            return Verdict(
                end.status,
                compiled=session.loaded,
                trials_passed=passed,
                trials=calls if session.loaded else 0,
                max_abs_error=errors[0],
                max_rel_error=errors[1],
                message=str(end),
                log=end.log,
                findings=end.findings,
                mismatch=end.mismatch,
            )

    def _blame(self, full: Exception, session: Session, reference: Reference) -> Rejected:
        """Blame the kernel for a full device, if the reference has room enough without it.

        Raises:
            DeviceFull: If it has not.
        """
        session.end()
        torch.cuda.empty_cache()
        inputs = reference.inputs(0)
        expected = reference.expect(inputs, 0)
        # What its slots, its output and our copy of that would take beside these.
        needed = 2 * bytes_of(inputs) + 3 * bytes_of(expected.output)
        if torch.cuda.mem_get_info(self._accelerator.device)[0] < needed:
            raise full
        message = f"its process took so much device memory that the reference had none left: {full}"
        return Rejected(Status.RUNTIME_ERROR, message)

    def _evidence(self, session: Session, reference: Reference, kernel: Kernel) -> Evidence:
        """Have a second process show that a custom kernel did the work."""
        session.vacate()  # one process at a time holds inputs and outputs

        def unused() -> Reference:
            if not reference.stateful:
                return reference
            # Its state changes from call to call, and timing goes on with this one.
            fresh = Reference(reference.problem, self._ruleset, reference.seeds, self._name)
            fresh.prepare()
            return fresh

        def load(session: Session) -> None:
            session.load(kernel.source, "ModelNew")
            self._processes.ask_for_contexts()  # made while this one compiles

        evidence = gather(
            lambda: self._processes.open(kernel.language, kernel.source), load, unused, kernel
        )
        if evidence.crashed:
            self._accelerator.canary()
        return evidence

    def _unless_idle(self, timed: Verdict, session: Session, kernel: Kernel) -> Verdict:
        """Refuse a kernel that launched in every judged call, but not in every timed one."""
        idle = session.tally.finding(kernel, Severity.HARD, watched=1)
        if idle is None or not self._ruleset.require_custom_kernel:
            return timed
        return dataclasses.replace(
            timed,
            status=Status.REJECTED,
            message=f"once it was timed, {idle.message}",
            timing=None,
            findings=(idle, *timed.findings),
        )

    def prepare_baseline(self, problem: Problem, refresh: bool = False) -> Baseline:
        """Prepare and time a problem's compiled baseline.

        Args:
            problem: The problem.
            refresh: Compile even if one is kept.

        Raises:
            JudgeError: If the judge or the problem's own code fails.
            UsageError: If the device has too little memory for the problem.
        """
        self._processes.zygote(REFERENCE_LANGUAGE)
        self._accelerator.check_room(problem)
        if not self._on_cuda:
            bound_own_memory()
        prepared = self._baselines.prepare(problem, refresh)
        self._accelerator.tidy()
        return prepared

    def reset(self) -> None:
        """Start clean at the next job, after a failure of ours."""
        self._baselines.dismiss()
        self._processes.reset()

    def close(self) -> None:
        """End all processes."""
        self._baselines.dismiss()
        self._processes.close()


def _is_timed(language: str, device: str) -> bool:
    return language != REFERENCE_LANGUAGE and LANGUAGES[language].is_timed(device)


def _is_idle(verdict: Verdict) -> bool:
    """Say whether a kernel was refused because it launched nothing."""
    return verdict.status is Status.REJECTED and any(
        finding.code == "no_kernel_launch" and finding.severity is Severity.HARD
        for finding in verdict.findings
    )


def _ran_out_of_memory(verdict: Verdict) -> bool:
    return verdict.status is Status.RUNTIME_ERROR and "out of memory" in verdict.message.lower()
