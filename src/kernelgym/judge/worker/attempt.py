"""Judges one kernel, or several of one problem, in fresh processes: load, compare, watch, time.

Contract: each candidate runs in a process of its own. Everything in this module is trusted code,
which judges the bytes that the candidate left, by the worker's own clock.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.compiling.library_cache import build_of
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.evidence.evidence import gather, prepare, with_launches
from kernelgym.judge.evidence.finite_math import lost_nan
from kernelgym.judge.evidence.front_end import FrontEnd
from kernelgym.judge.evidence.inline import InlineWatch, can_be_watched
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.out_of_memory import lacked_memory
from kernelgym.judge.outcome import JudgedCalls, JudgeOutcome, RunEnd, TimingOutcome
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.starting import StartingKernelFailed
from kernelgym.judge.retries import Failure
from kernelgym.judge.session.advice import config_advice, interpreted_advice
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.launcher import CandidateProcesses
from kernelgym.judge.session.live_run import JudgedCase, LiveRun, Rerun
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.session.starting import StartingProcess
from kernelgym.judge.tensors import bytes_of
from kernelgym.judge.timing.timer import Timer
from kernelgym.languages import LANGUAGES, REFERENCE_LANGUAGE, is_interpreted
from kernelgym.rulesets import Ruleset
from kernelgym.starting_kernel import standard_of
from kernelgym.types import Finding, Kernel, Problem, Severity, Status
from kernelgym.verdict import CUDA_ON_CPU, INTERPRETER_CHECK

_MOST_FOR_CONFIGS = 8  # calls beyond the planned ones


@dataclass(frozen=True, slots=True)
class Equipment:
    """Device, processes and tools with which a worker judges kernels."""

    timing: bool
    """Whether correct kernels are timed, in languages that can be timed."""
    device: str
    """Name of the device: ``cpu``, or for example ``cuda:0``."""
    accelerator: Accelerator
    """Device as the worker sees it: its locks, memory and clock."""
    processes: CandidateProcesses
    """Opener of sandboxed processes on the device."""
    public: PublicCalls
    """Inputs and reference outputs of calls under public seeds."""
    timer: Timer
    """Timer of correct kernels."""
    front_end: FrontEnd
    """Check of interpreted launches by Triton's front end."""
    starting: StartingProcess
    """Process that runs the starting kernel of a problem that has one."""

    def reference(self, problem: Problem, ruleset: Ruleset, seeds: Seeds) -> Reference:
        """Return a problem's reference, prepared under given seeds."""
        shares_device, answers = self.accelerator.shares_device, self.starting.answer
        reference = Reference(problem, ruleset, seeds, self.device, shares_device, answers)
        reference.prepare()
        return reference

    def times(self, kernels: Sequence[Kernel]) -> bool:
        """Return True if correct kernels like these are timed here."""
        return self.timing and all(
            kernel.language != REFERENCE_LANGUAGE
            and LANGUAGES[kernel.language].is_timed(self.device)
            for kernel in kernels
        )


_NAMES_CUDA = re.compile(r"is_cuda|\.cuda\(|torch\.cuda|[\"']cuda\b|driver\.active|\.device\.type")
_CHECKED = ("IndexError: out-of-bounds ", "DataRaceError: ", "StreamOrderError: ")


