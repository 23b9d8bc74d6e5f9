"""`finish`: compares, checks and writes the best kernel of a search.

``result.json`` (version 1):

- ``speedup, speedup_low, speedup_high``: speedup of the best over the start with its 95 % interval,
  by the last decided duel between the two; 1.0 if nothing faster was confirmed;
- ``correct_means``: what a correct verdict says: ``agrees with the reference``, or ``agrees with
  the starting kernel``, which is the reference of all times then, too;
- ``over_reference``: speedup of the best over the problem's reference, by the last verdict;
- ``shapes``: both speedups at each shape of a kernel spec, with the shape's role and weight. A
  hidden shape has no speedups. The speedup over the start is the mean of the duel's rounds;
- ``evaluations, duplicates, pruned, failures, seconds, stopped``: counts, time, and why the search
  ended;
- ``writer``: requests to a writer of kernels, their outcomes, tokens and US dollars, and how far
  predicted gains were off (`kernelgym_train.mcgs.writing.asks.AskLog.plain`); null without one;
- ``undecided``: if the start is the best, the state that the last comparison with the start left
  undecided, with its speedup and both ends of the interval; null if there is none;
- ``untimed``: number of states that are correct and could not be timed;
- ``noise``: standard deviation of ln(speedup over the start) of one measurement;
- ``host_busy``: whether the judge found the host busy in a verdict or round that the speedups rest
  on; ``busy_share``: share of all verdicts and rounds in which it did;
- ``approximate``: whether moves that lose accuracy were allowed; ``risk``: risk of the best;
- ``without_approximate``: if the best has such moves, the best state without them, compared with
  the start by a duel; null if the best has none, there is no such state, or no time was left;
- ``context``: everything that times depend on; ``start``: digest of the start, and its speedup over
  the reference;
- ``best``: path, digest, state, moves, and the seed that repeats the last verdict;
- ``minimised``: whether the best was tried without each of its steps, and the steps taken back;
- ``counters``: what limits the start and the best by hardware counters; null without any.

Contract: the exported file is judged as it lies on the disk, on inputs that no earlier verdict
used, and its digest is that of the kernel that the duel timed. If that verdict fails, the start is
the best. If the minimised best is not confirmed, the best keeps its steps. If the final duel is
undecided, the best found so far stays confirmed; if the best loses it, the start is the best.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from kernelgym import Kernel, UsageError
from kernelgym.starting_kernel import START, meaning_of_correct
from kernelgym.types import Verdict
from kernelgym_train.mcgs.building import is_busy
from kernelgym_train.mcgs.episode import episode_of, way_to
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.minimising import minimise
from kernelgym_train.mcgs.profiling import profile_last
from kernelgym_train.mcgs.proving import prove
from kernelgym_train.mcgs.report import report, trace
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.solution import solution_of
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.state_json import plain_state
from kernelgym_train.mcgs.story import pull_request
from kernelgym_train.mcgs.tactics import add_tactics
from kernelgym_train.mcgs.variant import MoveStep

VERSION = 1
_MOST_ROUNDS = 12
_VERDICTS = 2  # on the exported kernel, at most
_Ratio = tuple[float, float, float]
_EQUAL: _Ratio = (1.0, 1.0, 1.0)


def finish(session: SearchSession) -> dict[str, Any]:
    """Minimise, confirm and write the best; return the result.

    The gains of moves are added to the file that searches share.
    """
    fresh = dict(session.state.experience.fresh)
    best, ratio, gains, minimised = _confirmed_best(session)
    state, folder = session.state, session.folder
    task, kernel = session.task, _export(session, best)
    verdict = _judged_again(session, kernel)
    if best is not None and (
        not verdict.correct or kernel.digest != state.variants[best].kernel().digest
    ):
        session.say(f"the exported kernel is {verdict.status.value}: the start is kept")
        best, ratio, gains = None, _EQUAL, _gains_of_start(session)
        kernel = _export(session, None)
        verdict = _judged_again(session, kernel)
    without = None
    if best is not None and best not in state.graph.nodes:  # minimised: no verdict yet
        folder.write_verdict(best, verdict)
    if best is not None and state.risks[best] == "approximate":
        if session.seconds_left >= session.reserve_s:
            without = _best_without(session)
    over = {
        name: 0.0 if verdict.timing is None else getattr(verdict.timing, name)
        for name in ("speedup", "speedup_low", "speedup_high")
    }
    steps = () if best is None else state.variants[best].applied
    for key in () if best is None else way_to(state, best):
        if not session.is_stopped and session.seconds_left > session.end_s:
            prove(session, key)  # a turn of the episode has a full verdict
    counters = profile_last(session, best)
    result = {
        "version": VERSION,
        "task": task.name,
        "problem": task.problem.id,
        "correct_means": meaning_of_correct(task.problem),
        **_claim(*ratio),
        "undecided": _undecided(state) if best is None else None,
        "over_reference": over,
        "shapes": _shapes(session, kernel, ratio[0], over["speedup"], gains),
        "evaluations": state.evaluations,
        "duplicates": state.duplicates,
        "pruned": state.pruned,
        "twins": len(state.graph.twins),
        "failures": dict(sorted(state.failures.items())),
        "writer": state.asks.plain() if state.asks.asks else None,
        "untimed": len(state.untimed),
        "seconds": round(session.seconds, 1),
        "stopped": state.stopped,
        "noise": state.noise,
        "host_busy": _is_busy(state, verdict),
        "busy_share": round(state.busy / max(1, state.verdicts), 3),
        "approximate": session.approximate,
        "risk": "exact" if best is None else state.risks[best],
        "without_approximate": without,
        "context": dict(session.context),
        "start": {"digest": task.start.digest, "over_reference": state.start_speedup},
        "best": {
            "path": str(folder.best.relative_to(folder.outdir)),
            "diff": "" if best is None else str(folder.diff.relative_to(folder.outdir)),
            "state": best or state.start,
            "digest": kernel.digest,
            "moves": [_plain(step) for step in steps],
            "seed": verdict.seed,
        },
        "minimised": minimised,
        "counters": counters,
    }
    if (builds := session.builds) is not None:
        folder.write_built(None, builds.artifacts(task.start, assembly=True))
        if best is not None:
            built = builds.artifacts(state.variants[best].kernel(), assembly=True)
            folder.write_built(best, built)
    session.record("finished", {"result": result})
    write_result(session, result)
    try:
        if not task.is_held_out:
            add_tactics(session.tactics, session.tactics_key, fresh)
    except (OSError, UsageError) as error:  # the result is there, and stands
        session.say(f"warning: the gains of moves were not kept: {error}")
    return result


def _confirmed_best(
    session: SearchSession,
) -> tuple[str | None, _Ratio, Mapping[str, float], dict[str, Any]]:
    """Return the best state after it was minimised and confirmed.

    Returns:
        Its key, or None for the start; its speedup over the start with both ends of the interval;
        the same by shape; and what minimising did.
    """
    state = session.state
    best: str | None = state.incumbent if state.incumbent != state.start else None
    minimised: dict[str, Any] = {"done": best is None, "left_out": []}
    if best is not None:
        before = state.variants[best].applied
        best, done = minimise(session, best)
        after = state.variants[best].applied
        left_out = [step for step in before if step not in after]
        left_out += [step for step in after if step not in before]
        minimised = {"done": done, "left_out": [_plain(step) for step in left_out]}
    elif state.stopped == "seconds" or not session.may_challenge() or _undecided(state):
        # No time was left to decide on the leader before the last duel, which is with the start.
        best = state.challenger()
        while best is not None and not prove(session, best):
            best = state.challenger() if session.seconds_left >= session.end_s else None
        minimised["done"] = best is None
    if not minimised["done"]:
        session.cut_short()
    if best is None:
        return None, _EQUAL, _gains_of_start(session), minimised
    held = _confirmed(session, best)
    if held is None or held[0] != best:
        minimised = {"done": False, "left_out": []}
    if held is None:
        session.say("the last comparison does not confirm the best: the start is kept")
        return None, _EQUAL, _gains_of_start(session), minimised
    best, duel, proof = held
    return best, proof, session.by_shape(duel, best), minimised


def _gains_of_start(session: SearchSession) -> Mapping[str, float]:
    return {shape.name: 1.0 for shape in session.task.shapes}


def _confirmed(session: SearchSession, best: str) -> tuple[str, str, _Ratio] | None:
    """Compare the best with the start.

    Returns:
        The key of the state that is confirmed to be faster than the start: the best, or the state
        that it was before it lost steps. With the name of the duel's event, and the ratio with its
        ends. None if neither is confirmed.
    """
    state, incumbent = session.state, session.state.incumbent
    for key in dict.fromkeys((best, incumbent)):
        if key == state.start:
            continue
        if key != best and session.seconds_left < session.end_s:
            return key, "duel", state.proof
        if not prove(session, key):
            continue
        found = session.compare(
            "confirmed", state.start, key, session.rounds_left(_MOST_ROUNDS, last=True)
        )
        # If the start failed in the duel, it loses without a measured time, and low is 0.
        if found.decided == "second" and found.low > 1.0:
            return key, "confirmed", (found.ratio, found.low, found.high)
        lost = found.decided == "first" or any(
            two.valid and not two.correct for _, two in found.verdicts
        )
        if key == incumbent and not lost:
            return key, "duel", state.proof
    return None


def _is_busy(state: SearchState, last: Verdict) -> bool:
    """Return True if the host was busy in a verdict or duel that the result's speedups rest on."""
    return is_busy([last]) or any(duel.busy for duel in state.duels if duel.kind != "reduced")


