"""KernelBench's own result for a verdict of its ruleset.

`as_kernelbench` maps any verdict to the pair (compiled, correctness) that KernelBench's batch
evaluation records. The two differ in more than names: KernelBench calls a kernel compiled once its
module has loaded, so an error of Triton's compiler at the first launch is a runtime error there.
It records as not compiled what its evaluation does not catch: constructors that raise anything but
a RuntimeError, exits, timeouts, and CUDA errors that persist after the call that caused them.

The pair is promised for verdicts of the `kernelbench` ruleset and for kernels that do not attack
the harness. Nothing here runs a kernel; `benchmarks/conformance/run.py` compares with the
original.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kernelgym.types import Severity, Status, Verdict
from kernelgym.verdict import CONSTRUCTOR_FINDING

Reason = Literal[
    "",
    "compilation_error",
    "runtime_error",
    "correctness_issue",
    "cuda_error",
    "other_error",
    "timeout",
    "retry",
]
"""Key of the failure in KernelBench's metadata; empty for a correct kernel.
`timeout` stands for its wrapper's time limit, `retry` for its None (no result, try again)."""


# Subclasses of RuntimeError that torch and Python raise: the one class that KernelBench catches
# around the constructor. A verdict's message carries the bare name of the class.
_RUNTIME_ERRORS = frozenset(
    {
        "AcceleratorError",
        "CudaError",
        "DeferredCudaCallError",
        "LinAlgError",
        "NotImplementedError",
        "OutOfMemoryError",
        "RecursionError",
        "RuntimeError",
        "_LinAlgError",
    }
)
# They pass every `except Exception` on the way out, and end KernelBench's worker.
_EXITS = frozenset({"GeneratorExit", "KeyboardInterrupt", "SystemExit"})
# CUDA errors after which the context answers every call with the same error.
_STICKY = re.compile(
    r"illegal memory access|illegal address|misaligned address|illegal instruction"
    r"|unspecified launch failure|device-side assert|invalid program counter|hardware stack error"
    r"|invalid address space|uncorrectable ECC",
    re.IGNORECASE,
)
_PROCESS_FAILED = "the kernel's process failed"
_ERROR_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::|$)")


@dataclass(frozen=True, slots=True)
class KernelBenchResult:
    """A verdict in KernelBench's terms."""

    compiled: bool
    correctness: bool
    timed: bool = False
    """True if the kernel has a valid time, which a hard finding rules out."""
    reason: Reason = ""
    message: str = ""
    """Message of the verdict."""


def as_kernelbench(verdict: Verdict) -> KernelBenchResult:
    """Return the result that KernelBench records for a kernel with this verdict.

    Defined for every verdict. An `unavailable` verdict, which is a failure of the judge, becomes a
    `retry`, which KernelBench does not count; a `rejected` one is never correct here, although
    KernelBench has no such refusal.

    Args:
        verdict: A verdict, preferably of the `kernelbench` ruleset.
    """
    reason, compiled = _failure(verdict)
    correct = verdict.status is Status.CORRECT
    hard = any(finding.severity is Severity.HARD for finding in verdict.findings)
    return KernelBenchResult(
        compiled=compiled,
        correctness=correct,
        timed=correct and verdict.timed and not hard,
        reason=reason,
        message=verdict.message,
    )


def _failure(verdict: Verdict) -> tuple[Reason, bool]:
    """Return the failure's key and whether KernelBench calls the kernel compiled."""
    match verdict.status:
        case Status.CORRECT:
            return "", True
        case Status.WRONG:
            return "correctness_issue", True
        case Status.RUNTIME_ERROR:
            return _runtime_failure(verdict)
        case Status.COMPILE_ERROR:
            # Ours once the module had loaded: Triton's compiler failed at a launch.
            launched = verdict.compiled or verdict.trials > 0
            return ("runtime_error", True) if launched else ("compilation_error", False)
        case Status.TIMEOUT:
            return "timeout", False
        case Status.UNAVAILABLE:
            return "retry", False
        case Status.REJECTED:
            return "other_error", verdict.compiled
        case Status.NO_KERNEL:
            return "compilation_error", False


def _runtime_failure(verdict: Verdict) -> tuple[Reason, bool]:
    if _STICKY.search(verdict.message):
        # Its clean-up meets the same error again, outside of any handler.
        return "cuda_error", False
    name = _error_name(verdict.message)
    if verdict.message.startswith(_PROCESS_FAILED) or name in _EXITS:
        return "timeout", False  # its worker is gone, and its pool waits for it until the limit
    for finding in verdict.findings:
        if finding.code == CONSTRUCTOR_FINDING:
            caught = _error_name(finding.message) in _RUNTIME_ERRORS
            return ("runtime_error", True) if caught else ("other_error", False)
    return "runtime_error", True


def _error_name(message: str) -> str:
    """Return the class named at the start of a message such as ``ValueError: no``."""
    match = _ERROR_NAME.match(message)
    return match[1] if match else ""
