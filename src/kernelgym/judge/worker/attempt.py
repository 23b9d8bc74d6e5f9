"""Judge one kernel in a fresh process: load, compare, watch, time.

Contract: the candidate runs in a process of its own. Everything in this module is trusted code,
which judges the bytes that the candidate left, by the worker's own clock.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.compiling.library_cache import build_of
from kernelgym.judge.compiling.library_symbols import NOTHING_LEFT
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.evidence.evidence import Evidence, gather, prepare, with_launches
from kernelgym.judge.evidence.finite_math import lost_nan
from kernelgym.judge.evidence.front_end import FrontEnd
from kernelgym.judge.evidence.inline import Watch, can_be_watched
from kernelgym.judge.out_of_memory import lacked_memory
from kernelgym.judge.outcome import End, JudgeOutcome
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.retries import Failure
from kernelgym.judge.session.advice import interpreted_advice
from kernelgym.judge.session.launcher import Processes
from kernelgym.judge.session.live_run import Case, LiveRun
from kernelgym.judge.session.session import Rejected, Session
from kernelgym.judge.tensors import bytes_of
from kernelgym.judge.timing.timer import Timer
from kernelgym.languages import LANGUAGES, REFERENCE_LANGUAGE, is_interpreted
from kernelgym.types import Status

__all__ = ["Attempt", "Equipment"]

_Elsewhere = tuple[
    Callable[[], AbstractContextManager[Session]],
    Callable[[Session], None],
    Callable[[], Reference],
]


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a worker judges kernels with."""

    timing: bool
    """Whether correct kernels are timed, in languages that can be timed."""
    device: str
    """The device's name: ``cpu``, or for example ``cuda:0``."""
    accelerator: Accelerator
    """The device as the worker sees it."""
    processes: Processes
    """Opens processes on the device."""
    public: PublicCalls
    """Inputs and reference outputs of calls under public seeds."""
    timer: Timer
    """Times kernels."""
    front_end: FrontEnd
    """Asks Triton's front end about interpreted launches."""


