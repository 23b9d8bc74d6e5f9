"""Judge two kernels anew, and time them in turns.

For comparing kernels whose full verdicts were correct. Each gets a fresh process, the same weights
and the same inputs, as many judged calls as a verdict makes, and windows that are verified as a
verdict's are. Evidence is not gathered again: until it is timed, a kernel's process sees what that
of a verdict sees, so that it cannot tell the two apart.

Contract: what a verdict may give a second chance for (a crash, a time limit, too little memory) is
no outcome here: None is returned, and whole verdicts have to tell.
"""

from __future__ import annotations

from contextlib import ExitStack

from kernelgym.judge.compiling.library_cache import build_of
from kernelgym.judge.outcome import End, JudgeOutcome, TimingOutcome
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.session.live_run import Case, LiveRun
from kernelgym.judge.session.session import Session
from kernelgym.judge.timing.in_turns import SideRejected, blamed
from kernelgym.judge.timing.measure import Untimed
from kernelgym.judge.worker.attempt import Equipment
from kernelgym.languages import LANGUAGES, REFERENCE_LANGUAGE
from kernelgym.types import Kernel, Status

__all__ = ["InTurns", "can_take_turns"]

_TELLING = (Status.WRONG, Status.REJECTED)
"""What a kernel comes to that no retry would change."""


def can_take_turns(equipment: Equipment, kernels: tuple[Kernel, Kernel], baseline: str) -> bool:
    """Return True if kernels can be timed in turns here.

    Args:
        equipment: What they are judged with.
        kernels: The kernels.
        baseline: The ruleset's, such as ``eager``.
    """
    return (
        equipment.timing
        and not equipment.accelerator.on_cuda
        and baseline == "eager"
        and all(
            kernel.language != REFERENCE_LANGUAGE
            and LANGUAGES[kernel.language].is_timed(equipment.device)
            for kernel in kernels
        )
    )


class InTurns:
    """Two kernels, each in a fresh process. Call `outcomes` once.

    Args:
        equipment: What the kernels are judged with.
        first: The kernel that begins, its problem, the ruleset and the seeds.
        second: The other kernel, of the same problem, ruleset and seeds.
    """

    def __init__(self, equipment: Equipment, first: Case, second: Case) -> None:
        self._equipment, self._cases = equipment, (first, second)
        self._ruleset, self._accelerator = first.ruleset, equipment.accelerator
        self._outcomes = (JudgeOutcome(), JudgeOutcome())

    def outcomes(self) -> tuple[JudgeOutcome, JudgeOutcome] | None:
        """Judge both kernels; None if that takes whole verdicts.

        Raises:
            JudgeError: If the judge fails.
        """
        with ExitStack() as stack:
            opened = [
                stack.enter_context(
                    self._equipment.processes.open(case.kernel.language, case.kernel.source)
                )
                for case in self._cases
            ]
            try:
                timed = self._timed(opened)
            except SideRejected as failed:
                if failed.end.status not in _TELLING:
                    return None
                self._outcomes[failed.side].end = End.of(failed.end)
                timed = True
            except Untimed:
                return None
            if not timed:
                return None
            for outcome, session in zip(self._outcomes, opened, strict=True):
                outcome.loaded, outcome.log = session.model.loaded, session.channel.log()
                outcome.build = build_of(session.channel.made.values())
        untimed = TimingOutcome(untimed="the kernel that it was compared with failed")
        for outcome in self._outcomes:
            outcome.timing = outcome.timing or untimed
        return self._outcomes

    def _timed(self, opened: list[Session]) -> bool:
        """Call both kernels, and time them if both are right.

        Returns:
            False if the problem's reference keeps state.
        """
        accelerator, problem = self._accelerator, self._cases[0].problem
        for case, session in zip(self._cases, opened, strict=True):
            session.public = None if self._ruleset.secret_seed else self._equipment.public
            session.model.load(case.kernel.source, "ModelNew")
        with accelerator.room(problem), accelerator.device_lock.shared():
            reference = Reference(
                problem,
                self._ruleset,
                self._cases[0].seeds,
                self._equipment.device,
                accelerator.shares_device,
            )
            reference.prepare()
        if reference.stateful:
            return False
        for side, session in enumerate(opened):
            with blamed(side):
                session.model.await_load()
        runs = [
            LiveRun(case, reference, session)
            for case, session in zip(self._cases, opened, strict=True)
        ]
        with accelerator.room(problem), accelerator.device_lock.shared():
            for side, run in enumerate(runs):
                with blamed(side):
                    self._call(run, self._outcomes[side])
        if all(self._is_right(outcome) for outcome in self._outcomes):
            found = self._equipment.timer.timed_in_turns(runs[0], runs[1])
            for outcome, timing in zip(self._outcomes, found, strict=True):
                outcome.timing = timing
        return True

    def _call(self, run: LiveRun, outcome: JudgeOutcome) -> None:
        """Make one kernel's judged calls, and leave its process paused."""
        session, reference = run.session, run.reference
        outcome.calls.planned = len(reference.plan)
        session.model.construct(reference)
        for index in range(outcome.calls.planned):
            call = session.call(reference, index)
            outcome.calls.add(index, call)
            if not call.passed and self._ruleset.stop_at_first_failure:
                break
        outcome.noticed = (*session.findings(run.case.kernel), *reference.findings())
        if self._ruleset.require_custom_kernel:
            outcome.library = session.channel.library_work
        session.buffers.vacate()
        session.channel.pause()

    def _is_right(self, outcome: JudgeOutcome) -> bool:
        hidden = outcome.library is not None and outcome.library.hidden
        return not outcome.calls.failed and not hidden