def _undecided(state: SearchState) -> dict[str, Any] | None:
    """Return the state of the last undecided duel with the start; None if there is none."""
    for duel in reversed(state.duels):
        if duel.first == state.start and duel.decided == "neither" and duel.ratio > 1.0:
            return {"state": duel.key, **_claim(duel.ratio, duel.low, duel.high)}
    return None


def write_result(session: SearchSession, result: Mapping[str, Any]) -> None:
    """Write a result, and the search's state, trace, report and episode.

    Is called again for a search that has ended, in case a kill came before.
    """
    state, folder = session.state, session.folder
    said = sentence(result, folder)
    diff, way = "", None
    if result["best"]["diff"]:
        diff = folder.diff.read_bytes().decode()
        way = episode_of(
            session.task,
            state,
            result["best"]["state"],
            lambda key: None if key in state.unproven else folder.read_verdict(key),
            device=session.evaluator.capabilities.device,
            ruleset=session.evaluator.capabilities.ruleset,
        )
    proposed = None
    if diff:
        control = str(folder.best.with_name("control.json"))
        proposed = pull_request(state, result, diff, session.config.command, control)
    folder.write_result(result)
    folder.write("pull_request.md", proposed)
    best = state.variants[result["best"]["state"]]
    kind = session.evaluator.capabilities.device_kind
    folder.write("flashinfer.json", solution_of(session.task, best, kind))
    folder.write_episode(way)
    folder.write("search_state.json", plain_state(state))
    folder.write("trace.md", trace(state, said, result["best"]["state"]))
    folder.write("report.html", report(state, result, said, diff))


