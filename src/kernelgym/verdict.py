"""The judge's verdict on one kernel, with its status, findings and timing.

A verdict crosses processes and files through `Verdict.to_dict` and `Verdict.from_dict`: plain
JSON, no NaN, no pickle. Part of the nouns; import these names from `kernelgym.types`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, Self

from kernelgym.counters import Counters

UNCONFIRMED_SPEED = "speedup_not_confirmed"
"""Code of the finding on a correct verdict whose speed was too good to believe, measured again,
and withheld. Any other correct verdict without a timing lacks it for reasons of ours."""

CLOCK_MISMATCH = "clock_mismatch"
"""Code of the finding that the kernel's own clock contradicts the judge's. An untimed verdict with
it lacks its time by the kernel's own fault."""

SMALL_SHARE = "small_share"
"""Code of the finding that torch does nearly all of the reference's work."""

FRONT_END = "front_end"
"""Code of the finding on a kernel that Triton's front end refuses to compile for a GPU."""

CUDA_ON_CPU = "cuda_on_cpu"
"""Code of the finding on an interpreted kernel that names the device ``cuda``, which meant the CPU.
"""

INTERPRETER_CHECK = "interpreter_check"
"""Code of the finding on an error that Triton's interpreter checks for and a GPU does not."""

HOST_BUSY = "host_busy"
"""Code of the finding that other programs took the processors while a kernel was timed on them.
Its interval is wide, or it has no time; judging again on an idle host gives a better one."""

MOST_WINDOWS = 64
"""Largest number of pairs of windows that a `Timing` keeps."""

MOST_FUNCTIONS = 64
"""Largest number of functions that a `Build` names."""

CONSTRUCTOR_FINDING = "constructor_error"
"""Code of the finding by which the judge says that `ModelNew`'s constructor raised."""


class Severity(StrEnum):
    """Weight of a finding."""

    INFO = "info"
    """Fact worth knowing that is no fault of the kernel."""
    SOFT = "soft"
    """Suspicious or wasteful code, which is reported but not refused."""
    HARD = "hard"
    """Violation of a rule, for which the kernel is `rejected`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about a kernel, from screening or from the judge."""

    code: str
    """Stable name in snake_case, such as ``torch_compute_call``."""
    message: str
    """Sentence for a reader."""
    severity: Severity = Severity.SOFT
    line: int = 0
    """Line in the kernel's source, from 1; 0 if the finding has no place there."""


