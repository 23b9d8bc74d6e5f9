"""A trusted worker: judges kernels on one device, one after the other, and retries where due.

Contract: the retries are those of `kernelgym.judge.retries` that stay within one worker; the pool
carries out the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kernelgym.baseline import Baseline
from kernelgym.compile_result import CompileResult
from kernelgym.counters import Counters
from kernelgym.judge.compiling.library_cache import LibraryCache, build_of
from kernelgym.judge.device.accelerator import Accelerator, DeviceLost
from kernelgym.judge.evidence.front_end import FrontEnd
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.out_of_memory import bound_own_memory, lacked_memory
from kernelgym.judge.outcome import Circumstances, JudgeOutcome, verdict_of
from kernelgym.judge.processes.zygote_handle import Zygote
from kernelgym.judge.profiling.profiler import profile_kernel
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.retries import Failure, Retry, RetryChange, RetryCondition, retry_for
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.launcher import CandidateProcesses
from kernelgym.judge.session.live_run import JudgedCase
from kernelgym.judge.session.starting import StartingProcess
from kernelgym.judge.timing.baseline_store import BaselineStore, device_name
from kernelgym.judge.timing.baselines import Baselines
from kernelgym.judge.timing.timer import Timer
from kernelgym.judge.worker.attempt import Attempt, Equipment
from kernelgym.languages import REFERENCE_LANGUAGE, half_of, is_interpreted
from kernelgym.rulesets import Ruleset
from kernelgym.starting_kernel import starting_kernel
from kernelgym.types import Build, Kernel, Problem, Status, Verdict

_Answer = TypeVar("_Answer")
_COMPLAINT = re.compile(r"^(?:advice:.*|.*\b(?:error|fatal)\s*:.*(?:\n[ \t]+\S.*)?)", re.MULTILINE)
"""Pattern of a compiler's complaint with the source line below it, or advice on it."""
_MOST_COMPILED_CALLS = 9  # as many configs of an autotuned kernel are compiled


