"""The first page, the costs and the method of a report.

Contract: pure functions of views; each returns HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from kernelgym.benchmark.numbers.costs import judge_time, per_solved, spent
from kernelgym.benchmark.numbers.speeds import Mean
from kernelgym.benchmark.pages.charts import stack
from kernelgym.benchmark.pages.drawing import lines
from kernelgym.benchmark.pages.text import escaped, facts_table, table
from kernelgym.benchmark.pages.view import View
from kernelgym.benchmark.run.generations import TokenUsage
from kernelgym.benchmark.scorecard import Number, solved
from kernelgym.errors import UsageError
from kernelgym.rulesets import recorded_ruleset

__all__ = ["cost", "front", "limits", "method"]

_STAGE_COLOURS = ("--c2", "--c5", "--c4", "--c1", "--c3", "--c0")


def front(views: Sequence[View]) -> list[str]:
    """Return the first page: score cards, and what they do not show."""
    parts = [f"<h1>{escaped(', '.join(view.name for view in views))}</h1>"]
    parts += [f'<p class="lead">{escaped(headline(view))}</p>' for view in views]
    parts.append(f'<p class="limits">{escaped(limits(views))}</p>')
    parts.append("<h2>Score card</h2>")
    parts.append(_score_table(views, "all problems"))
    if any("without degenerate problems" in view.tables for view in views):
        parts.append("<h3>Without degenerate problems</h3>")
        parts.append(_score_table(views, "without degenerate problems"))
    for name in dict.fromkeys(name for view in views for name in view.tables):
        if name.startswith(("level ", "family ")):
            parts.append(f"<details><summary>{escaped(name)}</summary>")
            parts.append(_score_table(views, name) + "</details>")
    parts.append("<h3>What the numbers rest on</h3>")
    parts.append(_counts_table(views))
    parts.append("<h3>What was run</h3>")
    for view in views:
        if len(views) > 1:
            parts.append(f"<h4>{escaped(view.name)}</h4>")
        parts.append(facts_table(dict(_facts(view))))
        parts += [f'<p class="quiet">Note: {escaped(note)}.</p>' for note in view.run.notes]
        if view.run.curves:
            parts.append(lines(view.run.curves, top=1.0, percent=True))
    return parts


def headline(view: View) -> str:
    """Return one sentence: how many problems were solved, and how fast."""
    right, of = solved(view.run), view.counts.problems
    card = {number.key: number for number in view.cards.get("all problems", ())}
    told = f"{view.name} solved {right} of {of} problems"
    first = card.get("correct")
    if first is not None:
        told += f"; {first.value} of first answers are correct"
    end = "_within" if view.turns > 1 else ""
    fast, certain = card.get(f"fast_1{end}"), card.get(f"fast_1_certain{end}")
    if fast is not None and certain is not None:
        told += f"; {fast.value} are measured faster than the reference, {certain.value} certainly"
    return told + "."


def limits(views: Sequence[View]) -> str:
    """Return what these numbers do not show, in a few sentences."""
    told = [
        "These numbers hold for these problems at these sizes, on this device, under this ruleset; "
        "intervals say what other problems of the kind would give, not other devices or prompts."
    ]
    if any(view.counts.missing or view.counts.unavailable for view in views):
        told.append("What is missing or was not judged is counted apart and in no rate.")
    if any(view.counts.unconfirmed for view in views):
        told.append(
            "Speeds within the episode are the best of several measurements, which flatters, where "
            "the winner was not measured again."
        )
    if not any(view.degenerate for view in views):
        told.append("A problem that is not known to be degenerate may still be.")
    return " ".join(told)


def cost(views: Sequence[View]) -> list[str]:
    """Return tokens, money and the judge's time."""
    parts = []
    rows = []
    for view in views:
        used = spent(a for played in view.episodes for a in played.answers.values())
        judged = judge_time(turn.verdict for _, turn in view.turns_played)
        right = solved(view.run)
        rows.append(
            [
                escaped(view.name),
                str(right),
                *(_count(getattr(used.usage, name, None)) for name in TokenUsage.__slots__),
                _count(per_solved(used.tokens, right)),
                _money(used.usd),
                _money(per_solved(used.usd, right)),
                f"{judged.total_s:.1f}",
                _seconds(per_solved(judged.total_s, right)),
            ]
        )
        if used.answers > used.counted:
            parts.append(
                f'<p class="quiet">{escaped(view.name)}: of {used.answers - used.counted} of '
                f"{used.answers} answers the tokens are not known.</p>"
            )
        if judged.staged:
            parts.append(f"<h3>Where the judge's time went: {escaped(view.name)}</h3>")
            parts.append(_stages(judged.stages, judged.total_s))
    columns = ["run", "solved", "read", "cached", "written", "reasoning", "per solved", "USD"]
    columns += ["USD per solved", "judge s", "judge s per solved"]
    return [table(columns, rows, caption="Tokens, money, seconds"), *parts]


