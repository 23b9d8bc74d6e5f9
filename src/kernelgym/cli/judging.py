"""Functions of commands that judge: reading kernels and problems, making evaluators, judging.

A kernel that the ruleset refuses is not run: it gets the same verdict as in an episode.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgym.answers.screening import screen
from kernelgym.episodes.episode import refusal, with_findings
from kernelgym.errors import UsageError
from kernelgym.judging_memory import parse_bytes
from kernelgym.languages import LANGUAGES, check_language
from kernelgym.precision import screening_rules
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Evaluator, Job, Kernel, Problem, Verdict

if TYPE_CHECKING:
    from kernelgym.evaluators.base import EvaluatorBase

ALL_DEVICES = "all"
"""Name that stands for every GPU of this machine."""
ON_RAY = "ray"
"""Name that stands, in place of a service's address, for the Ray cluster of this machine."""


def make_evaluator(
    device: str,
    ruleset: str | Ruleset,
    workers: int,
    timing: bool,
    memory: str,
    isolation: str = "auto",
) -> EvaluatorBase:
    """Return an evaluator of this machine; `open_evaluator` explains the arguments."""
    from kernelgym.judge import LocalEvaluator

    every = device == ALL_DEVICES
    return LocalEvaluator(
        "cpu" if every else device,
        ruleset,
        workers,
        timing,
        isolation=isolation,
        devices=ALL_DEVICES if every else None,
        memory_bytes=parse_bytes(memory),
    )


def open_evaluator(
    device: str,
    ruleset: str | Ruleset,
    workers: int | None = 1,
    timing: bool = True,
    memory: str = "",
    verdict_cache: str = "",
    address: str = "",
    isolation: str = "auto",
) -> EvaluatorBase:
    """Return the evaluator that a command judges with, to be closed by it.

    Args:
        device: Device on which kernels are judged; ``all`` for every GPU of this machine.
        ruleset: Rules of the verdicts.
        workers: Number of kernels judged at the same time on each device; None for the usual one.
        timing: Whether correct kernels are timed.
        memory: Memory budget, such as ``12GB``; half of the device's memory if empty.
        verdict_cache: Folder in which verdicts are kept; empty to keep none.
        address: Address of a verdict service that judges; ``ray`` for the Ray cluster that this
            machine or ``RAY_ADDRESS`` belongs to; empty to judge on this machine.
        isolation: Sandbox tier.

    Raises:
        UsageError: If an argument is unknown, the GPUs are not of one kind, verdicts cannot be kept
            in the folder, or the service judges otherwise than is asked for.
    """
    evaluator: EvaluatorBase
    if address == ON_RAY:
        from kernelgym.evaluators.ray_evaluator import RayEvaluator

        evaluator = RayEvaluator(
            device="cuda" if device == ALL_DEVICES else device,
            ruleset=ruleset,
            workers=workers,
            timing=timing,
            isolation=isolation,
            memory_bytes=parse_bytes(memory),
        )
    elif address:
        evaluator = _service_at(address, device, find_ruleset(ruleset), timing, memory)
    else:
        evaluator = make_evaluator(
            device, ruleset, 1 if workers is None else workers, timing, memory, isolation
        )
    if not verdict_cache:
        return evaluator
    from kernelgym.evaluators.cached import CachedEvaluator

    try:
        return CachedEvaluator(evaluator, verdict_cache, owns=True)
    except UsageError:
        evaluator.close()
        raise


def _service_at(
    address: str, device: str, rules: Ruleset, timing: bool, memory: str
) -> EvaluatorBase:
    """Return a service's evaluator, after checking that it judges on the requested device."""
    from kernelgym.evaluators.remote import RemoteEvaluator

    if memory:
        raise UsageError(
            "--memory limits kernels judged on this machine, and --evaluator "
            "judges elsewhere; leave out --memory"
        )
    remote = RemoteEvaluator(address, ruleset=rules, timing=timing)
    try:
        can = remote.capabilities
        if device not in (can.device, can.device.partition(":")[0]):
            raise UsageError(
                f"--device {device} was given, but {address} judges on {can.device}: give "
                f"--device {can.device}"
            )
    except BaseException:
        remote.close()
        raise
    return remote


