"""Results of `kernelgym lint` for a problem: `Hygiene`, its vocabulary, and its place on disk.

A problem is degenerate if a kernel that computes nothing of value passes it, or if no honest kernel
can be told from a wrong one. That depends on the rules of the comparison, so a `Hygiene` belongs to
a problem, a ruleset (whose precision is part of it) and a kind of device.

Records are kept as one JSON file each, named by the problem's digest, the ruleset's label, the kind
of device and torch's version. A record that cannot be read counts as none.

Nothing here runs a problem: `kernelgym.judge.lint.checks` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernelgym.errors import DegenerateProblem
from kernelgym.machine import installed_version
from kernelgym.rulesets import Ruleset
from kernelgym.types import Problem
from kernelgym.whole_file import write_whole

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "zeros": "an output of zeros passes",
        "constant": "one constant passes as the whole output",
        "input_independent": "the output for other inputs passes",
        "identity": "returning the input passes",
        "nondeterministic_reference": "the reference disagrees with itself",
        "idle_parameters": "parameters can be changed and the output passes",
        "non_finite_output": "the reference gives NaN or infinite values",
        "broken_reference": "the reference cannot be run",
        "partial_computation": "computing a small part and writing zeros elsewhere passes",
        "analytic": "a value worked out beforehand, or a mean over a sample, passes",
    }
)
"""Reasons for which a problem counts as degenerate, with their meanings. The last two are known
of KernelBench's problems only: no test finds them."""


@dataclass(frozen=True, slots=True)
class Hygiene:
    """Lint results of one problem under one ruleset on one kind of device."""

    problem_id: str
    ruleset: str
    """Label of the ruleset."""
    precision: str
    """Precision of the ruleset; ``own`` is the problem's own."""
    device: str
    """Kind of device: ``cpu`` or ``cuda``."""
    reasons: tuple[str, ...] = ()
    """Names from `REASONS`; empty if the problem is not known to be degenerate."""
    detail: str = ""
    """Text that describes the finding, or why not all tests were run."""
    tested: bool = False
    """Whether every test was run."""

    @property
    def passes(self) -> bool:
        """Whether nothing is known against the problem."""
        return not self.reasons

    @property
    def summary(self) -> str:
        """Names of the reasons why the problem is degenerate, or ``passes``, or ``not tested``."""
        return ", ".join(self.reasons) or ("passes" if self.tested else "not tested")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {**dataclasses.asdict(self), "reasons": list(self.reasons)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hygiene:
        """Rebuild what `to_dict` returned.

        Raises:
            ValueError: If a field is missing, unknown or of the wrong type, or a reason unknown.
        """
        values = {**data}
        reasons = values.get("reasons")
        if not isinstance(reasons, list | tuple) or not all(name in REASONS for name in reasons):
            raise ValueError(
                f"a kept test result must hold a list of known reasons, got {reasons!r}"
            )
        values["reasons"] = tuple(reasons)
        try:
            made = cls(**values)
        except TypeError as error:
            raise ValueError(str(error)) from None
        texts = (made.problem_id, made.ruleset, made.precision, made.device, made.detail)
        if not all(isinstance(text, str) for text in texts) or not isinstance(made.tested, bool):
            raise ValueError(f"a kept test result has a field of the wrong type: {values!r}")
        return made


def refuse(found: Hygiene, how: str) -> None:
    """Refuse a problem that is known to be degenerate.

    Args:
        found: Result of the degeneracy tests of the problem.
        how: Way to use the problem all the same, such as ``pass allow_degenerate=True``.

    Raises:
        DegenerateProblem: If something is.
    """
    if found.passes:
        return
    meaning = "; ".join(f"{name}: {REASONS[name]}" for name in found.reasons)
    detail = f" ({found.detail})" if found.detail else ""
    raise DegenerateProblem(
        f"problem {found.problem_id!r} is degenerate at {_precision(found)} under "
        f"{found.ruleset}: {meaning}{detail}; choose another, {how} to play it anyway, or "
        f"measure it again with `kernelgym lint {found.problem_id}`"
    )


def _precision(found: Hygiene) -> str:
    return "its own precision" if found.precision == "own" else found.precision


def read_kept(folder: Path, problem: Problem, rules: Ruleset, device: str) -> Hygiene | None:
    """Return the kept result of an earlier test; None if there is none.

    Args:
        folder: Folder of the kept records.
        problem: The problem; its source counts, not its id.
        rules: The ruleset.
        device: Device, such as ``cpu`` or ``cuda:1``; only its kind counts.
    """
    try:
        data = json.loads(_place(folder, problem, rules, device).read_text("utf-8"))
        found = Hygiene.from_dict(data)
    except (OSError, ValueError, TypeError):
        return None  # none, or written by another version: as good as none
    return dataclasses.replace(found, problem_id=problem.id)


def write_kept(folder: Path, problem: Problem, rules: Ruleset, device: str, found: Hygiene) -> None:
    """Keep the result of a test; a folder that cannot be written to is no error."""
    with contextlib.suppress(OSError):
        text = json.dumps(found.to_dict(), indent=1) + "\n"
        write_whole(_place(folder, problem, rules, device), text)


def _place(folder: Path, problem: Problem, rules: Ruleset, device: str) -> Path:
    key = (
        problem.digest,
        rules.label,
        device.partition(":")[0],
        installed_version("torch", missing=""),
    )
    name = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return folder / f"{problem.digest}-{name}.json"
