"""The problems that an environment lists, those that it draws, and those that may be named.

All problems of the choice are listed. Degenerate problems are listed but not drawn, and refused
when they are named, unless the ruleset checks no problems or degenerate ones are allowed. A problem
is named by ``problem_id``, or as a single id among ``problems``; a range or a level names none.
`kernelgym.suites.known_hygiene` tells which problems are degenerate; nothing is computed here. A
problem that is known to need more than the memory budget is listed but never drawn, and is refused
when it is named. Device, ruleset and budget are agreed on here with the evaluator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, cast

from kernelgym.devices import find_device
from kernelgym.errors import DegenerateProblem, ProblemError, UnknownName, UsageError
from kernelgym.hygiene import refuse
from kernelgym.judging_memory import memory_budget
from kernelgym.pretrained import check_models, what_is_missing
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites import SUITES, Ids, Suite
from kernelgym.suites import suite as find_suite
from kernelgym.suites.base import find_problem, non_empty, parse_ids, problem_keys
from kernelgym.suites.kernelbench_small import SMALL
from kernelgym.suites.known_hygiene import known_hygiene, passing
from kernelgym.suites.known_memory import check_fits, fitting, needed_bytes, too_large
from kernelgym.types import Evaluator, Kernel, Problem


@dataclass(frozen=True, slots=True)
class ProblemChoice:
    """Problems of one environment; made by `choose_problems`."""

    problems: tuple[Problem, ...]
    """Problems that the environment lists."""
    drawn: tuple[Problem, ...]
    """Problems that `reset` may draw."""
    fitting: tuple[Problem, ...]
    """Problems that `reset` may draw if degenerate ones are allowed."""
    ruleset: Ruleset
    """Ruleset that verdicts follow."""
    device: str
    """Device that kernels run on."""
    gated: bool
    """Whether degenerate problems are never drawn, and refused if named by id."""
    memory_bytes: int | None = None
    """Largest number of bytes that judging one kernel may take; None for no limit."""
    suite: Suite | None = None
    """Suite whose other problems may be named too; None if ids, a split or the exclusion of
    degenerate problems narrowed the choice."""
    level: int | None = None
    """Level that the environment plays; None for all."""
    judged_here: bool = False
    """Whether this machine judges, so that pretrained models have to be on it."""

    def find(self, problem_id: object, allow_degenerate: bool = False) -> Problem:
        """Return the problem that an id names, for an episode.

        Args:
            problem_id: A full id, an id without its suite, a name, or a number.
            allow_degenerate: Let a degenerate one pass.

        Raises:
            UnknownName: If there is none.
            DegenerateProblem: If it is degenerate.
            UsageError: If that is not an id, or the problem needs more than the memory budget.
        """
        if isinstance(problem_id, bool) or not isinstance(problem_id, str | int):
            raise UsageError(f"problem_id is an id or a number, got {problem_id!r}")
        found = self._named(str(problem_id))
        if self.judged_here:
            check_models(found)
        check_fits(found, self.memory_bytes, self.device)
        if self.gated and not allow_degenerate:
            how = "pass options={'problem_id': ..., 'allow_degenerate': True}"
            refuse(known_hygiene(found, self.ruleset, self.device), how)
        return found

    def _named(self, text: str) -> Problem:
        key = int(text) if text.isdecimal() else text
        for problem in self.problems:
            if key in problem_keys(problem):
                return problem
        if self.suite is not None and (text.isdecimal() or "/" in text):
            short = f"L{self.level}/{text}" if text.isdecimal() else text
            name = self.suite.name
            other = short.partition("/")[0]
            if other in SUITES and other != name:
                raise UsageError(
                    f"problem {text!r} is of suite {other}, and this environment plays {name}; "
                    f"make one of {other}, or give an id such as {name}/L1/1"
                )
            if short.startswith(f"{name}/"):
                return self.suite.get(short)
            small = getattr(self.suite, "sizes", "full") == "small" and not short.endswith(SMALL)
            return self.suite.get(f"{name}/{short}{SMALL if small else ''}")
        return find_problem(self.problems, text)


def choose_problems(
    suite: str | Path | Suite,
    level: int | None,
    problems: Ids | Sequence[Problem] | Problem | None,
    split: str | None,
    *,
    ruleset: Ruleset,
    device: str,
    sizes: str = "full",
    exclude_degenerate: bool = False,
    allow_degenerate: bool = False,
    memory_bytes: int | None = None,
    judged_here: bool = False,
) -> ProblemChoice:
    """Return an environment's choice; the arguments are those of `KernelEnv`.

    Only `memory_bytes` sets no limit here if it is None. Where this machine judges (`judged_here`),
    problems whose pretrained models are not on it are listed, and not drawn.

    Raises:
        UsageError: If an argument is unknown or contradicts another, a problem named by its id
            needs more than the memory budget, or nothing is left.
        DegenerateProblem: If a problem named by its id is degenerate, or all of them are.
    """
    flags: dict[str, object] = {
        "exclude_degenerate": exclude_degenerate,
        "allow_degenerate": allow_degenerate,
    }
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise UsageError(f"{name} is True or False, got {flag!r}")
    if exclude_degenerate and allow_degenerate:
        raise UsageError(
            "exclude_degenerate and allow_degenerate contradict each other; give one of them"
        )
    if isinstance(problems, Problem):
        problems = [problems]
    _check_choice_of_problems(problems)
    whole: Suite | None = None
    named: tuple[Problem, ...] = ()
    if _are_problems(problems):
        if sizes != "full":
            raise UsageError(
                f"sizes={sizes!r} chooses among a suite's problems, and `problems` holds problems "
                "already; leave sizes out, or give ids"
            )
        listed = tuple(problems)
    else:
        # Problems big enough to be timed where they can be; the interpreter needs small ones.
        sized = {"size": "gpu"} if suite == "Synthetic" and device != "cpu" else {}
        if sizes != "full":
            sized |= {"sizes": sizes}
        found = find_suite(suite, **sized)
        ids = cast("Ids | None", problems)
        listed = _listed(found, level, ids, split)
        if ids is not None:
            named = _named_singly(listed, ids)
        elif split is None and not exclude_degenerate:
            whole = found
    if exclude_degenerate:
        listed = non_empty(
            passing(listed, ruleset, device), "the choice", exclude_degenerate=exclude_degenerate
        )
    for problem in named:
        if judged_here:
            check_models(problem)
        check_fits(problem, memory_bytes, device)
    there = tuple(p for p in listed if not (judged_here and what_is_missing(p)))
    if not there:
        raise ProblemError(
            f"no problem of the choice can be judged on this machine: {what_is_missing(listed[0])}"
        )
    fit = fitting(there, memory_bytes)
    if not fit and memory_bytes is not None:
        least, which = min((needed_bytes(problem) or 0, problem.id) for problem in there)
        raise ProblemError(
            f"all {len(there)} problems of the choice need more than the memory budget; "
            f"{too_large(which, least, memory_bytes, device)}"
        )
    gated = ruleset.check_problems and not allow_degenerate
    drawn = fit
    if gated:
        if not exclude_degenerate:
            for problem in named:
                refuse(known_hygiene(problem, ruleset, device), "pass allow_degenerate=True")
        drawn = passing(fit, ruleset, device)
        if not drawn:
            first = known_hygiene(fit[0], ruleset, device)
            raise DegenerateProblem(
                f"all {len(fit)} problems of the choice are degenerate "
                f"under {ruleset.label} (such as {first.problem_id}: {first.summary}); choose "
                "others, or pass allow_degenerate=True to play them anyway"
            )
    return ProblemChoice(
        listed,
        drawn,
        fit,
        ruleset,
        device,
        gated,
        memory_bytes,
        whole,
        level,
        judged_here,
    )


def _listed(
    found: Suite, level: int | None, ids: Ids | None, split: str | None
) -> tuple[Problem, ...]:
    """Return the problems chosen; refuse an id of another level or suite."""
    try:
        return found.problems(level, ids, split)
    except UnknownName as unknown:
        entry = str(unknown.given)
        if unknown.what != "problem" or level is None:
            raise
        suite = entry.partition("/")[0]
        if suite in SUITES and suite != found.name:
            raise UsageError(
                f"problem {entry!r} is of suite {suite}, and suite={found.name!r} was asked for; "
                f"make an environment of {suite}, or give problems of {found.name}"
            ) from None
        try:
            (other,) = found.problems(None, entry)
        except (UsageError, ValueError):
            raise unknown from None
        raise UsageError(
            f"problem {other.id!r} is of level {other.level}, and level {level} was asked for; "
            f"make an environment of level {other.level}, or pass level=None to choose from all"
        ) from None


def _named_singly(listed: tuple[Problem, ...], ids: Ids) -> tuple[Problem, ...]:
    """Return the problems that were named one by one, and not as part of a range."""
    parts = (ids,) if isinstance(ids, str | int) else tuple(ids)
    pieces = [p for part in parts for p in (part.split(",") if isinstance(part, str) else [part])]
    entries = [parse_ids(piece) for piece in pieces]
    keys = {entry[0] for entry in entries if len(entry) == 1}
    return tuple(problem for problem in listed if problem_keys(problem) & keys)


def _check_choice_of_problems(given: object) -> None:
    if given is not None and not isinstance(given, str | int | Iterable):
        raise UsageError(
            f"problems are chosen by ids or numbers, got {given!r} ({type(given).__name__}); give "
            "ids, numbers, a range such as '1-20,33', or Problem objects"
        )


def _are_problems(given: Ids | Sequence[Problem] | None) -> TypeGuard[Sequence[Problem]]:
    if given is None or isinstance(given, str | int) or not given:
        return False
    return all(isinstance(item, Problem) for item in given)


def with_own_rules(
    suite: str | Path | Suite, ruleset: str | Ruleset | None, evaluator: Evaluator | None
) -> tuple[str | Path | Suite, str | Ruleset | None]:
    """Return a suite, and the ruleset with that suite's tolerances.

    Args:
        suite: The suite that was asked for. A kernel spec's file is read.
        ruleset: The ruleset that was asked for, if any.
        evaluator: The evaluator, if one was given; its rules stand in for a missing `ruleset`.

    Raises:
        UsageError: If the spec cannot be read.
    """
    if isinstance(suite, str | Path) and str(suite).endswith(".json"):
        suite = find_suite(str(suite))
    rules = getattr(suite, "rules", None)
    if rules is None or isinstance(suite, str | Path):
        return suite, ruleset
    own = "strict" if evaluator is None else evaluator.capabilities.ruleset
    base = own if ruleset is None else ruleset
    return suite, rules(base)


def agreed_on(
    evaluator: Evaluator | None, device: str | None, ruleset: str | Ruleset | None
) -> tuple[str, Ruleset]:
    """Return the device and ruleset that environment and evaluator agree on.

    Args:
        evaluator: The evaluator it was given, if any; its own go before.
        device: The device that was asked for, if any.
        ruleset: The ruleset that was asked for, if any.

    Raises:
        UsageError: If the evaluator is none, or contradicts what was asked for.
    """
    if evaluator is None:
        device = find_device("cpu" if device is None else device)
        return device, find_ruleset("strict" if ruleset is None else ruleset)
    if isinstance(evaluator, type):
        raise UsageError(
            f"an evaluator is an object, got the class {evaluator.__name__}; call it first, as in "
            f"evaluator={evaluator.__name__}()"
        )
    if not isinstance(evaluator, Evaluator):
        raise UsageError(
            f"an evaluator judges kernels (see `kernelgym.Evaluator`), got {evaluator!r}; give a "
            "LocalEvaluator or a ScriptedEvaluator, or leave the option out"
        )
    can = evaluator.capabilities
    if device not in (None, can.device, can.device.partition(":")[0]):
        raise UsageError(
            f"device {device!r} was asked for, but the evaluator runs on {can.device!r}"
        )
    if ruleset is not None and find_ruleset(ruleset) != can.ruleset:
        raise UsageError(
            f"ruleset {find_ruleset(ruleset).label!r} was asked for, but the evaluator follows "
            f"{can.ruleset.label!r}"
        )
    return can.device, can.ruleset


def agreed_budget(
    evaluator: Evaluator | None, memory_bytes: float | None, device: str
) -> int | None:
    """Return the memory budget that environment and evaluator agree on; None for no limit.

    Args:
        evaluator: The evaluator it was given, if any; its own budget goes before.
        memory_bytes: Budget that was asked for, if any.
        device: The device that was agreed on.

    Raises:
        UsageError: If that is not a number of bytes, or above the evaluator's budget.
    """
    own = None if evaluator is None else evaluator.capabilities.memory_bytes
    if memory_bytes is None and evaluator is not None:
        return own
    wanted = memory_budget(memory_bytes, device)
    if own is not None and wanted > own:
        raise UsageError(
            f"memory_bytes={wanted} was asked for, but the evaluator's memory budget is {own}; "
            "make the evaluator with a larger one, or leave the option out"
        )
    return wanted


def start_kernel(kernel: object, language: str) -> Kernel | None:
    """Return the kernel that the next episode starts from; None if none was given.

    Raises:
        UsageError: If it is neither a kernel in that language nor a source text.
    """
    if kernel is None:
        return None
    if isinstance(kernel, Kernel):
        if kernel.language != language:
            raise UsageError(
                f"the kernel to start from is in {kernel.language!r}, but this environment's "
                f"language is {language!r}"
            )
        return kernel
    if not isinstance(kernel, str) or not kernel.strip():
        raise UsageError(f"option 'kernel' is a kernel's source text, got {kernel!r}")
    if "ModelNew" not in kernel:
        raise UsageError(
            f"option 'kernel' is the text of a module with a class ModelNew, got {kernel[:80]!r}; "
            "give the text itself, not a path"
        )
    return Kernel(kernel, language)
