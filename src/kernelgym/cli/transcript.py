"""Printing of an episode: answers, verdicts, feedback and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelgym.cli.console import console, print_source, print_table, print_text
from kernelgym.records.run_logs import visible
from kernelgym.types import Kernel, Problem, Trajectory, Turn

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_LINES = 24


def print_heading(title: str) -> None:
    """Print a rule with a title."""
    from rich.rule import Rule
    from rich.text import Text

    out = console()
    if out.is_terminal:
        out.print(Rule(Text(visible(title), style="bold cyan"), style="cyan", align="left"))
    else:
        print_text(f"== {title}")


def print_answer(number: int, kernel: Kernel | None, earlier: Kernel | None, thought: str) -> None:
    """Print an answer: its thought, and its kernel or the changes since the last kernel."""
    print_text(f"\nturn {number}", "bold")
    if thought:
        print_text(thought, "italic dim")
    if kernel is None:
        return
    if earlier is None or earlier.language != kernel.language:
        print_source(_excerpt(kernel.source))
        return
    changed = _changes(earlier.source, kernel.source)
    if changed:
        print_source(_excerpt("\n".join(changed)), "diff")


def print_turn(turn: Turn) -> None:
    """Print the verdict, score and feedback of an answer."""
    from rich.panel import Panel
    from rich.text import Text

    verdict = turn.verdict
    colour = "green" if verdict.correct else "yellow" if not verdict.valid else "red"
    title = (
        f"{verdict.status.value}, score {turn.score.total:.3f}, judged in {verdict.wall_s:.2f} s"
    )
    out = console()
    if out.is_terminal:
        body: RenderableType = Text(visible(str(turn.feedback)))
        out.print(Panel(body, title=title, title_align="left", border_style=colour))
    else:
        print_text(f"-- {title}")
        print_text(str(turn.feedback))


def print_returns(trajectory: Trajectory, gamma: float) -> None:
    """Print the end of an episode, and each turn's score and discounted return."""
    turns = trajectory.turns
    if not turns:
        print_text("no turn was played")
        return
    rows = [
        (turn.index + 1, turn.verdict.status.value, _speed(turn), f"{turn.score.total:.3f}", ret)
        for turn, ret in zip(
            turns, (f"{value:.3f}" for value in trajectory.returns(gamma)), strict=True
        )
    ]
    print_text(f"\n{trajectory.problem.id}: ended {trajectory.ended or 'early'}", "bold")
    print_table(("turn", "status", "speedup", "score", f"return (gamma {gamma:g})"), rows)


def problem_title(problem: Problem) -> str:
    """Return a problem's id, followed by its name if the id does not contain it."""
    return problem.id if problem.name in problem.id else f"{problem.id} {problem.name}"


def _speed(turn: Turn) -> str:
    return f"{turn.verdict.speedup:.2f}x" if turn.verdict.timed else "-"


def _changes(before: str, after: str) -> list[str]:
    import difflib

    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _excerpt(source: str) -> str:
    lines = source.strip("\n").splitlines()
    if len(lines) <= _SHOWN_LINES:
        return "\n".join(lines)
    half = _SHOWN_LINES // 2
    cut = f"... {len(lines) - 2 * half} lines ..."
    return "\n".join([*lines[:half], cut, *lines[-half:]])
