"""The text a model reads before its first answer.

Contract: pure functions of their arguments; the same arguments give the same text. The system
part says what the task and the form of an answer are, for a language; the problem part gives the
reference, the device, the rules and the turn budget, with worked examples if wanted.

Feedback on answers is not here: see `kernelgym.feedback`, and `kernelgym.prompts.observer`, which
puts both together.
"""

from __future__ import annotations

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import Language, WorkedExample
from kernelgym.languages import language as find_language
from kernelgym.precision import judged_precisions, screening_rules
from kernelgym.pretrained import models_of, uses_transformers
from kernelgym.prompts.hardware import Hardware
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.starting_kernel import starting_kernel
from kernelgym.types import Problem

EXAMPLE_COUNTS = {"zero_shot": 0, "one_shot": 1, "few_shot": 2}
"""Number of worked examples by name."""

SUMMARY_REQUEST = """\
# What later turns see

Your thinking is not shown to you again; your kernels and what became of them are. Before \
<KERNEL>, say in one or two sentences inside <SUMMARY> and </SUMMARY> what you changed and why: \
later turns show you that too."""
"""Added to the prompt where the context keeps the model's own summaries."""
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
"""Contract of the module that a model writes, as it is told."""
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
    return f"""\
You write fast and correct {entry.title} kernels that replace PyTorch code.

You are given a reference module that defines `class Model`. Answer with a complete Python module \
that defines `class ModelNew`, a drop-in replacement. {entry.task}

{CONTRACT}

The form of an answer: think first, briefly, inside <think> and </think>; then give the whole \
module inside <KERNEL> and </KERNEL>, in one fenced block:

<think>
what limits the speed, and how the work is divided
</think>

<KERNEL>
```{entry.fence}
import torch
...
class ModelNew(nn.Module):
    ...
```
</KERNEL>

If you give several blocks, the last one that is well-formed counts."""


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
        examples: How many worked examples: a number, or ``zero_shot``, ``one_shot``, ``few_shot``.
        hardware: Facts about the device that the prompt tells; None to tell none.
        ruleset: Rules the verdict follows, or their name.
        max_turns: The turn budget.

    Raises:
        UsageError: If a name is unknown or a number out of range.
    """
    entry = find_language(language)
    shown = entry.examples[: example_count(examples, entry.name)]
    sections = [_example(number, example) for number, example in enumerate(shown, 1)]
    sections.append(
        f"# The problem: {problem.name}\n\nReplace this reference by {entry.title} kernels:\n\n"
        f"```python\n{problem.source.strip()}\n```"
    )
    if hardware is not None:
        sections.append(f"# The hardware\n\n{hardware}")
    rules = find_ruleset(ruleset)
    sections.append(_judgement(problem, rules, entry, device, max_turns))
    return "\n\n".join(sections)


def example_count(examples: int | str, language: str) -> int:
    """Return how many worked examples are asked for.

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


def _example(number: int, example: WorkedExample) -> str:
    return (
        f"# Example {number}: {example.title}\n\nReference:\n\n```python\n{example.reference}```"
        f"\n\nA correct answer:\n\n<KERNEL>\n```python\n{example.kernel}```\n</KERNEL>"
    )


def _placement(problem: Problem, rules: Ruleset, device: str) -> str:
    """Return the line on the device and the precision that are judged."""
    named = judged_precisions(problem, rules)
    if named == ("fp32",) or rules.precision != "own":
        return f"- It runs on device `{device}`; all tensors are on it, in {named[0]}."
    return (
        f"- It runs on device `{device}`; all tensors are on it. Nothing is cast: inputs, weights "
        f"and outputs have the floating-point types that the reference gives them (fp32, and "
        f"{', '.join(named)} where its source says so). Make weights and return outputs in the "
        "same types; sums that are accumulated in a narrow type are too far off."
    )


def _on_whole_models(problem: Problem, rules: Ruleset) -> list[str]:
    """Return the lines on a reference that runs a model of the package transformers."""
    lines = [
        "- The reference runs a model of the package transformers, and your module may import that "
        "package: subclass the model or copy its code, and replace parts of it by your kernels. "
        "Return what the reference returns, field by field."
    ]
    if models := models_of(problem):
        lines.append(
            f"- There is no network. `from_pretrained` finds {' and '.join(models)} on this "
            "machine, and nothing else. Trained weights are the same in every judgement, so they "
            "may be packed in the constructor."
        )
    if rules.require_custom_kernel and rules.small_share:
        lines.append(
            "- PyTorch may do the rest, if your kernels replace at least "
            f"{rules.small_share:.0%} of the reference's work: of the bytes that its operators "
            "move or of the products that they compute. Less is refused, and so is a kernel that "
            "only comes on top."
        )
    return lines


def _judgement(
    problem: Problem, rules: Ruleset, entry: Language, device: str, max_turns: int
) -> str:
    lines = [_placement(problem, rules, device)]
    starts = starting_kernel(problem) is not None
    if starts:
        kind = " times a typical magnitude" if rules.tolerance == "fp64" else ""
        atol, rtol = screening_rules(problem, rules).tolerances
        lines.append(
            "- Outputs must agree with those of the kernel in `STARTING_KERNEL`, which the judge "
            f"runs on the same inputs, within atol {atol:g}{kind} and rtol {rtol:g}."
        )
    elif rules.tolerance == "fp64":
        lines.append("- Outputs are compared with the reference within its own rounding error.")
    else:
        lines.append(
            "- Outputs must agree with the reference within atol {:g} and rtol {:g}.".format(
                *rules.tolerances
            )
        )
    if rules.distributions and not starts:
        lines.append(
            "- Floating-point inputs vary in distribution and magnitude from call to call, beyond "
            "what `get_inputs` draws: other means and signs, larger and smaller values, a few "
            "outliers. Shapes, types and structure (triangles, indices, probabilities) stay."
        )
    if rules.perturb_state and not starts:
        lines.append(
            "- Parameters and buffers that are not drawn at random (a LayerNorm's ones and zeros, "
            "an identity, a table of positions) are given other values after construction, in "
            "place and by name: keep the reference's names and shapes, and read them in `forward`, "
            "not in the constructor."
        )
    if uses_transformers(problem):
        lines += _on_whole_models(problem, rules)
    lines.append(
        f"- Several calls on different inputs are compared, and all must agree; building may take "
        f"{rules.limits.build_s:g} s and running {rules.limits.run_s:g} s."
    )
    if entry.is_timed(device):
        lines.append("- A correct kernel is timed against the reference. Faster is better.")
    else:
        lines.append("- Only correctness is judged here; speed is not measured.")
    if entry.is_interpreted(device):
        lines.append(f"- {entry.interpreter_note}")
        if rules.interpreter == "gpu" and entry.as_gpu_note:
            lines.append(f"- {entry.as_gpu_note}")
    if rules.hard_findings:
        refused = "; ".join(_REFUSED.get(code, code) for code in rules.hard_findings)
        lines.append(f"- Refused without being run: {refused}.")
    if max_turns == 1:
        lines.append("- You have one turn: there is no second try.")
    else:
        lines.append(
            f"- You have up to {max_turns} turns. After each you are told what became of your "
            "kernel, and can answer with a better one."
        )
    return "# How your answer is judged\n\n" + "\n".join(lines)
