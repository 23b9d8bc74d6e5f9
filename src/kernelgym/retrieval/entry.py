"""Entries of an index: a kernel, what it replaces, and its origin.

Contract: an `Entry` is frozen text and never run. `unusable` says why an entry could not be shown:
its kernel must be read back as itself when a model answers with it, and its reference must have
operators to be found by. Entry texts are untrusted: `kernelgym.retrieval.page` fences them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from kernelgym.answers.parsing import parse
from kernelgym.errors import UnknownName
from kernelgym.retrieval.operators import operators
from kernelgym.retrieval.source import MAX_CHARS
from kernelgym.types import text_digest

__all__ = ["KINDS", "NOT_JUDGED", "UNUSABLE", "Entry", "Kind", "unusable"]

Kind = Literal["solution", "repair", "speedup"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""A kernel for a problem; a wrong kernel and its repair; a slow kernel and a faster one."""
NOT_JUDGED = "not judged"

UNUSABLE = {
    "empty": "it has no kernel or no reference, or lacks the kernel that it began with",
    "too_long": f"one of its texts has more than {MAX_CHARS:,} characters",
    "not_text": "one of its texts has lone surrogates, which no file or tokenizer takes",
    "no_answer": "its kernel is not read back as itself when it is given as an answer",
    "no_operators": "no operators are found in its reference",
}
"""Why an entry is left out of an index."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One worked example.

    Raises:
        UnknownName: If the kind is unknown.
    """

    kind: Kind
    reference: str
    """Source of the problem's module."""
    kernel: str
    """Source of the module that replaces it."""
    language: str
    before: str = ""
    """The kernel that was repaired or made faster; empty for a solution."""
    problem_id: str = ""
    name: str = ""
    """The problem's name; empty if it has none."""
    form: str = ""
    """Text under which equivalent problems are the same; empty if that is not known."""
    origin: str = ""
    """The data set or suite that it comes from."""
    licence: str = ""
    verdict: str = NOT_JUDGED
    """What a judge said of the kernel, such as ``correct``."""
    provenance: str = ""
    """Where in its origin it stands, such as a repository and a commit."""
    feedback: str = ""
    """What was said of the kernel that a repair began with."""
    category: str = ""
    """The category of that feedback; see `kernelgym.feedback.categories`."""
    speed: tuple[float, ...] = ()
    """Speedup of the kernel over its reference: median, and the interval's ends; empty if it was
    not timed."""
    speed_before: tuple[float, ...] = ()
    """The same of the kernel that a speed-up began with."""
    device: str = ""
    """Kind of device that the verdict and the times are of, such as ``cpu``."""
    ruleset: str = ""
    """Label of the ruleset of the verdict."""
    id: str = field(init=False)
    """The problem's id, and ten digits of a digest of kind, language and texts."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("kind of entry", self.kind, KINDS)
        texts = (self.kind, self.language, self.reference, self.before, self.kernel)
        named = self.problem_id or self.origin or self.kind
        object.__setattr__(self, "id", f"{named}:{text_digest(chr(0).join(texts))[:10]}")

    @property
    def shown(self) -> str:
        """One line; two entries that a prompt shows alike share it."""
        about = (self.verdict, self.feedback, self.speed_before, self.speed)
        return f"{self.id} {text_digest(repr(about))}"


def unusable(entry: Entry) -> str:
    """Return why an entry cannot be shown; empty if it can.

    Returns:
        A key of `UNUSABLE`, or an empty text.
    """
    texts = (entry.reference, entry.kernel, entry.before)
    needed = texts if entry.kind != "solution" else texts[:2]
    if not all(text.strip() for text in needed):
        return "empty"
    if max(map(len, texts)) > MAX_CHARS:
        return "too_long"
    about = (entry.problem_id, entry.name, entry.form, entry.origin, entry.licence)
    said = (entry.verdict, entry.provenance, entry.feedback, entry.category)
    if not all(map(_is_text, (*texts, *about, *said, entry.device, entry.ruleset))):
        return "not_text"
    answer = f"<KERNEL>\n```python\n{entry.kernel.rstrip()}\n```\n</KERNEL>"
    read = parse(answer, entry.language)
    if read.kernel is None or read.kernel.source.strip() != entry.kernel.strip():
        return "no_answer"
    return "" if operators(entry.reference) else "no_operators"


def _is_text(text: str) -> bool:
    """Return False for text with lone surrogates."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