def method(views: Sequence[View]) -> list[str]:
    """Return the rules in words, how numbers are computed, machine and versions."""
    parts = []
    for label in dict.fromkeys(label for view in views for label in view.run.rulesets):
        parts.append(f"<h3>Ruleset {escaped(label)}</h3><ul>")
        parts += [f"<li>{escaped(line)}</li>" for line in _rules(label)]
        parts.append("</ul>")
    parts.append("<h3>How the numbers are made</h3><ul>")
    parts += [f"<li>{escaped(line)}</li>" for line in _HOW]
    parts.append("</ul>")
    for view in views:
        if view.run.machine:
            parts.append(f"<h3>Machine and versions: {escaped(view.name)}</h3>")
            parts.append(facts_table(dict(view.run.machine)))
    return parts


_HOW = (
    "A rate counts every problem by its judged answers. Its 95 % interval is Wilson's, at the "
    "effective number of answers: answers to one problem are alike.",
    "pass@k is the unbiased estimate of Chen et al. (arXiv 2107.03374), averaged over problems "
    "with at least k judged answers.",
    "fast_p is the share of kernels that are correct and more than p times as fast as the "
    "reference (KernelBench, arXiv 2502.10517). Certain fast_p asks the same of the lower end of "
    "the speedup's 95 % interval.",
    "Geometric means are taken in log space; their intervals are an accelerated bootstrap over "
    "problems, at least as wide as the measurements' own noise.",
    "Within the episode, the best turn counts, of episodes that were judged to their end; where "
    "the winner was measured again in another process, the second measurement counts.",
    "Runs are compared problem by problem, under equal rules and equal sources only; wins and "
    "losses have the exact sign test.",
)


def _rules(label: str) -> Iterator[str]:
    try:
        rules = recorded_ruleset(label)
    except UsageError:
        yield "These rules are none that ship with kernelgym; the label identifies them."
        return
    calls = str(rules.min_calls)
    if rules.max_calls != rules.min_calls:
        calls = f"{rules.min_calls} to {rules.max_calls}"
    drawn = "a secret seed" if rules.secret_seed else "KernelBench's public seeds"
    yield f"Each kernel is judged on {calls} calls, on inputs and weights from {drawn}."
    if rules.distributions:
        yield f"Inputs are the problem's own and others: {', '.join(rules.distributions)}."
    if rules.tolerance == "fp64":
        yield "The error that is allowed follows from an fp64 run of the reference."
    else:
        yield f"Outputs agree within atol {rules.atol:g} and rtol {rules.rtol:g}."
    if rules.require_custom_kernel:
        yield "A correct kernel needs evidence that its own code, and not torch, did the work."
    else:
        yield "No evidence is asked for that the kernel's own code did the work."
    if rules.forbid_input_mutation:
        yield "A kernel that changes its inputs is wrong."
    timing = rules.timing
    yield (
        f"Kernel and reference ({timing.baseline}) are timed in turns, in windows, until the 95 % "
        f"interval of the speedup is at most {100 * timing.relative_width:g} % wide "
        f"({100 * timing.device_relative_width:g} % on a GPU)."
    )
    yield (
        f"A speedup above {timing.quarantine_above:g}, or a time below what the bandwidth allows, "
        "counts only if a second process agrees."
    )


def _facts(view: View) -> Iterator[tuple[str, object]]:
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


def _score_table(views: Sequence[View], which: str) -> str:
    cards = [{n.key: n for n in view.cards.get(which, ())} for view in views]
    names: dict[str, str] = {}
    for card in cards:
        names |= {key: number.name for key, number in card.items()}
    rows = [
        [escaped(name), *(_told(card.get(key)) for card in cards)] for key, name in names.items()
    ]
    return table(["", *(view.name for view in views)], rows, kind="card")


def _told(number: Number | None) -> str:
    if number is None:
        return "-"
    found = number.value
    what = "kernels" if isinstance(found, Mean) else "n"
    return f'{escaped(found)} <span class="quiet">{what} = {found.n:g}</span>'


def _counts_table(views: Sequence[View]) -> str:
    names = {
        "problems": "problems",
        "episodes": "episodes played",
        "answers": "answers judged",
        "missing": "episodes missing or cut",
        "unavailable": "answers that the judge failed on",
        "degenerate": "degenerate problems among them",
        "unconfirmed": "best of several measurements, not measured again",
    }
    rows = [
        [escaped(told), *(str(getattr(view.counts, name)) for view in views)]
        for name, told in names.items()
    ]
    return table(["", *(view.name for view in views)], rows, kind="card")


def _stages(stages: Mapping[str, float], total: float) -> str:
    shares = [
        (name, seconds, f"var({colour})")
        for (name, seconds), colour in zip(stages.items(), _STAGE_COLOURS, strict=False)
    ]
    shares.append(("rest", max(0.0, total - math.fsum(stages.values())), "var(--faint)"))
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds, _ in shares if seconds)
    return f'{stack(shares)}<p class="quiet">{escaped(told)}</p>'


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
