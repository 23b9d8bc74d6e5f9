"""The cases of the conformance benchmark, and what counts as agreement. Runs nothing.

A case is one file in `conformance_kernels/` (``.txt`` where it is meant to be no Python): a
kernel, headed by a block of comments in TOML::

    # /// conformance
    # problem = "KernelBench/L1/12"
    # language = "triton"
    # outcome = "wrong_values"
    # ///

Further keys: `documented`, a difference from `DOCUMENTED` that the case shows; `sizes`, constants
of the problem's module replaced for both sides, where the real ones take gigabytes; `cpu_sizes`,
the same for runs under Triton's interpreter; `cpu`, false for what it cannot show; `limit_s`, how
long KernelBench may take.
"""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgym.types import Kernel, Problem

FOLDER = Path(__file__).parent / "kernels"

Pair = tuple[bool, bool]
"""KernelBench's (compiled, correctness)."""

PASSED: Pair = (True, True)
FAILED: Pair = (True, False)
NOT_COMPILED: Pair = (False, False)

OUTCOMES: Mapping[str, Pair | None] = {
    "correct": PASSED,
    "in_place": PASSED,
    "near_inside": PASSED,
    "zeros_on_degenerate": PASSED,
    "identity_on_degenerate": PASSED,
    "wrong_values": FAILED,
    "wrong_shape": FAILED,
    "wrong_dtype": FAILED,
    "wrong_device": FAILED,
    "nan_output": FAILED,
    "no_output": FAILED,
    "tuple_output": FAILED,
    "integer_wrong": FAILED,
    "weight_mismatch": FAILED,
    "near_outside": FAILED,
    "half_compute": FAILED,
    "forward_exception": FAILED,
    "triton_compile_error": FAILED,
    "constructor_runtime_error": FAILED,
    "constructor_other_error": NOT_COMPILED,
    "syntax_error": NOT_COMPILED,
    "import_error": NOT_COMPILED,
    "missing_class": NOT_COMPILED,
    "cuda_compile_error": NOT_COMPILED,
    "memory_fault": NOT_COMPILED,
    "process_exit": NOT_COMPILED,
    "timeout": NOT_COMPILED,
    "either": None,
}
"""What KernelBench's rules say of each kind of kernel; None where only a run can tell."""

DOCUMENTED: Mapping[str, frozenset[tuple[Pair | None, Pair]]] = {
    # Its dictionary of names serves kernel and reference, for languages other than Triton.
    "namespace sharing": frozenset({(PASSED, FAILED), (FAILED, PASSED)}),
    # The kernel gets the very tensors that the reference was given, and may have returned.
    "in-place inputs": frozenset({(PASSED, FAILED), (FAILED, PASSED)}),
    # It casts every tensor to floating point: labels and masks too.
    "integer inputs": frozenset({(FAILED, PASSED)}),
    # It asks the output for its shape.
    "tuple outputs": frozenset({(FAILED, PASSED)}),
    # It does not set the seed between the reference's call and the kernel's.
    "dropout reseeding": frozenset({(FAILED, PASSED)}),
    # It calls what a constructor raises a runtime error only where that is a RuntimeError.
    "constructor exceptions": frozenset({(NOT_COMPILED, FAILED)}),
    # It takes every load error whose text holds "lock" ("blockIdx" does) or "No such file or
    # directory" for a quarrel over the build folder, and gives no result.
    "no answer to a load error": frozenset({(None, NOT_COMPILED)}),
}
"""Differences that the documents name: the (KernelBench's, ours) each may show, no others."""

_START, _END = "# /// conformance", "# ///"
_KEYS = {"problem", "language", "outcome", "documented", "sizes", "cpu_sizes", "cpu", "limit_s"}


class CaseError(ValueError):
    """A case file that cannot be used; says which and why."""


@dataclass(frozen=True)
class Case:
    """One kernel, the problem it is for, and what it is meant to show."""

    name: str
    problem: str
    kernel: Kernel
    outcome: str
    documented: str = ""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    cpu_sizes: Mapping[str, Any] = field(default_factory=dict)
    cpu: bool = True
    limit_s: float = 120.0

    @property
    def expected(self) -> Pair | None:
        """What KernelBench is expected to say; None if only a run can tell."""
        if not self.documented:
            return OUTCOMES[self.outcome]
        known = {theirs for theirs, _ in DOCUMENTED[self.documented]}
        return known.pop() if len(known) == 1 else None


