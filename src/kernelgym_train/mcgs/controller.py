"""`explore`: chooses states, sends them to the judge, and confirms by duels which are faster.

Contract:

- every decision is an event, written before it counts: a proposal before it is judged, a verdict
  before the graph knows it. What a kill leaves unjudged is judged first when the search goes on;
- results are recorded in the order in which kernels were dispatched, so that equal verdicts give
  equal searches whichever worker finishes first, unless `SearchConfig.deterministic` is False;
- a proposal whose state is known costs nothing and is never judged again;
- only a duel changes the incumbent, and only to a state with a correct full verdict. The leader
  by single verdicts, whose intervals are wide, is compared with it once it has led for some
  evaluations, and the best few are at the end;
- a correct kernel that could not be timed is timed again, at last when nothing else is left to do;
- if the evaluator cannot time kernels alternately, the start is judged again every ten
  evaluations, since all values rest on its speedup;
- a stop (a limit, Ctrl-C) ends dispatching. What was dispatched is waited for;
- under a limit of time, a duel begins only if the last one and the check fit in after it.

Writes no best: `kernelgym_train.mcgs.finishing` does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from kernelgym import AwaitedEvaluator
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.bottleneck_priors import strongest
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.building import JudgedState, StateJudge, value_of
from kernelgym_train.mcgs.limiting import share_source, shares_of
from kernelgym_train.mcgs.profiling import profile, should_profile
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.proving import prove
from kernelgym_train.mcgs.selection import SearchChoice
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.starting import judge_start
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.state_json import plain_state
from kernelgym_train.mcgs.tactics import last_move
from kernelgym_train.mcgs.tuning import TUNE
from kernelgym_train.mcgs.writing.asking import AskedKernel, KernelAsking

SAME_CODE = "same_code"
"""Status of an evaluation whose compiled code equals that of an earlier state; the earlier verdict
is used again."""
_LEADS_FOR = 6  # evaluations; a duel takes six verdicts at least
_CONTESTANTS = 3
_MOST_ROUNDS = 6
_STATE_EVERY = 10  # evaluations
_Running: TypeAlias = tuple[str, "asyncio.Task[JudgedState] | asyncio.Task[AskedKernel]"]
"""Key and task of a state that is being judged; for a request to a writer, an empty key and its
task."""
_START_EVERY = 10  # evaluations
_TIMINGS = 3  # attempts at timing a correct kernel
_REPEATS = 1000  # proposals of known states in a row, after which the space counts as exhausted


def explore(session: SearchSession, budget: Budget | None = None, *, contests: bool = True) -> None:
    """Judge new states until a limit is met, then compare the best few by duels.

    May be called again with wider limits.

    Args:
        session: The search.
        budget: Limits in place of those that the session has.
        contests: Whether the best few are compared; a search that will go on need not.
    """
    session.limit(budget or session.budget)
    if session.state.stopped and session.state.may_go_on(session.budget):
        session.record("resumed", {"limits": dataclasses.asdict(session.budget)})
    asyncio.run(_run(session, contests))


async def _run(session: SearchSession, contests: bool) -> None:
    state = session.state
    async with AwaitedEvaluator(session.evaluator) as awaited:
        config = session.config
        judging = StateJudge(
            awaited,
            session.task.problem,
            state,
            session.together,
            rules=config.proposer is None or isinstance(config.proposer, RuleProposer),
            clock=config.clock,
        )
        await _evaluate(session, judging)
        while contests and state.contests < (1 if session.is_stopped else _CONTESTANTS):
            challenger = state.challenger()
            if challenger is None or not session.may_challenge():
                break
            await _challenge(session, challenger)
        if contests and state.contests < _CONTESTANTS and (left := state.challenger()):
            session.say(f"not compared with the best: {state.steps(left)}: {session.why_no_duel}")
            session.cut_short()


async def _evaluate(session: SearchSession, judging: StateJudge) -> None:
    """Judge states until a limit is met."""
    state, config = session.state, session.config
    asking = None if config.writer is None else KernelAsking(session, config.writer)
    running: deque[_Running] = deque()

    def begin(key: str) -> None:
        running.append((key, asyncio.create_task(judging.begin(key))))

    def ask() -> bool:
        if asking is None or not asking.may_ask():
            return False
        running.append(("", asking.begin()))
        return True

    for key in state.open:  # dispatched before a kill
        begin(key)
    for lost in state.asks.open:
        if asking is not None and (again := asking.again(lost)) is not None:
            running.append(("", again))
    try:
        while not state.stopped:
            if session.duels is None and state.evaluations - state.start_after >= _START_EVERY:
                await asyncio.to_thread(judge_start, session)
            leader = state.graph.ranked()[0].key
            profiles = should_profile(session, leader)
            may_prove = not session.is_stopped and session.seconds_left >= session.reserve_s
            if profiles or (may_prove and state.floor_share >= session.budget.floor_share):
                if not await asyncio.to_thread(prove, session, leader):
                    continue
            if profiles:
                await asyncio.to_thread(profile, session, leader)
            reason = ""
            while len(running) < config.workers and not (reason := _reason_to_stop(session)):
                if asking is not None and asking.is_due() and ask():
                    continue
                chosen = _dispatch(session)
                if chosen is not None:
                    begin(chosen)
                elif not ask():
                    break
            if not running and await _time_again(session, judging):
                continue
            if not running:
                left = "writer_closed" if state.asks.closed else "space exhausted"
                session.record_stop(reason or left)
                break
            at = 0 if config.deterministic else await _first_done(running)
            key, task = running[at]
            del running[at]
            judged = await task
            if isinstance(judged, AskedKernel):
                assert asking is not None
                if (written := asking.take_in(judged)) is not None:
                    begin(written)
                continue
            judging.taken(key)
            twin = state.twin(key, judged.build)
            if twin is not None and not _contradicts(session, judged, twin):
                _take_in_twin(session, key, twin, judged)
                continue
            if judged.verdict is None or not judged.verdict.valid:
                # The judge failed, on this state or its twin: not the kernel's fault.
                judged = await judging.insist(key)
            # Code that was correct once and failed now stays the earlier state's.
            _take_in(session, key, judged, "" if twin is not None else judged.build)
            led, since = state.led_since
            if state.evaluations - since >= _LEADS_FOR:
                if state.challenger() == led and not _reason_to_stop(session):
                    if session.may_challenge():
                        await _challenge(session, led)
    finally:
        for _, task in running:
            task.cancel()


async def _time_again(session: SearchSession, judging: StateJudge) -> bool:
    """Try once more to time a correct kernel without a time; return False if there is none."""
    left = [key for key, attempts in session.state.untimed.items() if attempts < _TIMINGS]
    if not left or session.is_stopped or session.seconds_left < session.reserve_s:
        return False
    judged = await judging.again(left[0])
    value = _value(session, judged)
    session.record("timed", {"key": left[0], "value": value, **_how_timed(judged)})
    _tell(session, left[0], _factor(value) or "not timed")
    return True


def _reason_to_stop(session: SearchSession) -> str:
    """Return the reason to send no more kernels to the judge; empty if the search goes on."""
    state, budget = session.state, session.budget
    if session.is_stopped:
        return "interrupted"
    if state.evaluations + len(state.open) + len(state.asks.open) >= budget.builds:
        return "budget_builds"
    if session.seconds_left < session.reserve_s:
        return "seconds"
    if state.floor_share >= budget.floor_share and state.led_since[0] not in state.unproven:
        return "floor_share"
    least = max(math.log1p(budget.min_pred_gain), 3.0 * state.noise)
    if budget.patience and _since_gain(state, least) >= budget.patience:
        return "patience"
    return ""


def _since_gain(state: SearchState, least: float) -> int:
    """Return the number of evaluations since the best value last improved by at least a gain.

    Args:
        state: The search.
        least: Difference from the value at the last gain that counts as a gain, in ln of the
            speedup.
    """
    gained, height = 0, 0.0
    for evaluations, value in state.leads:
        if value > height + least:
            gained, height = evaluations, value
    return state.evaluations - gained


def _dispatch(session: SearchSession) -> str | None:
    """Choose a new state; return its key, or None if no proposal can be made at present."""
    state = session.state
    for _ in range(_REPEATS):
        choice = ALGORITHMS[session.config.algo](session.around)
        if choice is None:
            return None
        proposal = choice.proposal
        sources = [session.proposer.prior_source, share_source(state, choice.node)]
        sources = [*filter(None, sources), *state.experience.source(choice.move)]
        key = session.propose(
            {"node": choice.node, "move": choice.move, "attempt": choice.attempt},
            proposal.variant,
            proposal.risk,
            _predicted_gain(session, choice),
            {
                "links": [list(link) for link in choice.links],
                "scores": [[name, round(score, 6)] for name, score in choice.scores],
                "prior_source": "+".join(sources),
                "bottleneck": strongest(shares_of(state, choice.node)),
            },
        )
        if key is not None:
            return key
    return None


def _predicted_gain(session: SearchSession, choice: SearchChoice) -> float:
    """Return the predicted gain of a choice over the state that it changes, as a share."""
    node = session.state.variants[choice.node]
    steps = [choice.move]
    if choice.move == TUNE:  # a setting makes several moves at once
        steps = [step.move for step in choice.proposal.variant.applied if step not in node.applied]
    limit = strongest(shares_of(session.state, choice.node))
    return session.state.experience.predicted_gain(last_move(node), steps, limit)


def _contradicts(session: SearchSession, judged: JudgedState, twin: str) -> bool:
    """Return True if a state failed though its twin, with the same machine code, was correct."""
    verdict = judged.verdict
    failed = verdict is not None and verdict.valid and not verdict.correct
    return failed and twin in session.state.graph.nodes


def _take_in_twin(session: SearchSession, key: str, twin: str, judged: JudgedState) -> None:
    """Record that a state has the same machine code as an earlier state."""
    graph, verdict = session.state.graph, judged.verdict
    node = None if twin in graph.failed else graph.nodes.get(twin)
    if verdict is not None:
        session.folder.write_verdict(key, verdict)
    failed = "" if node is not None else ", which failed"
    session.record(
        "judged",
        {
            "key": key,
            "twin": twin,
            "build": judged.build,
            "status": SAME_CODE,
            "value": None if node is None else node.value,
            "wall_s": judged.wall_s,
            "round_s": judged.round_s,
            "build_s": judged.build_s,
            "message": f"compiled to the machine code of {twin}{failed}",
        },
    )
    _tell(session, key, f"as {twin[:8]}")


def _take_in(session: SearchSession, key: str, judged: JudgedState, build: str) -> None:
    """Record a state's verdict."""
    state, verdict = session.state, judged.verdict
    assert verdict is not None
    value = _value(session, judged)
    session.folder.write_verdict(key, verdict)
    if session.builds is not None:  # no files of a state that was built with others
        session.folder.write_built(key, session.builds.artifacts(state.variants[key].kernel()))
    session.record(
        "judged",
        {
            "key": key,
            "build": build if verdict.valid else "",
            "status": verdict.status.value,
            "value": value,
            **_how_timed(judged),
            "whole": judged.whole,
            "wall_s": judged.wall_s,
            "build_s": judged.build_s,
            "message": verdict.message[:300],
        },
    )
    untimed = "correct, not timed" if verdict.correct else verdict.status.value
    _tell(session, key, _factor(value) or untimed)


