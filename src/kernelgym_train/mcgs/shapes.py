"""One verdict for a kernel at all shapes of a task.

`ShapesEvaluator` stands in front of an evaluator. Where a search asks for a verdict on its task's
problem, the kernel is judged at every shape, and the verdicts are put together.

Contract:

- a kernel is correct if it is correct at every shape, the hidden ones included;
- the speedup is the weighted geometric mean of the speedups at the timed shapes. The interval's
  ends take the shapes' errors as independent;
- proposers learn nothing of a shape with the role ``hidden`` or ``both``: a verdict says only
  whether the kernel was correct there, not what went wrong or how long it took. A failure of the
  judge stays a failure of the judge;
- verdicts on other problems are the evaluator's own.

Shapes are judged one after another, until the kernel fails at one. The first verdict builds the
kernel, and the others use that build.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from kernelgym.evaluators.abilities import Duels
from kernelgym.evaluators.base import EvaluatorWrapper
from kernelgym.evaluators.dispatch import Dispatcher
from kernelgym.types import Evaluator, Job, Kernel, Problem, Status, Timing, Verdict
from kernelgym.verdict import HOST_BUSY, Stages

Ability = TypeVar("Ability")

_PAIR = 2  # kernels
_ORDER = ("tune", "both", "hidden")
_AT_ANY = (Status.UNAVAILABLE, Status.COMPILE_ERROR, Status.REJECTED)
"""Statuses that depend on the kernel's text alone, before it runs at a shape."""


@dataclass(frozen=True, slots=True)
class TaskShape:
    """One shape of a task."""

    name: str
    problem: Problem
    weight: float
    """Weight in the geometric mean of speedups; 0 for a shape whose time does not count."""
    role: str
    """Role of the shape: ``tune``, ``hidden`` or ``both``."""

    @property
    def kept(self) -> bool:
        """Whether the shape is hidden from proposers."""
        return self.role != "tune"


