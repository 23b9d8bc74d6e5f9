"""The end of a search: the best is compared, checked and written.

``result.json`` (version 1):

- ``speedup, speedup_low, speedup_high``: of the best over the start, by the last duel between them
  that was decided, with its 95 % interval; 1.0 where nothing is better;
- ``over_reference``: the same of the best over the problem's reference, by the last verdict;
- ``shapes``: both by shape of a kernel spec, with its role and its share of the value; a hidden one
  has no times. The speedup is the geometric mean of that duel's rounds;
- ``evaluations, duplicates, failures, seconds, stopped``: what the search did, and why it ended;
- ``noise``: how far two verdicts on the start lie apart, as abs(ln of their ratio);
- ``approximate``: whether moves that lose accuracy were allowed; ``risk``: the best's own;
- ``without_approximate``: where the best has such moves, the best that has none, likewise by a duel
  with the start; null otherwise, or if there is none, or no time left to compare it;
- ``context``: what times depend on; ``start``: the start's digest and speedup over the reference;
- ``best``: path, digest, state, moves and seed of the last verdict. The seed repeats that verdict;
- ``minimised``: whether the best was tried without each of its steps, and those that went.

Contract: what is written was judged as it lies on the disk, on inputs that no earlier verdict saw,
and its digest is that of the kernel that the duel timed. If that fails the start is the best. A
best that could not be confirmed without the steps it lost keeps them, and a last duel that decides
nothing takes nothing back from the one that confirmed the best; one that the best loses does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from kernelgym import Kernel
from kernelgym.types import Evaluator, Verdict
from kernelgym_train.mcgs.controller import Controller
from kernelgym_train.mcgs.episode import episode_of
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.minimising import minimise
from kernelgym_train.mcgs.proposing import Proposer
from kernelgym_train.mcgs.report import report
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.state import plain_state
from kernelgym_train.mcgs.story import read_story, trace
from kernelgym_train.mcgs.task import Task
from kernelgym_train.mcgs.variant import Step, context_key

__all__ = ["VERSION", "finish", "sentence", "write_story"]

VERSION = 1
_MOST_ROUNDS = 12


def finish(
    controller: Controller,
    task: Task,
    evaluator: Evaluator,
    folder: SearchFolder,
    proposer: Proposer,
    *,
    context: Mapping[str, str],
    approximate: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Minimise, confirm and write the best, and return the result."""
    progress = controller.progress
    best: str | None = progress.incumbent if progress.incumbent != progress.start else None
    minimised: dict[str, Any] = {"done": best is None, "left_out": []}
    if best is None and (progress.stopped == "seconds" or not controller.may_challenge()):
        # No time was left for a duel of the leader before this last one, which is with the start.
        best = progress.challenger()
        minimised["done"] = best is None
    elif best is not None:
        before = progress.variants[best].applied
        key = context_key(context.items())
        best, done = minimise(controller, proposer, task, folder, best, context=key, say=say)
        after = progress.variants[best].applied
        left_out = [step for step in before if step not in after]
        left_out += [step for step in after if step not in before]
        minimised = {"done": done, "left_out": [_plain(step) for step in left_out]}
    ratio = (1.0, 1.0, 1.0)
    as_the_start = {shape.name: 1.0 for shape in task.shapes}
    gains: Mapping[str, float] = as_the_start
    if not minimised["done"]:
        controller.cut_short()
    if best is not None:
        held = _confirmed(controller, best)
        if held is None or held[0] != best:
            minimised = {"done": False, "left_out": []}
        if held is None:
            say("the last comparison with the start does not confirm the best: the start stays")
            best = None
        else:
            best, duel, proof = held
            ratio, gains = proof, controller.by_shape(duel, best)
    _export(folder, task, controller, best, context)
    verdict = _from_disk(folder, task, evaluator)
    if best is not None and (
        not verdict.correct or _read(folder, task).digest != progress.variants[best].kernel().digest
    ):
        say(f"the exported kernel is {verdict.status.value}: the start stays")
        best, ratio, gains = None, (1.0, 1.0, 1.0), as_the_start
        _export(folder, task, controller, None, context)
        verdict = _from_disk(folder, task, evaluator)
    without = None
    if best is not None and best not in progress.graph.nodes:  # it lost steps, and was not judged
        folder.write_verdict(best, verdict)
    if best is not None and progress.risks[best] == "approximate":
        if controller.seconds_left >= controller.reserve_s:
            without = _best_without(controller)
    timing = verdict.timing
    over = {"speedup": 0.0, "speedup_low": 0.0, "speedup_high": 0.0}
    if timing is not None:
        over = {
            "speedup": timing.speedup,
            "speedup_low": timing.speedup_low,
            "speedup_high": timing.speedup_high,
        }
    steps = () if best is None else progress.variants[best].applied
    result = {
        "version": VERSION,
        "task": task.name,
        "problem": task.problem.id,
        "speedup": ratio[0],
        "speedup_low": ratio[1],
        "speedup_high": ratio[2],
        "over_reference": over,
        "shapes": _shapes(task, evaluator, _read(folder, task), ratio[0], over["speedup"], gains),
        "evaluations": progress.evaluations,
        "duplicates": progress.duplicates,
        "twins": len(progress.graph.twins),
        "failures": dict(sorted(progress.failures.items())),
        "seconds": round(controller.seconds, 1),
        "stopped": progress.stopped,
        "noise": progress.noise,
        "approximate": approximate,
        "risk": "exact" if best is None else progress.risks[best],
        "without_approximate": without,
        "context": dict(context),
        "start": {"digest": task.start.digest, "over_reference": progress.start_speedup},
        "best": {
            "path": str(folder.best.relative_to(folder.outdir)),
            "diff": "" if best is None else str(folder.diff.relative_to(folder.outdir)),
            "state": best or progress.start,
            "digest": _read(folder, task).digest,
            "moves": [_plain(step) for step in steps],
            "seed": verdict.seed,
        },
        "minimised": minimised,
    }
    if (built_for := getattr(evaluator, "artifacts", None)) is not None:
        folder.write_built(None, built_for(task.start))
        if best is not None:
            folder.write_built(best, built_for(progress.variants[best].kernel()))
    controller.record("finished", {"result": result})
    folder.write_result(result)
    write_story(controller, task, evaluator, folder, result)
    return result


