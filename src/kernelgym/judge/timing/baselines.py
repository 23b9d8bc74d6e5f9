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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
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

        A starting kernel is not compiled by torch, whatever the ruleset asks for. A process on a
        GPU, and one that was chosen for ``compile`` or ``best``, is kept for later verdicts on its
        problem; for ``best``, the two are compared only when processes are started.

        Args:
            stack: When it is closed, a process that is kept is halted, and any other ends.
            reference: The reference that the kernel is compared with.

        Raises:
            Untimed: If the ruleset asks for a compiled baseline, and none is prepared or usable.
            JudgeError: If the reference fails.
        """
        compiles = self._ruleset.timing.baseline != "eager" and reference.start is None
        standing = self._renewed(reference)
        if standing is None:
            with self._quiet():
                self.dismiss()
            if self._device == "cpu" and not compiles:
                with self._device_lock.shared():
                    return self._eager(stack, reference), _uncompiled(reference)
            with self._ended_quietly() as opened:
                if compiles:
                    session, kind, frames = self._chosen(opened, reference)
                else:
                    with self._device_lock.shared():
                        session = self._eager(opened, reference)
                    kind, frames = _uncompiled(reference), 0
                digest, built_from = reference.problem.digest, _built_from(reference)
                standing = _Standing(digest, session, kind, opened.pop_all(), built_from, frames)
            self._standing = standing
        stack.callback(self._rest)
        return standing.session, standing.kind

    def _quiet(self) -> AbstractContextManager[None]:
        """Return a context without a kernel being timed, on a GPU.

        There, freeing memory and ending a process would disturb the kernel.
        """
        return nullcontext() if self._device == "cpu" else self._device_lock.shared()

    @contextmanager
    def _ended_quietly(self) -> Iterator[ExitStack]:
        """Yield a stack that ends processes while no kernel is timed."""
        stack = ExitStack()
        try:
            yield stack
        finally:
            with self._quiet():
                stack.close()

    def _chosen(self, stack: ExitStack, reference: Reference) -> tuple[CandidateSession, str, int]:
        """Start the compiled baseline that the ruleset asks for, or the faster of two.

        Returns:
            The baseline, its kind, and its number of frames (0 if eager).

        Raises:
            Untimed: If none is prepared, or it cannot be used.
        """
        problem = reference.problem
        packed = self._kept.find(problem)
        if packed is None:
            raise Untimed(f"no compiled baseline is prepared; run `{self._command(problem)}` first")
        with self._ended_quietly() as compiled_stack, self._ended_quietly() as eager_stack:
            try:
                with self._device_lock.shared():
                    own = self._own(reference)
                    compiled, frames = self._compiled(compiled_stack, own, packed)
                if self._ruleset.timing.baseline == "best":
                    with self._device_lock.shared():
                        eager = self._eager(eager_stack, own)
                    eager_ms, compile_ms = self._race(eager, compiled, own)
                    if eager_ms <= compile_ms:
                        stack.enter_context(eager_stack.pop_all())
                        return eager, "eager", 0
            except _Unfit as reason:
                command = f"{self._command(problem)} --refresh"
                raise Untimed(f"{reason}; `{command}` prepares its baseline again") from None
            stack.enter_context(compiled_stack.pop_all())
            return compiled, "compile", frames

    def _own(self, reference: Reference) -> Reference:
        """Return the reference of warm-up calls: for a stateful problem, a second one.

        These calls advance its state, and the verdict's own must see the kernel's calls only.
        """
        if not reference.stateful:
            return reference
        return self._reference(reference.problem, reference.seeds)

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
        with self._quiet():
            self.dismiss()  # it may have been compiled from what was stored before
        return self._result(problem, times, f"{len(packed)} bytes kept")

    def _result(self, problem: Problem, times: tuple[float, float], message: str) -> Baseline:
        return Baseline(problem.id, self._called, *times, prepared=True, message=message)

    def _compile(self, problem: Problem, seeds: Seeds) -> bytes:
        with ExitStack() as stack:
            reference = self._reference(problem, seeds)
            session = self._begin(stack, reference, b"")
            self._call(session, reference)
            with _unfit_if_it_fails("what was compiled cannot be saved"):
                session.model.compilation(save=True)
            session.end()
            try:
                return pack(session.channel.scratch / FOLDER)
            except ValueError as error:
                raise _Unfit(f"what was compiled takes {error}") from None

    def _times(self, problem: Problem, seeds: Seeds, packed: bytes) -> tuple[float, float]:
        """Time both variants in fresh processes, from stored files, as verdicts do."""
        with self._ended_quietly() as stack:
            with self._device_lock.shared():
                reference = self._reference(problem, seeds)
                compiled, _ = self._compiled(stack, reference, packed)
                eager = self._eager(stack, reference)
            times = self._race(eager, compiled, reference)
            with _unfit_if_it_fails("the compiled reference fails"):
                compiled.channel.resume()
            _check_complete(compiled)
            return times

    def _race(
        self, eager: CandidateSession, compiled: CandidateSession, reference: Reference
    ) -> tuple[float, float]:
        with self._device_lock.exclusive():
            with _unfit_if_it_fails("the compiled reference cannot be timed"):
                run = LiveRun(_case_of(reference, self._ruleset), reference, compiled)
                return Stopwatch([run], eager).race(_RACE_PAIRS)

    def _renewed(self, reference: Reference) -> _Standing | None:
        """Return the process that is kept, rebuilt if weights differ; None if it cannot be used."""
        standing = self._standing
        if standing is None or standing.digest != reference.problem.digest:
            return None
        built_from, compiled = _built_from(reference), standing.kind == "compile"
        builds = built_from is None or built_from != standing.built_from
        try:
            with self._device_lock.shared():
                own = self._own(reference) if builds and compiled else reference
                standing.session.channel.grant(_BUDGET_S)
                standing.session.channel.resume()
                if builds:
                    # Unknown until the construction has succeeded.
                    self._standing = replace(standing, built_from=None)
                    standing.session.model.construct(own)
                    if compiled and self._warm_up(standing.session, own) != standing.frames:
                        return None  # after a few recompilations, torch calls a model eagerly
                    self._standing = replace(standing, built_from=built_from)
        except (Rejected, _Unfit, DeviceFull):
            return None  # whatever failed in the kept process, a fresh one replaces it
        return standing

    def _rest(self) -> None:
        """Free the buffers of the kept reference, and halt it."""
        if self._standing is None:
            return
        session = self._standing.session
        try:
            with self._quiet():
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

    def _compiled(
        self, stack: ExitStack, reference: Reference, packed: bytes
    ) -> tuple[CandidateSession, int]:
        session = self._begin(stack, reference, packed)
        return session, self._warm_up(session, reference)

    def _warm_up(self, session: CandidateSession, reference: Reference) -> int:
        """Call a compiled reference, check that nothing was compiled, and free its buffers.

        Returns:
            The number of Python frames that torch's compiler has processed.

        Raises:
            _Unfit: If it computes something else, fails, or something had to be compiled.
            DeviceFull: If the device's memory is full.
        """
        self._call(session, reference)
        frames = _check_complete(session)
        with _unfit_if_it_fails("the compiled reference fails"):
            session.buffers.vacate()
        return frames

    def _begin(self, stack: ExitStack, reference: Reference, packed: bytes) -> CandidateSession:
        """Start a reference that is compiled when it is called."""
        problem = reference.problem
        session = stack.enter_context(self._open(REFERENCE_LANGUAGE, problem.source, True))
        session.channel.grant(_BUDGET_S)
        with _unfit_if_it_fails("the reference cannot be compiled"):
            session.model.load(problem.source, "Model", packed, compiles=True)
            session.model.await_load()
            session.model.construct(reference)
        return session

    def _call(self, session: CandidateSession, reference: Reference) -> None:
        """Call a compiled reference twice, and check its outputs."""
        with _unfit_if_it_fails("the reference cannot be compiled"):
            for number in range(_WARM_CALLS):
                outcome = session.call(reference, len(reference.plan) + number)
                if not outcome.passed:
                    raise _Unfit(
                        f"the compiled reference computes something else: {outcome.message}"
                    )

    def _reference(self, problem: Problem, seeds: Seeds) -> Reference:
        reference = Reference(problem, self._ruleset, seeds, self._device, self._shares_device())
        reference.prepare()
        return reference

    def _command(self, problem: Problem) -> str:
        return command_for(problem.id, self._ruleset, self._called)


@dataclass(frozen=True, slots=True)
class _Standing:
    """A reference's process, kept between verdicts.

    Its process runs the problem's code only, never a kernel's.
    """

    digest: str
    """Digest of the problem."""
    session: CandidateSession
    kind: str
    """``eager``, ``compile`` or ``start``."""
    stack: ExitStack
    """Stack that ends the reference's process when it is closed."""
    built_from: int | None
    """Seed that the model was built from, if it is unchanged since; None otherwise."""
    frames: int
    """Number of Python frames that torch's compiler has processed; 0 if eager."""


