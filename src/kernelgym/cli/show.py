"""``kernelgym show``: a problem's source and facts, or its first prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from kernelgym.cli.console import print_source, print_table, print_text
from kernelgym.cli.judging import problem_at
from kernelgym.cli.options import JudgingOptions
from kernelgym.judging_memory import in_gigabytes
from kernelgym.prompts.parts import Part
from kernelgym.suites.kernelbench_facts import Fact
from kernelgym.types import Problem


@dataclass(frozen=True, kw_only=True)
class ShowCommand(JudgingOptions):
    """Show a problem's source and facts."""

    problem: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM")]
    """Id of the problem, such as Synthetic/L1/2, KernelBench/L1/23 or KernelBench/L1/23@small, or
    the path of a problem file."""
    prompt: bool = False
    """Show the first prompt instead, for --language, --device and --ruleset."""
    max_turns: int = 1
    """With --prompt: number of turns that the prompt mentions."""
    retrieval: str | None = None
    """With --prompt: index of solved problems to show in it, such as synthetic."""

    def run(self) -> int:
        """Print the problem or its prompt; return the exit code."""
        problem = problem_at(self.problem, sizes=self.sizes)
        if self.prompt:
            from kernelgym.errors import UsageError
            from kernelgym.languages import check_language
            from kernelgym.prompts.observer import Observer, render

            check_language(self.language, self.device)
            if self.max_turns < 1:
                raise UsageError(f"--max-turns must be at least 1, got {self.max_turns}")
            parts: tuple[Part, ...] = ()
            if self.retrieval is not None:
                from kernelgym.retrieval.prompt_part import ready_retrieval

                parts = (ready_retrieval(self.retrieval, self.language, self.device),)
            observer = Observer(
                self.language, self.device, self.ruleset, self.max_turns, parts=parts
            )
            print_text(render(observer.observe(problem)))
            return 0
        if self.retrieval is not None:
            from kernelgym.errors import UsageError

            raise UsageError("--retrieval changes the prompt; give --prompt with it")
        print_source(problem.source)
        print_text("")
        print_table(("fact", "value"), _facts(self, problem))
        return 0


def _facts(command: ShowCommand, problem: Problem) -> list[tuple[str, str]]:
    from kernelgym.hygiene import REASONS
    from kernelgym.rulesets import ruleset
    from kernelgym.suites.kernelbench_facts import fact
    from kernelgym.suites.known_hygiene import known_hygiene
    from kernelgym.suites.known_memory import needed_bytes

    hygiene = known_hygiene(problem, ruleset(command.ruleset), command.device)

    rows = [
        ("id", problem.id),
        ("name", problem.name),
        ("suite", problem.suite),
        ("level", str(problem.level)),
        ("family", problem.family or "not known"),
        ("source digest", problem.digest),
    ]
    known = fact(problem.id, problem.name)
    if known is not None:
        rows += _measured(known)
    rows += _models(problem, command.problem)
    if (needed := needed_bytes(problem)) is not None:
        rows.append(("judging takes at least", in_gigabytes(needed)))
    rows += [("degenerate", f"{reason}: {REASONS[reason]}") for reason in hygiene.reasons]
    if not hygiene.reasons:
        rows.append(("degenerate", "no" if hygiene.tested else "not tested"))
    if hygiene.detail:
        rows.append(("", hygiene.detail))
    if known is not None and known.note:
        rows.append(("note", known.note))
    return rows


def _measured(known: Fact) -> list[tuple[str, str]]:
    sizes = (
        ("inputs of a call", known.input_bytes),
        ("outputs", known.output_bytes),
        ("weights", known.param_bytes),
    )
    rows = [(name, f"{size / 1e6:.1f} MB") for name, size in sizes if size is not None]
    if known.gflop is not None:
        rows.append(("forward pass", f"{known.gflop:g} GFLOP"))
    if known.h100_eager_ms is not None:
        rows.append(("eager on an H100", f"{known.h100_eager_ms:g} ms"))
    return rows


def _models(problem: Problem, asked: str) -> list[tuple[str, str]]:
    """Return, for each pretrained model that a problem loads, whether it is on this machine."""
    from kernelgym.pretrained import held, models_of

    rows = []
    for name in models_of(problem):
        found, here = held(name), f"not here; `kernelgym fetch {asked}` downloads it"
        if found is not None:
            here = f"revision {found.revision[:12]}, weights of {in_gigabytes(found.weight_bytes)}"
        rows.append(("pretrained model", f"{name}: {here}"))
    return rows
