"""Times one or several correct kernels against the reference in interleaved windows.

Contract:
- The reference runs in a process of the same kind as the kernel's, over the same channel, so both
  pay the same overhead; the cost of a window without calls is subtracted.
- A window holds as many calls as fill a few milliseconds, each on inputs never seen before. One
  call of every window, chosen in secret, is verified (every call where the model keeps state).
- A process is halted outside its own windows, so it computes nothing before the clock starts,
  after it stops, or while another side is timed.
- Several kernels of one problem share the reference's windows, and windows of all sides hold the
  same number of calls.
- On a CUDA device, the candidate's process times its calls with CUDA events, and the judge's own
  clock bounds what it reports. A window ends when the judge has read an output back: this waits for
  work that the candidate did not wait for. The overhead of a window is known from the reference's
  windows. Where the two clocks disagree, the judge's counts.
- On the CPU, pairs of windows that waited for other programs are measured again; a kernel without
  enough pairs that did not wait stays untimed.
- Several kernels are compared by their own windows, and timed on a busy host all the same. These
  windows are longer, so that short calls outweigh a window's start.

Not covered:
- running one window, drawing its values, verifying its outputs: `kernelgym.judge.timing.windows`;
- statistics: `kernelgym.judge.timing.speedup`;
- which windows waited, and what the interval then holds: `kernelgym.judge.timing.host`.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.session.session import CandidateSession
from kernelgym.judge.tensors import tensors_of
from kernelgym.judge.timing import host, speedup
from kernelgym.judge.timing.speedup import WindowPair
from kernelgym.judge.timing.windows import TimingWindows, Untimed
from kernelgym.types import Finding, Severity, Status, Timing
from kernelgym.verdict import CLOCK_MISMATCH, UNCONFIRMED_SPEED

_MIN_PAIRS = 3  # pairs of windows before a timing may end because its time is up
_CLEAN_WINDOWS = 9
_AS_ALONE = 1.003
_SETTLING_ROUNDS = 3
_ASKED_AGAIN = 0.05  # chance before each round; one round is always asked
_ASKED_MORE = 2
_ASKING_S = 0.5  # time after the last round in which windows verify kinds of inputs
_ENOUGH_CALLS = 1.5
_ROUNDS = 3
_SLACK_MS = 0.1
_EAGER_PAIRS = 4
_SLOWED, _SLOWED_ON_CPU = 1.02, 1.1  # times on a CPU are noisier
# Length of the windows of several kernels on the CPU, in windows of a single one. A window takes
# about 0.5 ms more than an empty one, and its first call up to 5 ms on a host with other work, as
# the caches hold the others' data: with 4 to 7 calls a window, a gain of 7.6x was measured as 1.6x.
_TURN_WINDOWS = 4.0
_SLOW_REFERENCE = 10.0  # times slower than the kernels: its windows would take most of the time
# A search's start may be 30 times slower than the best kernel, and its windows on a GPU would take
# most of a round. If a kernel is over 8 times slower than the fastest side, windows hold fewer
# calls, but at least a third as many.
_SLOW_KERNEL, _FEWER_CALLS = 8.0, 3.0

_Rounds = list[tuple[WindowPair, ...]]  # rounds of windows, each with one pair a kernel


@dataclass(frozen=True, slots=True)
class Measurement:
    """A timing, and findings made while it was measured."""

    timing: Timing
    findings: tuple[Finding, ...] = ()
    disputed: bool = False
    """Whether the kernel's own clock was rejected, and the judge's counts instead."""
    quiet: bool = True
    """Whether other programs left the processors to the windows; if not, the interval holds every
    pair."""
    beside_ms: float = 0.0
    """Median time of the reference's calls beside the kernel, discarded windows included; 0.0 on a
    GPU."""


class Stopwatch:
    """Times one or several constructed, correct kernels.

    Args:
        runs: The kernels' processes, and their one reference, which draws inputs and verifies
            outputs. With several kernels it keeps no state.
        baseline: The reference's own process, constructed.
    """

    def __init__(self, runs: Sequence[LiveRun], baseline: CandidateSession) -> None:
        self._kernels = [run.session for run in runs]
        self._protocol = self._kernels[0].protocol
        self._on_device = self._kernels[0].device.type == "cuda"
        self._in_turns = len(runs) > 1
        self._windows = TimingWindows(runs, baseline)
        self._sides = (baseline, *self._kernels)
        self._load: host.HostLoad | None = None
        self._eager_costs: list[float] = []
        self._secret = random.SystemRandom()
        self._first: _Rounds = []
        self._asked: _Rounds = []  # whose inputs were written between the calls
        self._threads = [0 for _ in runs]
        # A kernel that names another process's memory as its output would take no time.
        for kernel in self._kernels:
            others = (side for side in (baseline, *self._kernels) if side is not kernel)
            kernel.buffers.distrust([side.buffers for side in others])

    def lay_out(self) -> None:
        """Run the first, uncounted windows while others may use the device.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If a kernel fails, or an output differs.
            JudgeError: If the reference's process fails.
        """
        if self._on_device:
            self._windows.reserve(1)
            self._first = [self._windows.pairs()]

    def measure(self) -> list[Measurement]:
        """Run interleaved windows until every speedup's interval is narrow enough.

        Returns:
            Each kernel's measurement.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If a kernel fails, or an output differs, while it is timed.
            JudgeError: If the reference's process fails.
        """
        captured, begun = self._settle()
        self._threads = [kernel.channel.threads() for kernel in self._kernels]
        if not self._on_device:
            self._warm_up()
            self._load = host.HostLoad(self._own_s)
            rounds = self._run_rounds([])
            return [self._on_cpu(n, [r[n] for r in rounds]) for n in range(len(self._kernels))]
        for _ in range(_ROUNDS):
            rounds = self._run_rounds(begun)
            found = [
                self._judged(number, [each[number] for each in rounds], captured)
                for number in range(len(self._kernels))
            ]
            if not any(measured is None or measured.disputed for measured in found):
                break  # noise goes away when measured again; a falsified clock stays false
            begun = []
        if complaint := self._hastened(rounds, captured):
            finding = Finding(UNCONFIRMED_SPEED, complaint, Severity.SOFT)
            raise Untimed(complaint, (finding,))
        measurements = []
        for number, measured in enumerate(found):
            if measured is None:
                message = "the device was busy with the kernel's work while its process stood still"
                raise Rejected(
                    Status.RUNTIME_ERROR, f"while it was timed: {message}", kernel=number
                )
            measurements.append(measured)
        return measurements

    def graph_kernels(self, number: int) -> tuple[dict[str, Any], int]:
        """Return the kernels of a captured graph, by its process's report, and its number of calls.

        Args:
            number: Index of the kernel.
        """
        return self._windows.graph_kernels(1 + number)

    def _judged(
        self, number: int, pairs: Sequence[WindowPair], captured: Collection[int]
    ) -> Measurement | None:
        """Return the measurement of a kernel's pairs on a GPU, by the clock that counts.

        Args:
            number: Index of the kernel.
            pairs: Its pairs of windows.
            captured: The sides whose calls are captured in CUDA graphs.

        Returns:
            None if the kernel's work kept the device busy while its process was halted.
        """
        calls, eager = self._windows.calls, 0 in captured and 1 + number not in captured
        if speedup.is_occupied(pairs):
            return None
        costs = self._eager_costs if eager else speedup.window_costs(pairs, calls)
        bounds = speedup.outside_bounds(pairs, costs, calls)
        complaint = speedup.disbelief(pairs, bounds, costs, _SLACK_MS, calls)
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
        findings += self._new_threads(number)
        times = [(pair.reference_ms, pair.kernel_ms) for pair in pairs]
        timing = speedup.summarise(times, self._protocol.device_between_process)
        if self._in_turns:
            timing = replace(timing, turn_ms=timing.kernel_ms)
        return Measurement(timing, tuple(findings), bool(complaint))

    def _on_cpu(self, number: int, pairs: Sequence[WindowPair]) -> Measurement:
        """Return the measurement of a kernel's pairs on the CPU."""
        findings, sifted = self._new_threads(number), self._sifted(pairs)
        if (found := host.finding(sifted)) is not None:
            findings.append(found)
        if not sifted.tells_time and self._in_turns:
            sifted = replace(sifted, kept=sifted.taken)
        elif not sifted.tells_time:
            raise Untimed("other programs used the processors", tuple(findings))
        timing = host.timing_of(sifted, self._protocol.between_process)
        if self._in_turns:
            timing = replace(timing, turn_ms=speedup.turn_ms(pairs))
        beside_ms = statistics.median(pair.reference_ms for pair in pairs)
        return Measurement(
            timing, tuple(findings), quiet=sifted.host == "quiet", beside_ms=beside_ms
        )

    def _warm_up(self) -> None:
        for _ in range(self._protocol.warmup_pairs):
            self._windows.pairs()

    def _have_enough(self, rounds: _Rounds) -> bool:
        """Return True if no kernel needs more windows."""
        if self._on_device or not self._in_turns:
            return all(map(self._has_enough, zip(*rounds, strict=True)))
        # Kernels in turns are compared with the first one, not with the reference.
        ratios = [
            [math.log(pairs[0].kernel_run_ms / pairs[number].kernel_run_ms) for pairs in rounds]
            for number in range(1, len(self._kernels))
        ]
        # Windows are four times as long as a single kernel's (`_TURN_WINDOWS`), and beside another
        # program each round of short kernels takes 0.2 s.
        most = self._protocol.max_pairs // 2
        return len(rounds) >= most or all(speedup.enough(each, self._protocol) for each in ratios)

    def _has_enough(self, pairs: Sequence[WindowPair]) -> bool:
        """Return True if a kernel's timing needs no more pairs."""
        protocol, stop_at = self._protocol, self._protocol
        if self._on_device:
            width, least = protocol.device_relative_width, protocol.device_min_pairs
            stop_at = replace(protocol, relative_width=width, min_pairs=least)
        sifted = self._sifted(pairs)
        ratios = [math.log(pair.reference_ms / pair.kernel_ms) for pair in sifted.kept]
        if sifted.host != "busy" and speedup.enough(ratios, stop_at):
            return True
        if sifted.host == "busy" and self._load is not None and self._load.is_early():
            return False  # it is not known yet whether other programs ran
        # Pairs that waited are measured again, up to a third more; on a busy host all of them count
        # towards the most, but a kernel needs some that did not wait.
        counted = len(sifted.taken) if sifted.host == "busy" else len(ratios)
        return counted >= protocol.max_pairs and sifted.tells_time

    def _sifted(self, pairs: Sequence[WindowPair]) -> host.SiftedPairs:
        load = self._load
        return host.sift(pairs) if load is None else host.sift(pairs, load.left_alone)

    def _own_s(self) -> float | None:
        """Return the processor time of this process and all sides' in seconds; None if unknown."""
        times = [side.channel.run_times() for side in self._sides]
        if any(each is None for each in times):
            return None
        return time.process_time() + sum(each.ran_ns for each in times if each is not None) / 1e9

    def _new_threads(self, number: int) -> list[Finding]:
        now, before = self._kernels[number].channel.threads(), self._threads[number]
        if now <= before:
            return []
        message = f"{now - before} threads or processes were started while it was timed"
        return [Finding("threads_while_timed", message, Severity.SOFT)]

    def race(self, rounds: int) -> tuple[float, float]:
        """Run a few windows of a first kernel; return ms per call (reference, kernel).

        Only for two trusted processes: the times that they report are not checked.

        Raises:
            Untimed: If the problem cannot be timed.
            Rejected: If the kernel's side fails, or an output differs.
            JudgeError: If the reference's process fails.
        """
        self._settle()
        self._warm_up()
        run = [self._windows.pairs()[0] for _ in range(rounds)]
        reference_ms = statistics.median(pair.reference_ms for pair in run)
        return reference_ms, statistics.median(pair.kernel_ms for pair in run)

    def _run_rounds(self, begun: _Rounds) -> _Rounds:
        """Run rounds of windows until every kernel has enough pairs, or the time is up."""
        deadline = time.monotonic() + len(self._kernels) * self._protocol.budget_s
        rounds, asks = list(begun), len(begun) + self._secret.randrange(_MIN_PAIRS)
        while not rounds or not self._have_enough(rounds):
            if time.monotonic() > deadline and len(rounds) >= _MIN_PAIRS:
                break
            if len(rounds) == asks or self._secret.random() < _ASKED_AGAIN:
                self._ask()
            rounds.append(self._windows.pairs())
        # A kernel may have changed since it was asked: it can count its calls.
        deadline = time.monotonic() + _ASKING_S
        while self._windows.lacks_kinds():
            self._windows.ask(at_the_end=True)
            if time.monotonic() > deadline:
                break
        return rounds

    def _ask(self) -> None:
        if pairs := self._windows.ask():
            self._asked.append(pairs)

    def _hastened(self, rounds: _Rounds, captured: Collection[int]) -> str:
        """Return what makes a kernel's captured calls faster than a layer's would be, or ''.

        Where it seems so, further windows are asked: the device may have been slow in one.
        """
        copies = len(tensors_of(self._kernels[0].buffers.example[0]))
        complaint = ""
        for number in range(len(self._kernels)):
            if 1 + number not in captured:
                continue
            pairs = [each[number] for each in rounds]
            for again in range(_ASKED_MORE + 1):
                asked = [each[number] for each in self._asked]
                complaint = speedup.hastened(pairs, asked, copies, 0 in captured)
                if not complaint or again == _ASKED_MORE:
                    break
                self._ask()
            if complaint:
                break
        return complaint

    def _settle(self) -> tuple[set[int], _Rounds]:
        """Find the number of calls of a window; capture short calls.

        Returns:
            The sides whose calls are captured; and the rounds that were already run in the final
            form on a device, without the first, which was slow.
        """
        protocol, windows = self._protocol, self._windows
        wanted_ms = protocol.device_window_ms if self._on_device else protocol.window_ms
        if self._in_turns and not self._on_device:
            wanted_ms *= _TURN_WINDOWS
        if not self._first:
            windows.reserve(1)
            self._first = [windows.pairs()]
        run = [*self._first, windows.pairs()]
        single_ms = self._device_ms(run)
        captured = set[int]()
        for _ in range(_SETTLING_ROUNDS):
            calls = windows.fitting(math.ceil(wanted_ms / max(single_ms, 1e-3)))
            if calls <= windows.calls * _ENOUGH_CALLS:
                break
            run = []
            windows.reserve(calls)
            if not self._on_device:
                # A first call takes several times as long as later ones, and the first window on
                # new slots maps their pages. Windows of too few calls would mostly hold the time
                # in which a process wakes up.
                if self._in_turns:
                    windows.pairs()
                single_ms = self._single_ms(windows.pairs())
                continue
            windows.pairs()  # without this, a graph would capture the set-up of a first call
            if single_ms < protocol.graph_below_ms:
                captured = self._capture(calls)
            single_ms = self._device_ms([windows.pairs()])
        return captured, run[1:] if self._on_device else []

    def _single_ms(self, pairs: Sequence[WindowPair]) -> float:
        """Return the milliseconds of a call by which the length of windows on the CPU is chosen."""
        if self._in_turns:
            return min(max(p.kernel_run_ms, p.reference_ms / _SLOW_REFERENCE) for p in pairs)
        return min(pair.shorter_ms for pair in pairs)

    def _device_ms(self, rounds: _Rounds) -> float:
        """Return the milliseconds per call from which the number of calls in a window is computed.

        On the CPU, it decides the number of calls of the first windows only.
        """
        shortest_ms: float = min(pair.shorter_ms for pairs in rounds for pair in pairs)
        if not (self._in_turns and self._on_device):
            return shortest_ms
        kernels = zip(*rounds, strict=True)
        slowest_ms: float = max(min(pair.kernel_ms for pair in pairs) for pairs in kernels)
        return min(max(shortest_ms, slowest_ms / _SLOW_KERNEL), shortest_ms * _FEWER_CALLS)

    def _capture(self, calls: int) -> set[int]:
        """Capture the calls of all sides that can be captured; return these sides."""
        kernels = set(range(1, len(self._kernels) + 1))
        captured = self._windows.capture(kernels)
        willing = captured - {0}
        while willing and (wrong := self._windows.wrong_after_capture(willing)) is not None:
            # A kernel on a stream of its own ran during the capture and is not in the graph.
            willing.discard(wrong)
            self._windows.reserve(calls)
            captured = self._windows.capture(willing) if willing else captured & {0}
        if 0 in captured and willing != kernels:
            # Some kernels' windows stay uncaptured, so their overhead must be taken from
            # uncaptured windows of the reference.
            self._windows.reserve(calls)
            run = [self._windows.pairs()[0] for _ in range(_EAGER_PAIRS)]
            self._eager_costs = speedup.window_costs(run, calls)
            captured = self._windows.capture(willing)
        return captured

    def is_clean(self, measured: Sequence[Measurement], known_ms: float) -> bool:
        """Return True if the kernels did not slow down the reference.

        Args:
            measured: Times of the reference beside the kernels.
            known_ms: The reference's time alone, from an earlier verdict; 0.0 if unknown.
        """
        return self._on_device and all(
            each.timing.reference_ms <= known_ms * _AS_ALONE for each in measured
        )

    def clean(self, measured: Sequence[Measurement]) -> tuple[list[Measurement], float]:
        """Time the reference alone, and correct the speedups if it is faster.

        Work that a kernel left running would slow down the reference and so raise the speedup.

        Args:
            measured: Times beside the kernels, whose processes are gone by now.

        Returns:
            The measurements, with the faster of the reference's two times; and its time alone.
        """
        self._windows.forget_kernels()
        run = [self._windows.of_reference() for _ in range(_CLEAN_WINDOWS)]
        calm = [ms for ms, waited in run if not host.has_waited(waited)]
        alone_ms = statistics.median(calm or [ms for ms, _ in run])
        return [self._beside(each, alone_ms) for each in measured], alone_ms

    def _beside(self, measured: Measurement, alone_ms: float) -> Measurement:
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