class Status(StrEnum):
    """Result of judging one kernel. The values have no order: compare them by name only."""

    NO_KERNEL = "no_kernel"
    """Text without a kernel."""
    REJECTED = "rejected"
    """Kernel with a hard finding: it breaks a rule of the ruleset."""
    COMPILE_ERROR = "compile_error"
    """Kernel that did not compile or load, or that defines no `ModelNew`."""
    RUNTIME_ERROR = "runtime_error"
    """Kernel that raised, crashed or overran a limit while running."""
    TIMEOUT = "timeout"
    """Kernel that was still running at its deadline."""
    WRONG = "wrong"
    """Kernel that ran, but with an output that differs from the reference's."""
    CORRECT = "correct"
    """Kernel whose outputs agreed with the reference in every judged call."""
    UNAVAILABLE = "unavailable"
    """Failure of the judge, which says nothing about the kernel; trainers drop such turns."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of a correct kernel and of the reference in milliseconds, measured side by side."""

    kernel_ms: float
    """Median milliseconds of one call of the kernel."""
    reference_ms: float
    """Median milliseconds of one call of the reference."""
    speedup: float
    """Speedup over the reference: `reference_ms` over `kernel_ms`."""
    speedup_low: float
    """Lower end of the 95 % interval of the speedup; rewards use it."""
    speedup_high: float = field(default=0.0, kw_only=True)
    """Upper end of the 95 % interval of the speedup; 0.0 if unknown."""
    samples: int
    """Number of paired measurements."""
    turn_ms: float = field(default=0.0, kw_only=True)
    """Time of one call, measured alternately with other kernels, for comparison with theirs: the
    lower quartile of its windows, without the time that they waited for other programs on the CPU.
    0.0 if the kernel was timed alone."""
    baseline: str = "eager"
    """Mode that the reference ran in, ``eager`` or ``compile``; ``start`` if it is a kernel."""
    floor_ms: float = field(default=0.0, kw_only=True)
    """Time for moving `moved_bytes` at the device's measured bandwidth; 0.0 if unknown."""
    moved_bytes: int = field(default=0, kw_only=True)
    """Size of one call's inputs and outputs, which a kernel that uses them all moves at the
    least; parameters are not counted. 0 if unknown."""
    windows: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)
    """(kernel, reference) milliseconds per call of each pair of windows, to six digits, in the
    order they were measured; the last 64 of `samples`. Empty if not recorded."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Speedup of each pair of `windows`."""
        return tuple(reference / kernel for kernel, reference in self.windows)

    @property
    def bandwidth_gb_s(self) -> float:
        """`moved_bytes` over `kernel_ms`, in 10^9 bytes per second; 0.0 if unknown."""
        return self.moved_bytes / self.kernel_ms / 1e6

    @property
    def floor_share(self) -> float:
        """`floor_ms` over `kernel_ms`, the achieved share of the bandwidth; 0.0 if unknown."""
        return self.floor_ms / self.kernel_ms

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor_ms < math.inf or self.moved_bytes < 0:
            raise ValueError(
                "a Timing's floor_ms and moved_bytes must not be negative, got "
                f"{self.floor_ms} ms and {self.moved_bytes} bytes"
            )
        if not 0.0 <= self.turn_ms < math.inf:
            raise ValueError(f"a Timing's turn_ms {self.turn_ms} is negative or not finite")
        numbers = (self.kernel_ms, self.reference_ms, self.speedup, self.speedup_low)
        if not all(math.isfinite(value) and value > 0 for value in numbers):
            raise ValueError(f"a Timing needs finite positive numbers, got {numbers}")
        if self.speedup_low > self.speedup:
            raise ValueError(f"speedup_low {self.speedup_low} is above speedup {self.speedup}")
        if self.speedup_high and not self.speedup <= self.speedup_high < math.inf:
            raise ValueError(f"speedup_high {self.speedup_high} is below speedup {self.speedup}")
        if len(self.windows) > MOST_WINDOWS:
            raise ValueError(f"{len(self.windows)} windows are given; keep {MOST_WINDOWS} at most")
        if not all(math.isfinite(ms) and ms > 0 for pair in self.windows for ms in pair):
            raise ValueError("windows hold finite positive milliseconds only")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the timing that plain data describes, with or without `windows`."""
        windows = tuple((kernel, reference) for kernel, reference in data.get("windows", ()))
        return cls(**{**data, "windows": windows})


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Share of a call's time that one custom kernel takes."""

    name: str
    """Name of the Triton function, the extension's function or the operator."""
    launches: int
    """Number of launches of this kernel in one call."""
    ms: float
    """Milliseconds of all launches of this kernel in one call, added up."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Breakdown of the time of one call; measured in a process that the kernel shares."""

    call_ms: float
    """Milliseconds of the whole call, by the device's clock where it has one."""
    kernels: tuple[KernelTime, ...]
    """Custom kernels of the candidate, the longest first; at most 16."""

    @property
    def kernel_share(self) -> float:
        """Share of the call's time that passes in the candidate's own kernels."""
        spent = sum(kernel.ms for kernel in self.kernels)
        return min(1.0, spent / self.call_ms) if self.call_ms else 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the profile that plain data describes."""
        return cls(data["call_ms"], tuple(KernelTime(**kernel) for kernel in data["kernels"]))


@dataclass(frozen=True, slots=True)
class BuiltFunction:
    """Machine code of one function, as a compiler reports it.

    Sizes are in bytes; None where unknown.
    """

    name: str
    """Name of the function for the linker, such as ``_Z3addPfi``; at most 200 characters."""
    digest: str = ""
    """Digest of the function's machine code and the constants that it reads. Functions that differ
    only in names, comments or addresses have equal digests. Empty if unknown, as on GPUs."""
    registers: int | None = None
    """Registers that each thread of a GPU takes."""
    spilled_bytes: int | None = None
    """Bytes that each thread stores to memory for lack of registers, counted once a store."""
    shared_bytes: int | None = None
    """Shared memory of a block that the compiler laid out; dynamic one is not counted."""


@dataclass(frozen=True, slots=True)
class Build:
    """Machine code and compiler output of a kernel that compiled.

    Text and names come from the kernel's own source: untrusted, like its output.
    """

    log: str = ""
    """Output of the compilers: warnings, and reports that the kernel's flags ask for, such as
    ``-fopt-info-vec``; bounded."""
    digest: str = ""
    """Digest of all machine code and constants. Kernels of one Python text whose builds have equal
    digests do the same. Empty if unknown."""
    functions: tuple[BuiltFunction, ...] = ()
    """Functions of the kernel's own text, by name, and a GPU's kernels; at most 64."""

    def __post_init__(self) -> None:
        if len(self.functions) > MOST_FUNCTIONS:
            raise ValueError(f"{len(self.functions)} functions; keep {MOST_FUNCTIONS} at most")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the build that plain data describes."""
        functions = tuple(BuiltFunction(**function) for function in data["functions"])
        return cls(data["log"], data["digest"], functions)


