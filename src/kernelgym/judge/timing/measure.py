"""Time a correct kernel against the reference in interleaved windows.

Contract:
- The reference runs in a process of the same kind as the kernel's, over the same channel, so both
  pay the same overhead; the cost of a window without calls is subtracted.
- A window holds as many calls as fill a few milliseconds, each on inputs never seen before. One
  call of every window, chosen in secret, is verified (every call where the model keeps state).
- A process is halted outside its own windows, so it computes nothing before the clock starts,
  after it stops, or while the other side is timed.
- On a CUDA device, the candidate's process times its calls with CUDA events, and the judge's own
  clock bounds what it reports. A window ends when the judge has read an output back: this waits for
  work that the candidate did not wait for. The overhead of a window is known from the reference's
  windows. Where the two clocks disagree, the judge's counts.
- On the CPU, pairs of windows that waited for other programs are measured again.

Not covered:
- running one window, drawing its values, verifying its outputs: `kernelgym.judge.timing.windows`;
- statistics: `kernelgym.judge.timing.speedup`;
- which windows waited, and what the interval then holds: `kernelgym.judge.timing.host`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.session.session import Rejected, Session
from kernelgym.judge.timing import host, speedup
from kernelgym.judge.timing.speedup import Pair
from kernelgym.judge.timing.windows import Untimed, Windows
from kernelgym.types import Finding, Severity, Status, Timing
from kernelgym.verdict import CLOCK_MISMATCH

__all__ = ["MIN_PAIRS", "Measurement", "Stopwatch", "Untimed"]

MIN_PAIRS = 3
"""Pairs of windows that a timing has at least."""
_CLEAN_WINDOWS = 9
_AS_ALONE = 1.003
_SETTLING_ROUNDS = 3
_ENOUGH_CALLS = 1.5
_ROUNDS = 3
_SLACK_MS = 0.1
_EAGER_PAIRS = 4
_SLOWED, _SLOWED_ON_CPU = 1.02, 1.1  # times on a CPU are noisier


@dataclass(frozen=True, slots=True)
class Measurement:
    """A timing, and findings made while it was measured."""

    timing: Timing
    findings: tuple[Finding, ...] = ()
    disputed: bool = False
    """Whether the kernel's own clock was rejected, and the judge's counts instead."""
    quiet: bool = True
    """Whether the host left the processors to the windows; else the interval holds them all."""
    beside_ms: float = 0.0
    """The reference's median beside the kernel, discarded windows included; 0.0 on a GPU."""


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
        self._threads = 0
        # A kernel that names the reference's memory as its output would be right and take no time.
        kernel.buffers.distrust(baseline.buffers)

    def lay_out(self) -> None:
        """Run the first, uncounted windows while others may use the device.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If the kernel fails, or an output differs.
            JudgeError: If the reference's process fails.
        """
        if self._on_device:
            self._windows.reserve(1)
            self._first = [self._windows.pair()]

    def measure(self) -> Measurement:
        """Run interleaved windows until the speedup's interval is narrow enough.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If the kernel fails, or an output differs, while it is timed.
            JudgeError: If the reference's process fails.
        """
        protocol, windows = self._protocol, self._windows
        captured, begun = self.begin()
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
                break  # noise goes away when measured again; a falsified clock stays false
            begun = []
        if self._on_device and occupied:
            message = "the device was busy with the kernel's work while its process stood still"
            raise Rejected(Status.RUNTIME_ERROR, f"while it was timed: {message}")
        findings = []
        if complaint:
            findings.append(Finding(CLOCK_MISMATCH, complaint, Severity.SOFT))
            pairs = [replace(p, kernel_ms=ms) for p, ms in zip(pairs, bounds, strict=True)]
        if eager:
            message = (
                "the kernel's calls cannot be captured in a CUDA graph, so its time includes the "
                "host's work for each call"
            )
            findings.append(Finding("host_bound", message, Severity.INFO))
        if not self._on_device:
            return self.measurement(pairs)
        findings += self._new_threads()
        times = [(pair.reference_ms, pair.kernel_ms) for pair in pairs]
        timing = speedup.summarise(times, protocol.device_between_process)
        return Measurement(timing, tuple(findings), bool(complaint))

    def begin(self) -> tuple[tuple[bool, bool], list[Pair]]:
        """Lay out windows, and run those that do not count.

        Returns:
            As `_settle`.
        """
        begun = self._settle()
        self._threads = self._kernel.channel.threads()
        # On a device, `_settle` has already run windows in their final form.
        for _ in range(0 if self._on_device else self._protocol.warmup_pairs):
            self._windows.pair()
        return begun

    @property
    def calls(self) -> int:
        """How many calls a window holds, once begun."""
        return self._windows.calls

    def lay_out_again(self) -> None:
        """Lay out windows of as many calls anew."""
        self._windows.reserve(self.calls)

    def pair(self) -> Pair:
        """Run one window of the reference and one of the kernel."""
        return self._windows.pair()

    def has_enough(self, pairs: Sequence[Pair]) -> bool:
        """Return True if a timing needs no more pairs."""
        protocol, stop_at = self._protocol, self._protocol
        if self._on_device:
            width, least = protocol.device_relative_width, protocol.device_min_pairs
            stop_at = replace(protocol, relative_width=width, min_pairs=least)
        sifted = host.sift(pairs)
        ratios = [math.log(pair.reference_ms / pair.kernel_ms) for pair in sifted.kept]
        if sifted.host != "busy" and speedup.enough(ratios, stop_at):
            return True
        # Pairs that waited are measured again; `sift` discards a third at the most.
        return len(ratios) >= protocol.max_pairs

    def measurement(self, pairs: Sequence[Pair]) -> Measurement:
        """Return what pairs on the CPU come to."""
        findings, sifted = self._new_threads(), host.sift(pairs)
        if (found := host.finding(sifted)) is not None:
            findings.append(found)
        timing = host.timing_of(sifted, self._protocol.between_process)
        beside_ms = statistics.median(pair.reference_ms for pair in pairs)
        return Measurement(
            timing, tuple(findings), quiet=sifted.host == "quiet", beside_ms=beside_ms
        )

    def _new_threads(self) -> list[Finding]:
        if (now := self._kernel.channel.threads()) <= self._threads:
            return []
        message = f"{now - self._threads} threads or processes were started while it was timed"
        return [Finding("threads_while_timed", message, Severity.SOFT)]

    def race(self, pairs: int) -> tuple[float, float]:
        """Run a few windows; return ms per call (reference, kernel).

        Only for two trusted processes: the times that they report are not checked.

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
        deadline = time.monotonic() + self._protocol.budget_s
        pairs = list(begun)
        while not self.has_enough(pairs):
            if time.monotonic() > deadline and len(pairs) >= MIN_PAIRS:
                break
            pairs.append(self._windows.pair())
        return pairs

    def _settle(self) -> tuple[tuple[bool, bool], list[Pair]]:
        """Find the number of calls of a window; capture short calls.

        Returns:
            Whether the reference's and the kernel's calls are captured; and the pairs that were
            already run in the final form on a device, without the first, which was slow.
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
            windows.pair()  # without this, a graph would capture the set-up of a first call
            if single_ms < protocol.graph_below_ms:
                captured = self._capture(calls)
            single_ms = windows.pair().shorter_ms
        return captured, run[1:] if self._on_device else []

    def _capture(self, calls: int) -> tuple[bool, bool]:
        captured = self._windows.capture()
        if captured[1] and not self._windows.holds_what_it_captured():
            # A kernel on a stream of its own ran during the capture and is not in the graph.
            captured = captured[0], False
            self._windows.reserve(calls)
        if captured == (True, False):
            # The kernel's windows stay uncaptured, so their overhead must be taken from uncaptured
            # windows of the reference.
            self._windows.reserve(calls)
            run = [self._windows.pair() for _ in range(_EAGER_PAIRS)]
            self._eager_costs = speedup.window_costs(run, calls)
            captured = self._windows.capture(kernel_too=False)
        return captured

    def is_clean(self, measured: Measurement, known_ms: float) -> bool:
        """Return True if the kernel did not slow down the reference.

        Args:
            measured: Times of the reference beside the kernel.
            known_ms: The reference's time alone, from an earlier verdict; 0.0 if unknown.
        """
        return self._on_device and measured.timing.reference_ms <= known_ms * _AS_ALONE

    def clean(self, measured: Measurement) -> tuple[Measurement, float]:
        """Time the reference alone, and correct the speedup if it is faster.

        Work that the kernel left running would slow down the reference and so raise the speedup.

        Args:
            measured: Times beside the kernel, whose process is gone by now.

        Returns:
            The measurement, with the faster of the reference's two times; and its time alone.
        """
        alone_ms = self.reference_alone()
        return self.beside(measured, alone_ms), alone_ms

    def reference_alone(self) -> float:
        """Return the reference's milliseconds a call, without a kernel's process."""
        self._windows.forget_kernel()
        run = [self._windows.of_reference() for _ in range(_CLEAN_WINDOWS)]
        calm = [ms for ms, waited in run if not host.has_waited(waited)]
        return statistics.median(calm or [ms for ms, _ in run])

    def beside(self, measured: Measurement, alone_ms: float) -> Measurement:
        """Return a measurement with the faster of the reference's two times.

        Args:
            measured: Times beside the kernel.
            alone_ms: The reference's time alone.
        """
        slowed = measured.timing.reference_ms / alone_ms
        # A kernel may choose which windows wait: discarding the slow ones must not make its lower
        # end better than all of them would.
        slowed_most = max(slowed, measured.beside_ms / alone_ms)
        if slowed_most <= 1.0:
            return measured
        slower = speedup.slow_down(measured.timing, max(1.0, slowed))
        low = measured.timing.speedup_low / slowed_most
        slower = replace(slower, speedup_low=min(slower.speedup_low, low))
        if not measured.quiet:
            # The host may have slowed the reference and the kernel alike: allow for both.
            slower = replace(slower, speedup_high=measured.timing.speedup_high)
            return replace(measured, timing=slower)
        found = measured.findings
        if slowed > (_SLOWED if self._on_device else _SLOWED_ON_CPU):
            message = f"the reference ran {slowed:.2f} times slower beside the kernel than alone"
            found = (*found, Finding("reference_slowed", message, Severity.SOFT))
        return replace(measured, timing=slower, findings=found)