class Attempt:
    """One attempt at judging a kernel, or a round of several kernels of one problem.

    Each kernel has a fresh process, and all get the same weights and inputs. Several kernels are
    timed in turns. Evidence is gathered of a single kernel only, so a round does not replace a
    full verdict. Until it is timed, a kernel's process sees the same in both, so that it cannot
    tell them apart. Call `outcomes` once.

    Args:
        equipment: The worker's equipment.
        cases: Each kernel, with the problem, the ruleset and the seeds, which all share.
        watched: Whether one of the judged calls may be watched, if the kernel allows that
            (`can_be_watched`).
    """

    def __init__(
        self, equipment: Equipment, cases: Sequence[JudgedCase], watched: bool = False
    ) -> None:
        self._equipment, self._cases, case = equipment, cases, cases[0]
        self._problem, self._ruleset, self._seeds = case.problem, case.ruleset, case.seeds
        self._accelerator, self._processes = equipment.accelerator, equipment.processes
        self._clock = equipment.accelerator.clock
        # The reference in a kernel's place has no kernel of its own. Refused for that, it would
        # never show that the device computes, and no kernel could be blamed for a lost worker.
        is_reference = case.kernel.language == REFERENCE_LANGUAGE
        self._must_be_custom = self._ruleset.require_custom_kernel and not is_reference
        self._needs_evidence = self._must_be_custom and len(cases) == 1
        self._may_watch = watched and self._needs_evidence and can_be_watched(case.kernel)
        self._watch: InlineWatch | None = None
        self._outcomes = tuple(JudgeOutcome() for _ in cases)

    @property
    def was_watched(self) -> bool:
        """Whether one of the judged calls was watched for evidence."""
        return self._watch is not None and self._watch.begun

    def outcomes(self) -> tuple[JudgeOutcome, ...]:
        """Judge the kernels; return each one's outcome.

        A round ends at the first kernel that fails otherwise than by a wrong output. No outcome
        of a round has a timing if the problem's reference keeps state: one process of the
        reference cannot be in the state of several kernels.

        Raises:
            JudgeError: If the judge fails.
        """
        try:
            return self._judged()
        except StartingKernelFailed as failed:
            if self._accelerator.on_cuda:
                with self._accelerator.between_timings():
                    self._accelerator.canary()
            end = RunEnd(Status.UNAVAILABLE, str(failed))
            return tuple(JudgeOutcome(end=end) for _ in self._cases)

    def _judged(self) -> tuple[JudgeOutcome, ...]:
        if self._accelerator.is_alone:
            # Examine the problem before a kernel takes memory: the device may not hold both.
            self._reference()
        with self._clock.stage("load"), ExitStack() as opened:
            sessions = [
                opened.enter_context(self._processes.open(case.kernel.language, case.kernel.source))
                for case in self._cases
            ]
            try:
                runs = self._begin(sessions)
                with ExitStack() as stack:
                    if len(runs) == 1 or not runs[0].reference.stateful:
                        self._judge(stack, runs)
            except Rejected as end:
                self._outcomes[end.kernel].end = RunEnd.of(end)
            for case, session, outcome in zip(self._cases, sessions, self._outcomes, strict=True):
                outcome.note(*self._unlike_a_gpu(case.kernel, outcome))
                outcome.loaded, outcome.log = session.model.loaded, session.channel.log()
                if not session.channel.build_failed:
                    outcome.build = build_of(session.channel.made.values())
                    with contextlib.suppress(OSError):  # a note for later, not worth a verdict
                        self._processes.note_builds(case.kernel, session)
        if len(self._cases) > 1 and not all(outcome.is_right for outcome in self._outcomes):
            untimed = TimingOutcome(untimed="a kernel that it was compared with failed")
            for outcome in self._outcomes:
                outcome.timing = outcome.timing or untimed
        return self._outcomes

    def _reference(self) -> Reference:
        return self._equipment.reference(self._problem, self._ruleset, self._seeds)

    def _begin(self, sessions: Sequence[CandidateSession]) -> list[LiveRun]:
        """Send the kernels to their processes; prepare the reference in the meantime."""
        for case, session in zip(self._cases, sessions, strict=True):
            session.public = None if self._ruleset.secret_seed else self._equipment.public
            if self._may_watch:
                prepare(session)
            session.model.load(case.kernel.source, "ModelNew")
        with self._accelerator.room(self._problem), self._accelerator.device_lock.shared():
            reference = self._reference()
            # Free the memory used to examine the problem: other workers need it.
            self._accelerator.tidy()
        pairs = zip(self._cases, sessions, strict=True)
        runs = [LiveRun(case, reference, session) for case, session in pairs]
        if self._may_watch:
            self._watch = InlineWatch(runs[0], self._clock)
        return runs

    def _judge(self, stack: ExitStack, runs: list[LiveRun]) -> None:
        """Run the kernels; hold their device memory until `stack` closes."""
        for outcome in self._outcomes:
            outcome.calls.planned = len(runs[0].reference.plan)
            outcome.calls.standard = standard_of(self._problem)
        try:
            for number, run in enumerate(runs):
                with _blamed(number):
                    run.session.model.await_load()
            stack.enter_context(self._accelerator.room(self._problem, len(runs)))
            # One share of the device lock, from the first call until just before timing: a worker
            # that gave it up in between would wait for every other worker's timing. The contexts
            # of processes on standby are made while the share is held.
            share = stack.enter_context(ExitStack())
            if self._accelerator.on_cuda:
                stack.callback(self._clear, [run.session for run in runs])
            share.enter_context(self._accelerator.device_lock.shared())
            if self._accelerator.on_cuda:
                share.callback(self._processes.settle)
            with self._clock.stage("check"):
                self._processes.ask_for_contexts()
                for number, run in enumerate(runs):
                    with _blamed(number):
                        self._check(run, self._outcomes[number])
            if not all(outcome.is_right for outcome in self._outcomes):
                return
            if self._needs_evidence and not self._is_custom(runs[0], self._outcomes[0]):
                return
            if self._equipment.times([case.kernel for case in self._cases]):
                with self._clock.stage("timing"):
                    watched = self._outcomes[0].evidence if len(runs) == 1 else None
                    found = self._equipment.timer.timed(runs, share, watched)
                for outcome, timing in zip(self._outcomes, found, strict=True):
                    outcome.timing = timing
        except Rejected as end:
            self._outcomes[end.kernel].end = RunEnd.of(end)
        except Exception as full:
            # On a shared device other workers may hold the memory: only the retry, which has the
            # device's memory alone, decides whether the kernel is at fault.
            shared = self._accelerator.shares_device or len(runs) > 1
            if not lacked_memory(full) or shared:
                raise
            traceback.clear_frames(full.__traceback__)  # the frames keep tensors allocated
            if not self._has_room_without(runs[0]):
                raise
            message = "its process took so much device memory that the reference had none left"
            said = f"{message}: {full}"
            self._outcomes[0].end = RunEnd(Status.RUNTIME_ERROR, said, failure=Failure.MEMORY)

    def _check(self, run: LiveRun, outcome: JudgeOutcome) -> None:
        """Construct a kernel's model and make its judged calls.

        In a round its process is halted afterwards and holds no buffers, so that the next
        kernel's calls have the device.
        """
        session, reference = run.session, run.reference
        if len(self._cases) > 1:
            reference.begin_state()  # an earlier kernel's calls have renewed it
        session.model.construct(reference)
        self._call(run, outcome)
        self._check_launches(run, outcome)
        if outcome.refusal is not None:
            return
        flaw = reference.flaw
        if (self._must_be_custom or reference.start is not None) and flaw is not None:
            # A wrong output stays wrong, unless the reference itself is not to be relied on.
            if not outcome.calls.failed or flaw.code == "nondeterministic_reference":
                outcome.end = RunEnd(Status.UNAVAILABLE, flaw.message, findings=(flaw,))
                return
        found = (*session.findings(run.case.kernel), *reference.findings())
        outcome.noticed = (*outcome.noticed, *found)
        if self._must_be_custom:
            outcome.library = session.channel.library_work
        if len(self._cases) > 1:
            session.rest()

    def _call(self, run: LiveRun, outcome: JudgeOutcome) -> None:
        """Make the judged calls, until one fails in a way that decides the verdict.

        Only the first mismatch is explained. After a failure no call is watched: the kernel needs
        no evidence any more. A failure in or after a watched call ends the attempt, because the
        kernel is then judged again, unwatched.
        """
        watch, calls = self._watch, outcome.calls
        for index in range(calls.planned):
            if watch is None or calls.failed:
                call = run.session.call(run.reference, index, explain=calls.mismatch is None)
            else:
                call = watch.call(index)
            calls.add(index, call)
            if not call.passed and (self._ruleset.stop_at_first_failure or self.was_watched):
                break
        if watch is not None:
            watch.end()
        self._call_for_configs(run, calls)
        interpreted = is_interpreted(run.case.kernel.language, self._equipment.device)
        if calls.mismatch is not None and interpreted and self._ruleset.interpreter == "gpu":
            source = run.case.kernel.source
            told = interpreted_advice(source, bool(calls.mismatch.nonfinite))
            told = told or (config_advice(source) if calls.passed else "")
            calls.complaint += f"; {told}" if told else ""

    def _call_for_configs(self, run: LiveRun, calls: JudgedCalls) -> None:
        """Make more judged calls while an autotuned kernel has configs that no call has used."""
        for _ in range(_MOST_FOR_CONFIGS):
            if calls.failed or not run.session.untried:
                return
            calls.planned += 1
            calls.add(calls.planned - 1, run.session.call(run.reference, calls.planned - 1))

    def _check_launches(self, run: LiveRun, outcome: JudgeOutcome) -> None:
        """Check that Triton's front end would compile the launches that were interpreted."""
        kernel, target = run.case.kernel, self._ruleset.front_end
        if not target or not is_interpreted(kernel.language, self._equipment.device):
            return
        outcome.checked_for = target
        try:
            self._equipment.front_end.check(run.session, kernel, target)
        except Rejected as end:
            outcome.refusal = RunEnd.of(end)

    def _unlike_a_gpu(self, kernel: Kernel, outcome: JudgeOutcome) -> tuple[Finding, ...]:
        """Return findings on behaviour of an interpreted kernel that may differ on a GPU."""
        found = []
        if not is_interpreted(kernel.language, self._equipment.device):
            return ()
        if self._ruleset.cuda_on_cpu and _NAMES_CUDA.search(kernel.source):
            message = (
                "the kernel names the device cuda, which meant the CPU here: guards passed, "
                "and tensors stayed on the CPU; judge it on a GPU to be sure"
            )
            found.append(Finding(CUDA_ON_CPU, message, Severity.SOFT))
        if outcome.end is not None and outcome.end.message.startswith(_CHECKED):
            message = (
                "the interpreter checks every access and the order of streams, which a GPU does "
                "not: there such a kernel returns right or wrong values by chance, or ends with an "
                "error"
            )
            found.append(Finding(INTERPRETER_CHECK, message, Severity.INFO))
        return tuple(found)

    def _is_custom(self, run: LiveRun, outcome: JudgeOutcome) -> bool:
        """Check evidence that the custom kernel, not torch, did the work."""
        evidence = None if self._watch is None else self._watch.found
        with self._clock.stage("evidence"):
            if evidence is None:
                evidence = gather(self._rerun(run))
                if evidence.crashed:
                    self._accelerator.canary()
        outcome.evidence = with_launches(evidence, run.session.tally, run.case.kernel)
        if outcome.evidence.complaint:
            return False
        if self._ruleset.ask_nan and run.session.channel.assumes_finite:
            with self._clock.stage("evidence"):
                lost = lost_nan(self._rerun(run), self._accelerator.canary)
            outcome.noticed = (*outcome.noticed, *filter(None, (lost,)))
        return True

    def _rerun(self, run: LiveRun) -> Rerun:
        """Return a function that runs a kernel again, in a second process."""
        run.session.buffers.vacate()  # memory is budgeted for one process's inputs and outputs
        kernel = run.case.kernel
        # A stateful reference changes from call to call, and timing still needs this one as it is
        # now: the second process then gets a new reference.
        return Rerun(
            run.case,
            open=lambda: self._processes.open(kernel.language, kernel.source),
            reference=self._reference if run.reference.stateful else lambda: run.reference,
            while_loading=self._processes.ask_for_contexts,
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

    def _clear(self, sessions: Sequence[CandidateSession]) -> None:
        """Free the memory of kernels and comparisons before another kernel needs it."""
        ended = all(session.ended for session in sessions)
        if ended and not self._accelerator.is_untidy():
            return  # freed after timing: another wait for the device lock would take long
        with self._accelerator.between_timings():
            for session in sessions:
                # `CandidateProcesses.open` discards the process and handles a failure to end it.
                with contextlib.suppress(JudgeError):
                    session.end()
            self._accelerator.tidy()


@contextmanager
def _blamed(number: int) -> Iterator[None]:
    """Make a `Rejected` that is raised in the block name its kernel.

    Args:
        number: Index of the kernel among those that are judged together.
    """
    try:
        yield
    except Rejected as end:
        end.kernel = number
        raise