def check_tools(language: str, device: str) -> None:
    """Check that a language is known and can be run, before anything is judged.

    Raises:
        UnknownName: If there is no such language.
        UnsupportedLanguage: If the device or this machine cannot run it.
    """
    entry = check_language(language, device)
    if entry.tools or entry.packages or entry.headers:
        from kernelgym.judge.compiling.requirements import check_requirements

        check_requirements(entry, device=device)


def read_text(path: str | Path, what: str) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        UsageError: If it cannot be read, or is not UTF-8 text.
    """
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} {str(path)!r} is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {what} {str(path)!r}: {reason}") from None


def problem_at(id_or_path: str, folder: Path = Path(), sizes: str = "full") -> Problem:
    """Return a problem by id, or by the path of its file.

    Args:
        id_or_path: The id or the path.
        folder: Folder to which paths are relative.
        sizes: ``small`` for the small form of a KernelBench problem.

    Raises:
        UsageError: If there is no such problem, or its file cannot be used.
    """
    from kernelgym.suites import SUITES, get_problem

    if id_or_path.partition("/")[0] in SUITES and not id_or_path.endswith(".py"):
        return get_problem(id_or_path, sizes)
    path = folder / id_or_path
    try:
        # Behind the file of a kernel spec, # and a shape's name may stand.
        is_path = id_or_path.endswith(".py") or Path(str(path).partition("#")[0]).exists()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        is_path = False
    return get_problem(str(path) if is_path else id_or_path, sizes)


def rules_at(id_or_path: str, rules: Ruleset, folder: Path = Path()) -> Ruleset:
    """Return a command's rules; if its problem is a kernel spec, with the spec's tolerances.

    Args:
        id_or_path: The problem's id or path.
        rules: Rules of the command.
        folder: Folder to which paths are relative.

    Raises:
        UsageError: If a spec's file cannot be used.
    """
    if not id_or_path.partition("#")[0].endswith(".json"):
        return rules
    from kernelgym.suites.spec_suite import rules_for

    return rules_for(folder / id_or_path, rules)


def judge(evaluator: Evaluator, problem: Problem, kernel: Kernel, seed: str = "") -> Verdict:
    """Judge one kernel, or refuse it.

    Args:
        evaluator: The judge.
        problem: The problem.
        kernel: The kernel.
        seed: Seed of an earlier verdict, to repeat it.
    """
    rules = evaluator.capabilities.ruleset
    refused = refusal(problem, kernel, rules)
    if refused is not None:
        return refused
    verdict = evaluator.evaluate(problem, kernel, seed=seed)
    return with_findings(verdict, screen(kernel, screening_rules(problem, rules)))


def judge_many(evaluator: Evaluator, jobs: Sequence[Job]) -> Iterator[tuple[int, Verdict]]:
    """Judge many kernels; yield (index of the job, verdict) as they come, refused ones first."""
    kept: list[int] = []
    for index, job in enumerate(jobs):
        refused = refusal(job.problem, job.kernel, evaluator.capabilities.ruleset)
        if refused is None:
            kept.append(index)
        else:
            yield index, refused
    for place, verdict in evaluator.evaluate_iter([jobs[index] for index in kept]):
        index = kept[place]
        rules = screening_rules(jobs[index].problem, evaluator.capabilities.ruleset)
        yield index, with_findings(verdict, screen(jobs[index].kernel, rules))


def untimed_reason(language: str, device: str, timing: bool) -> str:
    """Return why a correct kernel was not timed; empty if it could have been timed."""
    if not timing:
        return "--no-timing was given"
    if not LANGUAGES[language].is_timed(device):
        title = LANGUAGES[language].title
        return f"kernels in {title} are not timed on {device}, only tested for correctness"
    return ""
