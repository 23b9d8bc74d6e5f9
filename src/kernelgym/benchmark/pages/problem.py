"""One problem: what was asked, and each sample's turns.

Contract: pure. In the one-file form only the shown samples of a problem (the first and the best)
have their texts; in the folder form all have. Every text is escaped and bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelgym.benchmark.folders import PlayedEpisode
from kernelgym.benchmark.numbers.outcomes import winner
from kernelgym.benchmark.pages.charts import histogram
from kernelgym.benchmark.pages.code import changes, code
from kernelgym.benchmark.pages.text import escaped, facts_table, table
from kernelgym.benchmark.pages.view import STATES, View, anchor, state_of, verdict_state
from kernelgym.benchmark.pages.wall import cell
from kernelgym.errors import UsageError
from kernelgym.types import Problem, Turn, Verdict

__all__ = ["problem_body", "problem_section", "shown_samples"]

_MOST_LOG = 8000


def shown_samples(group: Sequence[PlayedEpisode]) -> list[PlayedEpisode]:
    """Return the first sample and the best one."""
    played = [each for each in group if each.turns]
    if not played:
        return []
    best = max(played, key=_merit)
    return [played[0]] if best is played[0] else [played[0], best]


def problem_section(views: Sequence[View], identity: str) -> str:
    """Return a problem folded, for the one-file form."""
    body = "".join(problem_body(views, identity, whole=False))
    cells = "".join(
        cell(state_of(view, played), f"{view.name} sample {played.sample}")
        for view in views
        for played in view.groups.get(identity, ())[:24]
    )
    return (
        f'<details class="problem" id="{anchor(identity)}"><summary>{escaped(identity)} '
        f"{escaped(_problem(views, identity).name)} {cells}</summary>{body}</details>"
    )


def problem_body(views: Sequence[View], identity: str, *, whole: bool) -> Iterator[str]:
    """Yield what there is to say of a problem.

    Args:
        views: The runs.
        identity: The problem's id.
        whole: Give every sample's texts, not only those of the shown ones.
    """
    problem = _problem(views, identity)
    why = next((view.degenerate[identity] for view in views if identity in view.degenerate), ())
    if why:
        yield f'<p class="limits">This problem is degenerate: {escaped(", ".join(why))}.</p>'
    yield f"<details><summary>reference</summary>{code(problem.source)}</details>"
    prompt = next(_prompts(views, identity), "")
    if prompt:
        yield (
            '<details><summary>prompt of the first turn</summary><pre class="wrap">'
            f"{escaped(prompt)}</pre></details>"
        )
    for view in views:
        group = view.groups.get(identity, [])
        if len(views) > 1:
            yield f"<h3>{escaped(view.name)}</h3>"
        if not group:
            yield "<p>It was not played.</p>"
            continue
        yield _samples_table(view, group)
        shown = group if whole else shown_samples(group)
        for played in shown:
            yield from _episode(view, played)
        hidden = len([each for each in group if each.turns]) - len(shown)
        if hidden > 0:
            yield (
                f'<p class="quiet">The texts of {hidden} more samples are left out here; the '
                "report as a folder (--html FOLDER/) has them.</p>"
            )


def _problem(views: Sequence[View], identity: str) -> Problem:
    found = [view.problems[identity] for view in views if identity in view.problems]
    return next((problem for problem in found if problem.source), found[0])


def _prompts(views: Sequence[View], identity: str) -> Iterator[str]:
    """Yield each run's first prompt, where it can be rebuilt."""
    from kernelgym.prompts.observer import render
    from kernelgym.records.export import read_before

    for view in views:
        for played in view.groups.get(identity, ())[:1]:
            if told := next((each.prompt for each in played.answers.values() if each.prompt), ""):
                yield told
                continue
            if played.record.writer == "import":
                continue  # it was asked elsewhere, by another prompt
            if played.turns and played.record.has_source:
                try:
                    yield render(read_before(played.record, 0))
                except UsageError:  # another version's prompt, or a part that was added to it
                    continue


def _samples_table(view: View, group: Sequence[PlayedEpisode]) -> str:
    rows = [
        [
            str(played.sample),
            "".join(
                cell(verdict_state(turn.verdict), f"turn {turn.index + 1}") for turn in played.turns
            ),
            escaped(STATES[state_of(view, played)][2]),
            _speed(played),
            escaped(played.record.trajectory.ended or "goes on"),
            escaped(view.missing.get(played.key, "")),
        ]
        for played in group
    ]
    return table(["sample", "turns", "best", "speedup", "ended", "missing"], rows)


def _merit(played: PlayedEpisode) -> tuple[bool, float]:
    best = winner(played.turns).verdict
    return best.correct, best.speedup


def _speed(played: PlayedEpisode) -> str:
    best = played.second or (winner(played.turns).verdict if played.turns else None)
    if best is None or best.timing is None:
        return "-"
    return f"{best.speedup:.3g} (at least {best.speedup_low:.3g})"


