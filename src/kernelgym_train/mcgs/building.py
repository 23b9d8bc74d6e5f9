"""`StateJudge`: judges states, and recognises states that compile to the same machine code.

Two texts may give the same machine code: a loop that the compiler unrolls anyway, a flag that
changes nothing. Such states are twins: one node of the graph, with one measurement. The machine
code of states that are built together is not compared, since one library holds all of them.

If the evaluator times kernels alternately, a state is timed with the start: the reference's time
may change between verdicts by more than the kernels differ. Such a round checks outputs as a full
verdict does, but gathers no evidence that the custom kernels did the work. So only a state that
rules made from the start (which itself has a full verdict) is judged by the round alone, and
`kernelgym_train.mcgs.proving` gets a full verdict on it before it can be the best. Other states,
and those that the round does not decide, get a full verdict first.

Contract: whether a state is a twin depends only on builds and on the order of dispatch, so
that results do not depend on which kernel is judged sooner. Where the evaluator can build without
judging, a twin is found before it is timed, if a verdict takes long enough for that to pay. A
kernel that the ruleset refuses by its text is `rejected` without the judge, as in an episode,
unless the ruleset refuses the start as well.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgym import AwaitedEvaluator, Kernel, Problem
from kernelgym.episodes.episode import refusal
from kernelgym.evaluators.abilities import Builds, Duels
from kernelgym.evaluators.duel import time_ratio
from kernelgym.types import Build, Verdict
from kernelgym.verdict import HOST_BUSY
from kernelgym_train.mcgs.build_groups import BuildGroups, BuildMember
from kernelgym_train.mcgs.shapes import times_by_shape
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.variant import launch_key
from kernelgym_train.mcgs.writing.asks import is_written

_ROUNDS = 2  # attempts at timing a state beside the start, one of them before a full verdict
_WORTH_S = 1.0  # seconds of a verdict without its build; a build alone takes about 0.2 s to load


def build_key(launch: str, build: Build | None) -> str:
    """Return the key that states with the same machine code and launch share.

    Args:
        launch: Result of `kernelgym_train.mcgs.variant.launch_key`.
        build: Output of the compilers. If it has no digest of the machine code, the key is empty.
    """
    return "" if build is None or not build.digest else f"{launch[:16]}-{build.digest}"


def build_s(verdict: Verdict) -> float:
    """Return the seconds that a verdict spent on the build."""
    return round(verdict.stages.build_s if verdict.stages is not None else 0.0, 3)


def judge_s(verdict: Verdict) -> float:
    """Return the seconds that a verdict took without its build."""
    return round(max(0.0, verdict.wall_s - build_s(verdict)), 3)


def queue_s(verdict: Verdict) -> float:
    """Return the seconds that the judge waited for the device or its memory."""
    return verdict.stages.queue_s if verdict.stages is not None else 0.0


def is_busy(verdicts: Iterable[Verdict]) -> bool:
    """Return True if the judge found the host busy in one of several verdicts."""
    return any(found.code == HOST_BUSY for each in verdicts for found in each.findings)


def value_of(verdict: Verdict, start_speedup: float) -> float | None:
    """Return ln of the speedup over the start; None if a verdict has no time.

    Args:
        verdict: Verdict on a state.
        start_speedup: Speedup of the start over the reference; 0.0 if it has no time.
    """
    if not verdict.correct or verdict.timing is None or not start_speedup:
        return None
    return math.log(verdict.timing.speedup / start_speedup)


def turn_logs(pairs: Iterable[tuple[Verdict, Verdict]]) -> list[float]:
    """Return ln of the first kernel's time over the second's, for each round that timed both."""
    return [
        math.log(one.timing.turn_ms / other.timing.turn_ms)
        for one, other in pairs
        if one.timing is not None and other.timing is not None
        if one.timing.turn_ms and other.timing.turn_ms
    ]


@dataclass(slots=True)
class JudgedState:
    """Result of judging a state."""

    build: str
    """Key from `build_key`; empty if the machine code is unknown."""
    verdict: Verdict | None = None
    """Verdict; None if the state was built, recognised as a twin and not judged."""
    whole: bool = False
    """Whether the state had a full verdict; False if it was judged only in a round with the
    start."""
    build_s: float = 0.0
    """Seconds of the build, which other states may share."""
    beside: tuple[float, ...] = ()
    """ln of the speedup over the start, one value for each round that timed both alternately; empty
    without rounds."""
    ms: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """(start's, own) milliseconds of a call in the last round with the start, for each shape that
    is not hidden."""
    wall_s: float = 0.0
    """Seconds that the full verdict took without its build; 0 without one."""
    round_s: float = 0.0
    """Seconds that rounds with the start took, without builds and waits for the device."""
    verdicts: int = 0
    """Number of verdicts and of rounds with the start."""
    busy: int = 0
    """Number of verdicts and rounds in which the judge found the host busy."""


class StateJudge:
    """Judges states of one search.

    Args:
        awaited: Evaluator that judges the kernels.
        problem: The problem.
        state: State of the search.
        together: Chooses which states are built together; None if each is built alone.
        rules: Whether the proposer is the rules' own. States with a step by a writer are judged
            whole first all the same.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self,
        awaited: AwaitedEvaluator,
        problem: Problem,
        state: SearchState,
        together: BuildGroups | None = None,
        *,
        rules: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._awaited, self._problem, self._state = awaited, problem, state
        self._together, self._rules, self._clock = together, rules, clock
        self._build_s: dict[str, float] = {}
        builds = awaited.evaluator.ability(Builds)
        self._build = None if builds is None else builds.build
        self._duels = awaited.evaluator.ability(Duels)
        self._start = state.variants[state.start].kernel()
        self._built: dict[str, str] = {}
        self._prepared: dict[str, tuple[Kernel, str]] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._ready: dict[int, bool] = {}
        self._broken: dict[str, int] = {}
        self._screens = self._refusal(state.variants[state.start].kernel()) is None

    def begin(self, key: str) -> Coroutine[Any, Any, JudgedState]:
        """Judge a state that was dispatched, unless it is a twin.

        The kernel's text is parsed before this function returns. The coroutine may run beside a
        comparison, and two threads that parse Python at the same time can fail under Python 3.11.
        """
        variant = self._state.variants[key]
        kernel = variant.kernel()
        self._prepared[key] = kernel, launch_key(variant)
        if self._screens and (refused := self._refusal(kernel)) is not None:
            return _known(JudgedState("", refused))
        if self._together is not None and self._build is not None:
            if (shared := self._together.find(key)) is not None:
                return self._judge_shared(key, shared, self._build)
        return self._judge(key)

    def _refusal(self, kernel: Kernel) -> Verdict | None:
        return refusal(self._problem, kernel, self._awaited.evaluator.capabilities.ruleset)

    async def _judge_shared(
        self,
        key: str,
        shared: BuildMember,
        build: Callable[[Kernel], Build | None],
    ) -> JudgedState:
        """Judge a state in a build shared by many states, or alone if the shared build fails."""
        async with self._locks.setdefault(shared.build, asyncio.Lock()):
            if shared.build not in self._ready:
                made = await self._timed_build(key, build, shared.kernel)
                self._ready[shared.build] = made is not None
        if not self._ready[shared.build]:
            self._broken[key] = shared.build
        else:
            judged = await self._judged(key, shared.kernel)
            verdict = judged.verdict
            if verdict is not None and (verdict.correct or (verdict.valid and verdict.compiled)):
                return judged  # without a build key: the library holds the code of many states
        return await self.insist(key)

    async def _judge(self, key: str) -> JudgedState:
        kernel, launch = self._prepared[key]
        if self._build is not None and self._is_worth_it(key):
            build = build_key(launch, await self._timed_build(key, self._build, kernel))
            self._built[key] = build
            if build and self._has_twin(key, build):
                return JudgedState(build, build_s=round(self._build_s[key], 3))
        return await self.insist(key)

    def taken(self, key: str) -> None:
        """Note that a state has a result: if its shared build failed, later states are built apart.

        Results arrive here in the order of dispatch, so that it does not matter which build ends
        first.
        """
        if self._together is not None and key in self._broken:
            self._together.part(self._broken.pop(key))

    async def insist(self, key: str) -> JudgedState:
        """Judge a state that was begun, even if its machine code equals that of a judged state."""
        kernel, launch = self._prepared[key]
        judged = await self._judged(key, kernel)
        assert judged.verdict is not None
        judged.build = build_key(launch, judged.verdict.build)
        return judged

    async def again(self, key: str) -> JudgedState:
        """Judge a correct state again because it has no time yet."""
        variant = self._state.variants[key]
        self._prepared[key] = variant.kernel(), launch_key(variant)
        return await self.insist(key)

    async def _judged(self, key: str, kernel: Kernel) -> JudgedState:
        """Judge a kernel: by one round with the start if rules made it, else by a full verdict.

        If the round decides nothing, a full verdict follows. A kernel that a full verdict finds
        correct is timed alternately with the start, if the evaluator can. The seconds of the
        state's builds are added.
        """
        judged, rounds = JudgedState(""), _ROUNDS
        if self._duels is not None and self._is_by_rules(key):
            await asyncio.to_thread(self._beside, judged, kernel, self._duels, 1)
            rounds -= 1
        if judged.verdict is None:
            judged.verdict = verdict = await self._awaited.evaluate(self._problem, kernel)
            judged.whole, judged.wall_s = True, judge_s(verdict)
            judged.build_s += build_s(verdict)
            judged.verdicts += 1
            judged.busy += is_busy([verdict])
            if self._duels is not None and verdict.correct:
                await asyncio.to_thread(self._beside, judged, kernel, self._duels, rounds)
        judged.build_s = round(judged.build_s + self._build_s.get(key, 0.0), 3)
        judged.round_s = round(judged.round_s, 3)
        return judged

    def _is_by_rules(self, key: str) -> bool:
        """Return True if rules alone made a state from the start."""
        steps = self._state.variants[key].applied
        return self._rules and not any(is_written(step.move) for step in steps)

    def _beside(self, judged: JudgedState, kernel: Kernel, duels: Duels, rounds: int) -> None:
        """Time a kernel alternately with the start, until a round times it or finds it wrong."""
        began, builds_s, waits_s = self._clock(), 0.0, 0.0
        for _ in range(rounds):
            found = duels.duel_round(self._problem, [self._start, kernel])
            if found is None:
                continue
            start, own = found
            builds_s += build_s(start) + build_s(own)
            waits_s += queue_s(start) + queue_s(own)
            judged.verdicts += 1
            judged.busy += is_busy(found)
            if start.correct and own.valid and not own.correct:
                judged.verdict = own
                break
            if (ratio := time_ratio(start, own)) is not None:
                judged.verdict = judged.verdict or own
                judged.ms = times_by_shape(
                    duels, self._problem, (self._start, kernel), (start, own)
                )
                judged.beside = (math.log(ratio),)
                break
        judged.build_s += builds_s
        # These seconds predict how long a duel's rounds take, which wait for no other round.
        judged.round_s += max(0.0, self._clock() - began - builds_s - waits_s)

    async def _timed_build(
        self, key: str, build: Callable[[Kernel], Build | None], kernel: Kernel
    ) -> Build | None:
        """Build a kernel without judging it, and count the seconds for the state."""
        began = self._clock()
        try:
            return await asyncio.to_thread(build, kernel)
        finally:
            self._build_s[key] = self._build_s.get(key, 0.0) + self._clock() - began

    def _is_worth_it(self, key: str) -> bool:
        """Return True if the parent's verdict took so long that building before judging pays."""
        parent = self._state.graph.in_flight[key][1]
        return self._state.expected_wall_s(parent) >= _WORTH_S

    def _has_twin(self, key: str, build: str) -> bool:
        """Return True if a state dispatched earlier has the same machine code."""
        if self._state.twin(key, build) is not None:
            return True
        before = self._state.open[: self._state.open.index(key)]
        return any(
            self._built.get(other) == build and not self._state.is_safer(key, other)
            for other in before
        )


async def _known(judged: JudgedState) -> JudgedState:
    return judged
