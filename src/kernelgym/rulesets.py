"""Rulesets: everything that decides a verdict, as data with a digest.

Two verdicts can be compared only if their ruleset labels are equal. Two rulesets ship:

- `strict` (default): fresh secret inputs for every call, an error bound taken from an fp64
  reference, in-place changes of the inputs refused, interpreted kernels judged as a GPU would.
- `kernelbench`: KernelBench's own seeds, number of trials and tolerances.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

from kernelgym.errors import UnknownName, UsageError

Precision = Literal["own", "fp64", "fp32", "fp16", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("own", "fp32", "fp16", "bf16")
"""Precisions that problems can be judged at."""
BASELINES = ("eager", "compile", "best")
"""Modes in which the reference may run while kernels are timed against it."""
HALF_PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one kernel's run. Overrunning a limit is the kernel's fault and ends its run.

    Seconds are those of a clock on the wall, less those in which other programs kept the processes
    from the processors (`kernelgym.judge.starvation`).
    """

    build_s: float = 120.0
    """Seconds for compiling a kernel's extensions, one or all of them together."""
    triton_build_s: float = 60.0
    """Seconds for one program that compiles a Triton launch: assembler or C compiler."""
    run_s: float = 60.0
    """Seconds that the worker waits for loading, constructing and all judged calls together; not
    for builds, nor for loading while the worker prepares the reference."""
    memory_bytes: int = 4 << 30
    """Bytes of address space that a kernel's process may add to what the preloaded libraries
    take."""
    output_bytes: int = 4 << 20
    """Largest number of bytes that a kernel may write to stdout and stderr together."""
    file_bytes: int = 256 << 20
    """Largest number of bytes of any one file that a kernel writes."""
    open_files: int = 256
    processes: int = 256
    """Largest number of processes and threads (not enforced by Linux for root outside the full
    sandbox tier)."""


@dataclass(frozen=True, slots=True)
class TimingProtocol:
    """Settings for timing a correct kernel, in pairs of a reference's and a kernel's window."""

    warmup_pairs: int = 2
    """Number of pairs run first and thrown away; on CUDA devices, the runs that find a window's
    length serve as these."""
    min_pairs: int = 8
    """Number of pairs before a narrow interval may end a timing."""
    device_min_pairs: int = 6
    """Value of `min_pairs` on CUDA devices."""
    max_pairs: int = 30
    """Largest number of pairs of one timing."""
    relative_width: float = 0.05
    """Width of the speedup's 95 % interval, relative to the speedup, at which a timing ends."""
    device_relative_width: float = 0.01
    """Value of `relative_width` on CUDA devices."""
    between_process: float = 0.05
    """Standard deviation, relative, of the speedup between verdicts of one kernel, as far as pairs
    inside one verdict cannot show it (memory's layout, the machine's neighbours). The reported
    interval is widened by it, in quadrature; when to stop is decided without it."""
    device_between_process: float = 0.001
    """Value of `between_process` on CUDA devices."""
    window_ms: float = 2.0
    """Approximate milliseconds of a window, which holds as many calls (each on inputs of its own)
    as take this long."""
    device_window_ms: float = 3.0
    """Value of `window_ms` on CUDA devices."""
    graph_below_ms: float = 10.0
    """Milliseconds of a call below which calls are replayed from a CUDA graph where they can be
    captured, so that the host's time to launch them does not count as the device's."""
    budget_s: float = 3.0
    """Wall seconds after which no further pair is begun."""
    baseline: Literal["eager", "compile", "best"] = "eager"
    """Mode of the timed reference. `compile` and `best` (the faster of both) need a prepared
    compiled baseline; without one the verdict stays untimed."""
    quarantine_above: float = 10.0
    """Speedup above which a timing is believed only if a second process agrees; so is a time below
    what the memory's bandwidth allows."""
    quarantine_agreement: float = 0.2
    """Largest relative difference of the second process's speedup from the first's."""


