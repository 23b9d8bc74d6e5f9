"""`writer_messages`: the prompt with which a search asks for one kernel.

Contract: each prompt is a conversation of its own, with everything that the writer needs: the
problem and the rules of the judge as an episode's prompt tells them
(`kernelgym.prompts.observer.Observer`), the contract and the visible shapes, the parent's source,
its speed, the move to make, what was tried from the same parent, and the failure to repair. Nothing
of a hidden shape is in it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelgym import Kernel, Problem
from kernelgym.prompts.observer import Observer
from kernelgym.suites.spec import KernelSpec
from kernelgym.types import Message
from kernelgym_train.mcgs.templates import filled
from kernelgym_train.mcgs.writing.answers import FILE, FREE_MOVE

MOST_SIBLINGS = 12
"""Largest number of earlier attempts at one parent that a prompt lists, the latest ones."""


@dataclass(frozen=True, slots=True)
class WriterTask:
    """Facts in the prompt of one request to a writer of kernels."""

    parent: Kernel
    """Kernel that a patch changes: a correct one, or one whose failure the writer has to repair."""
    standing: str
    """Sentence that tells the writer the kernel's status, such as its speed."""
    move: str
    """Id of the move to make; `FREE_MOVE` for a change of any kind."""
    recipes: Mapping[str, str]
    """Descriptions of the moves that an answer may name, by id."""
    siblings: Sequence[str] = ()
    """Lines on kernels that were tried from the same parent, with their outcomes."""
    failure: str = ""
    """Failure of the kernel or of the previous answer; empty if the request is not a repair."""
    approximate: bool = False
    """Whether the writer may make results less accurate."""


def writer_messages(
    observer: Observer, problem: Problem, task: WriterTask, spec: KernelSpec | None = None
) -> tuple[Message, ...]:
    """Return the messages of one request to the writer.

    Args:
        observer: Prompts of the language, the device and the ruleset.
        problem: Problem that proposers are shown.
        task: Kernel to change, and how.
        spec: Kernel spec of the problem; None without one.
    """
    *first, last = observer.observe(problem)
    text = filled(
        "prompt.md.j2",
        observed=last.content,
        task=task,
        spec=spec,
        file=FILE,
        free_move=FREE_MOVE,
        most_siblings=MOST_SIBLINGS,
    )
    return (*first, Message(last.role, text.rstrip("\n")))