def _factor(value: float | None) -> str:
    return "" if value is None else f"{math.exp(value):.3g}x over the start"


def _value(session: SearchSession, judged: JudgedState) -> float | None:
    """Return ln of a state's speedup over the start; None if it has no time."""
    if judged.beside:
        return statistics.fmean(judged.beside)
    assert judged.verdict is not None
    return value_of(judged.verdict, session.state.start_speedup)


def _how_timed(judged: JudgedState) -> dict[str, Any]:
    """Return the fields of an event that tell how a state was timed."""
    verdict = judged.verdict
    assert verdict is not None
    return {
        "beside": list(judged.beside),
        "ms": {name: list(pair) for name, pair in judged.ms.items()},
        "speedup": verdict.speedup,
        "floor_share": 0.0 if verdict.timing is None else verdict.timing.floor_share,
        "round_s": judged.round_s,
        "verdicts": judged.verdicts,
        "busy": judged.busy,
    }


def _tell(session: SearchSession, key: str, said: str) -> None:
    state = session.state
    if state.evaluations % _STATE_EVERY == 0:
        session.folder.write("search_state.json", plain_state(state))
    told = f"{said:>24}  {state.steps(key)}"
    session.say(f"{state.evaluations:4d}  {session.seconds:6.0f} s  {told}")


async def _challenge(session: SearchSession, key: str) -> None:
    """Compare a state with the confirmed best, if the state has a correct full verdict."""
    if not await asyncio.to_thread(prove, session, key):
        return
    incumbent = session.state.incumbent
    most = session.rounds_left(_MOST_ROUNDS, keep=session.reserve_s)
    found = await asyncio.to_thread(session.compare, "duel", incumbent, key, most)
    won = "confirmed" if session.state.incumbent == key else "not confirmed"
    session.say(
        f"      {session.seconds:6.0f} s  {won}: {found.ratio:.3g}x the best before "
        f"({found.low:.3g} to {found.high:.3g}, {found.rounds} rounds)"
    )


async def _first_done(running: Sequence[_Running]) -> int:
    """Wait until one of several tasks has a result; return its position."""
    tasks = [task for _, task in running]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return next(position for position, task in enumerate(tasks) if task.done())