class ErrorFactors(NamedTuple):
    """Factors by which a kernel's errors may exceed the reference's own."""

    element: float
    """Factor of the error at one element."""
    rms: float
    """Factor of the root mean square of all elements' errors; infinite for no such bound."""

    half_rms: float = 1.5
    """Value of `rms` for outputs in fp16 and bf16."""

    def of_half(self, most: float) -> ErrorFactors:
        """Return the factors for an output in fp16 or bf16, that of one element at most `most`."""
        return ErrorFactors(min(self.element, most), min(self.rms, self.half_rms), self.half_rms)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """All rules that decide a verdict, as data. If a field changes, the digest changes with it."""

    name: str
    precision: Precision = "own"
    """Floating-point type of weights and inputs. ``own``: those that the problem makes them in,
    which may differ from tensor to tensor; tolerances follow the lowest of them. Any other
    casts all of them; integers stay integers."""
    tf32: Literal["off", "torch"] = "off"
    """Use of TensorFloat-32 in the reference and its baseline: never, or as PyTorch has it by
    default (in convolutions, not in matrix products). A kernel may use it as far as the tolerance
    allows."""
    distributions: tuple[str, ...] = ("shifted", "wide", "narrow", "spiked", "salted")
    """Kinds of inputs that judged calls are drawn from beside the problem's own, as far as the
    reference is well conditioned on them (see `kernelgym.judge.inputs.kinds`)."""
    perturb_state: bool = True
    """Whether weights and buffers that are not drawn at random (a LayerNorm's ones and zeros, an
    identity) are replaced by secret values of the same kind, on both sides."""
    small_variances: bool = False
    """Whether some of the running variances among them are made so small that the layer's eps
    decides, where the reference is well conditioned on them."""
    require_custom_kernel: bool = True
    """Whether a correct kernel must show, in a watched run, that a custom kernel did work that
    torch does in the reference; without that it is `rejected`."""
    unknown_operators: Literal["cheap", "dear"] = "cheap"
    """Cost that evidence assumes for an operator of unknown cost that the kernel calls and the
    reference does not: the bytes that it moves (``cheap``) or many times as much (``dear``)."""
    small_share: float = 0.0
    """Share of the reference's work below which a custom kernel gets the soft finding
    ``small_share``."""
    least_share: float = 0.0
    """Share below which a kernel is `rejected`: of the reference's work, of a GPU's time (beside
    torch's products, if they are no more than the reference's), and of the output's elements."""
    own_time: float = 0.0
    """Smallest share, on a GPU, of the time of the kernel's own device functions in the sum of
    theirs and that of libraries which no operator of torch launched; below it, the kernel is
    `rejected`. 0 turns the rule off."""
    check_problems: bool = True
    """Whether environments leave degenerate problems out when they draw one."""
    min_calls: int = 3
    max_calls: int = 6
    """Bounds of the number of calls on which a kernel is judged, drawn at random; all calls are
    compared. Each other kind of inputs gets one call, and the problem's own at least two (on a GPU,
    two to four)."""
    secret_seed: bool = True
    """Whether weights and inputs are drawn from a secret seed of the operating system, not from
    42."""
    tolerance: Literal["fp64", "allclose"] = "fp64"
    """Rule of the comparison. `fp64`: a bound from an fp64 run of the reference. `allclose`: fixed
    `atol` and `rtol`."""
    atol: float = 1e-4
    """Absolute tolerance of `allclose`; also of `fp64` where the reference has no fp64 twin, and of
    numbers that are no tensors."""
    rtol: float = 1e-4
    """Tolerance like `atol`, relative to the magnitude of the kernel's value."""
    error_factors: tuple[tuple[str, float, float, float], ...] = (
        ("convolution", 64.0, 16.0, 1.5),
        ("contraction", 32.0, 8.0, 1.5),
        ("scan", 16.0, 16.0, 6.0),
        ("reduction", 16.0, 16.0, 6.0),
        ("elementwise", 8.0, 2.0, 1.5),
    )
    """`fp64` only: how many times the fp32 reference's own error a kernel may be off, by what the
    reference consists of (see `kernelgym.judge.reference.operator_class`). The first factor is for
    the error at one element, where own error means the largest among the output's elements of about
    the same magnitude or smaller; the second is for the root mean square of all errors, the third
    for that of outputs in fp16 or bf16 (a running sum may be rounded after every addition)."""
    half_factor: float = 6.0
    """`fp64` only: the most that the first factor is for an output in fp16 or bf16. The reference's
    own error there is mostly the rounding of its output; 16 times as much is what eight-bit types
    err."""
    error_floor: float = 1e-5
    """Error that `fp64` always allows, relative to the element's magnitude plus a typical one (the
    median of the output's non-zero magnitudes)."""
    double_floor: float = 1e-9
    """Value of `error_floor` for problems all of whose floating-point tensors are fp64.

    Computing such a problem in fp32 errs more."""
    error_distrust: float = 1e-3
    """`fp64` only: if the fp32 reference's own error exceeds this anywhere, relative to the same
    sum, then its fp64 run computes something else, and `atol` and `rtol` apply to that output."""
    stop_at_first_failure: bool = False
    """Whether a verdict ends at the first call that fails; off where rewards use the share of calls
    that agree."""
    forbid_input_mutation: bool = True
    """Whether a kernel that changes its inputs in place is wrong; if the reference changes them
    too, it may."""
    as_layer: bool = True
    """Whether a kernel is called as a layer of a model is. Outputs that are new memory in the
    reference are overwritten after a judged call; on a GPU, the inputs of some calls are written
    late, on the current stream. Timing, too, makes such calls now and then, without timing them."""
    front_end: str = ""
    """Name of a GPU, such as ``cuda:90`` or ``hip:gfx942``, for which Triton's front end must be
    able to compile interpreted launches; a refusal is the kernel's error. Empty to ask for none."""
    interpreter: Literal["plain", "gpu"] = "plain"
    """Mode of Triton's interpreter. With ``gpu``, `tl.dot` of fp32 operands rounds
    them to TF32 unless ``input_precision="ieee"`` is given, masked loads without ``other`` give
    NaN, and data races between the programs of a launch are errors."""
    cuda_on_cpu: bool = False
    """Meaning of the device ``cuda`` in the process of an interpreted kernel: the CPU, so that its
    guards pass and its tensors can be made, or a device that is missing."""
    ask_nan: bool = False
    """Whether kernels whose extensions were compiled by flags that assume finite numbers are called
    once more, on inputs with a NaN. An output that loses it is the soft finding
    ``nan_not_propagated``."""
    hard_findings: tuple[str, ...] = ("no_custom_kernel", "forbidden_import", "frame_access")
    """Codes of screening findings that reject a kernel."""
    timing: TimingProtocol = TimingProtocol()
    limits: Limits = Limits()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the ruleset that `dataclasses.asdict` wrote as data, also after JSON."""
        values = {name: _tupled(value) for name, value in data.items()}
        values["timing"] = TimingProtocol(**data["timing"])
        values["limits"] = Limits(**data["limits"])
        return cls(**values)

    @property
    def tolerances(self) -> tuple[float, float]:
        """`atol` and `rtol` as applied: as in KernelBench, at least 0.01 in fp16 and bf16.

        Under ``own`` they are those of an fp32 problem; see `at`.
        """
        least = 1e-2 if self.precision in HALF_PRECISIONS else 0.0
        return max(self.atol, least), max(self.rtol, least)

    def at(self, lowest: Precision) -> Self:
        """Return these rules with ``own`` replaced by one problem's lowest precision.

        For comparing outputs only: the result has another label than the verdicts.
        """
        return dataclasses.replace(self, precision=lowest) if self.precision == "own" else self

    @property
    def floor(self) -> float:
        """Error that is always allowed, at the precision of these rules."""
        return self.double_floor if self.precision == "fp64" else self.error_floor

    def factors_for(self, operation: str) -> ErrorFactors:
        """Return the error factors for a class of operations; a reduction's for an unknown one."""
        factors = {name: ErrorFactors(*rest) for name, *rest in self.error_factors}
        return factors.get(operation, factors["reduction"])

    @property
    def digest(self) -> str:
        """First 8 hex digits of the SHA-256 of all fields."""
        return _digest(self)

    @property
    def label(self) -> str:
        """Name and digest as ``name@digest``, which verdicts carry."""
        return f"{self.name}@{self.digest}"


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


