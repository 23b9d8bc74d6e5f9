"""Support for tests: a scripted evaluator, a sample problem and sample kernels.

`ScriptedEvaluator` implements the `Evaluator` protocol without running kernels, so environments and
trainers can be tested in milliseconds on any machine. Its verdicts say nothing about a kernel.
May import `kernelgym.evaluators`, `kernelgym.languages`, `kernelgym.rulesets` and the types.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

from kernelgym.capabilities import Capabilities, DeviceHealth, EvaluatorStatus
from kernelgym.errors import UsageError
from kernelgym.evaluators.base import EvaluatorBase
from kernelgym.evaluators.dispatch import Dispatcher
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.testing.samples import SAMPLE_BROKEN, SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Build, Finding, Job, Kernel, Problem, Status, Timing, Verdict

__all__ = [
    "SAMPLE_BROKEN",
    "SAMPLE_KERNELS",
    "SAMPLE_PROBLEM",
    "Script",
    "ScriptedEvaluator",
    "reply",
    "verdict",
]

Script = Sequence[Verdict] | Mapping[str, Verdict] | Callable[[Problem, Kernel], Verdict]
"""Script of a scripted evaluator's verdicts; see `ScriptedEvaluator`."""

_MARKER = re.compile(r"^[ \t]*#[ \t]*verdict:[ \t]*(\w+)(?:[ \t]+([0-9.]+))?[ \t]*$", re.MULTILINE)
_COMPILED = (Status.RUNTIME_ERROR, Status.TIMEOUT, Status.WRONG, Status.CORRECT)


def verdict(
    status: str | Status,
    *,
    speedup: float | None = None,
    speedup_low: float | None = None,
    trials_passed: int | None = None,
    trials: int = 4,
    custom_share: float | None = None,
    findings: tuple[Finding, ...] = (),
    message: str = "",
    log: str = "",
    build: Build | None = None,
) -> Verdict:
    """Return a verdict of some status whose fields agree with each other.

    Args:
        status: Status or its name.
        speedup: Speedup over a reference that takes 1 ms; None leaves the verdict untimed.
        speedup_low: Lower end of the speedup's interval; 5 % below `speedup` if not given.
        trials_passed: Trials passed by a kernel that is not correct; 0 if not given. A correct
            kernel passes all.
        trials: Number of trials, if the status means that the kernel was run.
        custom_share: Share of the reference's work that custom kernels replaced; None for
            not measured.
        findings: Findings of the verdict.
        message: Message of the verdict.
        log: Captured output.
        build: Record of what the compilers produced.
    """
    status = Status(status)
    ran = status in _COMPILED
    passed = trials if status is Status.CORRECT else (trials_passed or 0)
    timing = None
    if speedup is not None:
        low = speedup * 0.95 if speedup_low is None else speedup_low
        timing = Timing(1.0 / speedup, 1.0, speedup, low, samples=10)
    return Verdict(
        status,
        compiled=ran,
        trials_passed=passed if ran else 0,
        trials=trials if ran else 0,
        max_abs_error=0.5 if status is Status.WRONG else 0.0,
        max_rel_error=0.25 if status is Status.WRONG else 0.0,
        timing=timing,
        custom_share=custom_share,
        findings=findings,
        message=message,
        log=log,
        build=build,
    )


def reply(kernel: Kernel, thought: str = "Work out one element per program instance.") -> str:
    """Return a model's answer that holds a kernel in the expected form."""
    return f"<think>\n{thought}\n</think>\n\n<KERNEL>\n```python\n{kernel.source}```\n</KERNEL>\n"


class ScriptedEvaluator(EvaluatorBase):
    """An evaluator that returns verdicts from a script.

    Args:
        script: One of

            - None: the last comment ``# verdict: <status> [<speedup>]`` in a kernel's source gives
              the verdict; without one the kernel is correct and untimed;
            - a sequence of verdicts, used in turn and again from the start;
            - a mapping from a kernel's digest, or from text in its source, to a verdict; a kernel
              without a match is treated as with None;
            - a function of problem and kernel.
        ruleset: Ruleset in the evaluator's capabilities and verdicts.
        device: Device in the evaluator's capabilities and verdicts.
        **capabilities: Other fields of the evaluator's `kernelgym.capabilities.Capabilities`, such
            as ``timed=False``. As many kernels are judged at the same time as there are workers.

    Attributes:
        judged: Jobs that the evaluator was given, in order.
        seeds: Seeds of those jobs; an empty string for none.
        health: Health of the devices that `status` reports.
        closed: True once `close` was called.
    """

    def __init__(
        self,
        script: Script | None = None,
        ruleset: str | Ruleset = "strict",
        device: str = "cpu",
        **capabilities: Any,
    ) -> None:
        if isinstance(script, Sequence) and not script:
            raise UsageError("a script of verdicts needs at least one verdict")
        self._script = script
        claims = {"languages": tuple(LANGUAGES), "provenance": ("scripted",)} | capabilities
        self._capabilities = Capabilities(device, find_ruleset(ruleset), **claims)
        self._dispatcher = Dispatcher(
            lambda job, seed, _: self.evaluate(job.problem, job.kernel, seed=seed),
            [device] * self._capabilities.workers,
        )
        self._lock = threading.Lock()
        self.judged: list[Job] = []
        self.seeds: list[str] = []
        self.health: tuple[DeviceHealth, ...] = ()
        self.closed = False

    @property
    def status(self) -> EvaluatorStatus:
        """Status that reports the `health` which the evaluator was given."""
        return EvaluatorStatus(self.health)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities that the evaluator was created with."""
        return self._capabilities

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of the scripted verdict."""
        return self._dispatcher.submit(job, seed)

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Return the scripted verdict, with the evaluator's device and ruleset and the seed."""
        with self._lock:
            index = len(self.judged)
            self.judged.append(Job(problem, kernel))
            self.seeds.append(seed)
        found = self._choose(index, problem, kernel)
        return dataclasses.replace(
            found,
            device=self._capabilities.device,
            ruleset=self._capabilities.ruleset.label,
            seed=seed or found.seed,
        )

    def close(self) -> None:
        """Record in `closed` that the evaluator was closed."""
        self.closed = True

    def _choose(self, index: int, problem: Problem, kernel: Kernel) -> Verdict:
        script = self._script
        if isinstance(script, Mapping):
            for key, found in script.items():
                if key == kernel.digest or key in kernel.source:
                    return found
        elif isinstance(script, Sequence):
            return script[index % len(script)]
        elif script is not None:
            return script(problem, kernel)
        return _marked_verdict(kernel.source)


_STATUSES: Mapping[str, Status] = MappingProxyType({status.value: status for status in Status})


def _marked_verdict(source: str) -> Verdict:
    markers = _MARKER.findall(source)
    if not markers:
        return verdict(Status.CORRECT)
    name, speedup = markers[-1]
    if name not in _STATUSES:
        raise UsageError(
            f"unknown status {name!r} in a '# verdict:' comment; known: {', '.join(_STATUSES)}"
        )
    return verdict(
        _STATUSES[name], speedup=float(speedup) if speedup else None, message=f"scripted: {name}"
    )