class ShapesEvaluator(EvaluatorWrapper):
    """Judges a task's problem at every shape of the task.

    Args:
        evaluator: Judges each shape; it stays open.
        problem: The task's problem, which stands for all shapes.
        shapes: The shapes; the weights add up to 1.
    """

    def __init__(self, evaluator: Evaluator, problem: Problem, shapes: Sequence[TaskShape]) -> None:
        super().__init__(evaluator)
        self._problem = problem
        self._shapes = sorted(shapes, key=lambda shape: _ORDER.index(shape.role))
        self._speedups: dict[str, list[dict[str, float]]] = defaultdict(list)
        self._turns: dict[tuple[str, str], list[dict[str, tuple[float, float]]]] = defaultdict(list)
        self._dispatcher = Dispatcher(
            lambda job, seed, _: self.evaluate(job.problem, job.kernel, seed=seed),
            [""] * self.capabilities.workers,
        )
        self._duels = evaluator.ability(Duels)
        self.last_s = 0.0
        """Seconds that the last verdict took at all shapes, without its build."""

    def ability(self, kind: type[Ability]) -> Ability | None:
        """Return the object for an ability; for `Duels`, only if the inner evaluator has it."""
        if kind is Duels and self._duels is None:
            return None
        return super().ability(kind)

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of the verdict on one kernel at every shape."""
        return self._dispatcher.submit(job, seed)

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Judge one kernel at every shape.

        Args:
            problem: The task's problem; any other is judged by itself.
            kernel: The kernel.
            seed: Seed of the inputs at every shape; drawn by the evaluator if empty.
        """
        if problem != self._problem:
            return self.evaluator.evaluate(problem, kernel, seed=seed)
        verdicts: list[tuple[TaskShape, Verdict]] = []
        for shape in self._shapes:
            verdict = self.evaluator.evaluate(shape.problem, kernel, seed=seed)
            verdicts.append((shape, verdict))
            if not verdict.correct:
                break
        self.last_s = sum(
            verdict.wall_s - (0.0 if verdict.stages is None else verdict.stages.build_s)
            for _, verdict in verdicts
        )
        return self._taken_together(kernel, verdicts)

    def duel_round(
        self, problem: Problem, kernels: Sequence[Kernel], *, seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        """Judge kernels alternately at every shape.

        Returns:
            One verdict per kernel; None if the evaluator has none at one of the shapes, or if a
            kernel is wrong there: full verdicts have to decide.
        """
        assert self._duels is not None
        if problem != self._problem:
            return self._duels.duel_round(problem, kernels, seed=seed)
        rounds: list[tuple[Verdict, ...]] = []
        for shape in self._shapes:
            found = self._duels.duel_round(shape.problem, kernels, seed=seed)
            if found is None or not all(verdict.correct for verdict in found):
                return None
            rounds.append(found)
        if len(kernels) == _PAIR:
            self._keep_times(kernels, rounds)
        return tuple(
            self._taken_together(kernel, list(zip(self._shapes, verdicts, strict=True)))
            for kernel, verdicts in zip(kernels, zip(*rounds, strict=True), strict=True)
        )

    def _keep_times(self, kernels: Sequence[Kernel], rounds: Sequence[tuple[Verdict, ...]]) -> None:
        """Keep the times of two kernels that ran alternately, by shape, in both orders."""
        for first, second in ((0, 1), (1, 0)):
            times = {
                shape.name: (one.turn_ms, other.turn_ms)
                for shape, verdicts in zip(self._shapes, rounds, strict=True)
                if (one := verdicts[first].timing) and (other := verdicts[second].timing)
                if one.turn_ms and other.turn_ms
            }
            self._turns[kernels[first].digest, kernels[second].digest].append(times)

    def shown_times(self, first: Kernel, second: Kernel) -> dict[str, tuple[float, float]]:
        """Return the times (ms) of two kernels in their last comparison; no hidden shapes."""
        last = self._turns[first.digest, second.digest][-1:]
        kept = {shape.name for shape in self._shapes if shape.kept}
        return {name: pair for each in last for name, pair in each.items() if name not in kept}

    def _taken_together(
        self, kernel: Kernel, verdicts: Sequence[tuple[TaskShape, Verdict]]
    ) -> Verdict:
        """Combine the verdicts at all shapes into one, and keep the speedups by shape."""
        made = together(verdicts)
        if made.timing is not None:
            found = {s.name: v.timing.speedup for s, v in verdicts if v.timing is not None}
            self._speedups[kernel.digest].append(found)
        return made

    def last(self, kernel: Kernel, rounds: int) -> Mapping[str, float]:
        """Return a kernel's speedup over the reference by shape.

        Args:
            kernel: A kernel that was judged here.
            rounds: Verdicts to take the geometric mean of, the last ones.
        """
        return _means(self._speedups[kernel.digest][-rounds:])

    def gains(self, first: Kernel, second: Kernel, rounds: int) -> Mapping[str, float]:
        """Return the second kernel's speedup over the first by shape, from their last rounds.

        It is that of their own times in those rounds that timed them alternately; without
        such a round, it is that of their speedups over the reference.

        Args:
            first: A kernel that was judged here.
            second: A kernel that was judged in the same rounds.
            rounds: Number of rounds.
        """
        found = self._turns[first.digest, second.digest][-rounds:]
        turns = [{name: one / other for name, (one, other) in each.items()} for each in found]
        if any(turns):
            return _means([each for each in turns if each])
        before, after = self.last(first, rounds), self.last(second, rounds)
        return {name: after[name] / before[name] for name in after if name in before}


def times_by_shape(
    evaluator: object,
    problem: Problem,
    kernels: tuple[Kernel, Kernel],
    verdicts: tuple[Verdict, Verdict],
) -> dict[str, tuple[float, float]]:
    """Return the times (ms) of two kernels that ran alternately, by shape; no hidden shapes.

    Args:
        evaluator: The evaluator that judged the round.
        problem: The task's problem, whose name stands for the only shape of a task without a spec.
        kernels: Both kernels.
        verdicts: Their verdicts in the round.
    """
    if isinstance(evaluator, ShapesEvaluator):
        return evaluator.shown_times(*kernels)
    one, other = (verdict.timing for verdict in verdicts)
    if one is None or other is None or not one.turn_ms or not other.turn_ms:
        return {}
    return {problem.name or problem.id: (one.turn_ms, other.turn_ms)}


def together(verdicts: Sequence[tuple[TaskShape, Verdict]]) -> Verdict:
    """Return one verdict that combines the verdicts at several shapes.

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


def _means(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the geometric mean over rounds by name."""
    return {
        name: math.exp(sum(math.log(each[name]) for each in rounds) / len(rounds))
        for name in (rounds[0] if rounds else {})
    }


def _bare(verdict: Verdict) -> Verdict:
    """Return a correct verdict reduced to its trials and provenance, without timing or messages."""
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
        turn_ms=mean(turns) if min(turns := [timing.turn_ms for _, timing in timings]) else 0.0,
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