@functools.lru_cache(maxsize=256)
def _digest(rules: Ruleset) -> str:
    # Kept, since every verdict and every info is stamped with it.
    text = json.dumps(dataclasses.asdict(rules), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


RULESETS: Mapping[str, Ruleset] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Ruleset(
                "strict",
                front_end="cuda:90",
                interpreter="gpu",
                cuda_on_cpu=True,
                unknown_operators="dear",
                small_share=0.1,
                least_share=0.02,
                own_time=0.9,
                distributions=(
                    *("shifted", "wide", "narrow", "spiked"),
                    *("lattice", "clustered", "salted"),
                ),
                small_variances=True,
                ask_nan=True,
            ),
            Ruleset(
                "kernelbench",
                precision="fp32",
                min_calls=5,
                max_calls=5,
                secret_seed=False,
                tolerance="allclose",
                forbid_input_mutation=False,
                as_layer=False,
                hard_findings=(),
                tf32="torch",
                distributions=(),
                perturb_state=False,
                require_custom_kernel=False,
                check_problems=False,
            ),
        )
    }
)


_RUN_SECONDS = re.compile(r"\+run\(([0-9.e+-]+)s\)$")
_OWN_TOLERANCES = re.compile(r"([^+@]+)\+tolerances\(atol=([^,()@]+),rtol=([^,()@]+)\)")


