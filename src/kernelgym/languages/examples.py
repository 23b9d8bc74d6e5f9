"""The worked examples that prompts show: two references, with a kernel in each language.

They show the form of an answer (launching, building, keeping parameters), not tricks, and solve no
suite's problem. Their texts lie in `kernels/`: a folder for the references, and one a language.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "kernels"


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A reference program and a correct kernel for it."""

    title: str
    reference: str
    kernel: str


def kernel_text(folder: str, name: str) -> str:
    """Return the program ``kernels/<folder>/<name>.txt``."""
    return (_FOLDER / folder / f"{name}.txt").read_text(encoding="utf-8")


def worked_examples(language: str) -> tuple[WorkedExample, ...]:
    """Return a language's worked examples, the simplest first."""
    titles = {
        "blend": "a gated blend, element by element",
        "row_max": "a scaled maximum over each row, with a parameter",
    }
    return tuple(
        WorkedExample(title, kernel_text("reference", name), kernel_text(language, name))
        for name, title in titles.items()
    )
