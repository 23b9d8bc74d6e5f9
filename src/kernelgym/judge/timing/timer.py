"""Time correct kernels against their baseline, and have implausible times confirmed.

Contract: the timer starts the baseline, takes the device lock alone, so that no other process of
the judge works on the device, and has a second process confirm a time that is implausible or that
contradicts the judge's own clock.

Not covered:
- windows, pairs and the two clocks: `kernelgym.judge.timing.measure`;
- which baseline: `kernelgym.judge.timing.baselines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from kernelgym.errors import JudgeError
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.evidence.evidence import Evidence, in_timed_calls, runs_faster
from kernelgym.judge.outcome import TimingOutcome
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.retries import Failure
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.launcher import CandidateProcesses
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.tensors import tensors_of
from kernelgym.judge.timing import speedup
from kernelgym.judge.timing.baselines import Baselines
from kernelgym.judge.timing.measure import Measurement, Stopwatch
from kernelgym.judge.timing.windows import Untimed
from kernelgym.rulesets import Ruleset
from kernelgym.types import Finding, Severity, Status
from kernelgym.verdict import CLOCK_MISMATCH, UNCONFIRMED_SPEED

_OUTLASTED = 1.5  # times a kernel's limit: by then a kernel that hangs on the device was killed


class Timer:
    """Times correct kernels on one device.

    Args:
        ruleset: The rules.
        accelerator: The device.
        processes: Opens processes on it.
        baselines: What kernels are timed against.
    """

    def __init__(
        self,
        ruleset: Ruleset,
        accelerator: Accelerator,
        processes: CandidateProcesses,
        baselines: Baselines,
    ) -> None:
        self._ruleset, self._accelerator, self._processes = ruleset, accelerator, processes
        self._baselines = baselines
        self._alone_ms: dict[tuple[str, str], float] = {}

    def timed(
        self, runs: Sequence[LiveRun], share: ExitStack, watched: Evidence | None = None
    ) -> list[TimingOutcome]:
        """Time correct kernels of one problem, under one hold of the device lock.

        A second process must confirm an implausible time of a single kernel. Nothing confirms
        those of several: callers that compare kernels do so in several processes of each.

        Args:
            runs: The kernels' processes and their one reference.
            share: Gives up the caller's share of the device lock when it is closed. The timer
                closes it before it times anything.
            watched: Evidence of a single kernel, which its timed calls must agree with.

        Returns:
            Each kernel's timing, or why it has none.

        Raises:
            Rejected: If a kernel fails, or gives a wrong output, while it is timed.
            JudgeError: If the judge fails.
        """
        moved = self._moved_bytes(runs[0].session)
        try:
            measured = self._measure(runs, share, watched)
            if hard := [found for found in measured[0].findings if found.severity is Severity.HARD]:
                return [TimingOutcome(idle=hard[0])]
            floor_ms = self._accelerator.floor_ms(moved)
            if len(runs) == 1:
                measured = [self._believed(measured[0], runs[0], floor_ms)]
            elif any(each.disputed for each in measured):
                raise Untimed("a kernel's clock contradicts the judge's")
        except Untimed as reason:
            untimed = TimingOutcome(untimed=str(reason), findings=reason.findings)
            return [replace(untimed, idle=_idle(run)) for run in runs]
        outcomes = []
        for run, found in zip(runs, measured, strict=True):
            timing = found.timing
            if self._accelerator.on_cuda:  # the CPU's floor is its caches', not its memory's
                timing = replace(timing, floor_ms=floor_ms, moved_bytes=moved)
            outcomes.append(TimingOutcome(timing, findings=found.findings, idle=_idle(run)))
        return outcomes

    def _believed(self, measured: Measurement, run: LiveRun, floor_ms: float) -> Measurement:
        """Return the measurement that counts, after a second process confirms a doubtful one.

        Raises:
            Untimed: If no time can be believed.
            Rejected: If the kernel fails in the second process.
        """
        if measured.disputed:
            measured = self._settled(measured, run)
        doubt = speedup.suspicion(measured.timing, floor_ms, self._ruleset.timing)
        return self._confirm(measured, doubt, run) if doubt else measured

    def _measure(
        self, runs: Sequence[LiveRun], share: ExitStack, watched: Evidence | None = None
    ) -> list[Measurement]:
        sessions, reference = [run.session for run in runs], runs[0].reference
        eager = self._ruleset.timing.baseline == "eager"
        if not eager:
            share.close()
            if len(runs) == 1:  # kernels of a round rest already
                sessions[0].rest()  # while the baseline is compiled and chosen
        limit_s, calm = self._ruleset.limits.run_s, self._accelerator.between_timings
        resting = ExitStack()
        try:
            with share:
                baseline, kind = self._baselines.start(resting, reference)
                for session in sessions:
                    session.channel.grant(limit_s)
                stopwatch = Stopwatch(runs, baseline)
                if eager:
                    self._accelerator.make_room()  # comparing outputs has filled torch's cache
                    stopwatch.lay_out()
            with self._accelerator.quiet(_OUTLASTED * limit_s) as ours:
                for session in sessions:
                    session.channel.grant(limit_s)
                if not ours:
                    message = (
                        "the device is busy with another program's work, or with work that a "
                        "kernel left behind; a time measured now would include it"
                    )
                    raise Untimed(message, (Finding("device_shared", message, Severity.SOFT),))
                measured = stopwatch.measure()
                if watched is not None and runs_faster(watched, measured[0].timing.kernel_ms):
                    seen, calls = stopwatch.graph_kernels(0)
                    if not seen:
                        raise _unexplained(watched, measured[0])
                    if found := in_timed_calls(
                        watched, seen, calls, measured[0].timing.kernel_ms, runs[0].case
                    ):
                        measured = [replace(measured[0], findings=(found,))]
                        return measured
                known = (reference.problem.digest, kind)
                alone_ms = self._alone_ms.get(known, 0.0)
                if not stopwatch.is_clean(measured, alone_ms):
                    for session in sessions:
                        session.end()
                    measured, alone_ms = stopwatch.clean(measured)
                fastest_ms = min(each.timing.reference_ms for each in measured)
                self._alone_ms[known] = min(alone_ms, fastest_ms)
        finally:
            # Held once for all: a second hold would queue behind a worker that is about to time.
            with calm():
                for session in sessions:
                    with suppress(JudgeError):  # `session.end` raises it again below
                        session.begin_end()
                resting.close()
                for session in sessions:
                    session.end()
                self._accelerator.tidy()
        return [replace(each, timing=replace(each.timing, baseline=kind)) for each in measured]

    def _again(self, first: LiveRun) -> Measurement:
        """Time a kernel again, in a second process.

        Raises:
            Untimed: If the kernel cannot be timed.
            Rejected: If it fails there, gives a wrong output, or leaves the work to torch.
        """
        kernel, reference = first.case.kernel, first.reference
        with (
            self._processes.open(kernel.language, kernel.source) as session,
            ExitStack() as share,
        ):
            session.model.load(kernel.source, "ModelNew")
            session.model.await_load()
            share.enter_context(self._accelerator.device_lock.shared())
            self._processes.ask_for_contexts()
            if self._accelerator.on_cuda:
                share.callback(self._processes.settle)
            if reference.stateful:  # the new process starts from the initial state
                reference = self._unused(reference)
            session.model.construct(reference)
            outcome = session.call(reference, 0)
            if not outcome.passed:
                message = f"in the second process, which confirms its time: {outcome.message}"
                raise Rejected(Status.WRONG, message, mismatch=outcome.mismatch)
            run = LiveRun(first.case, reference, session)
            (measured,) = self._measure([run], share)
        if (idle := _idle(run)) is not None:
            message = f"in the second process, which confirms its time, {idle.message}"
            raise Rejected(Status.REJECTED, message, findings=(idle,), failure=Failure.IDLE)
        return measured

    def _unused(self, reference: Reference) -> Reference:
        device = str(self._accelerator.device)
        shares_device = self._accelerator.shares_device
        fresh = Reference(reference.problem, self._ruleset, reference.seeds, device, shares_device)
        fresh.prepare()
        return fresh

    def _settled(self, first: Measurement, run: LiveRun) -> Measurement:
        """Return the measurement that counts after the kernel's clock was disputed.

        The overhead of a window differs a little between processes, honest ones included, so one
        dispute proves nothing. A kernel that falsifies its clock does so in every process: if the
        second process's clock is not disputed, its time counts. If both are disputed, a kernel on
        a GPU stays untimed: there, a clock that is wrong twice lies. On the CPU, where other
        programs disturb both clocks, the faster by the judge's clock counts if the two speedups
        agree, because what slows down one process is no property of the kernel. If they do not
        agree, the slower counts.

        Raises:
            Untimed: On a GPU, if both clocks are disputed, or the second process is not timed, for
                the reason it gives, or fails.
        """
        try:
            second = self._again(run)
        except Untimed:
            if self._accelerator.on_cuda:
                raise  # what kept it from being timed, such as another program, is its reason
            return first
        except Rejected as end:
            if end.status in (Status.TIMEOUT, Status.RUNTIME_ERROR):
                # The judge asked for this run: a kernel that was right keeps its verdict.
                return self._unsettled(first)
            raise
        if second.disputed:
            return self._unsettled(self._shorter(first, second))
        kept = [f for f in first.findings if f.severity is not Severity.INFO]
        (complaint,) = (found for found in kept if found.code == CLOCK_MISMATCH)
        message = f"{complaint.message}; a second process's clock was right"
        known = {CLOCK_MISMATCH, *(found.code for found in second.findings)}
        findings = (*second.findings, *(found for found in kept if found.code not in known))
        confirmed = Finding("clock_confirmed", message, Severity.INFO)
        return replace(second, findings=(*findings, confirmed))

    def _unsettled(self, measured: Measurement) -> Measurement:
        """Return a disputed measurement on the CPU.

        Raises:
            Untimed: On a GPU.
        """
        if not self._accelerator.on_cuda:
            return measured
        raise Untimed(
            "the kernel's clock contradicts the judge's, and a second process did not settle it",
            tuple(found for found in measured.findings if found.code == CLOCK_MISMATCH),
        )

    def _shorter(self, first: Measurement, second: Measurement) -> Measurement:
        """Return the faster measurement if the two agree, else the slower."""
        slower, faster = sorted((first, second), key=lambda measured: measured.timing.speedup)
        near = 1 + self._ruleset.timing.quarantine_agreement
        same = slower.timing.baseline == faster.timing.baseline
        return faster if same and faster.timing.speedup <= near * slower.timing.speedup else slower

    def _confirm(self, first: Measurement, doubt: str, run: LiveRun) -> Measurement:
        second = self._again(run)
        if second.disputed and not first.disputed:
            second = self._again(run)
            if second.disputed:
                second = self._unsettled(second)
        found = f"{doubt}; a second process measured {second.timing.speedup:.3g}"
        ratio = second.timing.speedup / first.timing.speedup
        if abs(ratio - 1) > self._ruleset.timing.quarantine_agreement:
            raise Untimed(
                "two processes disagree on a speedup that is hard to believe",
                (Finding(UNCONFIRMED_SPEED, found, Severity.SOFT),),
            )
        slower = min(first, second, key=lambda measured: measured.timing.speedup_low)
        finding = Finding("speedup_confirmed", found, Severity.INFO)
        return replace(slower, findings=(*slower.findings, finding))

    def _moved_bytes(self, session: CandidateSession) -> int:
        inputs, output = session.buffers.example
        moved = tensors_of([inputs, output]) if self._accelerator.on_cuda else tensors_of(output)
        return int(sum(t.numel() * t.element_size() for t in moved))


def _idle(run: LiveRun) -> Finding | None:
    """Return the finding on timed calls without custom kernels, or None."""
    if not run.case.ruleset.require_custom_kernel:
        return None
    return run.session.tally.finding(run.case.kernel, Severity.HARD, watched=1)


def _unexplained(watched: Evidence, measured: Measurement) -> Untimed:
    """Return the refusal of a time that is far below the device's in the watched call."""
    device_ms = 0.0 if watched.ran is None else watched.ran.total_ms
    message = (
        f"a timed call took {measured.timing.kernel_ms:.4f} ms, but the kernels of a watched call "
        f"{device_ms:.4f} ms; let calls be captured in a CUDA graph, whose kernels can be listed"
    )
    return Untimed(message, (Finding(UNCONFIRMED_SPEED, message, Severity.SOFT),))
