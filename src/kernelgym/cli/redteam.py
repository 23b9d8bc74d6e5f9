"""``kernelgym redteam``: judge a corpus of exploits and honest kernels."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.cli import judging
from kernelgym.cli.console import print_table, print_text
from kernelgym.cli.options import ResultsOption
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UnsupportedLanguage, UsageError
from kernelgym.languages import LANGUAGES
from kernelgym.machine import machine
from kernelgym.redteam.corpus import (
    HEADINGS,
    CorpusEntry,
    RedTeamOutcome,
    RedTeamSummary,
    sample,
    select,
    summarise,
)
from kernelgym.redteam.files import load_entries
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites.directory import DirectorySuite
from kernelgym.types import Evaluator, Job, Problem

_SAVE_EVERY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class RedteamCommand(ResultsOption):
    """Judge a corpus of exploits and honest look-alikes; print what was accepted and refused.

    Exit code 0 if no exploit was accepted (but those that the corpus calls open), no honest
    kernel refused and every one of them judged; else 1.
    """

    corpus: str = "tests/adversarial"
    """Folder of the corpus, with the folders problems, exploits and honest."""
    device: str = "cpu"
    """Device on which kernels run; entries for another kind of device are left out."""
    ruleset: str = "strict"
    """Rules of the verdicts: strict or kernelbench."""
    only: str = ""
    """Part of the names of the entries to judge, or a pattern with * or ?, such as 'A*.triton'."""
    sample: bool = False
    """Judge only one kernel of each style in each language, as a quick check."""
    workers: int = 1
    """Number of kernels judged at the same time."""
    jobs_timeout: float = 0.0
    """Wall seconds that one kernel may run, in place of the ruleset's; 0 keeps the ruleset's."""

    def run(self) -> int:
        """Judge the corpus; return the exit code."""
        rules = self._rules()
        self.check_json()
        entries, problems = load_corpus(Path(self.corpus))
        chosen = select(entries, self.device, self.only)
        if self.sample:
            chosen = sample(chosen)
        with judging.open_evaluator(self.device, rules, self.workers) as evaluator:
            chosen = _judgeable(chosen, self.device)
            with progress_bar("judging", len(chosen)) as advance:
                found: dict[int, RedTeamOutcome] = {}
                saved = time.monotonic()
                for index, outcome in judge_entries(evaluator, chosen, problems):
                    found[index] = outcome
                    advance()
                    if self.json and time.monotonic() > saved + _SAVE_EVERY_S:
                        # An interrupted run leaves the results so far in the file.
                        so_far = list(found.values())
                        self.write_json(_report(self.device, rules, so_far, summarise(so_far)))
                        saved = time.monotonic()
        outcomes = [found[index] for index in range(len(chosen))]
        summaries = summarise(outcomes)
        self.write_json(_report(self.device, rules, outcomes, summaries))
        _print(outcomes, summaries)
        return 1 if any(outcome.failed for outcome in outcomes) else 0

    def _rules(self) -> Ruleset:
        rules = find_ruleset(self.ruleset)
        if not (math.isfinite(self.jobs_timeout) and self.jobs_timeout >= 0):
            raise UsageError(f"--jobs-timeout takes seconds, got {self.jobs_timeout}")
        if not self.jobs_timeout:
            return rules
        limits = dataclasses.replace(rules.limits, run_s=self.jobs_timeout)
        return dataclasses.replace(rules, limits=limits)


def load_corpus(folder: Path) -> tuple[tuple[CorpusEntry, ...], dict[str, Problem]]:
    """Return the entries of a corpus, and its problems by name.

    Raises:
        UsageError: If a folder is missing, or a file in it cannot be used.
    """
    if not (folder / "problems").is_dir():
        raise UsageError(
            f"{str(folder)!r} holds no folder 'problems'; name the corpus' folder with --corpus "
            "(kernelgym's own is tests/adversarial of its repository)"
        )
    suite = DirectorySuite(folder / "problems", name="RedTeam")
    problems = {problem.name: problem for problem in suite.problems()}
    return load_entries(folder, problems), problems


def _judgeable(entries: Sequence[CorpusEntry], device: str) -> tuple[CorpusEntry, ...]:
    """Return the entries in languages that this machine can judge; print which are left out.

    Raises:
        UnsupportedLanguage: If no entry is left, or a language that needs no packages or headers of
            its own cannot be judged here.
    """
    missing: dict[str, UnsupportedLanguage] = {}
    for name in sorted({entry.language for entry in entries}):
        try:
            judging.check_tools(name, device)
        except UnsupportedLanguage as error:
            if not (LANGUAGES[name].packages or LANGUAGES[name].headers):
                raise
            missing[name] = error
    kept = tuple(entry for entry in entries if entry.language not in missing)
    for name, refusal in missing.items():
        if not kept:
            raise refusal
        count = sum(entry.language == name for entry in entries)
        print_text(f"left out: entries in language {name!r} ({count}): {refusal}", "yellow")
    return kept


def judge_entries(
    evaluator: Evaluator, entries: Sequence[CorpusEntry], problems: dict[str, Problem]
) -> Iterator[tuple[int, RedTeamOutcome]]:
    """Judge entries of the corpus; yield (index, outcome) as verdicts come."""
    jobs = [Job(problems[entry.problem], entry.kernel) for entry in entries]
    for index, verdict in judging.judge_many(evaluator, jobs):
        yield index, RedTeamOutcome(entries[index], verdict)


def _print(outcomes: Sequence[RedTeamOutcome], summaries: Sequence[RedTeamSummary]) -> None:
    exploits = [summary for summary in summaries if summary.name != "honest"]
    columns = ("caught", "accepted", "open", "unavailable")
    if exploits:
        rows = [
            (
                summary.name,
                HEADINGS[summary.name[0]],
                summary.entries,
                *(summary.results.get(column, 0) for column in columns),
                _listed(summary),
            )
            for summary in exploits
        ]
        print_table(("class", "", "exploits", *columns, "caught by"), rows)
    for summary in summaries:
        if summary.name == "honest":
            lost = summary.results.get("unavailable", 0)
            print_text(
                f"honest kernels: {summary.results.get('passed', 0)} passed, "
                f"{summary.results.get('refused', 0)} refused{f', {lost} unavailable' * bool(lost)}"
            )
    for result, title in (
        ("accepted", "accepted exploit"),
        ("refused", "refused honest kernel"),
        ("unavailable", "not judged"),
        ("open", "open"),
    ):
        for outcome in outcomes:
            if outcome.result == result:
                _print_case(title, outcome)
    for outcome in outcomes:
        if outcome.unexpected:
            print_text(
                f"warning: {outcome.entry.name} was caught by {', '.join(outcome.catches)}, not "
                f"by {' or '.join(outcome.entry.caught_by)}: {_said(outcome)}",
                "yellow",
            )


def _print_case(title: str, outcome: RedTeamOutcome) -> None:
    entry, verdict = outcome.entry, outcome.verdict
    said = _said(outcome)
    speed = f" {verdict.speedup_low:.2f}x" if verdict.timed else ""
    because = f" (open: {entry.open})" if entry.open else ""
    style = "dim" if outcome.result == "open" else "bold red"
    print_text(f"{title}: {entry.name}{because}", style)
    print_text(f"  {entry.what}")
    print_text(f"  {verdict.status.value}{speed}{f': {said}' if said else ''}")


def _said(outcome: RedTeamOutcome) -> str:
    return " ".join(outcome.verdict.message.split())[:300]


def _listed(summary: RedTeamSummary) -> str:
    return ", ".join(f"{name} {count}" for name, count in summary.caught_by)


def _report(
    device: str,
    rules: Ruleset,
    outcomes: Sequence[RedTeamOutcome],
    summaries: Sequence[RedTeamSummary],
) -> dict[str, Any]:
    return {
        "machine": machine(device, "torch", "triton", "numpy"),
        "device": device,
        "ruleset": rules.label,
        "classes": [
            {
                "name": summary.name,
                "entries": summary.entries,
                "results": dict(summary.results),
                "caught_by": dict(summary.caught_by),
            }
            for summary in summaries
        ],
        "entries": [
            {
                "name": outcome.entry.name,
                "kind": outcome.entry.kind,
                "class": outcome.entry.exploit_class,
                "problem": outcome.entry.problem,
                "language": outcome.entry.language,
                "result": outcome.result,
                "caught_by": list(outcome.catches),
                "expected": list(outcome.entry.caught_by),
                "open": outcome.entry.open,
                "kernel_digest": outcome.entry.kernel.digest,
                "verdict": outcome.verdict.to_dict(),
            }
            for outcome in outcomes
        ],
    }
