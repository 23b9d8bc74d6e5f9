"""The text a model reads before its first answer.

Contract: pure functions of their arguments; the same arguments give the same text. The system
part says what the task and the form of an answer are, for a language; the problem part gives the
reference, the device, the rules and the turn budget, with worked examples if wanted.

Feedback on answers is not here: see `kernelgym.feedback`, and `kernelgym.prompts.observer`, which
puts both together.
"""

from __future__ import annotations

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import language as find_language
from kernelgym.precision import judged_precisions, screening_rules
from kernelgym.pretrained import models_of, uses_transformers
from kernelgym.prompts.hardware import Hardware
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.starting_kernel import starting_kernel
from kernelgym.text_templates import filled
from kernelgym.types import Problem

EXAMPLE_COUNTS = {"zero_shot": 0, "one_shot": 1, "few_shot": 2}
"""Number of worked examples by name."""

SUMMARY_REQUEST = """\
# What later turns see

Your thinking is not shown to you again; your kernels and what became of them are. Before \
<KERNEL>, say in one or two sentences inside <SUMMARY> and </SUMMARY> what you changed and why: \
later turns show you that too."""
"""Request to the model to sum up its changes, added to prompts whose context keeps summaries."""
CONTRACT = """\
The contract of `ModelNew`:
- The constructor and `forward` take the same arguments as those of `Model`; `forward` returns \
the same outputs, in shape and dtype.
- It creates the same parameters and buffers, with the same names, shapes and initialisers, in \
the same order: both models are built under one random seed, and that is how their weights come \
to match.
- The computation itself is done by your own kernels. Allocating with PyTorch (`torch.empty` and \
the like) and reshaping are fine; computing with PyTorch operators is not the task.
- Inputs differ from call to call, and so do weights from judgement to judgement. Results may not \
be kept from one call to the next, and inputs may not be changed in place."""
"""Rules for the module that a model writes, in the words of the prompt."""
_PACKAGE = "kernelgym.prompts"
_REFUSED = {
    "no_custom_kernel": "an answer without a kernel of its own, or whose Triton kernel calls plain "
    "Python functions",
    "forbidden_import": "importing what reaches outside the computation (ctypes, subprocess, "
    "socket, gc and the like) or hides from PyTorch's dispatcher",
    "frame_access": "looking into the frames of other Python functions",
}


def system_prompt(language: str) -> str:
    """Return the system part: the task and the form of an answer.

    Raises:
        UnknownName: If there is no such language.
    """
    entry = find_language(language)
    return filled(_PACKAGE, "system.md.j2", entry=entry, contract=CONTRACT).rstrip()


def problem_prompt(
    problem: Problem,
    language: str,
    device: str,
    *,
    examples: int | str = "one_shot",
    hardware: Hardware | None = None,
    ruleset: str | Ruleset = "strict",
    max_turns: int = 1,
) -> str:
    """Return the user part: examples, reference, device, rules and the turn budget.

    Args:
        problem: The problem to be solved.
        language: Language of the kernels.
        device: Device they will run on, such as ``cpu`` or ``cuda:0``.
        examples: Number of worked examples: a number, or ``zero_shot``, ``one_shot``, ``few_shot``.
        hardware: Facts about the device that the prompt tells; None to tell none.
        ruleset: Rules the verdict follows, or their name.
        max_turns: The turn budget.

    Raises:
        UsageError: If a name is unknown or a number out of range.
    """
    entry = find_language(language)
    rules = find_ruleset(ruleset)
    atol, rtol = screening_rules(problem, rules).tolerances
    return filled(
        _PACKAGE,
        "problem.md.j2",
        problem=problem,
        entry=entry,
        device=device,
        examples=entry.examples[: example_count(examples, entry.name)],
        hardware=hardware,
        rules=rules,
        max_turns=max_turns,
        precisions=judged_precisions(problem, rules),
        starts=starting_kernel(problem) is not None,
        atol=atol,
        rtol=rtol,
        is_whole_model=uses_transformers(problem),
        models=models_of(problem),
        refused=_REFUSED,
    ).rstrip()


def example_count(examples: int | str, language: str) -> int:
    """Return the number of worked examples, given as a number or a name.

    Raises:
        UsageError: If the name is unknown, or there are not that many.
    """
    if isinstance(examples, str):
        if examples not in EXAMPLE_COUNTS:
            raise UnknownName("number of examples", examples, EXAMPLE_COUNTS)
        return EXAMPLE_COUNTS[examples]
    if isinstance(examples, bool) or not isinstance(examples, int):
        raise UsageError(
            f"examples is a whole number or one of {', '.join(EXAMPLE_COUNTS)}; got {examples!r}"
        )
    there = len(find_language(language).examples)
    if not 0 <= examples <= there:
        raise UsageError(
            f"there are {there} examples for {language!r}, so 0 to {there} can be "
            f"shown; {examples} were asked for"
        )
    return examples
