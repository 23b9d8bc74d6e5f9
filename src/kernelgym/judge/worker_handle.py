"""Handle of the caller's process on one worker process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import subprocess
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelgym.baseline import Baseline
from kernelgym.compile_result import CompileResult
from kernelgym.counters import Counters
from kernelgym.devices import alone
from kernelgym.errors import JudgeError, UsageError
from kernelgym.judge.environment import of_trusted
from kernelgym.judge.outcome import JudgeFailure
from kernelgym.judge.processes.scratch import remove_folder
from kernelgym.judge.processes.trusted_process import TrustedProcess, fields_of
from kernelgym.judge.starvation import Starvation
from kernelgym.judge.untrusted import protocol
from kernelgym.rulesets import Ruleset
from kernelgym.types import Build, Kernel, Problem, Verdict

_LOOK_S = 10.0  # between two looks whether the worker's processes get processors
_REFERENCE_S = 600.0  # limit for the problem's own code
_FIRST_BUILD_S = 600.0  # limit for the binding unit of all extensions, on a very busy machine
_ALLOCATOR_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Without this, torch places small long-lived tensors in the rest of a block of gigabytes that held
# inputs: the block could not be given back, and new inputs of that size would not fit in it.
_ALLOCATOR = "max_split_size_mb:1024"


class WorkerProcess:
    """Handle on one worker process, for one thread at a time.

    Raises:
        OSError: If the worker does not start; or EOFError.
    """

    def __init__(
        self,
        ruleset: Ruleset,
        timing: bool,
        folder: Path,
        tier: str,
        device: str = "cpu",
        standby: int = 1,
        workers_on_device: int = 1,
        memory_bytes: int = 0,
    ) -> None:
        limits = ruleset.limits
        # The worker limits the kernel's time. This limits the worker's own, and the problem's code.
        self._job_s = 3 * limits.run_s + 3 * limits.build_s + ruleset.timing.budget_s
        self._job_s += _REFERENCE_S + _FIRST_BUILD_S
        lifeline, self._lifeline = os.pipe()
        # The worker's candidates see this device only, so they make no context on another one.
        own, visible = alone(device, os.environ)
        # -P: a file in the current folder must not be imported in place of a library of the judge.
        self._process = TrustedProcess(
            ["-P", "-m", "kernelgym.judge.worker"],
            _environment(folder, visible),
            after=[str(lifeline)],
            pass_fds=[lifeline],
        )
        os.close(lifeline)
        self._decoder = protocol.Decoder(1 << 30)
        self._jobs = 0
        scratch = folder.absolute() / "scratch" / secrets.token_hex(8)
        self._finalizer = weakref.finalize(self, _end, self._process, self._lifeline, scratch)
        _living.add(self)
        self._ask(
            {
                "ruleset": dataclasses.asdict(ruleset),
                "timing": timing,
                "folder": str(folder.absolute()),
                "scratch": str(scratch),
                "tier": tier,
                "device": own,
                "caller_device": device,
                "standby": standby,
                "workers_on_device": workers_on_device,
                "memory_bytes": memory_bytes,
            }
        )

    def judge(
        self, problem: Problem, kernels: Sequence[Kernel], seed: str
    ) -> tuple[Verdict, ...] | JudgeFailure | None:
        """Have the worker judge one kernel, or a round of several.

        Returns:
            Each kernel's verdict, or the failure of the judge; None if full verdicts have to
            decide which kernel of a round is faster.

        Raises:
            UsageError: If the device has too little memory for the problem, or the host does not
                allow the required sandbox tier.
            OSError: If the worker is lost; or EOFError.
        """
        done = self._job("judge", problem, kernels, seed=seed)
        return tuple(map(Verdict.from_dict, done)) if isinstance(done, list) else done

    def build(self, problem: Problem, kernel: Kernel) -> Build | JudgeFailure | None:
        """Have the worker build a kernel's extensions.

        Args:
            problem: Any problem: jobs have one, and this one is not looked at.
            kernel: The kernel.

        Returns:
            Facts on the compiled extensions; None if nothing was built; or the judge's failure.

        Raises:
            UsageError: If the host does not allow the required sandbox tier.
            OSError: If the worker is lost; or EOFError.
        """
        done = self._job("build", problem, [kernel])
        return Build.from_dict(done) if isinstance(done, dict) else done

    def compile_only(self, problem: Problem, kernel: Kernel) -> CompileResult | JudgeFailure:
        """Have the worker compile a kernel for its ruleset's GPU without judging it.

        Args:
            problem: The problem, whose inputs give the launches' types.
            kernel: The kernel.

        Returns:
            The compiler's result, or the judge's failure.

        Raises:
            UsageError: If the host does not allow the required sandbox tier.
            OSError: If the worker is lost; or EOFError.
        """
        done = self._job("compile", problem, [kernel])
        if isinstance(done, JudgeFailure):
            return done
        return CompileResult(done["launches"], tuple(done["complaints"]))

    def profile(
        self, problem: Problem, kernel: Kernel, metrics: Sequence[str], timeout_s: float
    ) -> Counters | JudgeFailure:
        """Have the worker profile one call of a kernel.

        Returns:
            The counters; or the judge's failure.

        Raises:
            UsageError: If the host does not allow the required sandbox tier.
            OSError: If the worker is lost; or EOFError.
        """
        asked = {"metrics": list(metrics), "timeout_s": timeout_s}
        done = self._job("profile", problem, [kernel], **asked)
        return done if isinstance(done, JudgeFailure) else Counters.from_dict(done)

    def prepare_baseline(self, problem: Problem, refresh: bool) -> Baseline:
        """Have the worker prepare a compiled baseline.

        Raises:
            UsageError: If the device has too little memory for the problem.
            JudgeError: If the judge or the problem's own code fails.
            OSError: If the worker is lost; or EOFError.
        """
        done = self._job("baseline", problem, refresh=refresh)
        if isinstance(done, JudgeFailure):
            raise JudgeError(done.message)
        return Baseline.from_dict(done)

    def _job(
        self, what: str, problem: Problem, kernels: Sequence[Kernel] = (), **more: Any
    ) -> Any | JudgeFailure:
        self._jobs += 1
        nouns = {"problem": fields_of(problem), "kernels": [*map(fields_of, kernels)]}
        answer = self._ask({"job": self._jobs, "what": what, **nouns, **more})
        if answer["job"] != self._jobs:
            raise ValueError(f"the answer to job {answer['job']} came for job {self._jobs}")
        if "refused" in answer:
            raise UsageError(answer["refused"])
        if "failed" in answer:
            return JudgeFailure(answer["failed"], answer["code"])
        return answer["done"]

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        deadline, starvation = time.monotonic() + self._job_s, Starvation(self._job_s)
        starvation.begin(self._process.popen.pid)
        try:
            self._process.socket.settimeout(self._job_s)
            protocol.send(self._process.socket, message)
            while True:
                self._process.socket.settimeout(
                    min(max(1e-3, deadline - time.monotonic()), _LOOK_S)
                )
                with contextlib.suppress(TimeoutError):
                    return protocol.receive(self._process.socket, self._decoder)[0]
                deadline += starvation.more_s()
                if time.monotonic() >= deadline:
                    raise TimeoutError("timed out")
        except EOFError:
            raise EOFError(self._process.complaint()) from None

    def close(self) -> None:
        """End the worker and all processes that it started."""
        self._finalizer()

    def abandon(self) -> None:
        """Close this process's ends of the worker's channels, without ending the worker.

        For a forked child: the worker belongs to its parent.
        """
        if self._finalizer.detach() is not None:
            self._process.socket.close()
            os.close(self._lifeline)


def _environment(folder: Path, visible: dict[str, str]) -> dict[str, str]:
    """Return a worker's environment variables.

    Args:
        folder: The cache folder.
        visible: Variables that limit which devices it sees.
    """
    environment = of_trusted() | visible
    environment |= {"OMP_WAIT_POLICY": "PASSIVE", "TRITON_INTERPRET": "0"}
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        environment[name] = str(folder.absolute() / "own-kernels")
    if not any(name in environment for name in _ALLOCATOR_NAMES):
        environment[_ALLOCATOR_NAMES[0]] = _ALLOCATOR
    return environment


def _end(process: TrustedProcess, lifeline: int, scratch: Path) -> None:
    process.hang_up()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.popen.wait(1.0)  # an idle worker ends by itself and removes its files
    os.close(lifeline)
    process.end(3.0)
    remove_folder(scratch)


_living: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


def _abandon_all() -> None:
    for worker in list(_living):
        worker.abandon()
    _living.clear()


# A forked child shares the parent's sockets: it would read its answers and end its workers.
os.register_at_fork(after_in_child=_abandon_all)
