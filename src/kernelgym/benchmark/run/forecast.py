"""Forecast of a run: requests, tokens, US dollars, judge time and disk space it will take.

Contract: opens no connection and starts no process. Counts of requests are exact bounds. Tokens are
estimates at four characters a token: first prompts are known, and a later prompt is bounded by the
first and the budget of the context. Usual judge time is computed from the run's own verdicts if
there are any, else from ``verdict_seconds.tsv``, which was measured on other machines; the bound
follows from the ruleset's limits, since a kernel that hangs takes them.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kernelgym.benchmark.run.folder import GENERATIONS, TRAJECTORIES, VERDICTS
from kernelgym.benchmark.run.generations import AnswerKey
from kernelgym.benchmark.run.plan import EvalPlan, sample_of
from kernelgym.prices import Price, Tokens
from kernelgym.prompts.observer import Observer
from kernelgym.records.jsonlines import read_lines
from kernelgym.types import Problem

_LAST_ATTEMPT_TOKENS = 500
"""Largest number of tokens of the last attempt and its feedback beyond the context's budget."""
_BYTES_PER_TOKEN = 12
"""Bytes on disk for one token of an answer, which is written to two files."""


@dataclass(frozen=True, slots=True)
class RunForecast:
    """Requests, tokens, money, time and disk that the rest of a run takes."""

    least_requests: int
    """Number of requests if every episode ends at its next answer."""
    most_requests: int
    """Number of requests if every turn is played."""
    answers_there: int
    first_tokens: int
    """Number of tokens of the prompts that are certain to be sent."""
    most_prompt_tokens: int
    most_answer_tokens: int | None
    """Largest number of tokens of all answers; None if the policy has no limit."""
    least_usd: float | None
    """Least cost in US dollars; None without a price."""
    most_usd: float | None
    judge_s: float | None
    """Usual seconds of one judge worker if every answer holds a kernel; None if no figure is
    known."""
    judge_source: str
    most_judge_s: float
    """Largest number of seconds of one judge worker: each kernel takes the ruleset's limits."""
    limits: str
    """Limits of one kernel in words."""
    disk_bytes: int

    def lines(self) -> Iterator[str]:
        """Yield the forecast as lines of text."""
        yield (
            f"requests: {self.least_requests:,} to {self.most_requests:,} "
            f"({self.answers_there:,} answers are there)"
        )
        answers = (
            "no limit is known"
            if self.most_answer_tokens is None
            else f"at most {self.most_answer_tokens:,}"
        )
        yield (
            f"tokens (estimated): prompts {self.first_tokens:,} to {self.most_prompt_tokens:,}; "
            f"answers {answers}"
        )
        if self.least_usd is None:
            yield "USD: not known without --price"
        elif self.most_usd is None:
            yield f"USD (estimated): {self.least_usd:.4f} or more"
        else:
            yield f"USD (estimated): {self.least_usd:.4f} to {self.most_usd:.4f}"
        usual = (
            "no usual time is recorded for this language and device"
            if self.judge_s is None
            else f"usually {self.judge_s / 60:.1f} minutes of one worker, by {self.judge_source}"
        )
        yield f"judge: {usual}; at most {self.most_judge_s / 60:,.1f} minutes ({self.limits})"
        yield f"disk (estimated): at most {self.disk_bytes / 1e6:,.1f} MB"


def forecast(
    plan: EvalPlan,
    problems: Sequence[Problem],
    folder: Path,
    observer: Observer,
    *,
    price: Price | None = None,
    max_tokens: int | None = None,
) -> RunForecast:
    """Return the forecast of a run.

    Args:
        plan: The plan.
        problems: Problems of the plan.
        folder: Folder of the run; it need not exist.
        observer: Observer of the plan, which writes the prompts.
        price: Price of the model.
        max_tokens: Largest number of tokens of an answer.

    Raises:
        UsageError: If a file of the run is damaged.
    """
    answers, ended, seconds = _there(folder)
    least = most = first_tokens = prompt_tokens = 0
    for problem in problems:
        first = observer.tokens(observer.observe(problem))
        later = first + observer.context_tokens + _LAST_ATTEMPT_TOKENS
        if observer.prompt_tokens is not None:
            later = min(later, observer.prompt_tokens)
        for sample in range(plan.samples):
            if (problem.id, sample) in ended:
                continue
            there = answers.get((problem.id, sample), 0)
            left = max(0, plan.turns - there)
            most += left
            if there == 0:
                least += 1
                first_tokens += first
                prompt_tokens += first + (left - 1) * later
            else:
                prompt_tokens += left * later
    written = None if max_tokens is None else most * max_tokens
    low = high = None
    if price is not None:
        low = price.usd(Tokens(prefill=first_tokens))
        if written is not None:
            high = price.usd(Tokens(prefill=prompt_tokens, sample=written))
    limits = plan.rules.limits
    timing_s = (
        2 * plan.rules.timing.budget_s if plan.timing else 0.0
    )  # a second process may confirm
    known = verdict_seconds().get((plan.device.partition(":")[0], plan.language))
    each, source = (statistics.fmean(seconds), "this run's verdicts") if seconds else (0.0, "")
    if not seconds and known is not None:
        each, source = known
    return RunForecast(
        least_requests=least,
        most_requests=most,
        answers_there=sum(answers.values()),
        first_tokens=first_tokens,
        most_prompt_tokens=prompt_tokens,
        most_answer_tokens=written,
        least_usd=low,
        most_usd=high,
        judge_s=most * each if source else None,
        judge_source=source,
        most_judge_s=most * (limits.build_s + limits.run_s + timing_s),
        limits=f"if each kernel takes its limits, {limits.build_s:g} s to build, "
        f"{limits.run_s:g} s to run and {timing_s:g} s to be timed",
        disk_bytes=_BYTES_PER_TOKEN * (written or 0)
        + sum(len(problem.source) for problem in problems) * plan.samples,
    )


@functools.cache
def verdict_seconds() -> Mapping[tuple[str, str], tuple[float, str]]:
    """Return seconds for a verdict on an unseen kernel, by kind of device and language.

    The seconds are those of one worker, and come with the project's file that holds the
    measurement. For C++ on the CPU, they are those of a build and a timed verdict.
    """
    table = (Path(__file__).parent / "verdict_seconds.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in table.splitlines()[1:])
    found = {(device, language): (float(s), source) for device, language, s, source in rows}
    return MappingProxyType(found)


def _there(
    folder: Path,
) -> tuple[dict[tuple[str, int], int], set[tuple[str, int]], list[float]]:
    """Return what is on disk: answers by episode, ended episodes, and judge seconds of verdicts."""
    answers: dict[tuple[str, int], int] = {}
    if (folder / GENERATIONS).exists():
        keys = {AnswerKey.of(row) for _, row in read_lines(folder / GENERATIONS)}
        for key in keys:
            answers[key[:2]] = answers.get(key[:2], 0) + 1
    ended: set[tuple[str, int]] = set()
    if (folder / TRAJECTORIES).exists():
        rows = (row for _, row in read_lines(folder / TRAJECTORIES))
        ended = {sample_of(row["key"]) for row in rows if row["ended"] not in ("", "cut")}
    seconds: list[float] = []
    if (folder / VERDICTS).exists():
        verdicts = (row["verdict"] for _, row in read_lines(folder / VERDICTS))
        seconds = [verdict["wall_s"] for verdict in verdicts if verdict.get("wall_s", 0.0) > 0.0]
    return answers, ended, seconds
