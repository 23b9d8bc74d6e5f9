"""References as they are timed: eager, compiled, or the faster of both.

Compiled ones are prepared ahead (`Baselines.prepare`) and kept by what decides them; a verdict
takes what was kept (`Baselines.start`), checks that nothing had to be compiled and that the
compiled model computes what the reference does, and stays untimed otherwise. Their processes may
start programs, as a compiler does: they run the problem's own code, never a kernel's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from kernelgym.baseline import Baseline, command_for
from kernelgym.errors import DeviceFull, JudgeError
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.out_of_memory import is_out_of_memory, our_failure
from kernelgym.judge.reference.reference import Reference, Seeds
from kernelgym.judge.session.compiled_cache import pack
from kernelgym.judge.session.live_run import Case, LiveRun
from kernelgym.judge.session.session import Rejected, Session
from kernelgym.judge.timing.baseline_store import Kept
from kernelgym.judge.timing.measure import Stopwatch, Untimed
from kernelgym.judge.untrusted.torch_compile import FOLDER
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Problem

__all__ = ["Baselines"]

_BUDGET_S = 300.0
_WARM_CALLS = 2
_RACE_PAIRS = 5


class Baselines:
    """Starts the reference's processes for timing.

    Args:
        kept: Where compiled baselines are kept.
        ruleset: The rules.
        device: Where they run.
        device_lock: On the device.
        open_process: Opens a fresh process for a problem's own code; is given that, and told
            whether it may start programs.
        called: What the caller calls the device; as above if empty.
        shares_device: Says whether others use the device's memory.
    """

    def __init__(
        self,
        kept: Kept,
        ruleset: Ruleset,
        device: str,
        device_lock: DeviceLock,
        open_process: Callable[[str, bool], AbstractContextManager[Session]],
        called: str = "",
        shares_device: Callable[[], bool] = lambda: False,
    ) -> None:
        self._shares_device = shares_device
        self._kept, self._ruleset = kept, ruleset
        self._device, self._called = device, called or device
        self._device_lock, self._open = device_lock, open_process
        self._standing: _Standing | None = None

    def start(self, stack: ExitStack, reference: Reference) -> tuple[Session, str]:
        """Start what a kernel is timed against, and say what it is: ``eager`` or ``compile``.

        Args:
            stack: Ends the processes.
            reference: The problem's model, as the kernel is compared with it.

        Raises:
            Untimed: If a compiled baseline is wanted, and none is prepared or fits.
            JudgeError: If the reference fails.
        """
        wanted, problem = self._ruleset.timing.baseline, reference.problem
        if wanted == "eager":
            with self._device_lock.shared():
                if self._device != "cpu":  # where a process is dear to make
                    return self._stand(stack, reference), "eager"
                return self._eager(stack, reference), "eager"
        packed = self._kept.find(problem)
        if packed is None:
            raise Untimed(f"no compiled baseline is prepared; run `{self._command(problem)}` first")
        # One that keeps state goes on with the kernel's calls, and must not see others.
        own = self._reference(problem, reference.seeds) if reference.stateful else reference
        try:
            with self._device_lock.shared():
                compiled = self._compiled(stack, own, packed)
            if wanted == "compile":
                return compiled, "compile"
            with self._device_lock.shared():
                eager = self._eager(stack, own)
            eager_ms, compile_ms = self._race(eager, compiled, own)
        except _Unfit as reason:
            command = f"{self._command(problem)} --refresh"
            raise Untimed(f"{reason}; `{command}` prepares its baseline anew") from None
        chosen, other = (eager, compiled) if eager_ms <= compile_ms else (compiled, eager)
        other.end()
        return chosen, "eager" if chosen is eager else "compile"

    def prepare(self, problem: Problem, refresh: bool = False) -> Baseline:
        """Compile a problem's model, keep that, and time it beside the eager one.

        Args:
            problem: The problem.
            refresh: Compile even if a baseline is kept that fits.

        Raises:
            JudgeError: If the problem's own code fails.
        """
        seeds = Seeds(secrets.token_hex(16))
        packed = None if refresh else self._kept.find(problem)
        try:
            if packed is not None:
                try:
                    times = self._times(problem, seeds, packed)
                except _Unfit:  # another library, or another compiler, than when it was made
                    packed = None
                else:
                    return self._result(problem, times, "was prepared before")
            with self._device_lock.shared():
                packed = self._compile(problem, seeds)
            times = self._times(problem, seeds, packed)
        except (_Unfit, Untimed) as reason:
            return Baseline(problem.id, self._called, message=str(reason))
        self._kept.keep(problem, packed)
        return self._result(problem, times, f"{len(packed)} bytes kept")

    def _result(self, problem: Problem, times: tuple[float, float], message: str) -> Baseline:
        return Baseline(problem.id, self._called, *times, prepared=True, message=message)

    def _compile(self, problem: Problem, seeds: Seeds) -> bytes:
        with ExitStack() as stack:
            reference = self._reference(problem, seeds)
            session = self._begin(stack, reference, b"")
            try:
                session.model.compilation(save=True)
            except Rejected as end:
                raise _unfit(f"what was compiled cannot be saved: {end}") from None
            session.end()
            try:
                return pack(session.channel.scratch / FOLDER)
            except ValueError as error:
                raise _Unfit(f"what was compiled takes {error}") from None

    def _times(self, problem: Problem, seeds: Seeds, packed: bytes) -> tuple[float, float]:
        """Time both variants as a verdict would: from what is kept, in processes of their own."""
        with ExitStack() as stack:
            reference = self._reference(problem, seeds)
            with self._device_lock.shared():
                compiled = self._compiled(stack, reference, packed)
                eager = self._eager(stack, reference)
            times = self._race(eager, compiled, reference)
            compiled.channel.resume()
            _check_complete(compiled)
            return times

    def _race(self, eager: Session, compiled: Session, reference: Reference) -> tuple[float, float]:
        with self._device_lock.exclusive():
            try:
                run = LiveRun(_case_of(reference, self._ruleset), reference, compiled)
                return Stopwatch(run, eager).race(_RACE_PAIRS)
            except Rejected as end:
                raise _unfit(f"the compiled reference cannot be timed: {end}") from None

    def _stand(self, stack: ExitStack, reference: Reference) -> Session:
        """Return an eager reference that stays for later verdicts on its problem."""
        standing, session, problem = self._standing, None, reference.problem
        built_from = _built_from(reference)
        if standing is not None and standing.digest == problem.digest:
            try:
                standing.session.channel.grant(_BUDGET_S)
                standing.session.channel.resume()
                if built_from is None or built_from != standing.built_from:
                    self._standing = replace(standing, built_from=None)  # until it is there
                    standing.session.model.construct(reference)
                    self._standing = replace(standing, built_from=built_from)
                session = standing.session
            except Rejected:
                pass  # whatever became of it: there is another one soon
        if session is None:
            self.dismiss()
            with ExitStack() as opened:
                session = self._eager(opened, reference)
                kept = opened.pop_all()
            self._standing = _Standing(problem.digest, session, kept, built_from)
        stack.callback(self._rest)
        return session

    def _rest(self) -> None:
        """Have the standing reference give its buffers back and halt."""
        if self._standing is None:
            return
        session = self._standing.session
        try:
            with self._device_lock.shared():  # giving memory back would disturb who is timed
                session.channel.resume()
                session.buffers.vacate()
                session.channel.pause()
        except (Rejected, JudgeError):
            self.dismiss()

    def dismiss(self) -> None:
        """End what stands by."""
        standing, self._standing = self._standing, None
        if standing is not None:
            standing.stack.close()

    def _eager(self, stack: ExitStack, reference: Reference) -> Session:
        problem = reference.problem
        session = stack.enter_context(self._open(problem.source, False))
        session.channel.grant(_BUDGET_S)
        try:
            session.model.load(problem.source, "Model")
            session.model.await_load()
            session.model.construct(reference)
        except Rejected as end:
            raise our_failure(f"the reference cannot be timed: {end}") from None
        return session

    def _compiled(self, stack: ExitStack, reference: Reference, packed: bytes) -> Session:
        session = self._begin(stack, reference, packed)
        _check_complete(session)
        session.buffers.vacate()
        return session

    def _begin(self, stack: ExitStack, reference: Reference, packed: bytes) -> Session:
        """Start a compiled reference and call it, so that everything is compiled or found."""
        problem = reference.problem
        session = stack.enter_context(self._open(problem.source, True))
        session.channel.grant(_BUDGET_S)
        try:
            session.model.load(problem.source, "Model", packed, compiles=True)
            session.model.await_load()
            session.model.construct(reference)
            for number in range(_WARM_CALLS):
                outcome = session.call(reference, len(reference.plan) + number)
                if not outcome.passed:
                    raise _Unfit(
                        f"the compiled reference computes something else: {outcome.message}"
                    )
        except Rejected as end:
            raise _unfit(f"the reference cannot be compiled: {end}") from None
        return session

    def _reference(self, problem: Problem, seeds: Seeds) -> Reference:
        reference = Reference(problem, self._ruleset, seeds, self._device, self._shares_device())
        reference.prepare()
        return reference

    def _command(self, problem: Problem) -> str:
        return command_for(problem.id, self._ruleset, self._called)


@dataclass(frozen=True, slots=True)
class _Standing:
    """An eager reference between verdicts. It runs the problem's code only, never a kernel's."""

    digest: str
    """Of its problem."""
    session: Session
    stack: ExitStack
    """Ends its process."""
    built_from: int | None
    """The seed that its model was built from, if it is as it was built; else None."""


def _built_from(reference: Reference) -> int | None:
    """Return the seed of a model that need not be built anew where it was built from the same."""
    return None if reference.stateful or reference.state else reference.seeds.init()


class _Unfit(Exception):
    """A compiled reference cannot be used; says why."""


def _unfit(message: str) -> Exception:
    """Return what is raised where a compiled reference fails: want of memory is not its fault."""
    return DeviceFull(message) if is_out_of_memory(message) else _Unfit(message)


def _check_complete(session: Session) -> None:
    """Make sure that a process found everything compiled.

    Raises:
        _Unfit: If it did not.
    """
    try:
        missed = session.model.compilation()
    except Rejected as end:
        raise _unfit(f"the compiled reference fails: {end}") from None
    if missed:
        raise _Unfit(f"{missed} of the reference's graphs had to be compiled anew")


def _case_of(reference: Reference, ruleset: Ruleset) -> Case:
    """Return the case in which a problem's own model stands in the kernel's place."""
    kernel = Kernel(reference.problem.source, REFERENCE_LANGUAGE)
    return Case(reference.problem, kernel, ruleset, reference.seeds)
