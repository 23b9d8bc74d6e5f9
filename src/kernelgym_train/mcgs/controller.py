"""The controller: chooses, has judged, and confirms what is better.

Contract:

- every decision is an event, written before it counts: a proposal before it is judged, a verdict
  before the graph knows it. What a kill leaves unjudged is judged first when the search goes on;
- results are taken in in the order in which kernels were dispatched, so that equal verdicts give
  equal searches, whichever worker finishes first; unless the search is asked to take each as it
  comes, so that no worker waits for a slower one;
- a proposal whose state is known costs nothing and is never judged again;
- only a duel changes the incumbent. The leader by single verdicts, whose intervals are wide, is
  compared with it once it has led for some evaluations, and the best few are at the end;
- a stop (a limit, Ctrl-C) ends dispatching; what was dispatched is waited for, and the end follows
  (`kernelgym_train.mcgs.finishing`), with fewer comparisons after Ctrl-C;
- under a limit of time, a duel begins only if the last one and the check fit in after it.

Does not write a best: that is the end's business.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kernelgym import AwaitedEvaluator, Kernel, Problem
from kernelgym.evaluators.duel import Duel
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.building import Judged, Judging, judge_s
from kernelgym_train.mcgs.events import Event, EventLog
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.progress import Progress, plain_variant, value_of
from kernelgym_train.mcgs.proposing import Proposer, source_of
from kernelgym_train.mcgs.selection import Surroundings
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.state import plain_state
from kernelgym_train.mcgs.task import Task
from kernelgym_train.mcgs.together import Together
from kernelgym_train.mcgs.variant import Variant, state_key

__all__ = ["SAME_CODE", "Controller", "Duelling"]

SAME_CODE = "same_code"
"""What an evaluation came to whose machine code is another state's."""
_LEADS_FOR = 6  # evaluations; a duel takes six verdicts at least
_CONTESTANTS = 3
_LEAST_ROUNDS = 3  # of a duel
_LAST_ROUNDS = 6  # of the last one: three tell little of a kernel whose times differ by a tenth
_MOST_ROUNDS = 6
_REDUCING_SHARE = 0.2  # of a limit of time, at most, for comparisons without each step
_STATE_EVERY = 10  # evaluations
_REPEATS = 1000  # proposals of known states in a row, after which the space counts as exhausted


class Duelling(Protocol):
    """Compares two kernels; see `kernelgym.duel`."""

    def __call__(
        self,
        evaluator: Evaluator,
        problem: Problem,
        first: Kernel,
        second: Kernel,
        *,
        width: float = 0.02,
        most: int = 12,
        seed: str = "",
    ) -> Duel:
        """Return which of two kernels is faster."""


