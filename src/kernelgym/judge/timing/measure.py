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
import statistics
import time
from dataclasses import dataclass, replace

from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.session.session import Rejected, Session
from kernelgym.judge.timing import speedup
from kernelgym.judge.timing.speedup import Pair
from kernelgym.judge.timing.windows import Untimed, Windows
from kernelgym.types import Finding, Severity, Status, Timing

__all__ = ["CLOCK_MISMATCH", "Measurement", "Stopwatch", "Untimed"]

CLOCK_MISMATCH = "clock_mismatch"
"""Code of the finding that a kernel's own clock was not believed."""

_MIN_PAIRS = 3
_CLEAN_WINDOWS = 9
_AS_ALONE = 1.003
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
    disputed: bool = False
    """Whether the kernel's own clock was not believed, and this side's counts instead."""


class Stopwatch:
    """Times one constructed, correct kernel.

    Args:
        run: The kernel's process, and the reference, which draws inputs and verifies outputs.
        baseline: The reference's own process, constructed.
    """

    def __init__(self, run: LiveRun, baseline: Session) -> None:
        kernel = run.session
        self._kernel, self._protocol = kernel, kernel.protocol
        self._on_device = kernel.device.type == "cuda"
        self._windows = Windows(run, baseline)
        self._eager_costs: list[float] = []
        self._first: list[Pair] = []
        kernel.buffers.distrust(baseline.buffers)  # whose outputs are right

    def lay_out(self) -> None:
        """Run the first windows on a device before one has it alone: their times do not count.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If the kernel fails, or an output differs.
            JudgeError: If the reference's process fails.
        """
        if self._on_device:
            self._windows.reserve(1)
            self._first = [self._windows.pair()]

    def measure(self) -> Measurement:
        """Run interleaved windows of both sides until the speedup is known well enough.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If the kernel fails, or an output differs, while it is timed.
            JudgeError: If the reference's process fails.
        """
        protocol, windows = self._protocol, self._windows
        captured, begun = self._settle()
        threads = self._kernel.channel.threads()
        # On a device, windows have been run in their final form by now.
        for _ in range(0 if self._on_device else protocol.warmup_pairs):
            windows.pair()
        eager = captured[0] and not captured[1]
        for _ in range(_ROUNDS):
            pairs, complaint = self._run_pairs(begun), ""
            if not self._on_device:
                break
            costs = self._eager_costs if eager else speedup.window_costs(pairs, windows.calls)
            bounds = speedup.outside_bounds(pairs, costs, windows.calls)
            complaint = speedup.disbelief(pairs, bounds, costs, _SLACK_MS, windows.calls)
            occupied = speedup.is_occupied(pairs)
            if not complaint and not occupied:
                break  # a machine's hiccup does not come back; a process that lies does
            begun = []
        if self._on_device and occupied:
            message = "the device was busy with its work while its process stood still"
            raise Rejected(Status.RUNTIME_ERROR, f"while it was timed: {message}")
        findings = []
        if complaint:
            findings.append(Finding(CLOCK_MISMATCH, complaint, Severity.SOFT))
            pairs = [replace(p, kernel_ms=ms) for p, ms in zip(pairs, bounds, strict=True)]
        if eager:
            message = "its calls cannot be captured in a CUDA graph: the host's time is part of its"
            findings.append(Finding("host_bound", message, Severity.INFO))
        if (now := self._kernel.channel.threads()) > threads:
            message = f"{now - threads} threads or processes were started while it was timed"
            findings.append(Finding("threads_while_timed", message, Severity.SOFT))
        times = [(pair.reference_ms, pair.kernel_ms) for pair in pairs]
        between = protocol.device_between_process if self._on_device else protocol.between_process
        return Measurement(speedup.summarise(times, between), tuple(findings), bool(complaint))

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

    def _run_pairs(self, begun: list[Pair]) -> list[Pair]:
        protocol = self._protocol
        stop_at = protocol
        if self._on_device:
            width, least = protocol.device_relative_width, protocol.device_min_pairs
            stop_at = replace(protocol, relative_width=width, min_pairs=least)
        deadline = time.monotonic() + protocol.budget_s
        pairs = list(begun)
        while len(pairs) < protocol.max_pairs:
            pairs.append(self._windows.pair())
            if speedup.enough([math.log(p.reference_ms / p.kernel_ms) for p in pairs], stop_at):
                break
            if time.monotonic() > deadline and len(pairs) >= _MIN_PAIRS:
                break
        return pairs

    def _settle(self) -> tuple[tuple[bool, bool], list[Pair]]:
        """Find how many calls a window holds, and capture short ones on a device.

        Returns:
            Whether the reference's and the kernel's calls are captured; and pairs that were run on
            a device in the form that windows have by now, but for the first, which was slow.
        """
        protocol, windows = self._protocol, self._windows
        wanted_ms = protocol.device_window_ms if self._on_device else protocol.window_ms
        if not self._first:
            windows.reserve(1)
            self._first = [windows.pair()]
        run = [*self._first, windows.pair()]
        single_ms = min(pair.shorter_ms for pair in run)
        captured = (False, False)
        for _ in range(_SETTLING_ROUNDS):
            calls = windows.fitting(math.ceil(wanted_ms / max(single_ms, 1e-3)))
            if calls <= windows.calls * _ENOUGH_CALLS:
                break
            run = []
            windows.reserve(calls)
            if not self._on_device:
                break
            windows.pair()  # what is set up at a first call must not be captured
            if single_ms < protocol.graph_below_ms:
                captured = self._capture(calls)
            single_ms = windows.pair().shorter_ms
        return captured, run[1:] if self._on_device else []

    def _capture(self, calls: int) -> tuple[bool, bool]:
        captured = self._windows.capture()
        if captured[1] and not self._windows.holds_what_it_captured():
            # Work on another stream than torch's is not in a graph, but done while it is captured.
            captured = captured[0], False
            self._windows.reserve(calls)
        if captured == (True, False):
            # What a window costs beside its calls is then read off the reference's, uncaptured.
            self._windows.reserve(calls)
            run = [self._windows.pair() for _ in range(_EAGER_PAIRS)]
            self._eager_costs = speedup.window_costs(run, calls)
            captured = self._windows.capture(kernel_too=False)
        return captured

    def is_clean(self, measured: Measurement, known_ms: float) -> bool:
        """Say whether the reference ran as fast beside the kernel as it is known to run alone.

        Args:
            measured: The reference beside the kernel.
            known_ms: What it took alone, in an earlier verdict; 0.0 if unknown.
        """
        return self._on_device and measured.timing.reference_ms <= known_ms * _AS_ALONE

    def clean(self, measured: Measurement) -> tuple[Measurement, float]:
        """Make sure that the reference was not slowed down by what the kernel left running.

        Args:
            measured: The reference beside the kernel, whose process is gone.

        Returns:
            The measurement, with the faster time of the reference's; and its time alone.
        """
        self._windows.forget_kernel()
        alone_ms = statistics.median(self._windows.of_reference() for _ in range(_CLEAN_WINDOWS))
        slowed = measured.timing.reference_ms / alone_ms
        if slowed <= 1.0:
            return measured, alone_ms
        found = measured.findings
        if slowed > (_SLOWED if self._on_device else _SLOWED_ON_CPU):
            message = f"the reference ran {slowed:.2f} times slower beside the kernel than alone"
            found = (*found, Finding("reference_slowed", message, Severity.SOFT))
        slower = speedup.slow_down(measured.timing, slowed)
        return replace(measured, timing=slower, findings=found), alone_ms
