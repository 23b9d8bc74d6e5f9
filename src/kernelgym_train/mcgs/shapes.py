"""One verdict for a kernel at all shapes of a task.

`ShapesEvaluator` stands in front of an evaluator. Where a search asks for a verdict on its task's
problem, the kernel is judged at every shape, and the verdicts are put together.

Contract:

- a kernel is correct if it is correct at every shape, the hidden ones included;
- the speedup is the geometric mean, by weight, of those at the timed shapes, so that its logarithm
  is the weighted sum of theirs. The interval's ends take the shapes' errors as independent;
- of a shape that is kept from what proposes kernels (`hidden` and ``both``), a verdict says no more
  than whether the kernel was correct: not what went wrong there, nor how long it took. An error of
  the judge's own stays one;
- verdicts on other problems are the evaluator's own.

Shapes are judged one after another, and none after the first at which the kernel fails. The first
builds the kernel; the others find it built.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelgym.rulesets import Ruleset
from kernelgym.types import Build, Evaluator, Job, Kernel, Problem, Status, Timing, Verdict
from kernelgym.verdict import HOST_BUSY, Stages

__all__ = ["ShapesEvaluator", "TaskShape", "together"]

_ORDER = ("tune", "both", "hidden")
_AT_ANY = (Status.UNAVAILABLE, Status.COMPILE_ERROR, Status.REJECTED)
"""What a kernel comes to by its text, before it is run at a shape."""


@dataclass(frozen=True, slots=True)
class TaskShape:
    """One shape of a task."""

    name: str
    problem: Problem
    weight: float
    """Share of the value; 0 for a shape whose time does not count."""
    role: str
    """``tune``, ``hidden`` or ``both``."""

    @property
    def kept(self) -> bool:
        """True if what proposes kernels learns nothing of it."""
        return self.role != "tune"


class ShapesEvaluator:
    """Judges a task's problem at every shape of the task.

    Args:
        evaluator: Judges each shape; it stays open.
        problem: The problem that stands for all shapes.
        shapes: The shapes; the weights add up to 1.
    """

    def __init__(self, evaluator: Evaluator, problem: Problem, shapes: Sequence[TaskShape]) -> None:
        self._evaluator, self._problem = evaluator, problem
        self._shapes = sorted(shapes, key=lambda shape: _ORDER.index(shape.role))
        self._speedups: dict[str, list[dict[str, float]]] = defaultdict(list)
        self.last_s = 0.0
        """Seconds that the last verdict took at all shapes, its build apart."""
        self.build: Callable[[Kernel], Build | None] | None
        """The evaluator's own: builds a kernel without judging it; None if it cannot."""
        self.build = getattr(evaluator, "build", None)
        self.artifacts: Callable[[Kernel], Mapping[str, bytes]] | None
        """The evaluator's own: returns what was built of a kernel; None if it cannot."""
        self.artifacts = getattr(evaluator, "artifacts", None)
        self.evaluate_in_turns: Callable[..., tuple[Verdict, Verdict] | None] | None
        """As of the evaluator, at every shape; None if it times no kernels in turns."""
        self._in_turns = getattr(evaluator, "evaluate_in_turns", None)
        self.evaluate_in_turns = self._at_all_shapes if self._in_turns is not None else None

    @property
    def device(self) -> str:
        """The device kernels run on."""
        return self._evaluator.device

    @property
    def ruleset(self) -> Ruleset:
        """The rules its verdicts follow."""
        return self._evaluator.ruleset

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Judge one kernel at every shape.

        Args:
            problem: The task's problem; any other is judged by itself.
            kernel: The kernel.
            seed: As of the evaluator; each shape's inputs follow from it.
        """
        if problem != self._problem:
            return self._evaluator.evaluate(problem, kernel, seed=seed)
        verdicts: list[tuple[TaskShape, Verdict]] = []
        for shape in self._shapes:
            verdict = self._evaluator.evaluate(shape.problem, kernel, seed=seed)
            verdicts.append((shape, verdict))
            if not verdict.correct:
                break
        self.last_s = sum(
            verdict.wall_s - (0.0 if verdict.stages is None else verdict.stages.build_s)
            for _, verdict in verdicts
        )
        return self._taken_together(kernel, verdicts)

    def _at_all_shapes(
        self, problem: Problem, first: Kernel, second: Kernel, *, seed: str = ""
    ) -> tuple[Verdict, Verdict] | None:
        """Judge two kernels in turns at every shape.

        None if the evaluator cannot at one, or if one kernel is wrong there: whole verdicts tell.
        """
        assert self._in_turns is not None
        if problem != self._problem:
            found: tuple[Verdict, Verdict] | None
            found = self._in_turns(problem, first, second, seed=seed)
            return found
        pairs: list[tuple[Verdict, Verdict]] = []
        for shape in self._shapes:
            pair = self._in_turns(shape.problem, first, second, seed=seed)
            if pair is None or not all(verdict.correct for verdict in pair):
                return None
            pairs.append(pair)
        one, other = (
            self._taken_together(kernel, list(zip(self._shapes, verdicts, strict=True)))
            for kernel, verdicts in zip((first, second), zip(*pairs, strict=True), strict=True)
        )
        return one, other

    def _taken_together(
        self, kernel: Kernel, verdicts: Sequence[tuple[TaskShape, Verdict]]
    ) -> Verdict:
        """Put verdicts together, and keep their speedups by shape."""
        made = together(verdicts)
        if made.timing is not None:
            found = {s.name: v.timing.speedup for s, v in verdicts if v.timing is not None}
            self._speedups[kernel.digest].append(found)
        return made

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many; yields (index of the job, verdict) as they come."""
        for index, job in enumerate(jobs):
            yield index, self.evaluate(job.problem, job.kernel)

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many; one verdict per job, in the order of the jobs."""
        return [self.evaluate(job.problem, job.kernel) for job in jobs]

    def close(self) -> None:
        """Leave the evaluator open: it is the caller's."""

    def last(self, kernel: Kernel, rounds: int) -> Mapping[str, float]:
        """Return a kernel's speedup over the reference by shape.

        Args:
            kernel: A kernel that was judged here.
            rounds: Verdicts to take the geometric mean of, the last ones.
        """
        found = self._speedups[kernel.digest][-rounds:]
        return {
            name: math.exp(sum(math.log(each[name]) for each in found) / len(found))
            for name in (found[0] if found else {})
        }


