"""Entries of an index: a reference, a kernel that replaces it, and where both come from.

Contract: an `IndexEntry` is frozen text and is never run. `unusable` says why an entry cannot be
shown: its kernel must be read back as itself when a model answers with it, and its reference must
have operators to be found by. Texts of entries are untrusted: `kernelgym.retrieval.page` fences
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelgym.answers.parsing import parse
from kernelgym.retrieval.operators import operators
from kernelgym.retrieval.source import MAX_CHARS
from kernelgym.starting_kernel import kernel_in
from kernelgym.types import text_digest

NOT_JUDGED = "not judged"
"""Verdict of an entry whose kernel no judge has seen."""

UNUSABLE = {
    "empty": "it has no kernel or no reference",
    "too_long": f"one of its texts has more than {MAX_CHARS:,} characters",
    "not_text": "one of its texts has lone surrogates, which no file or tokenizer takes",
    "no_answer": "its kernel is not read back as itself when it is given as an answer",
    "starting_kernel": "the outputs of a starting kernel count as right for its problem",
    "no_operators": "no operators are found in its reference",
}
"""Reasons for which an entry is left out of an index."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One solved problem: a reference and a kernel that replaces it."""

    reference: str
    """Source text of the problem's module."""
    kernel: str
    """Source text of the kernel's module, which replaces the reference."""
    language: str
    """Language of the kernel."""
    problem_id: str = ""
    """Id of the problem; empty if it has none."""
    name: str = ""
    """Name of the problem; empty if it has none."""
    form: str = ""
    """Canonical form of the problem, a text that equivalent problems share; empty if unknown."""
    origin: str = ""
    """Data set or suite that the entry comes from."""
    licence: str = ""
    """Licence of the kernel and its reference."""
    provenance: str = ""
    """Place of the entry in its origin, such as a repository and a commit."""
    verdict: str = NOT_JUDGED
    """Status that a judge gave the kernel, such as ``correct``."""
    device: str = ""
    """Kind of device of the verdict and the speedup, such as ``cpu``."""
    ruleset: str = ""
    """Label of the ruleset of the verdict."""
    speed: tuple[float, ...] = ()
    """Speedup of the kernel over its reference, and the ends of its interval; empty if the kernel
    was not timed."""
    id: str = field(init=False)
    """Id of the entry: the problem's id, and ten digits of a digest of language, reference and
    kernel.
    """

    def __post_init__(self) -> None:
        texts = (self.language, self.reference, self.kernel)
        named = self.problem_id or self.origin or "entry"
        object.__setattr__(self, "id", f"{named}:{text_digest(chr(0).join(texts))[:10]}")

    @property
    def shown(self) -> str:
        """One-line text of all that a prompt shows of the entry, for digests and comparisons."""
        return f"{self.id} {self.verdict == NOT_JUDGED}"


TEXTS = (
    *("reference", "kernel", "language", "problem_id", "name", "form", "origin", "licence"),
    *("provenance", "verdict", "device", "ruleset"),
)
"""Names of an entry's fields that hold text."""


def unusable(entry: IndexEntry) -> str:
    """Return why an entry cannot be shown, as a key of `UNUSABLE`; empty if it can."""
    texts = (entry.reference, entry.kernel)
    if not all(text.strip() for text in texts):
        return "empty"
    if max(map(len, texts)) > MAX_CHARS:
        return "too_long"
    if not all(_is_text(getattr(entry, name)) for name in TEXTS):
        return "not_text"
    answer = f"<KERNEL>\n```python\n{entry.kernel.rstrip()}\n```\n</KERNEL>"
    read = parse(answer, entry.language)
    if read.kernel is None or read.kernel.source.strip() != entry.kernel.strip():
        return "no_answer"
    if kernel_in(entry.reference) is not None:
        return "starting_kernel"
    return "" if operators(entry.reference) else "no_operators"


def _is_text(text: str) -> bool:
    """Return True if UTF-8 can encode a text, so that it has no lone surrogates."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
