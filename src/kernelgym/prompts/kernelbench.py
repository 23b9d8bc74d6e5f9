"""KernelBench's own prompt, read from the prompt files of a checkout.

Contract: the first message is what KernelBench's constructor makes of the same files, backend,
option and precision, for the options ``zero_shot``, ``one_shot`` and ``few_shot``. The checkout is
the one that ``KERNELBENCH_ROOT`` names: the repository's root, or its folder of problems. Nothing
of KernelBench is shipped here, and nothing of a checkout is run.

It asks for a code block without ``<KERNEL>`` tags, so answers have the defect ``no_kernel_tag``.

Not covered: its blocks on hardware, which are Python code; ``custom_prompts``; backends that are no
languages here. Earlier turns, which its prompts do not know, are shown as in the full prompt.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import UnknownName, UsageError
from kernelgym.precision import judged_precisions
from kernelgym.prompts.first_message import EXAMPLE_COUNTS
from kernelgym.prompts.observer import Observer
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Kernel, Problem

_VARIABLE = "KERNELBENCH_ROOT"
_FILE = Path("src/kernelbench/prompts/prompts.toml")
_SYSTEM = "You are a helpful assistant"
_OPTIONS = tuple(EXAMPLE_COUNTS)


@dataclass(frozen=True, slots=True)
class KernelBenchObserver(Observer):
    """Shows KernelBench's prompt, and earlier turns as the full prompt does.

    Raises:
        UsageError: If it is given parts or hardware, or no checkout with prompts is named.
    """

    def __post_init__(self) -> None:
        Observer.__post_init__(self)  # the bare super() does not work in a slotted dataclass
        if self.parts or self.hardware is not None:
            raise UsageError(
                "KernelBench's prompt shows neither parts nor hardware; leave them out, or "
                "use the full prompt"
            )
        _backend(_files(_root()), self.language)

    def _system(self) -> str:
        return _SYSTEM

    def _fixed(self, problem: Problem, start: Kernel | None) -> tuple[list[str], list[str]]:
        if start is not None:
            raise UsageError(
                "KernelBench's prompt shows no kernel to start from; leave it out, or use the full "
                "prompt"
            )
        option = _OPTIONS[self.examples] if isinstance(self.examples, int) else self.examples
        precision = judged_precisions(problem, find_ruleset(self.ruleset))[0]
        return [kernelbench_prompt(problem, self.language, option, precision)], []


def kernelbench_prompt(
    problem: Problem, language: str, option: str = "one_shot", precision: str = "fp32"
) -> str:
    """Return KernelBench's prompt for a problem.

    Args:
        problem: The problem.
        language: Language of the kernel; KernelBench's backend of that name.
        option: ``zero_shot``, ``one_shot`` or ``few_shot``.
        precision: ``fp32``, ``fp16`` or ``bf16``.

    Raises:
        UsageError: If there is no checkout, or its files lack something.
    """
    root = _root()
    data = _files(root)
    backend = _backend(data, language)
    try:
        chosen = data["options"][option]
        common, shared = data["templates"]["common"], data["shared"]
        filled: dict[str, str] = {
            "backend_display": backend["backend_display"],
            "ref_arch_src": problem.source,
            "precision_display": data["precision"][precision]["precision_display"],
        }
        if "requires_example" in chosen:
            filled |= _examples(root, data, backend, chosen["requires_example"], filled)
        blocks = [
            shared[name]
            if name in ("problem_statement", "instruction")
            else f"{common[name].strip()}\n"
            for name in chosen["components"]
        ]
        return "\n".join(blocks).strip().format_map(filled).strip() + "\n"
    except UsageError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise UsageError(
            f"{root / _FILE} is not laid out as expected ({type(error).__name__}: {error}); use a "
            "checkout of KernelBench of 2025-11 or later"
        ) from None


def _examples(
    root: Path,
    data: Mapping[str, Any],
    backend: Mapping[str, Any],
    wanted: str,
    filled: Mapping[str, str],
) -> dict[str, str]:
    """Return the introduction and the text of worked examples in KernelBench's prompt."""
    common = data["templates"]["common"]
    pairs = backend.get("few_shot_examples") if wanted == "few_shot" else None
    intro = common["example_intro_few_shot" if pairs else "example_intro_one_shot"]
    if not pairs:
        first = backend.get("few_shot_example_arch") or data["shared"]["few_shot_example_arch"]
        pairs = [(first, backend["one_shot_new_arch"])]
    entries = [
        common["example_entry_template"]
        .strip()
        .format(
            example_label=f"Example {number}:" if len(pairs) > 1 else "Example:",
            input_code=_text(root, before),
            output_code=_text(root, after),
            **filled,
        )
        for number, (before, after) in enumerate(pairs, 1)
    ]
    return {
        "examples_intro": intro.strip().format_map(filled),
        "examples_entries": "\n\n".join(entries).strip(),
    }


def _backend(data: Mapping[str, Any], language: str) -> Mapping[str, Any]:
    known = data.get("backends", {})
    if language not in known:
        raise UnknownName("language of KernelBench's prompts", language, known)
    found: Mapping[str, Any] = known[language]
    return found


def _root() -> Path:
    """Return the root of the KernelBench checkout that the environment variable names."""
    given = os.environ.get(_VARIABLE, "")
    if not given:
        raise UsageError(
            f"KernelBench's prompt is read from a checkout, and {_VARIABLE} is not set; set it to "
            "the repository's folder, or use the full prompt"
        )
    folder = Path(given).expanduser().resolve()
    for root in (folder, folder.parent):
        if (root / _FILE).is_file():
            return root
    raise UsageError(
        f"{_VARIABLE}={given} holds no {_FILE}; set it to the root of a whole checkout of "
        "KernelBench"
    )


@functools.lru_cache(maxsize=4)
def _files(root: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads((root / _FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {root / _FILE}: {error}") from None


def _text(root: Path, name: str) -> str:
    try:
        return (root / name).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read KernelBench's example {root / name}: {error}") from None
