"""The red team's corpus: exploits that must be caught, honest look-alikes that must pass.

A `RedTeamOutcome` says what a verdict means for a `CorpusEntry`. Nothing here reads files (see
`kernelgym.redteam.files`) or judges kernels.
"""

from __future__ import annotations

import collections
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kernelgym.errors import UsageError
from kernelgym.types import Kernel, Severity, Status, Verdict

HEADINGS: Mapping[str, str] = MappingProxyType(
    {
        "A": "stealing or inheriting answers",
        "B": "caching and replay",
        "C": "phase detection",
        "D": "input and state tampering",
        "E": "lying outputs",
        "F": "numerics and skipped work",
        "G": "not a custom kernel",
        "H": "attacking the measuring process",
        "I": "deferred or hidden work",
    }
)
"""Meanings of the letters with which the exploits' classes begin."""

_SIZES = {"A": 5, "B": 2, "C": 1, "D": 3, "E": 2, "F": 4, "G": 2, "H": 3, "I": 1}
_LETTERS = "".join(letter * size for letter, size in _SIZES.items())
CLASSES = tuple(f"{letter}{number}" for number, letter in enumerate(_LETTERS, 1))
"""Ids of the exploits' classes, ``A1`` to ``I23``: a letter of `HEADINGS` and a running number."""


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """One file of a corpus: a kernel, and what is known of it."""

    name: str
    """Name of the file without ``.py``, such as ``A1_stale_output.triton``."""
    kind: Literal["exploit", "honest"]
    problem: str
    """Name of the problem that the kernel is judged on."""
    language: str
    devices: tuple[str, ...]
    """Device kinds that the kernel is written for: ``cpu``, ``cuda``."""
    what: str
    """Sentence that says what the kernel does."""
    source: str
    exploit_class: str = ""
    """Class of the exploit, one of `CLASSES`; empty for an honest kernel."""
    style: str = ""
    """Name of the style that the entry shares with others; `sample` takes one of each style."""
    faster_than: float | None = None
    """Speedup that an exploit must be granted to count as accepted; None if being judged correct is
    enough."""
    caught_by: tuple[str, ...] = ()
    """Statuses or finding codes of which the verdict should have at least one; otherwise the
    outcome is `RedTeamOutcome.unexpected`. An exploit of a problem that cannot be judged names the
    finding that says so."""
    open: str = ""
    """Reason why the judge cannot catch the exploit; empty if the judge must."""

    @property
    def kernel(self) -> Kernel:
        """Kernel that is judged."""
        return Kernel(self.source, self.language)

    def runs_on(self, device: str) -> bool:
        """Return whether the kernel is written for a device such as ``cpu`` or ``cuda:0``."""
        return device.partition(":")[0] in self.devices


@dataclass(frozen=True, slots=True)
class RedTeamOutcome:
    """Result of judging one entry of the corpus."""

    entry: CorpusEntry
    verdict: Verdict

    @property
    def result(self) -> Literal["caught", "accepted", "open", "passed", "refused", "unavailable"]:
        """Result of the entry in one word; ``open`` is an accepted exploit whose header says so."""
        entry, verdict = self.entry, self.verdict
        if not verdict.valid:
            named = {finding.code for finding in verdict.findings}
            unsound = entry.kind == "exploit" and not named.isdisjoint(entry.caught_by)
            return "caught" if unsound else "unavailable"
        if entry.kind == "honest":
            return "passed" if verdict.correct else "refused"
        fooled = verdict.correct
        if entry.faster_than is not None:
            fooled = fooled and verdict.timed and verdict.speedup_low > entry.faster_than
        if not fooled:
            return "caught"
        return "open" if entry.open else "accepted"

    @property
    def failed(self) -> bool:
        """True if an exploit was accepted, an honest kernel refused, or the verdict is invalid."""
        return self.result in ("accepted", "refused", "unavailable")

    @property
    def catches(self) -> tuple[str, ...]:
        """Codes of what stopped the kernel: a rejection's hard findings, else the status.

        ``slow`` and ``untimed`` stand for a correct verdict without the speedup that the exploit
        tries to get.
        """
        verdict = self.verdict
        if self.result not in ("caught", "refused"):
            return ()
        if verdict.status is Status.REJECTED:
            hard = (f.code for f in verdict.findings if f.severity is Severity.HARD)
            return tuple(dict.fromkeys(hard)) or (Status.REJECTED.value,)
        if not verdict.valid:
            return tuple(finding.code for finding in verdict.findings)
        if verdict.correct:
            return ("slow" if verdict.timed else "untimed",)
        return (verdict.status.value,)

    @property
    def unexpected(self) -> bool:
        """Whether the exploit was caught, but by none of the codes that its header expects."""
        if self.result != "caught" or not self.entry.caught_by:
            return False
        met = {self.verdict.status.value, *self.catches}
        met.update(finding.code for finding in self.verdict.findings)
        return met.isdisjoint(self.entry.caught_by)


@dataclass(frozen=True, slots=True)
class RedTeamSummary:
    """Counts of the results in one class of exploits, or of the honest kernels."""

    name: str
    """Class of the exploits, or ``honest``."""
    entries: int
    results: Mapping[str, int]
    """Number of entries by result; results without entries are left out."""
    caught_by: tuple[tuple[str, int], ...]
    """Findings or statuses that stopped exploits with their numbers, most frequent first."""


def select(
    entries: Iterable[CorpusEntry], device: str, pattern: str = ""
) -> tuple[CorpusEntry, ...]:
    """Return the entries that are written for a device and whose name matches a pattern.

    Args:
        entries: Entries to choose from.
        device: Device such as ``cpu`` or ``cuda:0``.
        pattern: Shell pattern, or part of a name; empty for all names.

    Raises:
        UsageError: If no entry is left.
    """
    whole = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    found = tuple(
        entry
        for entry in entries
        if entry.runs_on(device) and fnmatch.fnmatchcase(entry.name, whole)
    )
    if not found:
        of = f" whose name matches {pattern!r}" if pattern else ""
        raise UsageError(f"the corpus has no kernel for device {device!r}{of}")
    return found


def sample(entries: Iterable[CorpusEntry]) -> tuple[CorpusEntry, ...]:
    """Return a sample of the exploits: the first entry of each style in each language."""
    first: dict[tuple[str, str, str], CorpusEntry] = {}
    for entry in entries:
        first.setdefault((entry.kind, entry.style, entry.language), entry)
    return tuple(first.values())


def summarise(outcomes: Iterable[RedTeamOutcome]) -> tuple[RedTeamSummary, ...]:
    """Count outcomes by class, in the order of the classes; honest kernels come last."""
    groups: dict[str, list[RedTeamOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.entry.exploit_class, []).append(outcome)
    return tuple(_summary(name or "honest", groups[name]) for name in sorted(groups, key=place))


def _summary(name: str, outcomes: Sequence[RedTeamOutcome]) -> RedTeamSummary:
    results = collections.Counter[str](outcome.result for outcome in outcomes)
    by = collections.Counter(catch for outcome in outcomes for catch in outcome.catches)
    ordered = sorted(by.items(), key=lambda item: (-item[1], item[0]))
    return RedTeamSummary(name, len(outcomes), MappingProxyType(dict(results)), tuple(ordered))


def place(exploit_class: str) -> int:
    """Return the position of a class in reports; honest kernels (the empty class) come last."""
    return CLASSES.index(exploit_class) if exploit_class else len(CLASSES)
