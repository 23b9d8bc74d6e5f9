"""Facts about each KernelBench problem: sizes, operator family, and why it is degenerate.

The table (`kernelbench_facts.tsv`, data version 0.1/0.2) was measured by this project on reference
outputs at KernelBench's tolerances, with the batch cut where memory asked for it. A problem is
called degenerate if a kernel that computes nothing of value passes it, or if no honest kernel
can be told from a wrong one. A problem without a reason is *not known* to be degenerate;
`Fact.tested` says whether the tests were run on it.

Small forms (ids that end in ``@small``) have facts of their own, in `kernelbench_small_facts.tsv`:
bytes measured, and reasons found at that size.

This module reads one packaged file and knows nothing of a problem's source. Facts belong to a
problem of that number **and name**: `fact` takes the name to guard against another data set that
uses the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from kernelgym.errors import UnknownName
from kernelgym.rulesets import HALF_PRECISIONS, PRECISIONS
from kernelgym.suites.kernelbench_small import SMALL, packaged_rows

_SCOPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"any": PRECISIONS, "fp32": ("own", "fp32"), "half": HALF_PRECISIONS}
)
"""Precisions by scope. KernelBench's problems are fp32, so that is their own precision."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Facts about one KernelBench problem; sizes are in bytes.

    A size is None where unknown. Those of problems in full size come from decimal megabytes,
    rounded to 0.1.
    """

    problem_id: str
    """Id of the problem, such as ``KernelBench/L1/23`` or ``KernelBench/L1/23@small``."""
    level: int
    """Level of the problem, 1 to 4."""
    number: int
    """Number of the problem in its level."""
    name: str
    """Name of the problem, such as ``23_Softmax``."""
    family: str
    """Operator family; level 4's are one per model architecture, such as ``lm_bart``."""
    input_bytes: int | None
    """Bytes of all inputs of one call together."""
    output_bytes: int | None
    """Bytes of all outputs of one call together."""
    param_bytes: int | None
    """Bytes of the weights and buffers."""
    gflop: float | None
    """Floating-point operations of the forward pass in units of 1e9, of matrix products and
    convolutions only."""
    h100_eager_ms: float | None
    """Eager time in milliseconds that KernelBench published for an H100."""
    tested: bool
    """False if the degeneracy tests were not run (too large, or weights to download)."""
    reasons: tuple[tuple[str, str], ...]
    """Pairs of (name from `REASONS`, scope): scope is ``any``, ``fp32`` (tolerance 1e-4) or
    ``half`` (1e-2). Here
    ``broken_reference`` means that KernelBench's own harness breaks the problem."""
    removed_by_metr: bool
    """Whether METR's filtered copy, made from the older data version 0, left the problem out."""
    note: str = ""
    """Remark on the problem, for readers."""
    no_small_form: str = ""
    """Reason why the problem has no small form; empty if it has one."""


def facts() -> Mapping[str, Fact]:
    """Return the facts of problems in full size, by id, in order."""
    return MappingProxyType({name: each for name, each in _facts().items() if SMALL not in name})


def fact(problem_id: str, name: str = "") -> Fact | None:
    """Return what is known of a problem, or None.

    Args:
        problem_id: Id of the problem, such as ``KernelBench/L1/23``, or
            ``KernelBench/L1/23@small``.
        name: Name of the problem; if given, the fact is returned only if its name is this one.
    """
    found = _facts().get(problem_id)
    return found if found and name in ("", found.name) else None


def degenerate(problem_id: str, precision: str = "own", name: str = "") -> tuple[str, ...]:
    """Return the reasons why a problem is degenerate at a precision; empty if none is known.

    Args:
        problem_id: Id of the problem, such as ``KernelBench/L1/23``; unknown ids have no reasons.
        precision: One of `PRECISIONS`. Half precisions have a wider tolerance, so that what
            passes at fp32 passes there too.
        name: Name of the problem, as for `fact`.

    Raises:
        UnknownName: If there is no such precision.
    """
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    found = fact(problem_id, name)
    if found is None:
        return ()
    return tuple(reason for reason, scope in found.reasons if precision in _SCOPES[scope])


@cache
def _facts() -> Mapping[str, Fact]:
    """Return the facts of all problems, full and small, by id."""
    found = {each.problem_id: each for each in map(_full, packaged_rows("kernelbench_facts.tsv"))}
    for row in packaged_rows("kernelbench_small_facts.tsv"):
        full = found[f"KernelBench/L{row['level']}/{row['id']}"]
        if why := row["no_small_form"]:
            found[full.problem_id] = dataclasses.replace(full, no_small_form=why)
        else:
            found[full.problem_id + SMALL] = _small(full, row)
    return MappingProxyType(found)


def _small(full: Fact, row: dict[str, str]) -> Fact:
    return dataclasses.replace(
        full,
        problem_id=full.problem_id + SMALL,
        input_bytes=int(row["input_bytes"]),
        output_bytes=int(row["output_bytes"]),
        param_bytes=int(row["param_bytes"]),
        gflop=None,
        h100_eager_ms=None,
        tested=True,
        reasons=_reasons(row["degenerate"]),
        note="",
    )


def _reasons(text: str) -> tuple[tuple[str, str], ...]:
    reasons = (item.partition(":") for item in text.split(",") if item)
    return tuple((reason, scope) for reason, _, scope in reasons)


def _full(row: dict[str, str]) -> Fact:
    return Fact(
        problem_id=f"KernelBench/L{row['level']}/{row['id']}",
        level=int(row["level"]),
        number=int(row["id"]),
        name=row["name"],
        family=row["family"],
        input_bytes=_bytes(row["input_MB"]),
        output_bytes=_bytes(row["output_MB"]),
        param_bytes=_bytes(row["param_MB"]),
        gflop=_number(row["gflop"]),
        h100_eager_ms=_number(row["h100_eager_ms"]),
        tested=row["tested"] == "yes",
        reasons=_reasons(row["degenerate"]),
        removed_by_metr=row["removed_by_metr"] == "yes",
        note=row["note"],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def _bytes(megabytes: str) -> int | None:
    return round(float(megabytes) * 1e6) if megabytes else None