class Worker:
    """Judges kernels one at a time on one device.

    Args:
        ruleset: The rules.
        timing: Whether correct kernels are timed, in languages that can be timed.
        folder: Cache folder, shared with other workers.
        scratch: This worker's own folder for temporary files.
        tier: Sandbox tier, or ``auto``.
        device: ``cpu``, or for example ``cuda:0``.
        caller_device: The caller's name for the device, whose processes may see other devices;
            `device` if empty.
        standby: Number of processes that `prepare_ahead` keeps ready for each zygote.
        workers_on_device: Number of workers that share the device, this one included.
        starting: A zygote that is starting already, or None.
        memory_bytes: Most memory that judging one kernel may take; 0 sets no limit.

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
        caller_device: str = "",
        standby: int = 1,
        workers_on_device: int = 1,
        starting: Zygote | None = None,
        memory_bytes: int = 0,
    ) -> None:
        self._ruleset, self._caller_device, self._standby = (
            ruleset,
            caller_device or device,
            standby,
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._scratch = folder, scratch
        self._accelerator = Accelerator(
            device, folder, self._caller_device, workers_on_device * (standby - 1), memory_bytes
        )
        self._on_cuda = self._accelerator.on_cuda
        self._processes = CandidateProcesses(
            ruleset, self._accelerator, folder, scratch, tier, device, starting
        )
        self._accelerator.device_lock.before_release = functools.partial(self._settle, ahead=True)
        self._baselines = Baselines(
            BaselineStore(folder / "baselines", ruleset, device_name(self._accelerator.device)),
            ruleset,
            device,
            self._accelerator.device_lock,
            self._processes.open,
            self._caller_device,
            lambda: self._accelerator.shares_device,
        )
        timer = Timer(ruleset, self._accelerator, self._processes, self._baselines)
        self._equipment = Equipment(
            timing=timing,
            device=device,
            accelerator=self._accelerator,
            processes=self._processes,
            public=PublicCalls(self._accelerator.device),
            timer=timer,
            front_end=FrontEnd(self._processes),
            starting=StartingProcess(self._processes.open, ruleset),
        )

    def judge(
        self, problem: Problem, kernels: Sequence[Kernel], seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        """Judge one kernel; or a round of several, without evidence that they did the work.

        Args:
            problem: The problem.
            kernels: The kernels; the first one is timed first.
            seed: Hexadecimal secret of an earlier verdict, to repeat it; empty for a new one.

        Returns:
            Each kernel's verdict. None for a round in which not all kernels were timed, unless one
            was wrong or refused: full verdicts, which may make another attempt, then decide.

        Raises:
            JudgeError: If the judge fails.
            ProblemError: If the device has too little memory for the problem.
        """
        is_round, rules = len(kernels) > 1, self._ruleset
        if is_round and not self._equipment.times(kernels):
            return None
        started, moment = time.monotonic(), time.time()
        seeds = Seeds((seed or secrets.token_hex(16)) if rules.secret_seed else "")
        cases = [JudgedCase(problem, kernel, rules, seeds) for kernel in kernels]
        self._processes.fit(problem)
        for kernel in (*kernels, *filter(None, [starting_kernel(problem)])):
            self._processes.begin(kernel.language)
            checks = rules.front_end and is_interpreted(kernel.language, self._equipment.device)
            # Both use a plain process; its zygote takes 5 s if it starts only when it is needed.
            if checks or self._equipment.times(kernels):
                self._processes.begin(REFERENCE_LANGUAGE)
        # Before the zygote is waited for: the check's first imports run while the zygote starts.
        self._accelerator.check_room(problem)
        if is_round and not self._accelerator.holds(problem, len(kernels)):
            return None
        tiers = [self._processes.zygote(kernel.language).tier for kernel in kernels]
        if not self._on_cuda:
            bound_own_memory()
        clock = self._accelerator.clock
        clock.read()
        outcomes = self._retried(
            lambda watched: self._attempt(cases, watched), moment, once=is_round
        )
        broken = (Failure.ERROR, Failure.TIMEOUT, Failure.MEMORY)
        broke = any(outcome.failure in broken for outcome in outcomes)
        if self._on_cuda and (broke or self._is_untidy()):
            with self._accelerator.between_timings():
                if broke:
                    self._accelerator.canary()
                self._accelerator.tidy()
                self._settle()
        wall_s, stages = time.monotonic() - started, clock.read(len(kernels))
        if is_round and not _decide(outcomes):
            return None
        return tuple(
            verdict_of(
                outcome,
                Circumstances(
                    device=self._caller_device,
                    isolation=tier,
                    ruleset=rules.label,
                    seed=seeds.secret,
                    wall_s=round(wall_s / len(kernels), 6),
                    stages=stages,
                ),
            )
            for outcome, tier in zip(outcomes, tiers, strict=True)
        )

    def build(self, kernel: Kernel) -> Build | None:
        """Build a kernel's extensions, without judging it.

        Args:
            kernel: The kernel; its module is loaded, and its model is not constructed.

        Returns:
            Facts on the compiled extensions; None if nothing was built, or the kernel did not load.

        Raises:
            JudgeError: If the judge fails.
        """
        self._processes.zygote(kernel.language)
        with self._processes.open(kernel.language, kernel.source) as session:
            try:
                session.model.load(kernel.source, "ModelNew")
                session.model.await_load()
            except Rejected:
                return None
            self._processes.note_builds(kernel, session)
            return build_of(session.channel.made.values())

    def compile_only(self, problem: Problem, kernel: Kernel) -> CompileResult:
        """Compile a kernel for the ruleset's GPU (`Ruleset.front_end`) without judging it.

        The model is called in an interpreter, once, or once more for each config of an autotuned
        kernel: its launches say which types and constants the compiler is given. A wrong output is
        no complaint.

        Args:
            problem: The problem, whose inputs the kernel is called on.
            kernel: A kernel in a language that an interpreter runs on this device, or that builds
                extensions: those are built while the module loads, and not loaded.

        Raises:
            JudgeError: If the judge fails.
        """
        self._processes.fit(problem)
        self._processes.zygote(kernel.language)
        if half_of(kernel.language):
            return self._compile_beside(problem, kernel)
        if not is_interpreted(kernel.language, self._equipment.device):
            return self._build_only(kernel)
        if not self._on_cuda:
            bound_own_memory()
        seeds = Seeds(secrets.token_hex(8))
        told: tuple[str, ...] = ()
        with self._processes.open(kernel.language, kernel.source) as session:
            session.model.load(kernel.source, "ModelNew")
            try:
                session.model.await_load()
                reference = self._equipment.reference(problem, self._ruleset, seeds)
                session.model.construct(reference)
                for index in range(_MOST_COMPILED_CALLS):
                    session.call(reference, index, explain=False)
                    if not session.untried:
                        break
            except Rejected as end:
                told = (str(end),)
                if not session.model.loaded or session.channel.has_ended():
                    return CompileResult(0, told)
            found = self._equipment.front_end.compile(session, kernel, self._ruleset.front_end)
        return dataclasses.replace(found, complaints=(*found.complaints, *told))

    def _compile_beside(self, problem: Problem, kernel: Kernel) -> CompileResult:
        """Compile the launches of one call in the candidate's process, without making them.

        The language's own module (`Language.half`) has them compiled for the ruleset's GPU.
        """
        if not self._on_cuda:
            bound_own_memory()
        seeds = Seeds(secrets.token_hex(8))
        with self._processes.open(kernel.language, kernel.source) as session:
            session.model.load(kernel.source, "ModelNew", target=self._ruleset.front_end)
            told: tuple[str, ...] = ()
            try:
                session.model.await_load()
                reference = self._equipment.reference(problem, self._ruleset, seeds)
                session.model.construct(reference)
                session.call(reference, 0, explain=False)
            except Rejected as end:
                told = (end.log or str(end),)
                if session.channel.has_ended():
                    return CompileResult(0, told)
            session.channel.post({"op": "compiled"})
            answer = session.channel.answer("compiled").get("compiled")
            return CompileResult(answer if isinstance(answer, int) else 0, told)

    def _build_only(self, kernel: Kernel) -> CompileResult:
        """Build a kernel's extensions for the ruleset's GPU, without loading them."""
        target = self._ruleset.front_end
        with self._processes.open(kernel.language, kernel.source, target=target) as session:
            session.model.load(kernel.source, "ModelNew")
            told: tuple[str, ...] = ()
            try:
                session.model.await_load()
            except Rejected as end:
                told = tuple(dict.fromkeys(_COMPLAINT.findall(end.log))) or (str(end),)
            return CompileResult(len(session.channel.made), told)

    def profile(
        self, problem: Problem, kernel: Kernel, metrics: Sequence[str], timeout_s: float
    ) -> Counters:
        """Return the hardware counters of one call of a kernel that was correct.

        Args:
            problem: The problem.
            kernel: The kernel.
            metrics: Metrics to read; a default set if empty.
            timeout_s: Seconds that the profile may take.

        Raises:
            JudgeError: If the judge fails.
        """
        tier = self._processes.zygote(kernel.language).tier
        built: Mapping[str, bytes] = {}
        if (folder := self._folder / "builds").is_dir():
            built = LibraryCache(folder).built_for(kernel.digest)
        found = profile_kernel(
            problem, kernel, metrics, timeout_s, self._accelerator, self._scratch, tier, built
        )
        self._accelerator.tidy()
        return found

    def _retried(
        self,
        attempt: Callable[[bool], tuple[_Answer, Failure, bool]],
        moment: float,
        once: bool = False,
    ) -> _Answer:
        """Make attempts as the table of retries says; return the answer of the last one.

        Args:
            attempt: Function that makes one attempt. It is told whether it may watch one of its
                calls, and returns an answer, how it failed, and whether it did watch a call.
            moment: Time of `time.time` when the work began.
            once: Whether one attempt has to do.

        Raises:
            JudgeError: If the judge fails for another reason than memory that other workers may
                have held.
        """
        done: list[Retry] = []
        failure = Failure.NONE
        while True:
            try:
                with self._changed(done, failure):
                    answer, failure, was_watched = attempt(not done)
            except Exception as error:
                if once or isinstance(error, DeviceLost) or not lacked_memory(error):
                    raise
                failure = Failure.JUDGE_MEMORY
                retry = retry_for(failure, lambda when: self._holds(when, False, moment), done)
                if retry is None:
                    raise
            else:
                if self._on_cuda and failure is Failure.TIMEOUT:
                    self._accelerator.recent_kills.note()  # its launches may delay other kernels
                holds = functools.partial(self._holds, was_watched=was_watched, moment=moment)
                retry = None if once else retry_for(failure, holds, done)
                if retry is None:
                    return answer
            done.append(retry)

    def _holds(self, when: RetryCondition, was_watched: bool, moment: float) -> bool:
        """Return True if a row's condition for another attempt holds."""
        match when:
            case RetryCondition.WATCHED:
                return was_watched
            case RetryCondition.HELD_UP:
                return self._on_cuda and self._was_held_up(moment)
            case RetryCondition.SHARED:
                return self._accelerator.shares_device
        return True

    @contextlib.contextmanager
    def _changed(self, done: Sequence[Retry], failure: Failure) -> Iterator[None]:
        """Make the change of the last row for the block, which holds the next attempt.

        Args:
            done: Rows of the retries so far, that of the next attempt included.
            failure: The last attempt's failure.

        Raises:
            DeviceLost: If the device no longer computes after a failed attempt.
        """
        accelerator, limits = self._accelerator, self._ruleset.limits
        with contextlib.ExitStack() as stack:
            match done[-1].change if done else None:
                case RetryChange.UNWATCHED if self._on_cuda and failure is not Failure.WRONG:
                    with accelerator.between_timings():
                        accelerator.canary()
                case RetryChange.IDLE_DEVICE:
                    stack.enter_context(accelerator.second_chance(2 * limits.run_s))
                case RetryChange.ALONE:
                    # The baseline's kept process takes memory, and the failure may have stopped it
                    # in any state.
                    with accelerator.between_timings():
                        self._dismiss()
                    stack.enter_context(accelerator.alone())
            yield

    def _was_held_up(self, moment: float) -> bool:
        """Return True if another kernel kept the device busy since `moment`.

        That kernel may have been killed meanwhile, or may still run.
        """
        kills = self._accelerator.recent_kills
        return kills.others_since(moment) or self._accelerator.is_kept_busy()

    def prepare_ahead(self) -> bool:
        """Prepare processes by one step while there is no job; a step forks one or awaits contexts.

        A step forks one process, or waits until forked ones have made their device contexts. A
        step never waits for other workers, neither for one that is timing nor for those that are
        preparing processes: a kernel may arrive meanwhile.

        Returns:
            True if more is left to do; False if nothing is, or if no context can be made now.

        Raises:
            JudgeError: If no process can be forked now.
        """
        settled = self._processes.are_settled()
        if settled and not self._processes.lack(self._standby):
            return False
        with self._accelerator.making.taken() as is_mine:
            if is_mine and settled:
                self._processes.add(self._standby)
            elif is_mine:
                with self._accelerator.device_lock.shared_now() as is_held:
                    return not is_held or self._processes.settle(ahead=True)
        return True

    def _is_untidy(self) -> bool:
        return self._accelerator.is_untidy() or not self._processes.are_settled()

    def _settle(self, ahead: bool = False) -> None:
        """Wait until the processes on standby have made their device contexts.

        Otherwise a context might be made while another kernel is timed.

        Args:
            ahead: Give up sooner: another worker waits for the device, and no kernel of this
                worker needs the contexts yet.
        """
        if self._on_cuda:
            self._processes.settle(ahead)

    def _attempt(
        self, cases: Sequence[JudgedCase], watched: bool
    ) -> tuple[tuple[JudgeOutcome, ...], Failure, bool]:
        """Make one attempt; return the outcomes, their failure, and whether a call was watched."""
        attempt = Attempt(self._equipment, cases, watched)
        outcomes = attempt.outcomes()
        failures = [outcome.failure for outcome in outcomes]
        ended = (failed for failed in failures if failed not in (Failure.NONE, Failure.WRONG))
        return outcomes, next(ended, failures[0]), attempt.was_watched

    def prepare_baseline(self, problem: Problem, refresh: bool = False) -> Baseline:
        """Prepare and time a problem's compiled baseline.

        Args:
            problem: The problem.
            refresh: Compile even if a compiled baseline is kept.

        Raises:
            JudgeError: If the judge or the problem's own code fails.
            UsageError: If the device has too little memory for the problem.
        """
        self._processes.fit(problem)
        self._processes.begin(REFERENCE_LANGUAGE)
        self._accelerator.check_room(problem)
        self._processes.zygote(REFERENCE_LANGUAGE)
        if not self._on_cuda:
            bound_own_memory()

        def prepare(_: bool) -> tuple[Baseline, Failure, bool]:
            with self._accelerator.room(problem):
                return self._baselines.prepare(problem, refresh), Failure.NONE, False

        prepared = self._retried(prepare, time.time())
        self._accelerator.tidy()
        return prepared

    def _dismiss(self) -> None:
        """End the processes that are kept between verdicts."""
        self._baselines.dismiss()
        self._equipment.starting.dismiss()

    def reset(self) -> None:
        """End all processes after a failure of the judge; the next job starts new ones."""
        self._dismiss()
        self._processes.reset()

    def close(self) -> None:
        """End all processes."""
        self._dismiss()
        self._processes.close()


def _decide(outcomes: Sequence[JudgeOutcome]) -> bool:
    """Return True if the outcomes of a round decide which kernel is faster."""
    ends = [outcome.end for outcome in outcomes if outcome.end is not None]
    if any(end.status not in (Status.WRONG, Status.REJECTED) for end in ends):
        return False
    lost = any(not each.is_right or each.failure is not Failure.NONE for each in outcomes)
    return lost or all(each.timing is not None and each.timing.timing for each in outcomes)