def with_tolerances(which: str | Ruleset, atol: float, rtol: float) -> Ruleset:
    """Return a ruleset with fixed tolerances in place of its own.

    They stand in its name, as in ``strict+tolerances(atol=0.001,rtol=0.01)``, so that `ruleset`
    and `recorded_ruleset` can read it back.

    Args:
        which: The ruleset, or its name.
        atol: Absolute tolerance.
        rtol: Tolerance relative to the kernel's value.

    Raises:
        UsageError: If a tolerance is negative or infinite, or there is no such ruleset.
    """
    rules = ruleset(which)
    for name, value in (("atol", atol), ("rtol", rtol)):
        if not 0.0 <= value < math.inf:
            raise UsageError(f"{name} is {value!r}; give a number from 0")
    base = rules.name.partition("+tolerances(")[0]
    name = f"{base}+tolerances(atol={float(atol)!r},rtol={float(rtol)!r})"
    return dataclasses.replace(
        rules, name=name, tolerance="allclose", atol=float(atol), rtol=float(rtol)
    )


def _tolerances_of(name: str) -> tuple[str, float, float] | None:
    """Return the base, atol and rtol of a name that has them."""
    found = _OWN_TOLERANCES.fullmatch(name)
    try:
        return (found[1], float(found[2]), float(found[3])) if found else None
    except ValueError:
        return None


def with_run_seconds(which: str | Ruleset, seconds: float) -> Ruleset:
    """Return a ruleset with another limit on a kernel's run; its name says so.

    Args:
        which: The ruleset, or its name.
        seconds: Seconds in place of `Limits.run_s`.

    Raises:
        UsageError: If the seconds are not above 0, or there is no such ruleset.
    """
    rules = ruleset(which)
    if not 0.0 < seconds < math.inf:
        raise UsageError(f"run_seconds (--run-seconds) is a number above 0, got {seconds!r}")
    name = f"{_RUN_SECONDS.sub('', rules.name)}+run({float(seconds)!r}s)"
    limits = dataclasses.replace(rules.limits, run_s=float(seconds))
    return dataclasses.replace(rules, name=name, limits=limits)


