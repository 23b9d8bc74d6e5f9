"""`LocalEvaluator`: judges kernels on this machine through worker processes.

Contract:

- the caller's process imports no torch and never runs candidate code;
- a worker that dies or overruns its deadline is replaced, and the job is tried once more, on
  another device if there is one. If that fails, too, the verdict is `unavailable`, or a runtime
  error if the kernel is the cause.

Does not cache verdicts.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from kernelgym.baseline import Baseline
from kernelgym.capabilities import Capabilities, EvaluatorStatus
from kernelgym.compile_result import CompileResult
from kernelgym.counters import Counters
from kernelgym.devices import CONTEXT_BYTES, cuda_devices, find_device, find_devices
from kernelgym.errors import JudgeError, UsageError
from kernelgym.evaluators.base import EvaluatorBase
from kernelgym.evaluators.dispatch import Dispatcher
from kernelgym.judge.compiling.disassembly import with_assembly
from kernelgym.judge.compiling.library_cache import LibraryCache
from kernelgym.judge.compiling.requirements import check_requirements
from kernelgym.judge.outcome import Circumstances, JudgeFailure, verdict_of_failures
from kernelgym.judge.pool import WORKER_LOST, NoDevice, WorkerPool
from kernelgym.judge.provenance import device_kind, provenance
from kernelgym.judge.sandbox.tiers import tier_for
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS
from kernelgym.judge.worker_handle import WorkerProcess
from kernelgym.judging_memory import memory_budget
from kernelgym.languages import (
    LANGUAGES,
    REFERENCE_LANGUAGE,
    check_language,
    language,
    languages_on,
)
from kernelgym.paths import cache_folder
from kernelgym.precision import judged_precisions
from kernelgym.pretrained import check_models
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.starting_kernel import starting_kernel
from kernelgym.suites.known_memory import check_fits
from kernelgym.types import Build, Job, Kernel, Problem, Verdict

_MOST_WORKERS = 1024  # on each device; a host cannot start many more threads and processes
_MOST_STANDING_OF = 4  # standby takes at most a quarter of the memory; kernels need the rest
_PROBE = Problem(
    "Probe/L1/1",
    "Probe",
    1,
    "probe",
    """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) + 2.0 * x


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
""",
)
"""Problem that is judged with its own model as the kernel, to find out whether a device still
computes."""


class LocalEvaluator(EvaluatorBase):
    """Judges kernels in sandboxed processes of this machine.

    Args:
        device: ``cpu`` or a GPU such as ``cuda:0``.
        ruleset: A ruleset or the name of one.
        workers: Number of kernels judged at the same time on each device. Timing has the device to
            itself; other kernels are built and loaded meanwhile. Four workers keep a GPU busy.
        timing: Whether correct kernels are timed, if their language can be timed.
        cache_dir: Folder for built extensions; by default `cache_folder`.
        isolation: A sandbox tier (see `kernelgym.judge.untrusted.sandbox.sandbox`), ``auto`` for
            the strongest that the host allows, or ``require:TIER`` for that or a stronger one.
        devices: Several GPUs of one kind to share the work: ``all``, or their names. The
            evaluator's `device` is the first of them.
        standby: Number of processes that each idle worker makes ready for the next kernels, on a
            GPU with a device context. Contexts are made one after the other, so kernels that come
            in batches, as in training, are judged sooner with 3 than with 1. Each process takes
            half a gigabyte of the device's memory. It does not help when kernels arrive without a
            pause, before the first kernel, or for kernels that make streams or graphs of their
            own.
        memory_bytes: The memory budget: most memory that judging one kernel may take. If None,
            half of the device's memory, or of this process's control group's if that is less.
            Problems that need more are refused before anything runs.

    Raises:
        UnknownName: If there is no such ruleset.
        UsageError: If the device does not exist or another argument is invalid.
    """

    def __init__(
        self,
        device: str = "cpu",
        ruleset: str | Ruleset = "strict",
        workers: int = 1,
        timing: bool = True,
        cache_dir: str | Path | None = None,
        isolation: str = "auto",
        devices: str | Sequence[str] | None = None,
        standby: int = 1,
        memory_bytes: float | None = None,
    ) -> None:
        self.devices = find_devices(devices) if devices is not None else (find_device(device),)
        """Names of the devices that kernels run on."""
        if isolation.removeprefix("require:") not in TIERS and isolation != "auto":
            raise UsageError(
                f"isolation {isolation!r} is not a sandbox tier; known: auto, {', '.join(TIERS)}, "
                "and require:TIER"
            )
        if not 1 <= workers <= _MOST_WORKERS:
            raise UsageError(
                f"workers must be at least 1 and at most {_MOST_WORKERS}, got {workers}"
            )
        _check_standby(standby, workers, self.devices)
        self._device, self._ruleset, self._timing = self.devices[0], find_ruleset(ruleset), timing
        self._folder = Path(cache_dir) if cache_dir is not None else cache_folder()
        self._isolation = isolation
        self._correct: set[tuple[str, str]] = set()  # digests of problems and correct kernels
        self._counting: Counters | None = None
        self.workers, self.standby = workers, standby
        self._memory_bytes = memory_budget(memory_bytes, self._device)
        self._pool = WorkerPool(
            self.devices, workers, self._start, _verdict_on(_PROBE, _reference_kernel(_PROBE))
        )
        self._dispatcher = Dispatcher(self._judge, self._pool.places(), by_problem=True)
        if self._device == "cpu":  # what is known to fail is the interpreter
            _warn_of_trouble()

    @functools.cached_property
    def capabilities(self) -> Capabilities:
        """Capabilities of this evaluator."""
        kind = device_kind(self._device)
        return Capabilities(
            self._device,
            self._ruleset,
            timed=self._timing,
            devices=self.devices,
            device_kind=kind,
            isolation=self._isolation,
            workers=self.workers * len(self.devices),
            memory_bytes=self._memory_bytes,
            languages=languages_on(self._device),
            provenance=provenance(self._device),
        )

    @property
    def status(self) -> EvaluatorStatus:
        """Counts of failures of each device, and whether the device is in service."""
        return EvaluatorStatus(self._pool.health())

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a job's verdict.

        Args:
            job: The problem and the kernel.
            seed: `Verdict.seed` of an earlier verdict, to repeat it on the same inputs.

        The future raises `UnsupportedLanguage` if this device or machine cannot run the kernel's
        language, or the language does not compute in the problem's precision; `UsageError` if the
        problem needs more than the memory budget, or the host does not allow the required sandbox
        tier.
        """
        return self._dispatcher.submit(job, seed)

    def _judge(self, job: Job, seed: str, place: int) -> Verdict:
        """Judge one kernel, on a given worker of the pool if that is free."""
        problem, kernel = job.problem, job.kernel
        self._check(problem, kernel)
        started = time.monotonic()
        answer = self._pool.judge(_verdict_on(problem, kernel, seed), place=place)
        if isinstance(answer, Verdict):
            if answer.correct:
                self._correct.add((problem.digest, kernel.digest))
            return answer
        circumstances = Circumstances(
            device=self._device,
            ruleset=self._ruleset.label,
            wall_s=time.monotonic() - started,
        )
        suspect = all(failure.may_be_the_kernels for failure in answer)
        devices = list(dict.fromkeys(failure.device for failure in answer))
        blamed = suspect and self._blames(problem, kernel, devices)
        if blamed:
            # Something else on the machine may have killed both workers: in a soak that killed one
            # every 30 s, 1 of 500 kernels was blamed for it.
            again = self._pool.judge(_verdict_on(problem, kernel, seed), attempts=1)
            if isinstance(again, Verdict):
                return again
            answer, blamed = [*answer, *again], all(each.may_be_the_kernels for each in again)
            self._pool.forgive({each.device for each in again if each.device})
        return verdict_of_failures(answer, circumstances, blamed)

    def duel_round(
        self, problem: Problem, kernels: Sequence[Kernel], *, seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        """Judge kernels of one problem, timed alternately.

        All of them and the reference are timed under one hold of the device lock, in fresh
        processes, on the same inputs; their outputs are verified as `evaluate` does. That custom
        kernels do the work is not shown, and no second process confirms an implausible time.

        Args:
            problem: The problem.
            kernels: The kernels; the first one begins.
            seed: Seed of inputs and weights, as for `evaluate`.

        Returns:
            Each kernel's verdict, if all were timed or one was wrong; None if they cannot be timed
            like that, or if one ended in a way for which `evaluate` may try again: full verdicts
            then have to decide.

        Raises:
            UnsupportedLanguage: As `evaluate`.
            UsageError: As `evaluate`.
        """
        for kernel in kernels:
            self._check(problem, kernel)
        try:
            found = self._pool.lend(
                lambda worker: worker.judge(problem, kernels, seed), counts=True
            )
        except (*WORKER_LOST, NoDevice):
            return None
        return None if isinstance(found, JudgeFailure) else found

    def _check_problem(self, problem: Problem) -> None:
        """Raise an error if no worker could run the problem's reference."""
        check_models(problem)
        check_fits(problem, self._memory_bytes, self._device)

    def _check(self, problem: Problem, kernel: Kernel) -> None:
        """Raise an error if no worker could judge the kernel, as for its language."""
        self._check_problem(problem)
        for precision in judged_precisions(problem, self._ruleset):
            check_language(kernel.language, self._device, precision)
        check_requirements(LANGUAGES[kernel.language], kernel.source, self._device)

    def build(self, kernel: Kernel) -> Build | None:
        """Build a kernel's extensions without judging it; the cache then has them.

        Args:
            kernel: The kernel. Its module is loaded in a sandboxed process, and nothing is called.

        Returns:
            Facts on the compiled extensions, as in `Verdict.build`; None if it builds no
            extension, does not compile or load, or the judge failed.

        Raises:
            UnsupportedLanguage: If this device or machine cannot run the kernel's language.
            UsageError: If the host does not allow the required sandbox tier.
        """
        check_language(kernel.language, self._device)
        check_requirements(LANGUAGES[kernel.language], kernel.source, self._device)
        try:
            found = self._pool.lend(lambda worker: worker.build(_PROBE, kernel))
        except (*WORKER_LOST, NoDevice):
            return None
        return None if isinstance(found, JudgeFailure) else found

    def compile_only(self, problem: Problem, kernel: Kernel) -> CompileResult:
        """Compile a kernel for the ruleset's GPU (`Ruleset.front_end`), which need not be present.

        Args:
            problem: The problem, whose inputs give the launches' types.
            kernel: The kernel. It runs in a sandboxed process, on the CPU.

        Raises:
            UsageError: If the language is not compiled for that GPU, a compiler is missing, or the
                problem does not fit the memory budget.
            JudgeError: If the judge failed.
        """
        entry, target = language(kernel.language), self._ruleset.front_end
        if target.partition(":")[0] not in entry.compiled_for or self._device != "cpu":
            raise UsageError(
                f"language {entry.name!r} is not compiled for {target or 'no GPU'!r} on "
                f"{self._device}: compile on device 'cpu', for: "
                f"{', '.join(entry.compiled_for) or 'nothing'} (the ruleset's front_end)"
            )
        self._check_problem(problem)
        check_requirements(entry, kernel.source, target=target)
        try:
            found = self._pool.lend(lambda worker: worker.compile_only(problem, kernel))
        except WORKER_LOST as error:
            raise JudgeError(f"the worker was lost: {error}") from None
        if isinstance(found, JudgeFailure):
            raise JudgeError(found.message)
        return found

    def profile(
        self,
        problem: Problem,
        kernel: Kernel,
        *,
        metrics: Sequence[str] = (),
        timeout_s: float = 120.0,
    ) -> Counters:
        """Return the hardware counters of one call, read by ``ncu`` in a sandbox without network.

        Once the driver has forbidden to read counters, or there is no profiler, neither is asked
        for again.

        Args:
            problem: The problem.
            kernel: A kernel that this evaluator found correct.
            metrics: Metrics of ``ncu``; `kernelgym.counters.METRICS` if empty.
            timeout_s: Seconds that the profile may take.

        Raises:
            UsageError: If this evaluator has not found the kernel correct.
        """
        if (problem.digest, kernel.digest) not in self._correct:
            raise UsageError(
                f"the kernel {kernel.digest} was not found correct for {problem.id} by this "
                "evaluator; judge it first, since a profile runs it"
            )
        if self._counting is not None and self._counting.status != "measured":
            return self._counting
        try:
            found = self._pool.lend(
                lambda worker: worker.profile(problem, kernel, metrics, timeout_s)
            )
        except (*WORKER_LOST, NoDevice) as error:
            return Counters("failed", message=f"no worker answered: {error}")
        if isinstance(found, JudgeFailure):
            return Counters("failed", message=found.message)
        # The first counts: a later kernel may write what a driver writes that forbids it.
        if self._counting is None and found.status in ("measured", "forbidden", "unavailable"):
            self._counting = found
        return found

    def artifacts(self, kernel: Kernel, *, assembly: bool = False) -> Mapping[str, bytes]:
        """Return what was built for a kernel, if still cached.

        Args:
            kernel: One that this cache's workers have judged or built.
            assembly: Whether to disassemble the libraries, in a sandbox.

        Returns:
            By name: ``extension.so`` for a library (``extension_2.so`` for a second one), and for
            a Triton kernel that was compiled, ``kernel.cubin``; beside them ``kernel.s`` or
            ``kernel.sass``. Empty if nothing was built. The files are made from the kernel's text:
            do not load those of a kernel that you do not trust.
        """
        folder = self._folder / "builds"
        found = LibraryCache(folder).built_for(kernel.digest) if folder.is_dir() else {}
        tier = tier_for(self._folder, self._device, self._isolation)
        return with_assembly(found, tier) if assembly else found

    def _blames(self, problem: Problem, kernel: Kernel, devices: Sequence[str]) -> bool:
        """Return True if the reference, judged in the kernel's place, is correct: blame the kernel.

        The kernel has brought the judge down in every attempt. If that gave it `unavailable`, a
        kernel that is about to fail could avoid its verdict by bringing the judge down. The
        reference has to pass on each device that failed: on another one it would say nothing
        about a broken device.

        Args:
            problem: The problem.
            kernel: The kernel.
            devices: The devices of the attempts.
        """
        if kernel.language == REFERENCE_LANGUAGE or self._pool.dismissed:
            return False
        reference = _reference_kernel(problem)
        for device in devices:
            answer = self._pool.judge(_verdict_on(problem, reference), attempts=1, only=device)
            if not isinstance(answer, Verdict) or not answer.correct:
                return False
        self._pool.forgive(devices)
        return True

    def prepare_baseline(self, problem: Problem, *, refresh: bool = False) -> Baseline:
        """Compile a problem's reference and time it, for compiled baselines.

        `TimingProtocol.baseline` ``compile`` and ``best`` need this.

        Args:
            problem: The problem.
            refresh: Compile even if a valid baseline is stored.

        Returns:
            How fast the reference is, eager and compiled; or why no baseline could be prepared.

        Raises:
            UsageError: If the problem needs more than the memory budget.
        """
        self._check_problem(problem)
        try:
            return self._pool.lend(lambda worker: worker.prepare_baseline(problem, refresh))
        except UsageError:
            raise
        except JudgeError as error:
            message = str(error)
        except WORKER_LOST as error:
            message = f"the worker failed: {type(error).__name__}: {error}"
        return Baseline(problem.id, self._device, message=message)

    def close(self) -> None:
        """End the workers and their processes. Jobs in flight become `unavailable`."""
        self._pool.dismiss()

    def _start(self, device: str) -> WorkerProcess:
        return WorkerProcess(
            self._ruleset,
            self._timing,
            self._folder,
            self._isolation,
            device,
            self.standby,
            self.workers,
            self._memory_bytes,
        )


def _reference_kernel(problem: Problem) -> Kernel:
    """Return a kernel that is right for a problem: its starting kernel, or its own module."""
    module = Kernel(f"{problem.source}\n\nModelNew = Model\n", REFERENCE_LANGUAGE)
    return starting_kernel(problem) or module


def _verdict_on(
    problem: Problem, kernel: Kernel, seed: str = ""
) -> Callable[[WorkerProcess], Verdict | JudgeFailure]:
    """Return a function that sends a worker the request to judge one kernel."""

    def ask(worker: WorkerProcess) -> Verdict | JudgeFailure:
        found = worker.judge(problem, [kernel], seed)
        assert found is not None  # only a round of several kernels may go without an answer
        return found if isinstance(found, JudgeFailure) else found[0]

    return ask


def _check_standby(standby: int, workers: int, devices: tuple[str, ...]) -> None:
    if standby < 1:
        raise UsageError(f"standby must be at least 1, got {standby}")
    if standby == 1 or "cpu" in devices:
        return
    taken = (standby - 1) * workers * CONTEXT_BYTES
    for name in devices:
        there = cuda_devices()[int(name.partition(":")[2])].memory_bytes
        if taken > there // _MOST_STANDING_OF:
            raise UsageError(
                f"{standby} processes on standby for each of {workers} workers take "
                f"{taken / 2**30:.1f} GiB more than one would, of {there / 2**30:.1f} GiB on "
                f"{name}: lower `standby` or `workers`"
            )


@functools.cache
def _warn_of_trouble() -> None:
    """Warn once about installed packages that are known to break honest kernels."""
    for entry in LANGUAGES.values():
        if entry.find_trouble is not None and (trouble := entry.find_trouble()):
            warnings.warn(trouble, stacklevel=3)
