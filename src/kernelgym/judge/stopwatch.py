"""Time a correct kernel against the reference: interleaved windows, fresh values, our clock.

The reference runs in a process of the same kind as the kernel's, over the same channel, so that
whatever the channel costs falls on both; the cost of a window without calls is subtracted. A
window holds as many calls as fill a few milliseconds, each on inputs never seen before. One
call of every window, chosen in secret, is verified (every call where the model keeps state).
Outside its own windows a process stands still, so that nothing is computed before the clock
starts, after it stops, or while the other side is timed.

On a CUDA device times come from events that the candidate's process records around its calls, and
this side's clock bounds them: a window ends when this side has read an output back, so that work
which a candidate has not waited for is waited for here, and what a window takes beside its calls
is known from the reference's own windows. Where the two clocks disagree, this side's counts.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge import timing
from kernelgym.judge.reference import Reference, Seeds, tensors_of
from kernelgym.judge.session import Rejected, Session, Window
from kernelgym.judge.timing import Pair
from kernelgym.types import Finding, Severity, Status, Timing

__all__ = ["Measurement", "Stopwatch", "Untimed"]

_MAX_CALLS = 64
_MAX_DEVICE_CALLS = 256
_MAX_SLOT_BYTES = 256 << 20
_NULL_WINDOWS = 7
_MIN_PAIRS = 3
_CLEAN_WINDOWS = 9
_SETTLING_ROUNDS = 3
_ENOUGH_CALLS = 1.5
_ROUNDS = 3
_SLACK_MS = 0.1
_EAGER_PAIRS = 4
_SLOWED, _SLOWED_ON_CPU = 1.02, 1.1  # what a CPU does by itself is noisier


@dataclass(frozen=True, slots=True)
class Measurement:
    """A timing and what was noticed on the way."""

    timing: Timing
    findings: tuple[Finding, ...] = ()


class Untimed(Exception):
    """A correct kernel stays without a timing; says why."""

    def __init__(self, message: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class Stopwatch:
    """Times one constructed, correct kernel.

    Args:
        kernel: Its session.
        baseline: The reference's, constructed.
        reference: Draws inputs and verifies outputs.
        seeds: Randomness of this verdict.
    """

    def __init__(
        self,
        kernel: Session,
        baseline: Session,
        reference: Reference,
        seeds: Seeds,
    ) -> None:
        self._kernel, self._protocol = kernel, kernel.protocol
        self._on_device = kernel.device.type == "cuda"
        self._windows = _Windows(kernel, baseline, reference, seeds)
        self._eager_costs: list[float] = []
        kernel.distrust(baseline)  # whose outputs are right

    def measure(self) -> Measurement:
        """Run interleaved windows of both sides until the speedup is known well enough.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If the kernel fails, or an output differs, while it is timed.
            JudgeError: If the reference's process fails.
        """
        protocol, windows = self._protocol, self._windows
        captured = self._settle()
        threads = self._kernel.threads()
        for _ in range(protocol.warmup_pairs):
            windows.pair()
        eager = captured[0] and not captured[1]
        for _ in range(_ROUNDS):
            pairs, complaint = self._run_pairs(), ""
            if not self._on_device:
                break
            costs = self._eager_costs if eager else timing.window_costs(pairs, windows.calls)
            bounds = timing.outside_bounds(pairs, costs, windows.calls)
            complaint = timing.disbelief(pairs, bounds, costs, _SLACK_MS, windows.calls)
            occupied = timing.is_occupied(pairs)
            if not complaint and not occupied:
                break  # a machine's hiccup does not come back; a process that lies does
        if self._on_device and occupied:
            message = "the device was busy with its work while its process stood still"
            raise Rejected(Status.RUNTIME_ERROR, f"while it was timed: {message}")
        findings = []
        if complaint:
            findings.append(Finding("clock_mismatch", complaint, Severity.SOFT))
            pairs = [replace(p, kernel_ms=ms) for p, ms in zip(pairs, bounds, strict=True)]
        if eager:
            message = "its calls cannot be captured in a CUDA graph: the host's time is part of its"
            findings.append(Finding("host_bound", message, Severity.INFO))
        if (now := self._kernel.threads()) > threads:
            message = f"{now - threads} threads or processes were started while it was timed"
            findings.append(Finding("threads_while_timed", message, Severity.SOFT))
        times = [(pair.reference_ms, pair.kernel_ms) for pair in pairs]
        between = protocol.device_between_process if self._on_device else protocol.between_process
        return Measurement(timing.summarise(times, between), tuple(findings))

    def race(self, pairs: int) -> tuple[float, float]:
        """Run a few windows of both sides; return ms per call of the reference's and the kernel's.

        For two processes that both tell the truth: nothing is made of what they claim.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If the kernel's side fails, or an output differs.
            JudgeError: If the reference's process fails.
        """
        self._settle()
        for _ in range(self._protocol.warmup_pairs):
            self._windows.pair()
        run = [self._windows.pair() for _ in range(pairs)]
        reference_ms = statistics.median(pair.reference_ms for pair in run)
        return reference_ms, statistics.median(pair.kernel_ms for pair in run)

    def _run_pairs(self) -> list[Pair]:
        protocol = self._protocol
        width = protocol.device_relative_width if self._on_device else protocol.relative_width
        stop_at = replace(protocol, relative_width=width)
        deadline = time.monotonic() + protocol.budget_s
        pairs: list[Pair] = []
        while len(pairs) < protocol.max_pairs:
            pairs.append(self._windows.pair())
            if timing.enough([math.log(p.reference_ms / p.kernel_ms) for p in pairs], stop_at):
                break
            if time.monotonic() > deadline and len(pairs) >= _MIN_PAIRS:
                break
        return pairs

    def _settle(self) -> tuple[bool, bool]:
        """Find how many calls a window holds, and capture short ones on a device.

        Returns:
            Whether the reference's and the kernel's calls are captured.
        """
        protocol, windows = self._protocol, self._windows
        wanted_ms = protocol.device_window_ms if self._on_device else protocol.window_ms
        windows.reserve(1)
        single_ms = min(windows.pair().shorter_ms for _ in range(2))
        captured = (False, False)
        for _ in range(_SETTLING_ROUNDS):
            calls = windows.fitting(math.ceil(wanted_ms / max(single_ms, 1e-3)))
            if calls <= windows.calls * _ENOUGH_CALLS:
                break
            windows.reserve(calls)
            if not self._on_device:
                break
            windows.pair()  # what is set up at a first call must not be captured
            if single_ms < protocol.graph_below_ms:
                run = [windows.pair() for _ in range(_EAGER_PAIRS)]
                self._eager_costs = timing.window_costs(run, windows.calls)
                captured = windows.capture()
            single_ms = windows.pair().shorter_ms
        return captured

    def clean(self, measured: Measurement) -> Measurement:
        """Time the reference again, now that the kernel's process is gone.

        What a kernel leaves running would slow the reference down: the faster of both counts.
        """
        self._windows.forget_kernel()
        alone_ms = statistics.median(self._windows.of_reference() for _ in range(_CLEAN_WINDOWS))
        slowed = measured.timing.reference_ms / alone_ms
        if slowed <= 1.0:
            return measured
        found = measured.findings
        if slowed > (_SLOWED if self._on_device else _SLOWED_ON_CPU):
            message = f"the reference ran {slowed:.2f} times slower beside the kernel than alone"
            found = (*found, Finding("reference_slowed", message, Severity.SOFT))
        return Measurement(timing.slow_down(measured.timing, slowed), found)


class _Windows:
    def __init__(
        self, kernel: Session, baseline: Session, reference: Reference, seeds: Seeds
    ) -> None:
        self._sides = (baseline, kernel)
        # Judged calls may be on values that everybody knows; timed ones never are.
        self._reference = reference
        self._seeds = seeds if seeds.secret else Seeds(secrets.token_hex(16))
        self._drawn = 0
        self.calls = 1
        self._on_device = kernel.device.type == "cuda"
        self._null_ms = 0.0
        self._alternating = False
        self._secret = random.SystemRandom()

    def reserve(self, calls: int) -> None:
        """Make room for windows of `calls` calls and measure what empty ones cost."""
        self.calls = calls
        self._alternating = self._too_large_for_two(self._call_bytes())
        for which in range(2):
            self._move_in(which)
        if self._on_device:
            return  # what a window costs beside its calls is read off the reference's
        # The least of all: taking too much away makes a short kernel look infinitely fast.
        self._null_ms = min(
            self._guarded(which, self._sides[which].timed_run, [], [], []).window_ms
            for which in range(2)
            for _ in range(_NULL_WINDOWS)
        )

    def fitting(self, calls: int) -> int:
        """Return how many calls, of so many that are wanted, a window can hold."""
        device, size = self._sides[1].device, self._call_bytes()
        if device.type == "cpu":
            return max(1, min(calls, _MAX_CALLS, _MAX_SLOT_BYTES // size))
        properties = torch.cuda.get_device_properties(device)
        if calls > 1:  # short calls take slots that together exceed the cache by far
            calls = max(calls, int(4 * properties.L2_cache_size / size) + 1)
        room = int(properties.total_memory) // 10 // size
        return max(1, min(calls, _MAX_DEVICE_CALLS, room))

    def _call_bytes(self) -> int:
        tensors = tensors_of(list(self._sides[1].example))
        return max(1, sum(int(t.numel()) * int(t.element_size()) for t in tensors))

    def _too_large_for_two(self, size: int) -> bool:
        device = self._sides[1].device
        if device.type == "cpu":
            return False
        return size > int(torch.cuda.get_device_properties(device).total_memory) // 8

    def _move_in(self, which: int) -> None:
        """Lay out a side's slots; very large ones only while the other side has none."""
        inputs, output = self._sides[1].example
        if self._alternating:
            self._awake(1 - which, self._sides[1 - which].vacate)
        self._awake(which, self._sides[which].reserve, inputs, output, self.calls, True)

    def _awake(self, which: int, ask: Any, *arguments: Any) -> Any:
        """Ask a side for something that it does outside of windows."""
        side = self._sides[which]
        self._guarded(which, side.resume)
        answer = self._guarded(which, ask, *arguments)
        self._guarded(which, side.pause)
        return answer

    def capture(self) -> tuple[bool, bool]:
        """Have both sides capture their calls; says which of them (reference, kernel) could."""
        if self._reference.draws:
            return False, False  # random numbers are seeded from the host, call by call
        could = [bool(self._awake(which, side.capture)) for which, side in enumerate(self._sides)]
        return could[0], could[1]

    def pair(self) -> Pair:
        """Run one window of each side on the same fresh inputs."""
        batches, forward_seeds = self._draw_window()
        first = self._secret.randrange(2)
        run = {w: self._window(w, batches, forward_seeds) for w in (first, 1 - first)}
        (reference_ms, reference), (kernel_ms, kernel) = run[0], run[1]
        return Pair(
            reference_ms,
            kernel_ms,
            reference.window_ms,
            kernel.window_ms,
            reference.layout_ms,
            kernel.layout_ms,
        )

    def forget_kernel(self) -> None:
        """Only the reference runs from now on: the kernel's process is gone."""
        if self._alternating:
            self._alternating = False
            self._move_in(0)

    def of_reference(self) -> float:
        """Run one window of the reference alone; ms per call."""
        return self._window(0, *self._draw_window())[0]

    def _draw_window(self) -> tuple[list[list[Any]], list[int]]:
        batches, forward_seeds = [], []
        for _ in range(self.calls):
            self._drawn += 1
            batches.append(self._draw())
            forward_seeds.append(self._seeds.derive("timing-forward", self._drawn))
        return batches, forward_seeds

    def _window(
        self, which: int, batches: list[list[Any]], forward_seeds: list[int]
    ) -> tuple[float, Window]:
        """Run one window; ms per call, and what was seen of it."""
        if self._alternating:
            self._move_in(which)
        side = self._sides[which]
        keep = [self._secret.randrange(self.calls)]
        if self._reference.stateful:
            keep = list(range(self.calls))
        if not which and not self._on_device:
            keep = []
        window: Window = self._guarded(which, side.timed_run, batches, forward_seeds, keep)
        if which:
            self._verify(batches, forward_seeds, window)
        if self._on_device:
            return max(window.claimed_ms, 1e-6) / self.calls, window
        spent_ms = max(window.window_ms - self._null_ms, window.window_ms * 0.1)
        return spent_ms / self.calls, window

    def _verify(self, batches: list[list[Any]], forward_seeds: list[int], window: Window) -> None:
        for index, outputs in window.kept.items():
            expected = self._reference.expect(batches[index], forward_seeds[index])
            outcome = self._sides[1].compare(
                index, batches[index], outputs, window.results[index], expected
            )
            if not outcome.passed:
                raise Rejected(Status.WRONG, f"while it was timed: {outcome.message}")

    def _draw(self) -> list[Any]:
        """Draw fresh tensors for one call; numbers, which a slot cannot hold, stay as they are."""
        example, _ = self._sides[1].example
        inputs = self._reference.inputs_for_timing(self._seeds.derive("timing", self._drawn))
        if len(inputs) != len(example) or not self._sides[1].alike(inputs):
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
