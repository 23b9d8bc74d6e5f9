"""Data of a report's front, cost and method.

Contract: pure functions of views; each returns plain values. The terminal's report uses the
headline, the limits and the score card, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kernelgym.benchmark.numbers.costs import TotalSpent, judge_time, spent
from kernelgym.benchmark.pages.view import RunView
from kernelgym.benchmark.run.generations import TokenUsage
from kernelgym.benchmark.scorecard import CardNumber, costs, solved
from kernelgym.errors import UsageError
from kernelgym.rulesets import Ruleset, recorded_ruleset

COST_COLUMNS = (
    *("run", "solved", "read", "cached", "written", "reasoning", "per solved", "USD"),
    *("USD per solved", "judge s", "judge s per solved"),
)
"""Columns of `cost_rows`; the third to the seventh are numbers of tokens."""
_STAGE_COLOURS = ("--c2", "--c5", "--c4", "--c1", "--c3", "--c0")
_COUNTS = {
    "problems": "problems",
    "episodes": "episodes played",
    "answers": "answers judged",
    "missing": "episodes missing or cut",
    "distrusted": "times distrusted or missing, since the host was busy",
    "unavailable": "answers that the judge failed on",
    "degenerate": "degenerate problems among them",
    "unconfirmed": "best of several measurements, not measured again",
}


def card_rows(views: Sequence[RunView], table: str) -> list[tuple[str, list[CardNumber | None]]]:
    """Return the rows of a score card: a number's name, and its value in each run.

    Args:
        views: The runs.
        table: Name of the table, such as ``all problems``.
    """
    cards = [{number.key: number for number in view.cards.get(table, ())} for view in views]
    names = {key: number.name for card in cards for key, number in card.items()}
    return [(name, [card.get(key) for card in cards]) for key, name in names.items()]


def count_rows(views: Sequence[RunView]) -> list[list[object]]:
    """Return rows of counts, such as problems and judged answers, with a column for each run."""
    return [
        [told, *(getattr(view.counts, name) for view in views)] for name, told in _COUNTS.items()
    ]


def headline(view: RunView) -> str:
    """Return a sentence with the solved problems and the rates of correct and fast kernels."""
    right, answered = solved(view.run), view.counts.answered
    unanswered = view.counts.problems - answered
    of = f"{answered} answered problems" if unanswered else f"{answered} problems"
    card = {number.key: number for number in view.cards.get("all problems", ())}
    told = f"{view.name} solved {right} of {of}"
    told += f"; {unanswered} not answered" if unanswered else ""
    first = card.get("correct")
    if first is not None:
        told += f"; {first.value} of first answers are correct"
    end = "_within" if view.turns > 1 else ""
    fast, certain = card.get(f"fast_1{end}"), card.get(f"fast_1_certain{end}")
    if fast is not None and certain is not None:
        told += f"; {fast.value} are measured faster than the reference, {certain.value} certainly"
    if view.counts.distrusted:
        lost = view.counts.distrusted_untimed
        told += f"; {view.counts.distrusted} of {view.counts.timed + lost} times distrusted"
        told += f", {lost} of them missing: host busy" if lost else ": host busy"
    return told + "."


def limits(views: Sequence[RunView]) -> str:
    """Return sentences that say what the numbers do not show."""
    told = [
        "These numbers hold for these problems, sizes, device and ruleset. Intervals are about "
        "other problems of the kind, not about other devices or prompts."
    ]
    if any(view.counts.missing or view.counts.unavailable for view in views):
        told.append("Missing and unjudged answers are counted separately and are in no rate.")
    if any(view.counts.distrusted for view in views):
        told.append(
            "A distrusted time was taken while other programs used the processors, or could not be "
            "taken for that reason: it is never certain, and `kernelgym eval --retime RUN` judges "
            "such kernels again."
        )
    if any(view.counts.unconfirmed for view in views):
        told.append(
            "A speedup within the episode is the largest of several measurements, and so biased "
            "upwards, unless the best kernel was measured again."
        )
    if not any(view.degenerate for view in views):
        told.append("Problems that are not known to be degenerate may be degenerate all the same.")
    return " ".join(told)


def spent_in(view: RunView) -> TotalSpent:
    """Return the tokens and the money that a run's answers took."""
    return spent(answer for played in view.episodes for answer in played.answers.values())


def cost_rows(views: Sequence[RunView]) -> list[list[object]]:
    """Return tokens, money and judge seconds of each run, as `COST_COLUMNS` names them."""
    rows: list[list[object]] = []
    for view in views:
        paid, usage = costs(view.run), spent_in(view).usage
        tokens = [getattr(usage, name, None) for name in TokenUsage.__slots__]
        rows.append(
            [
                *(view.name, solved(view.run)),
                *(_number(count) for count in (*tokens, paid["tokens_per_solved"])),
                *(_number(paid[name], ",.4g") for name in ("usd", "usd_per_solved")),
                *(_number(paid[name], ".1f") for name in ("judge_s", "judge_s_per_solved")),
            ]
        )
    return rows


def judge_stages(view: RunView) -> list[tuple[str, float, str]]:
    """Return name, seconds and colour of the judge's stages; empty if they are not known."""
    judged = judge_time(turn.verdict for _, turn in view.turns_played)
    if not any(judged.stages.values()):
        return []
    shares = [
        (name, seconds, f"var({colour})")
        for (name, seconds), colour in zip(judged.stages.items(), _STAGE_COLOURS, strict=False)
    ]
    rest = max(0.0, judged.total_s - math.fsum(judged.stages.values()))
    return [*shares, ("rest", rest, "var(--faint)")]


def known_rules(label: str) -> Ruleset | None:
    """Return the ruleset that a label names; None if it does not ship with this version."""
    try:
        return recorded_ruleset(label)
    except UsageError:
        return None


def run_facts(view: RunView) -> Iterator[tuple[str, object]]:
    """Yield the settings of a run: names and values, some of them empty."""
    run, plan = view.run, view.run.plan
    yield "kind", run.kind
    if plan is not None:
        told = (f"{name} {value}" for name, value in plan.policy.items() if value not in (None, ""))
        yield "policy", ", ".join(told)
    models = {each.model for played in view.episodes for each in played.answers.values()}
    yield "models that answered", ", ".join(sorted(models - {""}))
    yield "problems", len(run.planned)
    yield "samples of each", run.samples
    yield "most turns", view.turns
    for name in ("language", "device", "ruleset", "reward"):
        yield (
            name,
            ", ".join(dict.fromkeys(str(getattr(each.record, name)) for each in view.episodes)),
        )
    for name in ("suite", "sizes", "prompt", "context", "retrieval", "created", "kernelgym"):
        yield name, getattr(plan, name, None)


def _number(value: float | None, form: str = ",.0f") -> str:
    return "-" if value is None else format(value, form)