def ruleset(which: str | Ruleset) -> Ruleset:
    """Return `which` itself, or the ruleset of that name or label.

    Names are those of the shipped rulesets, and what `with_tolerances` and `with_run_seconds` make
    of them. Labels are those of all their `variants`.

    Raises:
        UnknownName: If no shipped ruleset has that name.
    """
    if isinstance(which, Ruleset):
        return which
    if not isinstance(which, str):
        raise UnknownName("ruleset", which, RULESETS)
    name = which.partition("@")[0]
    rules = RULESETS.get(name) or _named(name)
    if rules is not None and which == name:
        return rules
    if rules is not None and (found := variants(rules).get(which)) is not None:
        return found
    raise UnknownName("ruleset", which, RULESETS)


@functools.cache
def variants(rules: Ruleset) -> Mapping[str, Ruleset]:
    """Return a ruleset by its label, followed by its variants.

    Variants have another precision or another value of `stop_at_first_failure`.
    """
    stops = (rules.stop_at_first_failure, not rules.stop_at_first_failure)
    precisions = (rules.precision, *(each for each in PRECISIONS if each != rules.precision))
    made = [
        dataclasses.replace(rules, precision=precision, stop_at_first_failure=stop)
        for precision in precisions
        for stop in stops
    ]
    return MappingProxyType({each.label: each for each in made} | {rules.label: rules})


def _named(name: str) -> Ruleset | None:
    """Return the ruleset of a name that states tolerances or run seconds; None for other names."""
    limit = _RUN_SECONDS.search(name)
    base = _RUN_SECONDS.sub("", name)
    own = _tolerances_of(base)
    found = RULESETS.get(base) if own is None else RULESETS.get(own[0])
    try:
        if found is not None and own is not None:
            found = with_tolerances(found, *own[1:])
        if found is not None and limit is not None:
            found = with_run_seconds(found, float(limit[1]))
    except ValueError:
        return None
    return found


def precise_rules(which: str | Ruleset, precision: str, baseline: str = "") -> Ruleset:
    """Return a ruleset at another precision or baseline, if one is given.

    Args:
        which: The ruleset, or its name.
        precision: One of `PRECISIONS`; empty for the ruleset's own.
        baseline: One of `BASELINES`, what kernels are timed against; empty for the ruleset's own.

    Raises:
        UnknownName: If there is no such ruleset, precision or baseline.
    """
    rules = ruleset(which)
    match baseline:
        case "":
            pass
        case "eager" | "compile" | "best":
            timing = dataclasses.replace(rules.timing, baseline=baseline)
            rules = dataclasses.replace(rules, timing=timing)
        case _:
            raise UnknownName("baseline", baseline, BASELINES)
    match precision:
        case "":
            return rules
        case "own" | "fp32" | "fp16" | "bf16":
            return dataclasses.replace(rules, precision=precision)
        case _:
            raise UnknownName("precision", precision, PRECISIONS)


def recorded_ruleset(label: str) -> Ruleset:
    """Return the ruleset of a label that a record carries.

    Beside the shipped rulesets, these have labels of their own: tolerances of a kernel spec, a
    compiled baseline of an evaluation, and verdicts that a trainer ends at the first failing call.

    Raises:
        UsageError: If no ruleset has that label.
    """
    named = _named(label.partition("@")[0])
    for base in RULESETS.values() if named is None else (named,):
        for baseline in BASELINES:
            for ends in (False, True):
                rules = precise_rules(base, "", baseline)
                rules = dataclasses.replace(rules, stop_at_first_failure=ends)
                if rules.label == label:
                    return rules
    known = ", ".join(rules.label for rules in RULESETS.values())
    raise UsageError(
        f"the episode was played under ruleset {label!r}, which is none of those that ship "
        f"({known}); give the observer it was played with"
    )