def _episode(view: View, played: PlayedEpisode) -> Iterator[str]:
    yield f"<h4>Sample {played.sample}</h4>"
    if played.second is not None:
        told = STATES[verdict_state(played.second)][2]
        speed = f", {played.second.speedup:.3g}x" if played.second.timed else ""
        yield f"<p>The best kernel, measured again: {escaped(told)}{speed}.</p>"
    before = played.record.start
    for turn in played.turns:
        yield from _turn(played, turn, before)
        if turn.reply.kernel is not None:
            before = turn.reply.kernel.source


def _turn(played: PlayedEpisode, turn: Turn, before: str) -> Iterator[str]:
    verdict, kernel = turn.verdict, turn.reply.kernel
    state = verdict_state(verdict)
    speed = f", {verdict.speedup:.3g}x" if verdict.timed else ""
    yield (
        f"<details open><summary>{cell(state, f'turn {turn.index + 1}')} turn {turn.index + 1}: "
        f"{escaped(STATES[state][2])}{speed}</summary>"
    )
    answer = played.answers.get(turn.index)
    thought = turn.reply.thought or (answer.reasoning if answer else "")
    if thought:
        yield (
            f'<details><summary>thinking</summary><pre class="wrap">{escaped(thought)}</pre>'
            "</details>"
        )
    if kernel is None:
        yield f'<pre class="wrap">{escaped(turn.action)}</pre>'
    else:
        changed = changes(before, kernel.source) if before else ""
        if changed:
            yield f"<details><summary>what changed</summary>{changed}</details>"
        yield f"<details{'' if changed else ' open'}><summary>kernel</summary>"
        yield code(kernel.source) + "</details>"
    if turn.reply.defects:
        yield f"<p>Defects of the answer's form: {escaped(', '.join(turn.reply.defects))}.</p>"
    yield from _verdict(played, turn)
    yield "</details>"


def _verdict(played: PlayedEpisode, turn: Turn) -> Iterator[str]:
    verdict = turn.verdict
    facts: dict[str, object] = {
        "status": verdict.status.value,
        "message": verdict.message,
        "trials": f"{verdict.trials_passed} of {verdict.trials}" if verdict.trials else "",
        "largest error": f"{verdict.max_abs_error:.3g} absolute, {verdict.max_rel_error:.3g} "
        "relative"
        if verdict.max_abs_error
        else "",
        "where it is wrong": _mismatch(verdict),
        "score": f"{turn.score.total:.3g}",
        "custom share": f"{verdict.custom_share:.2f}" if verdict.custom_share else "",
        "isolation": verdict.isolation,
        "judged in": f"{verdict.wall_s:.2f} s{_stages(verdict)}" if verdict.wall_s else "",
    }
    if verdict.timing is not None:
        timing = verdict.timing
        high = f"{timing.speedup_high:.4g}" if timing.speedup_high else "?"
        facts["speedup"] = (
            f"{timing.speedup:.4g} ({timing.speedup_low:.4g} to {high}) over {timing.baseline}, "
            f"{timing.samples} pairs"
        )
        facts["times"] = f"kernel {timing.kernel_ms:.4g} ms, reference {timing.reference_ms:.4g} ms"
        if timing.floor_share:
            facts["share of the bandwidth"] = f"{timing.floor_share:.2f}"
    yield facts_table(facts)
    for finding in verdict.findings:
        line = f", line {finding.line}" if finding.line else ""
        yield (
            f"<p><code>{escaped(finding.code)}</code> ({finding.severity.value}{line}): "
            f"{escaped(finding.message, 1000)}</p>"
        )
    if verdict.timing is not None and verdict.timing.windows:
        yield histogram(verdict.timing.ratios, name="speedup of each pair of windows")
    if verdict.profile is not None:
        rows = [
            [f"<code>{escaped(each.name, 200)}</code>", str(each.launches), f"{each.ms:.4g}"]
            for each in verdict.profile.kernels
        ]
        told = f"Profile of one call, {verdict.profile.call_ms:.4g} ms"
        yield table(["kernel", "launches", "ms"], rows, caption=told)
    if verdict.log:
        yield (
            "<details><summary>compiler's or kernel's output</summary><pre>"
            f"{escaped(verdict.log, _MOST_LOG)}</pre></details>"
        )
    if verdict.seed and turn.reply.kernel is not None:
        rules = (verdict.ruleset or played.record.ruleset).partition("@")[0]
        yield (
            "<p>This repeats it, with the kernel as a file:</p><pre>kernelgym check kernel.py "
            f"--problem {escaped(played.key[0])} --language {escaped(played.record.language)} "
            f"--device {escaped(verdict.device or played.record.device)} --ruleset "
            f"{escaped(rules)} --replay {escaped(verdict.seed)}</pre>"
        )


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