def parse_case(name: str, text: str) -> Case:
    """Read one case from its file's text.

    Raises:
        CaseError: If the header is missing or says something unknown.
    """
    lines = text.splitlines()
    if not lines or lines[0] != _START or _END not in lines[1:]:
        raise CaseError(f"{name}: a case starts with {_START!r} and ends its header with {_END!r}")
    end = lines.index(_END, 1)
    try:
        header = tomllib.loads("\n".join(line.removeprefix("#").strip() for line in lines[1:end]))
    except tomllib.TOMLDecodeError as error:
        raise CaseError(f"{name}: its header is no TOML: {error}") from None
    missing, unknown = {"problem", "language", "outcome"} - set(header), set(header) - _KEYS
    if missing or unknown:
        raise CaseError(f"{name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    if header["outcome"] not in OUTCOMES:
        raise CaseError(f"{name}: unknown outcome {header['outcome']!r}; see OUTCOMES")
    if header.get("documented", "") not in {"", *DOCUMENTED}:
        raise CaseError(f"{name}: {header['documented']!r} is no documented difference")
    if header["language"] not in ("triton", "cuda"):
        raise CaseError(f"{name}: language {header['language']!r}; known here: triton, cuda")
    source = "\n".join(lines[end + 1 :]).lstrip("\n") + "\n"
    rest = {key: header[key] for key in _KEYS - {"language"} if key in header}
    return Case(name=name, kernel=Kernel(source, header["language"]), **rest)


def load_cases(folder: Path = FOLDER, pattern: str = "*") -> list[Case]:
    """Read the cases whose names match, problem by problem, what may hang or crash last."""
    files = [path for path in folder.iterdir() if path.suffix in (".py", ".txt")]
    paths = sorted(path for path in files if fnmatch.fnmatch(path.stem, pattern))
    if not paths:
        raise CaseError(f"no case in {folder} matches {pattern!r}")
    cases = [parse_case(path.stem, path.read_text(encoding="utf-8")) for path in paths]
    return sorted(cases, key=_order)


def _order(case: Case) -> tuple[Any, ...]:
    abnormal = case.outcome in ("memory_fault", "process_exit", "timeout")
    _, level, number = case.problem.split("/")
    return (abnormal, level, int(number), case.name)


def cut(problem: Problem, sizes: Mapping[str, Any]) -> Problem:
    """Return the problem with constants of its module replaced.

    Raises:
        CaseError: If the module assigns no such constant.
    """
    if not sizes:
        return problem
    left = dict(sizes)
    lines = problem.source.splitlines()
    for node in ast.parse(problem.source).body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        names = [t.id for t in ast.walk(target) if isinstance(t, ast.Name)]
        if names and set(names) <= set(left):
            values = ", ".join(_literal(left.pop(name)) for name in names)
            assert node.end_lineno is not None
            for index in range(node.lineno - 1, node.end_lineno):
                lines[index] = ""
            lines[node.lineno - 1] = f"{', '.join(names)} = {values}"
    if left:
        raise CaseError(f"{problem.id} has no constants {sorted(left)} at the top of its module")
    return dataclasses.replace(problem, source="\n".join(lines) + "\n")


def _literal(value: Any) -> str:
    # TOML has no tuples; problems write shapes as tuples and join them to others.
    return repr(tuple(value)) if isinstance(value, list) else repr(value)


def fingerprint(problem: Problem, kernel: Kernel) -> str:
    """Return what a finished case is known by when a run is resumed."""
    return hashlib.sha256(f"{problem.digest} {kernel.digest}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Outcome:
    """What one side said of one case."""

    pair: Pair | None
    """None if it said nothing (KernelBench's None, our `unavailable`)."""
    reason: str = ""
    message: str = ""
    wall_s: float = 0.0


AGREE, DISAGREE = "agree", "DISAGREE"


def compare(documented: str, theirs: Outcome, ours: Outcome) -> str:
    """Return `AGREE`, the documented difference shown, or `DISAGREE`.

    A documented difference excuses exactly the pairs it is known for. That we say nothing is
    never excused.
    """
    if ours.pair is None:
        return DISAGREE
    if theirs.pair == ours.pair:
        return AGREE
    if documented and (theirs.pair, ours.pair) in DOCUMENTED[documented]:
        return f"documented: {documented}"
    return DISAGREE


def summary(results: Iterable[str]) -> dict[str, int]:
    """Count results by kind."""
    counts: dict[str, int] = {}
    for result in results:
        counts[result] = counts.get(result, 0) + 1
    return dict(sorted(counts.items()))