def _uncompiled(reference: Reference) -> str:
    """Return the kind of a baseline that is not compiled."""
    return "eager" if reference.start is None else BASELINE


def _built_from(reference: Reference) -> int | None:
    """Return the seed that alone decides the model; None with other state."""
    return None if reference.stateful or reference.state else reference.seeds.init()


class _Unfit(Exception):
    """A compiled reference cannot be used; the message gives the reason."""


@contextmanager
def _unfit_if_it_fails(complaint: str) -> Iterator[None]:
    """Raise `_Unfit` or `DeviceFull`, with a complaint before the reason, if a process fails."""
    try:
        yield
    except Rejected as end:
        raise _unfit(f"{complaint}: {end}") from None


def _unfit(message: str) -> Exception:
    """Return `DeviceFull` for a message that says that memory ran out, else `_Unfit`."""
    return DeviceFull(message) if is_out_of_memory(message) else _Unfit(message)


def _check_complete(session: CandidateSession) -> int:
    """Check that a process compiled nothing, because it found everything compiled.

    Returns:
        The number of Python frames that torch's compiler has processed.

    Raises:
        _Unfit: If the process compiled something.
    """
    with _unfit_if_it_fails("the compiled reference fails"):
        missed, frames = session.model.compilation()
    if missed:
        raise _Unfit(f"{missed} of the reference's graphs had to be compiled anew")
    return frames


def _case_of(reference: Reference, ruleset: Ruleset) -> JudgedCase:
    """Return the case that judges a problem's own model as the kernel."""
    kernel = Kernel(reference.problem.source, REFERENCE_LANGUAGE)
    return JudgedCase(reference.problem, kernel, ruleset, reference.seeds)