def together(verdicts: Sequence[tuple[TaskShape, Verdict]]) -> Verdict:
    """Return one verdict for those at several shapes.

    Args:
        verdicts: One at least, the last of which is the only one that may not be correct.
    """
    shape, last = verdicts[-1]
    shown = [verdict for each, verdict in verdicts if not each.kept]
    wall_s = sum(verdict.wall_s for verdict in shown)
    stages = _added([verdict.stages for verdict in shown if verdict.stages is not None])
    if not last.correct:
        if shape.kept:
            by_text = last.status in _AT_ANY and (len(verdicts) == 1 or not last.valid)
            last = Verdict(
                last.status if by_text else Status.WRONG,
                compiled=last.compiled if by_text else True,
                message="not correct at a shape that is kept secret",
                device=last.device,
                isolation=last.isolation,
                ruleset=last.ruleset,
            )
        elif len(verdicts) > 1 or shape.name:
            told = f"{last.message} (at {shape.name})" if last.message else f"at {shape.name}"
            last = dataclasses.replace(last, message=told)
        return dataclasses.replace(last, wall_s=wall_s, stages=stages)
    timed = [(each, verdict.timing) for each, verdict in verdicts if each.weight]
    findings = {f.code: f for verdict in shown for f in verdict.findings}
    for each, verdict in verdicts:
        if each.weight:  # at the others no time counts
            findings |= {f.code: f for f in verdict.findings if f.code == HOST_BUSY}
    first = shown[0] if shown else _bare(verdicts[0][1])
    trials = sum(verdict.trials for verdict in shown) or 1
    return dataclasses.replace(
        first,
        trials=trials,
        trials_passed=trials,
        max_abs_error=max((verdict.max_abs_error for verdict in shown), default=0.0),
        max_rel_error=max((verdict.max_rel_error for verdict in shown), default=0.0),
        timing=_timing([(each.weight, timing) for each, timing in timed if timing is not None])
        if all(timing is not None for _, timing in timed)
        else None,
        findings=tuple(findings.values()),
        profile=None if len(verdicts) > 1 else first.profile,
        wall_s=wall_s,
        stages=stages,
    )


def _bare(verdict: Verdict) -> Verdict:
    """Return a correct verdict that tells no more than that."""
    kept = {
        name: getattr(verdict, name)
        for name in ("device", "isolation", "ruleset", "seed", "build", "trials", "trials_passed")
    }
    return Verdict(Status.CORRECT, compiled=True, **kept)


def _timing(timings: Sequence[tuple[float, Timing]]) -> Timing | None:
    """Return the timing of all shapes; None if there is none."""
    if not timings:
        return None

    def mean(values: Iterable[float]) -> float:
        pairs = zip(timings, values, strict=True)
        return math.exp(sum(weight * math.log(value) for (weight, _), value in pairs))

    def reach(ends: Iterable[float]) -> float:
        pairs = zip(timings, ends, strict=True)
        return math.sqrt(sum((w * math.log(end / t.speedup)) ** 2 for (w, t), end in pairs))

    kernel_ms = mean(timing.kernel_ms for _, timing in timings)
    reference_ms = mean(timing.reference_ms for _, timing in timings)
    speedup = mean(timing.speedup for _, timing in timings)
    lows = [timing.speedup_low for _, timing in timings]
    highs = [timing.speedup_high for _, timing in timings]
    return Timing(
        kernel_ms=kernel_ms,
        reference_ms=reference_ms,
        speedup=speedup,
        speedup_low=speedup * math.exp(-reach(lows)) if min(lows) > 0 else 0.0,
        speedup_high=speedup * math.exp(reach(highs)) if min(highs) > 0 else 0.0,
        samples=sum(timing.samples for _, timing in timings),
        baseline="+".join(sorted({timing.baseline for _, timing in timings})),
    )


def _added(stages: Sequence[Stages]) -> Stages | None:
    if not stages:
        return None
    return Stages(
        **{
            field.name: sum(getattr(each, field.name) for each in stages)
            for field in dataclasses.fields(Stages)
        }
    )
