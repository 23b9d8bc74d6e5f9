"""Data of one problem's page: reference, prompt, and each sample's turns.

Contract: pure, but for prompts, which are made again from the record. In the one-file form only the
first and the best sample of a problem have their texts; in the folder form all have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from kernelgym.benchmark.numbers.outcomes import winner
from kernelgym.benchmark.pages.text import code_text
from kernelgym.benchmark.pages.view import RunView
from kernelgym.benchmark.recorded_runs import PlayedEpisode
from kernelgym.errors import UsageError
from kernelgym.types import Problem, Turn, Verdict
from kernelgym.verdict import Profile


def shown_samples(group: Sequence[PlayedEpisode]) -> list[PlayedEpisode]:
    """Return the samples that a problem's page shows: the first and the best."""
    played = [each for each in group if each.turns]
    if not played:
        return []
    best = max(played, key=_merit)
    return [played[0]] if best is played[0] else [played[0], best]


def problem_of(views: Sequence[RunView], identity: str) -> Problem:
    """Return a problem, with its source if one of the runs has it."""
    found = [view.problems[identity] for view in views if identity in view.problems]
    return next((problem for problem in found if problem.source), found[0])


def degenerate_reasons(views: Sequence[RunView], identity: str) -> tuple[str, ...]:
    """Return the reasons why a problem is degenerate; empty if none is known."""
    return next((view.degenerate[identity] for view in views if identity in view.degenerate), ())


def first_prompt(views: Sequence[RunView], identity: str) -> str:
    """Return the prompt of a problem's first turn; empty if it cannot be made again."""
    firsts = (played for view in views for played in view.groups.get(identity, ())[:1])
    found = (prompt_before(played, 0) for played in firsts if played.turns)
    return next((text for text in found if text), "")


def prompt_before(played: PlayedEpisode, turn: int) -> str:
    """Return the prompt of a turn; empty if it cannot be made again from the record."""
    from kernelgym.prompts.observer import render
    from kernelgym.records.export import read_before

    answer = played.answers.get(turn)
    if answer is not None and answer.prompt:
        return answer.prompt
    if played.record.writer == "import" or not played.record.has_source:
        return ""  # an import's prompt was written elsewhere
    try:
        return render(read_before(played.record, turn))
    except UsageError:  # another version's prompt, or a part that was added to it
        return ""


def turns_with_earlier(played: PlayedEpisode) -> Iterator[tuple[Turn, str]]:
    """Yield each turn with the source of the kernel before it; empty for the first kernel."""
    before = played.record.start
    for turn in played.turns:
        yield turn, before
        if turn.reply.kernel is not None:
            before = turn.reply.kernel.source


def best_speed(played: PlayedEpisode) -> str:
    """Return the speedup of an episode's best kernel, with its lower end."""
    best = played.second or (winner(played.turns).verdict if played.turns else None)
    if best is None or best.timing is None:
        return "-"
    return f"{best.speedup:.3g} (at least {best.speedup_low:.3g})"


def verdict_facts(turn: Turn) -> Iterator[tuple[str, str]]:
    """Yield names and values of a verdict's facts; values that are not known are empty."""
    verdict, timing = turn.verdict, turn.verdict.timing
    yield "status", verdict.status.value
    yield "message", verdict.message
    if verdict.trials:
        yield "trials", f"{verdict.trials_passed} of {verdict.trials}"
    if verdict.max_abs_error:
        told = f"{verdict.max_abs_error:.3g} absolute, {verdict.max_rel_error:.3g} relative"
        yield "largest error", told
    yield "where it is wrong", _mismatch(verdict)
    yield "score", f"{turn.score.total:.3g}"
    if verdict.custom_share:
        yield "custom share", f"{verdict.custom_share:.2f}"
    yield "isolation", verdict.isolation
    if verdict.wall_s:
        yield "judged in", f"{verdict.wall_s:.2f} s{_stages(verdict)}"
    if timing is not None:
        high = f"{timing.speedup_high:.4g}" if timing.speedup_high else "?"
        interval = f"({timing.speedup_low:.4g} to {high})"
        over = f"over {timing.baseline}, {timing.samples} pairs"
        yield "speedup", f"{timing.speedup:.4g} {interval} {over}"
        yield "times", f"kernel {timing.kernel_ms:.4g} ms, reference {timing.reference_ms:.4g} ms"
        if timing.floor_share:
            yield "share of the bandwidth", f"{timing.floor_share:.2f}"


def profile_rows(profile: Profile) -> list[tuple[Markup, int, str]]:
    """Return name, launches and milliseconds of each kernel of a profile."""
    return [
        (code_text(each.name, 200), each.launches, f"{each.ms:.4g}") for each in profile.kernels
    ]


def _merit(played: PlayedEpisode) -> tuple[bool, float]:
    best = winner(played.turns).verdict
    return best.correct, best.speedup


def _mismatch(verdict: Verdict) -> str:
    found = verdict.mismatch
    if found is None:
        return ""
    told = f"{found.differing:,} of {found.elements:,} elements of shape {list(found.shape)}"
    if found.pattern:
        told += f", {found.pattern}"
    if found.relation:
        told += f"; they are {found.relation}"
    if found.call:
        told += f"; call {found.call} of {found.calls}, inputs {found.inputs}"
    return told


def _stages(verdict: Verdict) -> str:
    if verdict.stages is None:
        return ""
    names = ("queue_s", "build_s", "load_s", "check_s", "evidence_s", "timing_s")
    told = [
        f"{name.removesuffix('_s')} {getattr(verdict.stages, name):.2f}"
        for name in names
        if getattr(verdict.stages, name)
    ]
    return f": {', '.join(told)}" if told else ""