def _confirmed(
    controller: Controller, best: str
) -> tuple[str, str, tuple[float, float, float]] | None:
    """Compare the best with the start.

    Returns:
        The key of what is confirmed to be faster than the start: the best, or the state that it was
        before it lost steps. With the name of the duel's event, and its ratio, low and high.
        None if neither is.
    """
    progress, incumbent = controller.progress, controller.progress.incumbent
    for key in dict.fromkeys((best, incumbent)):
        if key == progress.start:
            continue
        if key != best and controller.seconds_left < controller.end_s:
            return key, "duel", progress.proof
        found = controller.compare(
            "confirmed", progress.start, key, controller.rounds_left(_MOST_ROUNDS)
        )
        # A start that failed in the duel loses it with no time measured: low is 0 then.
        if found.decided == "second" and found.low > 1.0:
            return key, "confirmed", (found.ratio, found.low, found.high)
        lost = found.decided == "first" or any(
            two.valid and not two.correct for _, two in found.verdicts
        )
        if key == incumbent and not lost:
            return key, "duel", progress.proof
    return None


def write_story(
    controller: Controller,
    task: Task,
    evaluator: Evaluator,
    folder: SearchFolder,
    result: Mapping[str, Any],
) -> None:
    """Write a result's state, trace, report and episode."""
    progress = controller.progress
    story = read_story(read_events(folder.events))
    said = sentence(result, folder)
    diff = folder.diff.read_bytes().decode() if result["best"]["diff"] else ""
    way = None
    if result["best"]["diff"]:
        way = episode_of(
            task,
            progress,
            result["best"]["state"],
            folder.read_verdict,
            device=evaluator.device,
            ruleset=evaluator.ruleset,
        )
    folder.write_episode(way)
    folder.write_state(plain_state(progress))
    folder.write_report(trace(story, said), report(story, progress, result, said, diff))


def _shapes(
    task: Task,
    evaluator: Evaluator,
    best: Kernel,
    ratio: float,
    over: float,
    gains: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Return what came out at each shape.

    Args:
        task: The task.
        evaluator: The one that judged all shapes.
        best: The kernel that was judged last.
        ratio: Its speedup over the start, at all shapes together.
        over: The same over the reference.
        gains: Its speedup over the start by shape, where known.
    """
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


def _export(
    folder: SearchFolder,
    task: Task,
    controller: Controller,
    best: str | None,
    context: Mapping[str, str],
) -> None:
    """Write the best from the log's own text, and link it.

    The log is on the disk for certain; what was written beside it may have been lost with a kill.
    """
    progress = controller.progress
    if best is None:
        folder.write_start(task.start)
    else:
        key = context_key(context.items())
        folder.write_variant(best, progress.variants[best], task.start, key, progress.risks[best])
    folder.link_best(best)


def _plain(step: Step) -> list[str]:
    return [step.move, step.target, step.choice]


def _best_without(controller: Controller) -> dict[str, Any] | None:
    """Compare the best state without approximate moves with the start."""
    progress = controller.progress
    for node in progress.graph.ranked():
        if node.value > 0 and progress.risks[node.key] != "approximate":
            most = controller.rounds_left(_MOST_ROUNDS)
            found = controller.compare("confirmed", progress.start, node.key, most)
            return {
                "speedup": found.ratio,
                "speedup_low": found.low,
                "speedup_high": found.high,
                "state": node.key,
            }
    return None


def sentence(result: Mapping[str, Any], folder: SearchFolder) -> str:
    """Return a result in one sentence."""
    done = f"after {result['evaluations']} evaluations in {result['seconds']:.0f} s"
    if not result["best"]["diff"]:
        return f"{result['task']}: nothing faster than the start was confirmed {done}."
    return (
        f"{result['task']}: {result['speedup']:.3g}x over the start "
        f"({result['speedup_low']:.3g} to {result['speedup_high']:.3g}), "
        f"{result['over_reference']['speedup']:.2g} of the "
        f"reference's speed, {done}: {folder.best}"
    )


def _read(folder: SearchFolder, task: Task) -> Kernel:
    # Not as text: that would turn each carriage return into a newline.
    return Kernel(folder.best.read_bytes().decode(), task.start.language)


def _from_disk(folder: SearchFolder, task: Task, evaluator: Evaluator) -> Verdict:
    # A seed of its own: no cache answers in place of the judge.
    seed = secrets.token_hex(16)
    return evaluator.evaluate(task.problem, _read(folder, task), seed=seed)