Relation = Literal["", "nan", "zero", "constant", "scaled", "shifted"]
"""Relation of wrong elements to right ones; empty if none of the known relations holds."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Location of the differences between one judged call's output and the reference's.

    Holds places and sizes, never a value of the reference or of the inputs.
    """

    differing: int
    """Number of elements that differ by more than the ruleset allows."""
    shape: tuple[int, ...]
    """Shape of the output."""
    first: tuple[tuple[int, ...], ...] = ()
    """Indices of the first few differing elements, in row-major order."""
    worst_at: tuple[int, ...] | None = None
    """Index of the differing element with the largest error; None if unknown or not a matter of
    size."""
    nonfinite: int = 0
    """Number of differing elements that are NaN or infinite where the reference is finite."""
    pattern: str = ""
    """Place of the wrong elements in words, such as ``only the last row``; empty if irregular."""
    relation: Relation = ""
    """Values at the differing elements: ``nan``, ``zero``, ``constant``, or the
    reference's value ``scaled`` or ``shifted`` by one number."""
    ratio: float = 0.0
    """Factor of a ``scaled`` output, to two digits; 0.0 for any other relation. Given only where
    the reference's values vary, so that the factor gives none of them away."""
    output: int = 0
    """Index of the wrong output, counted from 0."""
    outputs: int = 1
    call: int = 0
    """Number of the judged call, from 1; 0 for a call made while the kernel was timed."""
    calls: int = 0
    inputs: str = "given"
    """Kind of inputs of the judged call: ``given`` for the problem's own."""

    def __post_init__(self) -> None:
        if not 0 < self.differing <= self.elements:
            raise ValueError(f"{self.differing} of {self.elements} elements differ")

    @property
    def elements(self) -> int:
        """Number of elements of the output."""
        return math.prod(self.shape)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the mismatch that plain data describes."""
        values = dict(data)
        values["shape"] = tuple(values["shape"])
        values["first"] = tuple(tuple(index) for index in values.get("first", ()))
        if values.get("worst_at") is not None:
            values["worst_at"] = tuple(values["worst_at"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds of one verdict by stage; what is left of `Verdict.wall_s` is none of them.

    A verdict of a round of several kernels has an equal share of the round's seconds. Stages do not
    overlap here: while one process waits for a build, that is what counts.
    """

    queue_s: float = 0.0
    """Seconds of waiting for the device or its memory, which other workers held."""
    build_s: float = 0.0
    """Seconds of compiling extensions, and of assembling what Triton compiles on a GPU."""
    load_s: float = 0.0
    """Seconds until the process stands, the kernel is imported, and the reference is ready."""
    check_s: float = 0.0
    """Seconds of judged calls: drawing inputs, running both sides, comparing outputs."""
    evidence_s: float = 0.0
    """Seconds of watching what the custom kernels do, a second run included where it is needed."""
    timing_s: float = 0.0
    """Seconds of timed windows, the process of the baseline included."""

    @property
    def total_s(self) -> float:
        """Seconds of all stages together."""
        return sum(float(getattr(self, each.name)) for each in fields(self))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of judging one kernel."""

    status: Status
    compiled: bool = False
    """Whether the kernel built, loaded and could be constructed."""
    trials_passed: int = 0
    """Number of judged calls whose output agreed with the reference."""
    trials: int = 0
    """Number of judged calls that were made; the planned number if one of them ended the run."""
    max_abs_error: float = 0.0
    """Largest absolute error found; 0.0 if none was compared or none is finite.

    Calls after a wrong one are compared only up to their first wrong elements."""
    max_rel_error: float = 0.0
    """Largest error relative to the reference's magnitude; 0.0 under the same conditions."""
    timing: Timing | None = None
    """Times of a correct kernel, on a device and in a language that can be timed; else None."""
    findings: tuple[Finding, ...] = ()
    message: str = ""
    """Summary of what happened, in one or a few lines without tracebacks."""
    log: str = ""
    """Compiler output, or the kernel's own stdout and stderr; bounded."""
    device: str = ""
    custom_share: float | None = None
    """Share, by bytes or operations, of the reference's work that torch's operators no longer do
    because custom kernels replaced it; None where it was not measured, and then it decides
    nothing. Measured in a process that the kernel shares: good for honest kernels, forgeable by
    hostile ones."""
    isolation: str = ""
    """Name of the sandbox tier that the kernel ran in, such as ``ns+landlock+seccomp``; empty if
    nothing was run."""
    ruleset: str = ""
    """Name and digest of the ruleset, such as ``strict@1f0c2a77``."""
    seed: str = ""
    """Secret seed of this verdict, revealed afterwards so that it can be repeated."""
    wall_s: float = 0.0
    stages: Stages | None = None
    """Seconds of each stage of the verdict; None if nothing was run."""
    mismatch: Mismatch | None = None
    """Differences of the first wrong output; only for a wrong kernel of the right shapes."""
    checked_for: str = ""
    """Name of the GPU for which Triton's front end was asked to compile interpreted launches, such
    as ``cuda:90``; empty if it was not asked."""
    profile: Profile | None = None
    """Launches of one call with their times; only for correct kernels with evidence, on devices
    where kernels are timed."""
    build: Build | None = None
    """Result of compiling the kernel; None if nothing was built, as for interpreted kernels, or if
    a build failed (then `log` has the compiler's log)."""
    counters: Counters | None = None
    """Hardware counters of one call; None unless they were asked for, and for kernels that are not
    correct. They decide nothing."""

    def __post_init__(self) -> None:
        if self.mismatch is not None and self.status is not Status.WRONG:
            raise ValueError(f"only a wrong verdict can carry a mismatch, not {self.status.value}")
        if self.timing is not None and self.status is not Status.CORRECT:
            raise ValueError(f"only a correct verdict can carry a timing, not {self.status.value}")
        if self.status is Status.CORRECT and not (
            self.compiled and 0 < self.trials == self.trials_passed
        ):
            raise ValueError("a correct verdict needs compiled=True and all of its trials passed")
        if not 0 <= self.trials_passed <= self.trials:
            raise ValueError(f"{self.trials_passed} of {self.trials} trials passed")
        if not (math.isfinite(self.max_abs_error) and math.isfinite(self.max_rel_error)):
            raise ValueError("errors must be finite (use 0.0 and say so in the message)")
        if self.custom_share is not None and not 0.0 <= self.custom_share <= 1.0:
            raise ValueError(f"custom_share must lie in [0, 1], got {self.custom_share}")

    @property
    def correct(self) -> bool:
        """True if the kernel passed."""
        return self.status is Status.CORRECT

    @property
    def valid(self) -> bool:
        """False if the judge failed, so that the verdict says nothing about the kernel."""
        return self.status is not Status.UNAVAILABLE

    @property
    def timed(self) -> bool:
        """True if there is a timing."""
        return self.timing is not None

    @property
    def distrusted(self) -> bool:
        """True if other programs disturbed the timing, so that the time is doubtful or missing."""
        return self.correct and any(found.code == HOST_BUSY for found in self.findings)

    @property
    def speedup(self) -> float:
        """Speedup over the reference; 0.0 if untimed."""
        return self.timing.speedup if self.timing else 0.0

    @property
    def speedup_low(self) -> float:
        """Lower end of the speedup's 95 % interval; 0.0 if untimed."""
        return self.timing.speedup_low if self.timing else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data; derived values (`correct`, `timed`, ...) are included."""
        data = dataclasses.asdict(self)
        data["status"] = self.status.value
        data["findings"] = [{**f, "severity": f["severity"].value} for f in data["findings"]]
        derived = ("correct", "valid", "timed", "speedup", "speedup_low")
        return data | {name: getattr(self, name) for name in derived}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the verdict that `to_dict` wrote as data.

        Raises:
            ValueError: If a value breaks an invariant or a name is unknown.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        values = {key: value for key, value in data.items() if key in names}
        values["status"] = Status(values["status"])
        values["findings"] = tuple(
            Finding(f["code"], f["message"], Severity(f["severity"]), f["line"])
            for f in values.get("findings", ())
        )
        if values.get("stages") is not None:
            values["stages"] = Stages(**values["stages"])
        if values.get("timing") is not None:
            values["timing"] = Timing.from_dict(values["timing"])
        if values.get("mismatch") is not None:
            values["mismatch"] = Mismatch.from_dict(values["mismatch"])
        if values.get("profile") is not None:
            values["profile"] = Profile.from_dict(values["profile"])
        if values.get("build") is not None:
            values["build"] = Build.from_dict(values["build"])
        if values.get("counters") is not None:
            values["counters"] = Counters.from_dict(values["counters"])
        return cls(**values)


def unavailable(
    message: str,
    code: str = "judge_failed",
    device: str = "",
    ruleset: str = "",
    wall_s: float = 0.0,
) -> Verdict:
    """Return the `unavailable` verdict for a failure of the judge.

    Args:
        message: Description of the failure.
        code: Code of the verdict's finding: ``judge_failed``, or ``worker_lost`` and
            ``device_lost`` where a kernel may have brought it about.
        device: Device on which the kernel should have been judged.
        ruleset: Label of the rules.
        wall_s: Wall seconds that the attempt took.
    """
    finding = Finding(code, message, Severity.INFO)
    return Verdict(
        Status.UNAVAILABLE,
        message=message,
        findings=(finding,),
        device=device,
        ruleset=ruleset,
        wall_s=wall_s,
    )