def _shapes(
    session: SearchSession, best: Kernel, ratio: float, over: float, gains: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return the result at each shape.

    Args:
        session: The search.
        best: The kernel that was judged last.
        ratio: Speedup of that kernel over the start, at all shapes together.
        over: Speedup of that kernel over the reference, at all shapes together.
        gains: Speedups of that kernel over the start by shape, where known.
    """
    task, evaluator = session.task, session.evaluator
    if not isinstance(evaluator, ShapesEvaluator):
        name = task.problem.name or task.problem.id
        return [
            {"name": name, "role": "tune", "weight": 1.0, "speedup": ratio, "over_reference": over}
        ]
    last = evaluator.last(best, 1)
    return [
        {
            "name": shape.name,
            "role": shape.role,
            "weight": shape.weight,
            "speedup": gains.get(shape.name) if shape.weight else None,
            "over_reference": last.get(shape.name) if shape.weight else None,
        }
        for shape in task.shapes
    ]


def _export(session: SearchSession, best: str | None) -> Kernel:
    """Write the best kernel's text from the log, link it, and return the kernel in the file.

    The log is on the disk for certain; what was written beside it may have been lost with a kill.
    """
    if best is None:
        session.folder.write_start(session.task.start)
    else:
        session.write_variant(best, session.state.variants[best], session.state.risks[best])
    session.folder.link_best(best)
    # Not read as text: that would turn each carriage return into a newline.
    source = session.folder.best.read_bytes().decode()
    return Kernel(source, session.task.start.language)


def _judged_again(session: SearchSession, kernel: Kernel) -> Verdict:
    """Judge the exported kernel; judge it once more if it is correct but has no time."""
    for _ in range(_VERDICTS):
        # With a fresh seed no cache answers in place of the judge.
        seed = secrets.token_hex(16)
        verdict = session.evaluator.evaluate(session.task.problem, kernel, seed=seed)
        if verdict.timing is not None or not verdict.correct or session.seconds_left <= 0.0:
            break
    return verdict


def _claim(ratio: float, low: float, high: float) -> dict[str, float]:
    return {"speedup": ratio, "speedup_low": low, "speedup_high": high}


def _plain(step: MoveStep) -> list[str]:
    return [step.move, step.target, step.choice]


def _best_without(session: SearchSession) -> dict[str, Any] | None:
    """Compare the best state that has no approximate moves with the start."""
    state = session.state
    for node in state.graph.ranked():
        if session.seconds_left < session.end_s:
            break
        exact = state.risks[node.key] != "approximate"
        if exact and node.value > 0 and prove(session, node.key):
            most = session.rounds_left(_MOST_ROUNDS)
            found = session.compare("confirmed", state.start, node.key, most)
            return {**_claim(found.ratio, found.low, found.high), "state": node.key}
    return None


def sentence(result: Mapping[str, Any], folder: SearchFolder) -> str:
    """Return the search's result in one sentence: its speedup, or that nothing was faster."""
    done = f"after {result['evaluations']} evaluations in {result['seconds']:.0f} s"
    if result["host_busy"]:
        done += " on a busy host (host_busy)"
    if is_by_start(result):
        done += f" (correct means: {result['correct_means']})"
    if not result["best"]["diff"]:
        told = f"{result['task']}: nothing faster than the start was confirmed {done}"
        if (left := result["undecided"]) is None:
            return f"{told}."
        return f"{told}; undecided: a kernel {interval(left, 'x')} as fast."
    over = result["over_reference"]
    name = START.removeprefix("the ") if is_by_start(result) else "reference"
    share = f"{interval(over)} of the {name}'s speed" if over["speedup"] else f"{name} untimed"
    return (
        f"{result['task']}: {interval(result, 'x over the start')}, {share}, {done}: {folder.best}"
    )


def is_by_start(result: Mapping[str, Any]) -> bool:
    """Return True if correctness in a result means agreement with the starting kernel."""
    return str(result["correct_means"]).endswith(START)


def interval(data: Mapping[str, Any], unit: str = "") -> str:
    """Return a speedup with its 95 % interval as a text.

    Args:
        data: Fields ``speedup``, ``speedup_low`` and ``speedup_high``, which is 0.0 if unknown.
        unit: Text after the speedup.
    """
    low, high = data["speedup_low"], data["speedup_high"]
    ends = f"{low:.3g} to {high:.3g}" if high else f"from {low:.3g}"
    return f"{data['speedup']:.3g}{unit} ({ends})"
