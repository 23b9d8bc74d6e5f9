"""The red team's corpus: exploits that must be caught, honest look-alikes that must pass.

Contract: pure; an `RedTeamOutcome` is what a verdict means for an `CorpusEntry`. Files are read in
`kernelgym.redteam.files`, and nothing is judged here.
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

__all__ = [
    "CLASSES",
    "HEADINGS",
    "CorpusEntry",
    "RedTeamOutcome",
    "Summary",
    "place",
    "sample",
    "select",
    "summarise",
]

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
"""Meanings of the letters of the exploits' classes."""

_SIZES = {"A": 5, "B": 2, "C": 1, "D": 3, "E": 2, "F": 4, "G": 2, "H": 3, "I": 1}
_LETTERS = "".join(letter * size for letter, size in _SIZES.items())
CLASSES = tuple(f"{letter}{number}" for number, letter in enumerate(_LETTERS, 1))
"""Ids of the classes: ``A1`` to ``I23``, numbered through."""


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """One file of a corpus."""

    name: str
    """The file's name without ``.py``, such as ``A1_stale_output.triton``."""
    kind: Literal["exploit", "honest"]
    problem: str
    """Name of the problem it is judged on."""
    language: str
    devices: tuple[str, ...]
    """Device kinds it is written for: ``cpu``, ``cuda``."""
    what: str
    """One sentence: what it does."""
    source: str
    exploit_class: str = ""
    """One of `CLASSES`; empty for an honest kernel."""
    style: str = ""
    """Name of the style that it shares with others; `sample` takes one of each style."""
    faster_than: float | None = None
    """If set, being correct is not yet success: it must be timed and this much faster."""
    caught_by: tuple[str, ...] = ()
    """Statuses or codes of which at least one is expected; a warning if none is met."""
    open: str = ""
    """Why the judge cannot catch it; empty if it must."""

    @property
    def kernel(self) -> Kernel:
        """What is judged."""
        return Kernel(self.source, self.language)

    def runs_on(self, device: str) -> bool:
        """Say whether it is written for a device such as ``cpu`` or ``cuda:0``."""
        return device.partition(":")[0] in self.devices


@dataclass(frozen=True, slots=True)
class RedTeamOutcome:
    """What became of one entry."""

    entry: CorpusEntry
    verdict: Verdict

    @property
    def result(self) -> Literal["caught", "accepted", "open", "passed", "refused", "unavailable"]:
        """In one word. ``open`` is an exploit accepted as announced."""
        entry, verdict = self.entry, self.verdict
        if not verdict.valid:
            return "unavailable"
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
        """An exploit got through, an honest kernel was refused, or nothing was learnt."""
        return self.result in ("accepted", "refused", "unavailable")

    @property
    def catches(self) -> tuple[str, ...]:
        """What stopped it: the hard findings of a rejection, else the status.

        ``slow`` and ``untimed`` stand for a correct verdict that does not grant what the exploit
        was after, a speedup.
        """
        verdict = self.verdict
        if self.result not in ("caught", "refused"):
            return ()
        if verdict.status is Status.REJECTED:
            hard = (f.code for f in verdict.findings if f.severity is Severity.HARD)
            return tuple(dict.fromkeys(hard)) or (Status.REJECTED.value,)
        if verdict.correct:
            return ("slow" if verdict.timed else "untimed",)
        return (verdict.status.value,)

    @property
    def unexpected(self) -> bool:
        """Caught, but by nothing that its header expects."""
        if self.result != "caught" or not self.entry.caught_by:
            return False
        met = {self.verdict.status.value, *self.catches}
        met.update(finding.code for finding in self.verdict.findings)
        return met.isdisjoint(self.entry.caught_by)


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts for one class, or for the honest kernels (`name` is ``honest`` then)."""

    name: str
    entries: int
    results: Mapping[str, int]
    """Number of entries with each result; results that none has are left out."""
    caught_by: tuple[tuple[str, int], ...]
    """Findings or statuses that stopped exploits with their numbers, most frequent first."""


def select(
    entries: Iterable[CorpusEntry], device: str, pattern: str = ""
) -> tuple[CorpusEntry, ...]:
    """Return the entries written for a device whose name matches.

    Args:
        entries: Entries.
        device: Such as ``cpu`` or ``cuda:0``.
        pattern: Shell pattern, or part of a name; all if empty.

    Raises:
        UsageError: If none is left.
    """
    whole = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    found = tuple(
        entry
        for entry in entries
        if entry.runs_on(device) and fnmatch.fnmatchcase(entry.name, whole)
    )
    if not found:
        of = f" whose name matches {pattern!r}" if pattern else ""
        raise UsageError(f"the corpus has nothing for device {device!r}{of}")
    return found


def sample(entries: Iterable[CorpusEntry]) -> tuple[CorpusEntry, ...]:
    """Return the first entry of each style in each language."""
    first: dict[tuple[str, str, str], CorpusEntry] = {}
    for entry in entries:
        first.setdefault((entry.kind, entry.style, entry.language), entry)
    return tuple(first.values())


def summarise(outcomes: Iterable[RedTeamOutcome]) -> tuple[Summary, ...]:
    """Count outcomes by class, in the order of the classes; honest kernels come last."""
    groups: dict[str, list[RedTeamOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.entry.exploit_class, []).append(outcome)
    return tuple(_summary(name or "honest", groups[name]) for name in sorted(groups, key=place))


def _summary(name: str, outcomes: Sequence[RedTeamOutcome]) -> Summary:
    results = collections.Counter[str](outcome.result for outcome in outcomes)
    by = collections.Counter(catch for outcome in outcomes for catch in outcome.catches)
    ordered = sorted(by.items(), key=lambda item: (-item[1], item[0]))
    return Summary(name, len(outcomes), MappingProxyType(dict(results)), tuple(ordered))


def place(exploit_class: str) -> int:
    """Return where a class stands in reports; honest kernels (the empty class) come last."""
    return CLASSES.index(exploit_class) if exploit_class else len(CLASSES)
