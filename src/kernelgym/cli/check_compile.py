"""``kernelgym check --compile-only``: compile a kernel for a GPU that need not be present.

Contract: nothing runs on a GPU, so there is no verdict and no reward. A Triton kernel runs once in
the interpreter, in the candidate's sandbox, and its launches are compiled in another process. Of a
CUDA or HIP kernel the module is loaded, and its extensions are compiled in the compiler's sandbox.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

from kernelgym.answers.screening import screen
from kernelgym.cli import judging
from kernelgym.cli.console import print_text
from kernelgym.errors import UnsupportedLanguage, UsageError
from kernelgym.languages import LANGUAGES, language
from kernelgym.precision import screening_rules
from kernelgym.rulesets import precise_rules
from kernelgym.types import Kernel

if TYPE_CHECKING:
    from kernelgym.cli.check import CheckCommand

_KNOWN = "gfx942, gfx950 and the like for AMD, sm_90a, sm_100 and the like for NVIDIA"
_NO_VERDICT = "nothing ran on a GPU: this is not a verdict and gives no reward"


def target_of(arch: str) -> str:
    """Return the compiler's target for an architecture: ``hip:gfx942``, or ``cuda:90a`` for sm_90a.

    Raises:
        UsageError: If it is not a name of an architecture.
    """
    if re.fullmatch(r"gfx\d{1,2}[0-9a-f]{2}", arch):
        return f"hip:{arch}"
    if found := re.fullmatch(r"sm_(\d{2,3}[af]?)", arch):
        return f"cuda:{found[1]}"
    given = f"--arch {arch!r} is unknown" if arch else "--compile-only needs --arch"
    raise UsageError(f"{given}; known: {_KNOWN}")


def compile_kernel(command: CheckCommand) -> int:
    """Compile the command's kernel; return the exit code: 0 if it compiled, otherwise 1.

    Raises:
        UsageError: If an option is missing, or does not go with --compile-only.
    """
    given = {
        "--batch": command.batch,
        "--evaluator": command.evaluator,
        "--replay": command.replay,
        "--reply": command.reply,
        "--verdict-cache": command.verdict_cache,
    }
    if unused := [name for name, value in given.items() if value]:
        raise UsageError(f"{', '.join(unused)} cannot be combined with --compile-only")
    target = target_of(command.arch)
    entry, kind = language(command.language), target.partition(":")[0]
    if kind not in entry.compiled_for or command.device != "cpu":
        able = [name for name, each in LANGUAGES.items() if kind in each.compiled_for]
        raise UnsupportedLanguage(
            f"language {entry.name!r} is not compiled for {command.arch} on device "
            f"{command.device!r}; on device 'cpu', --compile-only compiles: {', '.join(able)}"
        )
    if not command.file or not command.problem:
        raise UsageError(
            "--compile-only needs a FILE that holds the kernel, and --problem: an id, a problem "
            "file or a shape of a kernel spec (SPEC.json#SHAPE). The types of a kernel's arguments "
            "come from the problem's inputs"
        )
    from kernelgym.judge import LocalEvaluator
    from kernelgym.judging_memory import parse_bytes

    rules = precise_rules(command.ruleset, command.precision)
    rules = dataclasses.replace(rules, front_end=target, cuda_on_cpu=True)
    problem = judging.problem_at(command.problem, sizes=command.sizes)
    kernel = Kernel(judging.read_text(command.file, "kernel file"), entry.name)
    memory = parse_bytes(command.memory)
    with LocalEvaluator(command.device, rules, timing=False, memory_bytes=memory) as evaluator:
        found = evaluator.compile_only(problem, kernel)
    complaints = list(found.complaints)
    if not found.compiled:  # a kernel in another language fails in some way that does not say so
        said = screen(kernel, screening_rules(problem, rules))
        complaints = [each.message for each in said if each.code == "no_custom_kernel"] + complaints
    if not found.launches and not complaints:
        complaints = [f"no {entry.noun} was launched or built, so nothing was compiled"]
    if command.json:
        told = {"compiled": found.compiled, "arch": command.arch, "launches": found.launches}
        print(json.dumps({**told, "complaints": complaints, "note": _NO_VERDICT}))
        return 0 if found.compiled else 1
    if found.compiled:
        one, many = ("kernel", "kernels") if entry.half else ("extension", "extensions")
        if entry.is_interpreted("cpu"):
            one, many = "launch", "launches"
        what = f"{found.launches} {one if found.launches == 1 else many}"
        print_text(f"compiled for {command.arch}: {what}", "bold green")
    else:
        print_text(f"not compiled for {command.arch}", "bold red")
    for complaint in complaints:
        print_text(complaint)
    print_text(_NO_VERDICT, "dim")
    return 0 if found.compiled else 1
