"""Start baselines: the reference eager, compiled, or the faster of both.

Contract:
- `Baselines.prepare` compiles a reference ahead of verdicts and keeps the result under a key of
  everything that decides it (`kernelgym.judge.timing.baseline_store`).
- `Baselines.start` takes what was kept for a verdict. It checks that nothing had to be compiled and
  that the compiled model computes what the reference does; the verdict stays untimed otherwise.
- Processes of compiled baselines may start programs, as a compiler does. They run the problem's
  own code, never a kernel's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from kernelgym.baseline import Baseline, command_for
from kernelgym.errors import DeviceFull, JudgeError
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.out_of_memory import is_out_of_memory, our_failure
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.compiled_cache import pack
from kernelgym.judge.session.live_run import JudgedCase, LiveRun
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.timing.baseline_store import BaselineStore
from kernelgym.judge.timing.measure import Stopwatch
from kernelgym.judge.timing.windows import Untimed
from kernelgym.judge.untrusted.torch_compile import FOLDER
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.rulesets import Ruleset
from kernelgym.starting_kernel import BASELINE, starting_kernel
from kernelgym.types import Kernel, Problem

_BUDGET_S = 300.0
_WARM_CALLS = 2
_RACE_PAIRS = 5


class Baselines:
    """Starts the reference's processes for timing.

    Args:
        kept: Store of compiled baselines.
        ruleset: The rules.
        device: The device that references run on.
        device_lock: The lock on that device.
        open_process: Opens a fresh process for a language and a source. A third argument says
            whether the process may start programs.
        called: The caller's name for the device; `device` if empty.
        shares_device: Returns True if other workers use the device's memory.
    """

    def __init__(
        self,
        kept: BaselineStore,
        ruleset: Ruleset,
        device: str,
        device_lock: DeviceLock,
        open_process: Callable[[str, str, bool], AbstractContextManager[CandidateSession]],
        called: str = "",
        shares_device: Callable[[], bool] = lambda: False,
    ) -> None:
        self._shares_device = shares_device
        self._kept, self._ruleset = kept, ruleset
        self._device, self._called = device, called or device
        self._device_lock, self._open = device_lock, open_process
        self._standing: _Standing | None = None

    def start(self, stack: ExitStack, reference: Reference) -> tuple[CandidateSession, str]:
        """Start a baseline; return it, and its kind: ``eager``, ``compile`` or ``start``.

        A starting kernel is not compiled by torch, whatever the ruleset asks for.

        Args:
            stack: Ends the processes when it is closed.
            reference: The reference that the kernel is compared with.

        Raises:
            Untimed: If the ruleset asks for a compiled baseline, and none is prepared or usable.
            JudgeError: If the reference fails.
        """
        wanted, problem = self._ruleset.timing.baseline, reference.problem
        if wanted == "eager" or reference.start is not None:
            kind = "eager" if reference.start is None else BASELINE
            with self._device_lock.shared():
                if self._device != "cpu":  # a process with a CUDA context is slow to start
                    return self._stand(stack, reference), kind
                return self._eager(stack, reference), kind
        packed = self._kept.find(problem)
        if packed is None:
            raise Untimed(f"no compiled baseline is prepared; run `{self._command(problem)}` first")
        # A stateful reference must see the kernel's calls only: warm-up calls would advance it.
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
        """Compile and store a problem's model; time it beside the eager one.

        Args:
            problem: The problem.
            refresh: Compile even if a usable baseline is stored.

        Raises:
            JudgeError: If the problem's own code fails.
        """
        if starting_kernel(problem) is not None:
            message = "its reference is a starting kernel, which torch does not compile"
            return Baseline(problem.id, self._called, message=message)
        seeds = Seeds(secrets.token_hex(16))
        packed = None if refresh else self._kept.find(problem)
        try:
            if packed is not None:
                try:
                    times = self._times(problem, seeds, packed)
                except _Unfit:  # such as a library or compiler that has changed since
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
        """Time both variants in fresh processes, from stored files, as verdicts do."""
        with ExitStack() as stack:
            reference = self._reference(problem, seeds)
            with self._device_lock.shared():
                compiled = self._compiled(stack, reference, packed)
                eager = self._eager(stack, reference)
            times = self._race(eager, compiled, reference)
            compiled.channel.resume()
            _check_complete(compiled)
            return times

    def _race(
        self, eager: CandidateSession, compiled: CandidateSession, reference: Reference
    ) -> tuple[float, float]:
        with self._device_lock.exclusive():
            try:
                run = LiveRun(_case_of(reference, self._ruleset), reference, compiled)
                return Stopwatch([run], eager).race(_RACE_PAIRS)
            except Rejected as end:
                raise _unfit(f"the compiled reference cannot be timed: {end}") from None

    def _stand(self, stack: ExitStack, reference: Reference) -> CandidateSession:
        """Return an eager reference, kept for later verdicts on its problem."""
        standing, session, problem = self._standing, None, reference.problem
        built_from = _built_from(reference)
        if standing is not None and standing.digest == problem.digest:
            try:
                standing.session.channel.grant(_BUDGET_S)
                standing.session.channel.resume()
                if built_from is None or built_from != standing.built_from:
                    # Unknown until the construction has succeeded.
                    self._standing = replace(standing, built_from=None)
                    standing.session.model.construct(reference)
                    self._standing = replace(standing, built_from=built_from)
                session = standing.session
            except Rejected:
                pass  # whatever failed in the kept process, a fresh one replaces it below
        if session is None:
            self.dismiss()
            with ExitStack() as opened:
                session = self._eager(opened, reference)
                kept = opened.pop_all()
            self._standing = _Standing(problem.digest, session, kept, built_from)
        stack.callback(self._rest)
        return session

    def _rest(self) -> None:
        """Free the buffers of the kept reference, and halt it."""
        if self._standing is None:
            return
        session = self._standing.session
        try:
            with self._device_lock.shared():  # freeing memory would disturb a kernel being timed
                session.channel.resume()
                session.buffers.vacate()
                session.channel.pause()
        except (Rejected, JudgeError):
            self.dismiss()

    def dismiss(self) -> None:
        """End the kept reference's process."""
        standing, self._standing = self._standing, None
        if standing is not None:
            standing.stack.close()

    def _eager(self, stack: ExitStack, reference: Reference) -> CandidateSession:
        kernel, entry = reference.start, "ModelNew"
        if kernel is None:
            kernel, entry = Kernel(reference.problem.source, REFERENCE_LANGUAGE), "Model"
        session = stack.enter_context(self._open(kernel.language, kernel.source, False))
        session.channel.grant(_BUDGET_S)
        try:
            session.model.load(kernel.source, entry)
            session.model.await_load()
            session.model.construct(reference)
        except Rejected as end:
            raise our_failure(f"the reference cannot be timed: {end}") from None
        return session

    def _compiled(self, stack: ExitStack, reference: Reference, packed: bytes) -> CandidateSession:
        session = self._begin(stack, reference, packed)
        _check_complete(session)
        session.buffers.vacate()
        return session

    def _begin(self, stack: ExitStack, reference: Reference, packed: bytes) -> CandidateSession:
        """Start a compiled reference; call it until all is compiled."""
        problem = reference.problem
        session = stack.enter_context(self._open(REFERENCE_LANGUAGE, problem.source, True))
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
    """An eager reference kept between verdicts.

    Its process runs the problem's code only, never a kernel's.
    """

    digest: str
    """Digest of the problem."""
    session: CandidateSession
    stack: ExitStack
    """Stack that ends the reference's process when it is closed."""
    built_from: int | None
    """Seed that the model was built from, if it is unchanged since; None otherwise."""


def _built_from(reference: Reference) -> int | None:
    """Return the seed that alone decides the model; None with other state."""
    return None if reference.stateful or reference.state else reference.seeds.init()


class _Unfit(Exception):
    """A compiled reference cannot be used; the message gives the reason."""


def _unfit(message: str) -> Exception:
    """Return `DeviceFull` for a message that says that memory ran out, else `_Unfit`."""
    return DeviceFull(message) if is_out_of_memory(message) else _Unfit(message)


def _check_complete(session: CandidateSession) -> None:
    """Check that a process compiled nothing, because it found everything compiled.

    Raises:
        _Unfit: If the process compiled something.
    """
    try:
        missed = session.model.compilation()
    except Rejected as end:
        raise _unfit(f"the compiled reference fails: {end}") from None
    if missed:
        raise _Unfit(f"{missed} of the reference's graphs had to be compiled anew")


def _case_of(reference: Reference, ruleset: Ruleset) -> JudgedCase:
    """Return the case that judges a problem's own model as the kernel."""
    kernel = Kernel(reference.problem.source, REFERENCE_LANGUAGE)
    return JudgedCase(reference.problem, kernel, ruleset, reference.seeds)
