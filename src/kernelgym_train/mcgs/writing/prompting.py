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
from kernelgym.suites.spec import ConstAxis, ExprAxis, KernelSpec
from kernelgym.types import Message
from kernelgym_train.mcgs.writing.answers import FILE, FREE_MOVE

MOST_SIBLINGS = 12
"""Largest number of earlier attempts at one parent that a prompt lists, the latest ones."""


@dataclass(frozen=True, slots=True)
class WriterTask:
    """What a writer is told of one kernel to change."""

    parent: Kernel
    """Kernel that a patch changes: a correct one, or one whose failure is to be repaired."""
    standing: str
    """What is known of that kernel, such as its speed, in a sentence."""
    move: str
    """Id of the move to make; `FREE_MOVE` for a change of any kind."""
    recipes: Mapping[str, str]
    """Descriptions of the moves that an answer may name, by id."""
    siblings: Sequence[str] = ()
    """What was tried from the same parent, with its outcome, a line each."""
    failure: str = ""
    """What went wrong with the kernel or with the answer before; empty if this is no repair."""
    approximate: bool = False
    """Whether results may be less accurate."""


def writer_messages(
    observer: Observer, problem: Problem, task: WriterTask, spec: KernelSpec | None = None
) -> tuple[Message, ...]:
    """Return the messages of one request.

    Args:
        observer: Prompts of the language, the device and the ruleset.
        problem: Problem that proposers are shown.
        task: Kernel to change, and how.
        spec: Kernel spec of the problem; None without one.
    """
    *first, last = observer.observe(problem)
    parts = [last.content]
    if spec is not None:
        parts.append(_contract(spec))
    parts += [_kernel(task), _change(task)]
    if task.siblings:
        shown = "\n".join(f"- {line}" for line in task.siblings[-MOST_SIBLINGS:])
        parts.append(f"# What was tried from this kernel\n\n{shown}\n\nDo not repeat any of it.")
    if task.failure:
        parts.append(f"# What went wrong\n\n{task.failure}")
    parts.append(_form(task))
    return (*first, Message(last.role, "\n\n".join(parts)))


def _contract(spec: KernelSpec) -> str:
    """Return axes, tensors and visible shapes of a kernel spec."""
    lines = []
    for name, axis in spec.contract.axes.items():
        kind = "any size"
        if isinstance(axis, ConstAxis):
            kind = f"always {axis.value}"
        elif isinstance(axis, ExprAxis):
            kind = axis.expression
        lines.append(f"- axis `{name}`: {kind}")
    for tensor in spec.contract.tensors:
        shape = ", ".join(map(str, tensor.shape))
        lines.append(f"- {tensor.role} `{tensor.name}`: {tensor.dtype} [{shape}], {tensor.layout}")
    for each in spec.shapes:
        if each.role == "tune":
            lines.append(f"- timed at {spec.shape_name(each)}, with weight {each.weight:g}")
    return (
        "# The contract\n\n"
        + "\n".join(lines)
        + "\n\nThe kernel is also judged at shapes that are not listed, and must be correct there."
    )


def _kernel(task: WriterTask) -> str:
    return (
        f"# The kernel to change\n\n{task.standing} This is its file `{FILE}`:\n\n"
        f"```python\n{task.parent.source.rstrip()}\n```"
    )


def _change(task: WriterTask) -> str:
    if task.failure:
        told = (
            "Repair the kernel, so that it is correct and keeps its idea, which was "
            f"{_recipe(task)}"
        )
    elif task.move == FREE_MOVE:
        told = "Make it faster by any one change that you expect to gain most."
    else:
        told = f"Make it faster by this move: {_recipe(task)}"
    exact = "Results may be less accurate, within the judge's tolerance."
    if not task.approximate:
        exact = "Results may not become less accurate: no fast-math flags, no narrower types."
    return f"# The change to make\n\n{told}\n\n{exact} The kernel must stay correct at every shape."


def _recipe(task: WriterTask) -> str:
    recipe = task.recipes.get(task.move, "")
    return f"`{task.move}`. {recipe}" if recipe else f"`{task.move}`."


def _form(task: WriterTask) -> str:
    known = ""
    if task.move == FREE_MOVE and task.recipes:
        known = (
            f" (a name of your own, or one of {', '.join(f'`{move}`' for move in task.recipes)})"
        )
    return (
        "# The form of your answer\n\n"
        "Think first, briefly, inside <think> and </think>. Then write three lines:\n\n"
        f"MOVE: {'the name of your change' if known else task.move}{known}\n"
        "GAIN: the share by which you expect the kernel to be faster than the one shown, such as "
        "0.25\n"
        "SUMMARY: what you changed, in one sentence\n\n"
        "Then give the change as one or several blocks of this form:\n\n"
        "<<<<<<< SEARCH\nlines of the kernel, exactly as they stand there\n=======\n"
        "lines that take their place\n>>>>>>> REPLACE\n\n"
        f"The lines between SEARCH and ======= must stand in `{FILE}` exactly once. A unified diff "
        f"of `{FILE}` is accepted, too. If most of the module changes, give the whole module "
        "inside <KERNEL> and </KERNEL> instead.\n\n"
        "A whole number that is worth tuning may stand alone on a line with a list of values, "
        "which are then measured: `constexpr int TILE = 32;  // knob: 16, 32, 64` in C++, or "
        "`BLOCK = 128  # knob: 64, 128, 256` in Python."
    )
