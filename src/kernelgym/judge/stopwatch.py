"""Time a correct kernel against the reference: interleaved windows, fresh values, our clock.

The reference runs in a process of the same kind as the kernel's, over the same channel, so that
whatever the channel costs falls on both; the cost of a window without calls is subtracted. A
window holds as many calls as fill about two milliseconds, each on inputs never seen before. One
call of every window, chosen in secret, is verified (every call where the model keeps state).
Outside its own windows a process stands still, so that nothing is computed before the clock
starts, after it stops, or while the other side is timed.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.judge import timing
from kernelgym.judge.reference import Reference, Seeds, tensors_of
from kernelgym.judge.session import Rejected, Session
from kernelgym.types import Status, Timing

__all__ = ["Untimed", "measure"]

_MAX_CALLS = 64
_MAX_SLOT_BYTES = 256 << 20
_NULL_WINDOWS = 7
_MIN_PAIRS = 3
_BASELINE_S = 300.0


def measure(
    kernel: Session, baseline: Session, reference: Reference, seeds: Seeds, source: str
) -> Timing:
    """Measure a constructed, correct kernel.

    Args:
        kernel: Its session.
        baseline: A fresh session, which becomes the reference's.
        reference: Draws inputs and verifies outputs.
        seeds: Randomness of this verdict.
        source: The problem's source.

    Raises:
        Untimed: If the problem cannot be timed.
        Rejected: If the kernel fails, or an output differs, while it is timed.
        JudgeError: If the reference's process fails.
    """
    protocol = kernel.protocol
    baseline.grant(_BASELINE_S)
    try:
        baseline.load(source, "Model")
        baseline.await_load()
        baseline.construct(reference, seeds)
    except Rejected as end:
        raise JudgeError(f"the reference cannot be timed: {end}") from None
    clock = _Clock(kernel, baseline, reference, seeds)
    clock.reserve(1)
    single_ms = min(min(clock.pair()) for _ in range(2))
    calls = math.ceil(protocol.window_ms / max(single_ms, 1e-3))
    if calls > 1:
        clock.reserve(calls)
        for _ in range(protocol.warmup_pairs):
            clock.pair()
    deadline = time.monotonic() + protocol.budget_s
    pairs: list[tuple[float, float]] = []
    while len(pairs) < protocol.max_pairs:
        pairs.append(clock.pair())
        if timing.enough([math.log(a / b) for a, b in pairs], protocol):
            break
        if time.monotonic() > deadline and len(pairs) >= _MIN_PAIRS:
            break
    return timing.summarise(pairs)


class Untimed(Exception):
    """This problem cannot be timed; says why. Nobody's fault."""


class _Clock:
    def __init__(
        self, kernel: Session, baseline: Session, reference: Reference, seeds: Seeds
    ) -> None:
        self._sides = (baseline, kernel)
        self._reference, self._seeds = reference, seeds
        self._drawn = 0
        self._calls = 1
        self._null_ms = 0.0
        self._secret = random.SystemRandom()

    def reserve(self, calls: int) -> None:
        """Make room for windows of up to `calls` calls and measure what empty ones cost."""
        inputs, output = self._sides[1].example
        size = sum(t.numel() * t.element_size() for t in tensors_of([inputs, output]))
        self._calls = max(1, min(calls, _MAX_CALLS, _MAX_SLOT_BYTES // max(1, size)))
        for which, side in enumerate(self._sides):
            side.resume()
            self._guarded(which, side.reserve, inputs, output, self._calls)
            side.pause()
        # The least of all: taking too much away would make a short kernel look infinitely fast.
        self._null_ms = min(
            self._guarded(which, side.timed_run, [], [], [])[0]
            for which, side in enumerate(self._sides)
            for _ in range(_NULL_WINDOWS)
        )

    def pair(self) -> tuple[float, float]:
        """Run one window of each side on the same fresh inputs; ms per call of each."""
        batches, forward_seeds = [], []
        for _ in range(self._calls):
            self._drawn += 1
            batches.append(self._draw())
            forward_seeds.append(self._seeds.derive("timing-forward", self._drawn))
        chosen = [self._secret.randrange(self._calls)]
        keep = list(range(self._calls)) if self._reference.stateful else chosen
        times = [0.0, 0.0]
        results: list[Any] = []
        kept: dict[int, Any] = {}
        first = self._secret.randrange(2)
        for which in (first, 1 - first):
            wanted = keep if which else []
            window_ms, found, copies = self._guarded(
                which, self._sides[which].timed_run, batches, forward_seeds, wanted
            )
            times[which] = max(window_ms - self._null_ms, window_ms * 0.1) / self._calls
            if which:
                results, kept = found, copies
        for index in keep:
            expected = self._reference.expect(batches[index], forward_seeds[index])
            outcome = self._sides[1].compare(
                index, batches[index], kept[index], results[index], expected
            )
            if not outcome.passed:
                raise Rejected(Status.WRONG, f"while it was timed: {outcome.message}")
        return times[0], times[1]

    def _draw(self) -> list[Any]:
        """Draw fresh tensors for one call; numbers, which a slot cannot hold, stay as they are."""
        example, _ = self._sides[1].example
        inputs = self._reference.inputs(self._seeds.derive("timing", self._drawn))
        if len(inputs) != len(example) or not self._sides[1].holds(inputs):
            raise Untimed("the shapes of its inputs change from call to call")
        return [
            drawn if tensors_of(drawn) else fixed
            for drawn, fixed in zip(inputs, example, strict=True)
        ]

    def _guarded(self, which: int, ask: Any, *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except Rejected as end:
            if which == 0:
                raise JudgeError(f"the reference cannot be timed: {end}") from None
            raise Rejected(end.status, f"while it was timed: {end}", end.log) from None