class Controller:
    """A search from its first evaluation to the last comparison.

    Args:
        task: What is searched.
        evaluator: Judges the kernels; it must time them.
        proposer: Proposes variants.
        progress: The search as it stands.
        log: Its log, open.
        folder: Its folder.
        context: Key of what times depend on.
        algo: Name of an algorithm.
        budget: The limits.
        seed: Of the search's own random numbers.
        workers: Kernels judged at the same time.
        deterministic: Whether results are taken in in the order of dispatch.
        root_noise: See `kernelgym_train.mcgs.selection.Surroundings`.
        duel: Compares two kernels.
        say: Is told a line for the reader at the terminal.
        together: Whether states that are likely to be judged are built together.
        watch: Is given each event once it counts.
        clock: Returns seconds.
    """

    def __init__(
        self,
        task: Task,
        evaluator: Evaluator,
        proposer: Proposer,
        progress: Progress,
        log: EventLog,
        folder: SearchFolder,
        *,
        context: str,
        algo: str,
        budget: Budget,
        seed: int,
        workers: int,
        deterministic: bool,
        root_noise: float,
        duel: Duelling,
        say: Callable[[str], None],
        together: bool = True,
        watch: Callable[[Event], None] = lambda event: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._task, self._evaluator, self.progress = task, evaluator, progress
        self._log, self._folder, self._context = log, folder, context
        self._select, self._budget, self._workers = ALGORITHMS[algo], budget, workers
        self._around = Surroundings(
            *(progress.graph, progress.variants, proposer, seed, progress.history),
            progress.experience,
            root_noise,
        )
        self._deterministic = deterministic
        self._artifacts: Callable[[Kernel], Mapping[str, bytes]] | None
        self._artifacts = getattr(evaluator, "artifacts", None)
        self._together = Together(self._around) if together else None
        self._duel, self._say, self._watch, self._clock = duel, say, watch, clock
        self._began = clock() - progress.seconds
        self._stop = threading.Event()
        self._by_shape: dict[tuple[str, str], Mapping[str, float]] = {}

    @property
    def seconds(self) -> float:
        """For how long the search has run."""
        return self._clock() - self._began

    def go_on(self, budget: Budget) -> None:
        """Take other limits; time since the last event does not count."""
        self._budget = budget
        self._began = self._clock() - self.progress.seconds

    def stop(self) -> None:
        """Dispatch nothing any more."""
        self._stop.set()

    def record(self, name: str, fields: Mapping[str, Any]) -> None:
        """Write an event, and take it in."""
        event = self._log.append(self.seconds, name, fields)
        self.progress.take(event)
        self._watch(event)

    async def run(self, *, contests: bool = True) -> None:
        """Evaluate until a limit is met, then compare the best few.

        Args:
            contests: Whether they are compared; a search that will go on need not.
        """
        async with AwaitedEvaluator(self._evaluator, most=1, batches=self._workers) as awaited:
            running: deque[tuple[str, asyncio.Task[Judged]]] = deque()
            judge = Judging(awaited, self._task.problem, self.progress, self._together, self._clock)

            def begin(key: str) -> None:
                running.append((key, asyncio.create_task(judge.begin(key))))

            for key in self.progress.open:  # dispatched before a kill
                begin(key)
            try:
                while not self.progress.stopped:
                    reason = ""
                    while len(running) < self._workers and not (reason := self._reason_to_stop()):
                        chosen = self._dispatch()
                        if chosen is None:
                            break
                        begin(chosen)
                    if not running:
                        why = reason or "space exhausted"
                        limits = dataclasses.asdict(self._budget)
                        self.record("stopped", {"reason": why, "limits": limits})
                        break
                    at = 0 if self._deterministic else await _first_done(running)
                    key, judging = running[at]
                    del running[at]
                    judged = await judging
                    judge.taken(key)
                    twin = self.progress.twin(key, judged.build)
                    if twin is not None and not self._contradicts(judged, twin):
                        self._take_in_twin(key, twin, judged)
                        continue
                    if judged.verdict is None or not judged.verdict.valid:
                        # The judge failed, on this state or its twin: no fault of the kernel's.
                        judged = await judge.insist(key)
                    # One code that was correct once and then not stays the first verdict's.
                    self._take_in(key, judged, "" if twin is not None else judged.build)
                    led, since = self.progress.led_since
                    if self.progress.evaluations - since >= _LEADS_FOR:
                        if self.progress.challenger() == led and not self._reason_to_stop():
                            if self.may_challenge():
                                await self._challenge(led)
            finally:
                for _, judging in running:
                    judging.cancel()
            while contests and self.progress.contests < (
                1 if self._stop.is_set() else _CONTESTANTS
            ):
                challenger = self.progress.challenger()
                if challenger is None or not self.may_challenge():
                    break
                await self._challenge(challenger)
            if contests and self.progress.contests < _CONTESTANTS and self.progress.challenger():
                self.cut_short()

    def cut_short(self) -> None:
        """Record what Ctrl-C left out, for a search that goes on."""
        if self._stop.is_set() and self.progress.stopped != "interrupted":
            limits = dataclasses.asdict(self._budget)
            self.record("stopped", {"reason": "interrupted", "limits": limits})

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit; infinity where there is none."""
        return self._budget.seconds - self.seconds if self._budget.seconds else math.inf

    @property
    def end_s(self) -> float:
        """Expected seconds of the last comparison and check."""
        return self._duel_s(_LAST_ROUNDS) + self._best_s

    @property
    def reserve_s(self) -> float:
        """Seconds set aside for the end: `end_s`, and comparisons without each step."""
        leader = self.progress.challenger() or self.progress.incumbent
        steps = len(self.progress.variants[leader].applied)
        reducing = 2 * _LEAST_ROUNDS * self._best_s * steps
        return self.end_s + min(reducing, _REDUCING_SHARE * self._budget.seconds)

    def may_reduce(self) -> bool:
        """Return True if another comparison leaves time for the end."""
        each = 2 * _LEAST_ROUNDS * self._best_s
        return not self._stop.is_set() and self.seconds_left >= self.end_s + each

    @property
    def _best_s(self) -> float:
        """Expected seconds of one verdict on the best."""
        leader = self.progress.challenger() or self.progress.incumbent
        return self.progress.expected_wall_s(leader)

    def rounds_left(self, most: int, keep: float = 0.0) -> int:
        """Return how many rounds of a duel time allows: 3 to `most`.

        Args:
            most: Rounds where time has no limit.
            keep: Seconds to leave for what follows, beside one verdict on the best.
        """
        if self._stop.is_set():  # the caller waits for the end
            return min(most, _MOST_ROUNDS)
        left = self.seconds_left - keep - self._best_s
        if left == math.inf:
            return most
        each = max(self.progress.start_wall_s + self._best_s, 1e-9)
        return max(_LEAST_ROUNDS, int(min(most, left / each)))

    def _duel_s(self, rounds: int) -> float:
        """Expected seconds of a duel of the best with the start."""
        return rounds * (self.progress.start_wall_s + self._best_s)

    def may_challenge(self) -> bool:
        """Return True if a duel leaves time for the end."""
        return self.seconds_left >= self._duel_s(_LEAST_ROUNDS) + self.reserve_s

    def _reason_to_stop(self) -> str:
        if self._stop.is_set():
            return "interrupted"
        if self.progress.evaluations + len(self.progress.open) >= self._budget.builds:
            return "budget_builds"
        if self.seconds_left < self.reserve_s:
            return "seconds"
        return self._early()

    def _early(self) -> str:
        """Return why nothing more is expected; empty if something is."""
        progress, budget = self.progress, self._budget
        if progress.floor_share >= budget.floor_share:
            return "floor_share"
        # Two verdicts on the start lie sqrt(2) sigma apart on average.
        least = max(math.log1p(budget.min_pred_gain), 3.0 * progress.noise / math.sqrt(2.0))
        if budget.patience and progress.since_gain(least) >= budget.patience:
            return "patience"
        return ""

    def _dispatch(self) -> str | None:
        """Choose a new state; None if none is left for now."""
        progress = self.progress
        for _ in range(_REPEATS):
            choice = self._select(self._around)
            if choice is None:
                return None
            key = state_key(choice.proposal.variant)
            fields: dict[str, Any] = {
                "key": key,
                "node": choice.node,
                "move": choice.move,
                "attempt": choice.attempt,
            }
            if progress.graph.knows(key):
                self.record("repeated", fields)
                continue
            variant, risk = choice.proposal.variant, choice.proposal.risk
            rules = source_of(self._around.proposer)
            self._folder.write_variant(key, variant, self._task.start, self._context, risk)
            fields |= {
                "links": [list(link) for link in choice.links],
                "scores": [[name, round(score, 6)] for name, score in choice.scores],
                "variant": plain_variant(variant),
                "risk": risk,
                "prior_source": "+".join((rules, *progress.experience.source(choice.move))),
            }
            self.record("proposed", fields)
            return key
        return None

    def _contradicts(self, judged: Judged, twin: str) -> bool:
        """Return True if a state failed, and its twin did not."""
        verdict = judged.verdict
        failed = verdict is not None and verdict.valid and not verdict.correct
        return failed and twin in self.progress.graph.nodes

    def _take_in_twin(self, key: str, twin: str, judged: Judged) -> None:
        progress, verdict = self.progress, judged.verdict
        node = progress.graph.nodes.get(twin)
        if verdict is not None:
            self._folder.write_verdict(key, verdict)
        self.record(
            "judged",
            {
                "key": key,
                "twin": twin,
                "build": judged.build,
                "status": SAME_CODE,
                "value": None if node is None else node.value,
                "wall_s": 0.0 if verdict is None else judge_s(verdict),
                "build_s": judged.build_s,
                "message": f"compiled to the machine code of {twin}"
                + ("" if node is not None else ", which failed"),
            },
        )
        self._tell(key, f"as {twin[:8]}")

    def _take_in(self, key: str, judged: Judged, build: str) -> None:
        progress, verdict = self.progress, judged.verdict
        assert verdict is not None
        value = value_of(verdict, progress.start_speedup)
        self._folder.write_verdict(key, verdict)
        if self._artifacts is not None:  # none of a state that was built with others
            self._folder.write_built(key, self._artifacts(progress.variants[key].kernel()))
        self.record(
            "judged",
            {
                "key": key,
                "build": build if verdict.valid else "",
                "status": verdict.status.value,
                "value": value,
                "speedup": verdict.speedup,
                "speedup_low": verdict.speedup_low,
                "floor_share": 0.0 if verdict.timing is None else verdict.timing.floor_share,
                "wall_s": judge_s(verdict),
                "build_s": judged.build_s,
                "message": verdict.message[:300],
            },
        )
        self._tell(
            key, verdict.status.value if value is None else f"{_factor(value)} over the start"
        )

    def _tell(self, key: str, said: str) -> None:
        progress = self.progress
        if progress.evaluations % _STATE_EVERY == 0:
            self._folder.write_state(plain_state(progress))
        step = ", ".join(f"{s.move} ({s.choice})" for s in progress.variants[key].applied)
        self._say(f"{progress.evaluations:4d}  {self.seconds:6.0f} s  {said:>24}  {step}")

    def compare(
        self,
        name: str,
        first: str,
        second: str,
        most: int,
        *,
        variant: Variant | None = None,
        more: Callable[[Duel], Mapping[str, Any]] = lambda found: {},
    ) -> Duel:
        """Compare two states, and record it.

        Args:
            name: Of the event.
            first: Key of one state.
            second: Key of the other.
            most: Rounds at most.
            variant: The second state, if the search does not know it.
            more: Returns more fields of the event.
        """
        began = self._clock()
        one = self.progress.variants[first].kernel()
        other = (variant or self.progress.variants[second]).kernel()
        found = self._duel(self._evaluator, self._task.problem, one, other, most=most)
        fields = {
            "first": first,
            "second": second,
            "ratio": found.ratio,
            "low": found.low,
            "high": found.high,
            "rounds": found.rounds,
            "decided": found.decided,
            "took_s": round(self._clock() - began, 3),
        }
        if isinstance(self._evaluator, ShapesEvaluator):
            # Not in the log, which proposers may read: some shapes are kept from them.
            before, after = (self._evaluator.last(kernel, found.rounds) for kernel in (one, other))
            gains = {shape: after[shape] / before[shape] for shape in after if shape in before}
            if first != self.progress.start:
                past = self.by_shape(name, first)
                gains = {shape: gains[shape] * past[shape] for shape in gains if shape in past}
            self._by_shape[name, second] = gains
        self.record(name, {**fields, **more(found)})
        return found

    def by_shape(self, name: str, key: str) -> Mapping[str, float]:
        """Return speedups over the start by shape, from this process's duels."""
        return self._by_shape.get((name, key), {})

    async def _challenge(self, key: str) -> None:
        """Compare a node with the incumbent."""
        most = self.rounds_left(_MOST_ROUNDS, keep=self.reserve_s)
        found = await asyncio.to_thread(self.compare, "duel", self.progress.incumbent, key, most)
        won = "confirmed" if self.progress.incumbent == key else "not confirmed"
        self._say(
            f"      {self.seconds:6.0f} s  {won}: {found.ratio:.3g}x the best before "
            f"({found.low:.3g} to {found.high:.3g}, {found.rounds} rounds)"
        )


async def _first_done(running: Sequence[tuple[str, asyncio.Task[Judged]]]) -> int:
    """Wait for a result; return the first one's place."""
    tasks = [judging for _, judging in running]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return next(place for place, judging in enumerate(tasks) if judging.done())


def _factor(value: float) -> str:
    return f"{math.exp(value):.3g}x"