class Attempt:
    """One attempt at judging a kernel. Call `outcome` once.

    Args:
        equipment: What the kernel is judged with.
        case: The kernel, its problem, the ruleset and the seeds.
        watched: Whether one of the judged calls may be watched, if the kernel allows that
            (`can_be_watched`).
    """

    def __init__(self, equipment: Equipment, case: Case, watched: bool = False) -> None:
        self._equipment, self._case, self._kernel = equipment, case, case.kernel
        self._ruleset, self._accelerator = case.ruleset, equipment.accelerator
        self._processes, self._clock = equipment.processes, equipment.accelerator.clock
        # The reference in a kernel's place has no kernel of its own. Refused for that, it would
        # never show that the device computes, and no kernel could be blamed for a lost worker.
        is_reference = case.kernel.language == REFERENCE_LANGUAGE
        self._needs_evidence = self._ruleset.require_custom_kernel and not is_reference
        self._may_watch = watched and self._needs_evidence and can_be_watched(case.kernel)
        self._watch: Watch | None = None
        self._outcome = JudgeOutcome()

    @property
    def was_watched(self) -> bool:
        """Whether a judged call was watched."""
        return self._watch is not None and self._watch.begun

    def outcome(self) -> JudgeOutcome:
        """Judge the kernel.

        Raises:
            JudgeError: If the judge fails.
        """
        kernel, clock, outcome = self._kernel, self._clock, self._outcome
        if self._accelerator.is_alone:
            # Examine the problem before a kernel takes memory: the device may not hold both.
            self._reference()
        with clock.stage("load"), self._processes.open(kernel.language, kernel.source) as session:
            session.public = None if self._ruleset.secret_seed else self._equipment.public
            try:
                if self._may_watch:
                    prepare(session)
                session.model.load(kernel.source, "ModelNew")
                with (
                    self._accelerator.room(self._case.problem),
                    self._accelerator.device_lock.shared(),
                ):
                    run = LiveRun(self._case, self._reference(), session)
                    # Free the memory used to examine the problem: other workers need it.
                    self._accelerator.tidy()
                if self._may_watch:
                    self._watch = Watch(run, clock)
                with ExitStack() as stack:
                    self._judge(stack, run)
            except Rejected as end:
                outcome.end = End.of(end)
            outcome.loaded, outcome.log = session.model.loaded, session.channel.log()
            if not session.channel.build_failed:
                outcome.build = build_of(session.channel.made.values())
                with contextlib.suppress(OSError):  # a note for later, not worth a verdict
                    self._processes.note_builds(kernel, session)
            return outcome

    def _reference(self) -> Reference:
        reference = Reference(
            self._case.problem,
            self._ruleset,
            self._case.seeds,
            self._equipment.device,
            self._accelerator.shares_device,
        )
        reference.prepare()
        return reference

    def _judge(self, stack: ExitStack, run: LiveRun) -> None:
        """Run the kernel; hold its device memory until `stack` closes."""
        session, outcome = run.session, self._outcome
        outcome.calls.planned = len(run.reference.plan)
        try:
            session.model.await_load()
            stack.enter_context(self._accelerator.room(run.case.problem))
            # One share of the device lock, from the first call until just before timing: a worker
            # that gave it up in between would wait for every other worker's timing. The contexts
            # of processes on standby are made while the share is held.
            share = stack.enter_context(ExitStack())
            if self._accelerator.on_cuda:
                stack.callback(self._clear, session)
            share.enter_context(self._accelerator.device_lock.shared())
            if self._accelerator.on_cuda:
                share.callback(self._processes.settle)
            with self._clock.stage("check"):
                self._processes.ask_for_contexts()
                session.model.construct(run.reference)
                self._call(run)
                self._check_launches(session)
            if outcome.refusal is not None:
                return
            outcome.noticed = (*session.findings(self._kernel), *run.reference.findings())
            if outcome.calls.failed:
                return
            if self._needs_evidence and not self._is_custom(run):
                return
            if self._is_timed():
                with self._clock.stage("timing"):
                    outcome.timing = self._equipment.timer.timed(run, share)
        except Rejected as end:
            outcome.end = End.of(end)
        except Exception as full:
            # On a shared device other workers may hold the memory: only the retry, which has the
            # device's memory alone, decides whether the kernel is at fault.
            if not lacked_memory(full) or self._accelerator.shares_device:
                raise
            traceback.clear_frames(full.__traceback__)  # the frames keep tensors allocated
            if not self._has_room_without(run):
                raise
            message = "its process took so much device memory that the reference had none left"
            said = f"{message}: {full}"
            outcome.end = End(Status.RUNTIME_ERROR, said, failure=Failure.MEMORY)

    def _call(self, run: LiveRun) -> None:
        """Make the judged calls, until one fails."""
        watch, calls = self._watch, self._outcome.calls
        for index in range(calls.planned):
            call = run.session.call(run.reference, index) if watch is None else watch.call(index)
            calls.add(index, call)
            if not call.passed and self._ruleset.stop_at_first_failure:
                break
        if watch is not None:
            watch.end()
        if calls.mismatch is not None and self._is_interpreted("gpu"):
            told = interpreted_advice(self._kernel.source, bool(calls.mismatch.nonfinite))
            calls.complaint += f"; {told}" if told else ""

    def _check_launches(self, session: Session) -> None:
        """Ask Triton's front end whether it would compile what was interpreted."""
        target = self._ruleset.front_end
        if not target or not is_interpreted(self._kernel.language, self._equipment.device):
            return
        self._outcome.checked_for = target
        try:
            self._equipment.front_end.check(session, self._kernel, target)
        except Rejected as end:
            self._outcome.refusal = End.of(end)

    def _is_interpreted(self, how: str) -> bool:
        """Return True if the kernel is interpreted here, and in this way."""
        interpreted = is_interpreted(self._kernel.language, self._equipment.device)
        return interpreted and self._ruleset.interpreter == how

    def _is_custom(self, run: LiveRun) -> bool:
        """Check evidence that the custom kernel, not torch, did the work."""
        outcome = self._outcome
        outcome.library = run.session.channel.library_work
        if outcome.library.hidden:
            return False
        evidence = None if self._watch is None else self._watch.found
        with self._clock.stage("evidence"):
            evidence = evidence or self._evidence(run)
        outcome.evidence = with_launches(evidence, run.session.tally, self._kernel)
        if outcome.evidence.complaint:
            return False
        if self._ruleset.ask_nan and run.session.channel.assumes_finite:
            with self._clock.stage("evidence"):
                lost = lost_nan(run.case, *self._elsewhere(run), self._accelerator.canary)
            outcome.noticed = (*outcome.noticed, *filter(None, (lost,)))
        return True

    def _evidence(self, run: LiveRun) -> Evidence:
        """Gather evidence from a second process."""
        library = self._outcome.library or NOTHING_LEFT
        evidence = gather(run.case, *self._elsewhere(run), library)
        if evidence.crashed:
            self._accelerator.canary()
        return evidence

    def _elsewhere(self, run: LiveRun) -> _Elsewhere:
        """Return how to open and load a second process, with a reference."""
        run.session.buffers.vacate()  # memory is budgeted for one process's inputs and outputs
        kernel = self._kernel

        def unused() -> Reference:
            # A stateful reference changes from call to call, and timing still needs this one as
            # it is now: evidence calls then get a new reference.
            return self._reference() if run.reference.stateful else run.reference

        def load(session: Session) -> None:
            session.model.load(kernel.source, "ModelNew")
            self._processes.ask_for_contexts()  # made while this process compiles the kernel

        def fresh() -> AbstractContextManager[Session]:
            return self._processes.open(kernel.language, kernel.source)

        return fresh, load, unused

    def _is_timed(self) -> bool:
        language = self._kernel.language
        return (
            self._equipment.timing
            and language != REFERENCE_LANGUAGE
            and LANGUAGES[language].is_timed(self._equipment.device)
        )

    def _has_room_without(self, run: LiveRun) -> bool:
        """End the kernel's process; return True if memory then suffices.

        It suffices if the reference can run and the kernel's tensors would fit beside it.

        Raises:
            DeviceFull: If there is too little memory even to run the reference.
        """
        with self._accelerator.between_timings():
            run.session.end()
            torch.cuda.empty_cache()
            inputs = run.reference.inputs(0)
            expected = run.reference.expect(inputs, 0)
            # What the kernel's slots, its output and the judge's copy of it need beside these.
            needed = 2 * bytes_of(inputs) + 3 * bytes_of(expected.output)
            torch.cuda.empty_cache()
            return bool(torch.cuda.mem_get_info(self._accelerator.device)[0] >= needed)

    def _clear(self, session: Session) -> None:
        """Free a kernel's and its comparison's memory before another kernel needs it."""
        if session.ended and not self._accelerator.is_untidy():
            return  # freed after timing: another wait for the device lock would take long
        with self._accelerator.between_timings():
            # `Process.__exit__` discards the process and handles a failure to end it.
            with contextlib.suppress(JudgeError):
                session.end()
            self._accelerator.tidy()
