"""`begin`: the beginning of a search, in which its start is judged twice.

If the evaluator times kernels alternately, the start is then timed against itself. That shows how
well it can tell kernels apart. Then the compiler is asked which of the start's loops it vectorised.

Contract: what was done before a kill is not done again; each verdict is an event. Nothing here is
charged to the budget of evaluations.
"""

from __future__ import annotations

import dataclasses
import math
import os
import secrets

from kernelgym import UsageError
from kernelgym.starting_kernel import meaning_of_correct, standard_of, starting_kernel
from kernelgym.types import Verdict
from kernelgym_train.mcgs.building import build_key, build_s, is_busy, judge_s, turn_logs
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.source_forms import holds_cpp
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.static_priors import REPORT_FLAG
from kernelgym_train.mcgs.tactics import read_tactics
from kernelgym_train.mcgs.variant import launch_key
from kernelgym_train.mcgs.worker import run_of

_QUIET = 0.10  # share by which two verdicts of one kernel may differ
_VERDICTS = 2  # on the start
_ROUNDS = 2  # of the start beside itself
_MOST_REPORT = 20_000  # characters of a compiler's report


def begin(session: SearchSession) -> None:
    """Judge and time the start, unless the log already has its verdicts.

    Raises:
        UsageError: If the start is wrong or not timed, no time is left, or the host is not quiet
            and has to be, or if the tactics' file cannot be read. The log of a new search that
            is refused is removed, and the session cannot be used again.
    """
    state, config = session.state, session.config
    # A search that goes on has its tactics in its log; the file has to be sound all the same.
    tactics = read_tactics(session.tactics, session.tactics_key)
    new = not state.begun
    if new:
        fields = {"context": session.context, "algo": config.algo, "seed": config.seed}
        session.record("search", {**fields, "tactics": tactics})
        session.folder.write_run(run_of(session.task, session.context["ruleset"]))
    try:
        _judge_start(session)
        _time_start(session)
        _check_time(session)
        _check_seconds(session)
        if (busy := _why_times_differ(state)) and config.require_quiet:
            raise UsageError(f"{busy}; wait until the host is idle, or leave require_quiet out")
    except UsageError:
        if new:
            session.folder.forget()
        raise
    _ask_report(session)
    session.tell_report()
    share = (
        f"{state.start_speedup:.3g} of {standard_of(session.task.problem)}'s speed"
        if state.start_logs
        else "its speed beside the reference could not be measured"
    )
    if starting_kernel(session.task.problem) is not None:
        share += f"; correct means: {meaning_of_correct(session.task.problem)}"
    session.say(f"start: {share}, noise {state.noise:.1%}")
    if busy:
        session.say(f"warning: {busy}; smaller gains are not detected")


def _judge_start(session: SearchSession) -> None:
    """Judge the start twice, to measure its speed and the noise of its times."""
    state = session.state
    for _ in range(state.starts, _VERDICTS):
        if not (verdict := judge_start(session)).correct:
            raise UsageError(
                f"the start kernel is {verdict.status}: {verdict.message or 'no reason given'}; a "
                "search needs a correct kernel that the judge times"
            )


def _check_seconds(session: SearchSession) -> None:
    """Refuse a time limit that leaves no time for evaluations.

    Raises:
        UsageError: If the limit is too short.
    """
    if not session.state.evaluations and session.seconds_left < session.reserve_s:
        raise UsageError(
            f"seconds={session.budget.seconds:g} is too little: judging the "
            f"start took {session.seconds:.0f} s, and comparing and checking the best takes "
            f"about {session.reserve_s:.0f} s; give several times as much"
        )


def _check_time(session: SearchSession) -> None:
    """Try again to time a start that has no time yet.

    Raises:
        UsageError: If the judge does not time it.
    """
    state, message = session.state, ""
    for _ in range(_VERDICTS):
        if state.start_logs or state.ruler_logs:
            return
        message = judge_start(session).message
    if not state.start_logs:
        raise UsageError(
            f"the start kernel is correct but was not timed: {message or 'no reason given'}; a "
            "search needs a correct kernel that the judge times"
        )


def judge_start(session: SearchSession) -> Verdict:
    """Judge the start once, and record the verdict if it is correct."""
    state, task, evaluator = session.state, session.task, session.evaluator
    # With a fresh seed no cache answers the second time, which would hide the noise.
    verdict = evaluator.evaluate(task.problem, task.start, seed=secrets.token_hex(16))
    if not verdict.correct:
        return verdict
    session.folder.write_start(task.start, verdict)
    build = build_key(launch_key(state.variants[state.start]), verdict.build)
    fields = {"speedup": verdict.speedup, "build": build, "shown_wall_s": judge_s(verdict)}
    # A verdict tells no time of hidden shapes; the limit of time has to know it.
    fields["wall_s"] = judge_s(verdict)
    if isinstance(evaluator, ShapesEvaluator):
        fields["wall_s"] = round(evaluator.last_s, 3)
    busy = is_busy([verdict])
    fields |= {"build_s": build_s(verdict), "host_busy": busy, "busy": int(busy)}
    session.record("start", fields)
    return verdict


def _time_start(session: SearchSession) -> None:
    """Time the start against itself, to measure the noise, unless that was done."""
    duels, start, problem = session.duels, session.task.start, session.task.problem
    if duels is None or session.state.ruler_logs:
        return
    began, pairs = session.seconds, []
    for _ in range(_ROUNDS):
        if (found := duels.duel_round(problem, [start, start])) is not None:
            pairs.append((found[0], found[1]))
    fields = {"verdicts": len(pairs), "busy": sum(is_busy(pair) for pair in pairs)}
    took_s = round(session.seconds - began, 3)
    session.record("ruler", {"logs": turn_logs(pairs), **fields, "took_s": took_s})


def _ask_report(session: SearchSession) -> None:
    """Ask the compiler which of the start's loops it vectorised.

    This takes one build, which is not charged. It is done if the evaluator can build without
    judging and the proposer uses the report.
    """
    state, language = session.state, session.task.start.language
    start = state.variants[state.start]
    takes = session.proposer.prior_source == "static" and holds_cpp(language, start.source)
    if session.builds is None or not takes or state.report is not None:
        return
    reporting = dataclasses.replace(start, flags=(*start.flags, REPORT_FLAG))
    made = session.builds.build(reporting.kernel())
    if made is not None:
        session.record("report", {"log": made.log[:_MOST_REPORT]})


def _why_times_differ(state: SearchState) -> str:
    """Return a warning if times of the start differ by 10 %; empty if they do not."""
    logs, busy = state.start_logs, state.host_busy
    spread = max(logs) - min(logs) if logs else 0.0
    noise = math.expm1(state.noise if state.ruler_logs else spread)
    if noise <= _QUIET and not busy:
        return ""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    told = " and the judge found the host busy (host_busy)" if busy else ""
    differ = (
        "the start, timed against itself, differs"
        if state.ruler_logs
        else ("two verdicts of the start differ")
    )
    return f"{differ} by {noise:.0%}{told}, with a load of {load:.1f} on {cores} cores"
