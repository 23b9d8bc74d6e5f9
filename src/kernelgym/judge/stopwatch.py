"""Time a correct kernel against the reference: interleaved windows, fresh values, our clock.

The reference runs in a process of the same kind as the kernel's, over the same channel, so that
whatever the channel costs falls on both; the cost of a window without calls is subtracted. A
window holds as many calls as fill about two milliseconds, each on inputs never seen before. One
call of every window, chosen in secret, is verified (every call where the model keeps state).
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

__all__ = ["measure"]

_MAX_CALLS = 64
_MAX_SLOT_BYTES = 256 << 20
_NULL_WINDOWS = 7


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
        Rejected: If the kernel fails, or an output differs, while it is timed.
        JudgeError: If the reference's process fails.
    """
    protocol = kernel.protocol
    try:
        baseline.load(source, "Model")
        baseline.construct(reference, seeds)
    except Rejected as end:
        raise JudgeError(f"the reference cannot be timed: {end}") from None
    clock = _Clock(kernel, baseline, reference, seeds)
    clock.reserve(1)
    single_ms = min(min(clock.pair()) for _ in range(2))
    clock.reserve(max(1, min(_MAX_CALLS, math.ceil(protocol.window_ms / max(single_ms, 1e-3)))))
    deadline = time.monotonic() + protocol.budget_s
    for _ in range(protocol.warmup_pairs):
        clock.pair()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < protocol.max_pairs:
        pairs.append(clock.pair())
        if timing.enough([math.log(a / b) for a, b in pairs], protocol):
            break
        if time.monotonic() > deadline and len(pairs) >= 3:
            break
    return timing.summarise(pairs)


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
        inputs = self._reference.inputs(self._seeds.derive("timing-shape"))
        expected = self._reference.expect(inputs, 0)
        tensors = [*tensors_of(inputs), *tensors_of(expected.output)]
        size = sum(t.numel() * t.element_size() for t in tensors)
        self._calls = max(1, min(calls, _MAX_SLOT_BYTES // max(1, size)))
        for side in self._sides:
            side.reserve(inputs, expected.output, self._calls)
        # The least of all: taking too much away would make a short kernel look infinitely fast.
        self._null_ms = min(
            side.run([], [], timed=True)[0] for side in self._sides for _ in range(_NULL_WINDOWS)
        )

    def pair(self) -> tuple[float, float]:
        """Run one window of each side on the same fresh inputs; ms per call of each."""
        batches, forward_seeds = [], []
        for _ in range(self._calls):
            self._drawn += 1
            batches.append(self._reference.inputs(self._seeds.derive("timing", self._drawn)))
            forward_seeds.append(self._seeds.derive("timing-forward", self._drawn))
        times = [0.0, 0.0]
        results: list[Any] = []
        first = self._secret.randrange(2)
        for which in (first, 1 - first):
            window_ms, found = self._run(which, batches, forward_seeds)
            times[which] = max(window_ms - self._null_ms, window_ms * 0.1) / self._calls
            if which == 1:
                results = found
        self._verify(batches, forward_seeds, results)
        return times[0], times[1]

    def _run(self, which: int, batches: Any, seeds: list[int]) -> tuple[float, list[Any]]:
        try:
            return self._sides[which].run(batches, seeds, timed=True)
        except Rejected as end:
            if which == 0:
                raise JudgeError(f"the reference cannot be timed: {end}") from None
            raise Rejected(end.status, f"while it was timed: {end}", end.log) from None

    def _verify(self, batches: Any, forward_seeds: list[int], results: list[Any]) -> None:
        chosen = self._secret.randrange(len(batches))
        for index, inputs in enumerate(batches):
            if index != chosen and not self._reference.stateful:
                continue
            expected = self._reference.expect(inputs, forward_seeds[index])
            found = self._sides[1].compare(index, inputs, results[index], expected)
            if not found.passed:
                raise Rejected(Status.WRONG, f"while it was timed: {found.message}")
