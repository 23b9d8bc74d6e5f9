"""Run timed windows of the reference and of kernels in alternation; verify outputs.

Contract: all sides of a round of windows make the same calls on the same fresh values, each on its
own copy. One call of every window, chosen in secret, is verified (every call where the model keeps
state). In half of the rounds that call is on another kind of inputs than the problem's own, if the
problem has any: so a kernel that is right only on the problem's own inputs fails while timed. In
every round each kernel's window is paired with the reference's. Kernels follow each other in an
order that turns from round to round, so a drift of the machine favours none.

Not covered:
- how many windows run, and of how many calls: `kernelgym.judge.timing.measure`;
- what the times mean: `kernelgym.judge.timing.speedup`. Only the cost of a window without calls
  is subtracted here, and from the times of several kernels that of copying outputs to their slots;
  both only on the CPU.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from kernelgym.judge.device.memory_shares import holds_all
from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.memory.slots import TimedWindow
from kernelgym.judge.out_of_memory import our_failure
from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.session.session import AS_LAYER, CandidateSession
from kernelgym.judge.tensors import bytes_of, tensors_of
from kernelgym.judge.timing import host
from kernelgym.judge.timing.speedup import WindowPair
from kernelgym.types import Finding, Status

_MAX_CALLS = 64
_MAX_DEVICE_CALLS = 256
_MAX_SLOT_BYTES = 256 << 20
_NULL_WINDOWS = 7
_HALF = 2
_UNTIMED = 2  # windows that a side runs after its buffers were allocated, before it is timed
_KINDS_AT_ONCE, _CALLS_PER_KIND, _CALLS_PER_KIND_AT_THE_END = 8, 16, 4
_NO_OTHERS: Mapping[int, str] = MappingProxyType({})


class Untimed(Exception):
    """A correct kernel cannot be timed; the message gives the reason."""

    def __init__(self, message: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class TimingWindows:
    """Runs windows of one or several kernels and of their baseline.

    Sides are numbered: 0 is the baseline, and 1 the first kernel.

    Args:
        runs: The kernels' processes, and their one reference, which draws inputs and verifies
            outputs. With several kernels it keeps no state.
        baseline: The reference's own process, constructed.
    """

    def __init__(self, runs: Sequence[LiveRun], baseline: CandidateSession) -> None:
        self._sides = (baseline, *(run.session for run in runs))
        # Judged calls may use public values. A kernel could hold the outputs for those ready, so
        # timed calls always use secret ones.
        self._reference = runs[0].reference
        seeds = self._reference.seeds
        self._seeds = seeds if seeds.secret else Seeds(secrets.token_hex(16))
        self._drawn = 0
        self._rounds = 0
        self.calls = 0
        """Number of calls in a window; 0 before `reserve`."""
        self._on_device = runs[0].session.device.type == "cuda"
        self._as_layer = runs[0].session.as_layer
        self._null_ms = self._null_wait_ms = self._copy_ms = 0.0
        self._alternating = False
        self._secret = random.SystemRandom()
        self._turns: list[bool] = []
        self._asked_at_the_end = set[str]()  # kinds of inputs verified after the last timed window
        self._captured = set[int]()
        self._change_at = 1  # where parameters change in a captured window that is asked

    def reserve(self, calls: int) -> None:
        """Lay out windows of `calls` calls; on the CPU, time empty ones.

        Raises:
            Untimed: If the device cannot hold the buffers of several kernels and the baseline.
        """
        self.calls, self._captured, self._change_at = calls, set(), 1
        self._alternating = self._too_large_together()
        if self._alternating and len(self._sides) > 2:
            raise Untimed("the device does not hold the calls of all kernels at once")
        for which in range(len(self._sides)):
            self._move_in(which)
        if self._on_device:
            return  # `speedup.window_costs` takes the overhead from the reference's windows
        # The minimum: subtracting too much would make a short kernel look infinitely fast.
        self._null_wait_ms = 0.0
        self._null_ms, self._null_wait_ms = min(
            self._empty_window(which)
            for which in range(len(self._sides))
            for _ in range(_NULL_WINDOWS)
        )
        self._copy_ms = self._sides[1].buffers.copy_ms() if len(self._sides) > 2 else 0.0

    def _empty_window(self, which: int) -> tuple[float, float]:
        """Run a window without calls; return its length and its wait, in milliseconds."""
        window: TimedWindow = self._guarded(which, self._sides[which].timed_run, [], [], [])
        return window.window_ms, (self._waited(window, not which) or 0.0) * window.window_ms

    def fitting(self, calls: int) -> int:
        """Return how many calls a window can hold, if `calls` are wanted."""
        device, size = self._sides[1].device, self._call_bytes()
        if device.type == "cpu":
            return max(1, min(calls, _MAX_CALLS, _MAX_SLOT_BYTES // size))
        properties = torch.cuda.get_device_properties(device)
        if calls > 1:  # slots of 4 times the L2 cache: else short calls would find inputs in it
            calls = max(calls, int(4 * properties.L2_cache_size / size) + 1)
        room = int(properties.total_memory) // (5 * len(self._sides)) // size
        return max(1, min(calls, _MAX_DEVICE_CALLS, room))

    def _call_bytes(self) -> int:
        return max(1, bytes_of(list(self._sides[1].buffers.example)))

    def _too_large_together(self) -> bool:
        """Return True if a device cannot hold all sides' buffers at once."""
        device, (inputs, output) = self._sides[1].device, self._sides[1].buffers.example
        if device.type == "cpu":
            return False
        total = int(torch.cuda.get_device_properties(device).total_memory)
        if self._sides[1].buffers.alone:
            # Memory ran out before, and may have on the judge's side: its processes and those of
            # idle workers hold more than the sizes say.
            total //= _HALF
        return not holds_all(total, bytes_of(inputs), bytes_of(output), len(self._sides) - 1)

    def _move_in(self, which: int) -> None:
        """Lay out a side's slots; if sides alternate, free the other's first."""
        inputs, output = self._sides[1].buffers.example
        if self._alternating:
            self._awake(1 - which, self._sides[1 - which].buffers.vacate)
        self._awake(which, self._sides[which].buffers.reserve, inputs, output, self.calls, True)

    def _awake(self, which: int, ask: Any, *arguments: Any) -> Any:
        """Have a paused side do something outside of windows; pause it again."""
        side = self._sides[which]
        self._guarded(which, side.channel.resume)
        answer = self._guarded(which, ask, *arguments)
        self._guarded(which, side.channel.pause)
        return answer

    def capture(self, kernels: Collection[int]) -> set[int]:
        """Capture calls in CUDA graphs; return the sides whose calls could be captured.

        Args:
            kernels: Sides of the kernels to capture, beside the reference.
        """
        if self._reference.draws:
            return set()  # the host seeds random numbers before each call: no graph can
        if self._alternating:
            return set()  # each turn allocates a side's slots anew, and a graph holds addresses
        self._change_at = 1 + self._secret.randrange(max(1, self.calls // 2))
        # The calls of a stateful model change its state themselves.
        how = self._as_layer, -1 if self._reference.stateful else self._change_at
        captured = {0} if self._awake(0, self._sides[0].capture, False, *how) else set()
        tells = not captured
        captured |= {k for k in kernels if self._awake(k, self._sides[k].capture, tells, *how)}
        self._captured = captured
        return set(captured)

    def graph_kernels(self, which: int) -> tuple[dict[str, Any], int]:
        """Return a side's report on its captured graph: the kernels, and the number of calls."""
        return self._awake(which, self._sides[which].graph_kernels), self.calls

    def wrong_after_capture(self, captured: Collection[int]) -> int | None:
        """Return a captured kernel's side whose graph gives wrong outputs; None without one."""
        try:
            self.pairs()
        except Rejected as end:
            if end.status is Status.WRONG and 1 + end.kernel in captured:
                return 1 + end.kernel
            raise
        return None

    def lacks_kinds(self) -> bool:
        """Return True if `ask` has not verified every kind of inputs at the end of the timing."""
        usable = self._reference.usable_kinds
        return self._as_layer and not self._asked_at_the_end.issuperset(usable)

    def ask(self, at_the_end: bool = False) -> tuple[WindowPair, ...]:
        """Make and verify calls of the kernels as layers of a model.

        A kernel cannot tell these windows from timed ones. It is wrong there if it does not wait
        for the current stream, or relies on what earlier calls left in the outputs' memory, or on
        what it made of parameters: those that are not drawn freely change in the window. Afterwards
        they are as they were, since a graph holds what a kernel made of them before its capture.

        Args:
            at_the_end: Whether the last timed window is over: its times do not count, so that more
                calls are on other kinds of inputs, each of which comes once.

        Returns:
            The kernels' pairs of windows; empty if no window was run.
        """
        if not self._as_layer:
            return ()
        if self._reference.state:
            self._reference.renew_state()
            # In the middle of a window, so that a kernel cannot read parameters once a window.
            # Not with a stateful reference, whose calls before that one are verified, too.
            self._put_state(later=not self._reference.stateful)
        try:
            pairs = self.pairs(True, at_the_end)
        except Rejected as end:
            if end.status is not Status.WRONG:
                raise
            message = f"{end}; {AS_LAYER}"
            raise Rejected(end.status, message, mismatch=end.mismatch, kernel=end.kernel) from None
        if self._reference.state:
            self._reference.undo_renewal()
            self._put_state(later=False)
        return pairs

    def _put_state(self, later: bool) -> None:
        """Give all sides the reference's present state.

        Args:
            later: Whether the kernels get it in the middle of the next window.
        """
        for which, side in enumerate(self._sides):
            self._awake(which, side.put_state, self._reference, later and bool(which))

    def pairs(self, as_layer: bool = False, at_the_end: bool = False) -> tuple[WindowPair, ...]:
        """Run one window of each side on the same fresh inputs; return each kernel's pair.

        Args:
            as_layer: Whether the kernels' calls are made as `Ruleset.as_layer` says; times of
                windows that are not captured mean nothing then.
            at_the_end: Whether these are calls as layers after the last timed window.
        """
        keep, kinds = self._choose_as_layers(at_the_end) if as_layer else self._choose()
        numbers = self._number_calls()
        forward_seeds = self._forward_seeds(numbers)
        first = min(keep)
        if self._reference.stateful:
            keep = list(range(self.calls))
        run, batches = {}, []
        if not self._alternating:
            batches = self._draw_window(numbers, kinds)
        for which in self._order():
            if self._alternating:
                self._take_turn(which)
                batches = self._draw_window(numbers, kinds)
            late = first if as_layer and (which or 0 in self._captured) else None
            run[which] = self._window(which, batches, forward_seeds, keep, len(kinds), late)
            if self._alternating:  # verify now: the other side's turn frees these slots
                if which:
                    self._verify(which, batches, forward_seeds, kinds, run[which][1], {}, {})
                run[which][1].kept.clear()
                batches = []
        (reference_ms, reference), expected = run.pop(0), dict[int, ExpectedOutput]()
        pairs = []
        for which, (kernel_ms, kernel) in sorted(run.items()):
            waited = self._waited(kernel, trusted=False)
            if not self._alternating:
                beside = reference.kept
                self._verify(which, batches, forward_seeds, kinds, kernel, beside, expected)
            pairs.append(
                WindowPair(
                    reference_ms,
                    kernel_ms,
                    reference.window_ms,
                    kernel.window_ms,
                    reference.layout_ms,
                    kernel.layout_ms,
                    self._longer(self._waited(reference, trusted=True), waited),
                    host.has_waited(waited),
                    0.0 if self._on_device else self._run_ms(kernel, waited or 0.0),
                )
            )
        return tuple(pairs)

    def _order(self) -> list[int]:
        """Return the sides in the order of the next round; the reference's place is secret."""
        kernels = list(range(1, len(self._sides)))
        turn = self._rounds % len(kernels)
        self._rounds += 1
        order = [*kernels[turn:], *kernels[:turn]]
        order.insert(self._secret.randrange(len(order) + 1), 0)
        return order

    def _waited(self, window: TimedWindow, trusted: bool) -> float | None:
        """Return the share of a window that it waited for other programs; None if unknown."""
        if self._on_device:
            return 0.0
        return host.waited_share(
            *window.run_times, window.window_ms, trusted=trusted, empty_ms=self._null_wait_ms
        )

    def _longer(self, one: float | None, other: float | None) -> float | None:
        """Return the larger of two shares; None if one is unknown."""
        return None if one is None or other is None else max(one, other)

    def _call_ms(self, window: TimedWindow, waited: float = 0.0) -> float:
        """Return the time per call of a window on the CPU, without a share that it waited."""
        spent_ms = window.window_ms * (1.0 - waited)
        # A window that waited all the time would otherwise make its kernel infinitely fast.
        return max(spent_ms - self._null_ms, spent_ms * 0.1, 1e-6) / self.calls

    def _run_ms(self, window: TimedWindow, waited: float) -> float:
        """Return the time per call as `_call_ms` does, without the copy of the output to its slot.

        No user of a kernel makes that copy, and it takes as long as a kernel that writes its output
        once. At most nine tenths of the time are taken off, as the copy was measured elsewhere.
        """
        call_ms = self._call_ms(window, waited)
        return max(call_ms - self._copy_ms, call_ms * 0.1)

    def _take_turn(self, which: int) -> None:
        """Lay out one side alone, and run untimed windows of it.

        The memory of this side's outputs was freed with its slots, and the driver takes longer to
        allocate it again than many a kernel runs: the untimed windows absorb that. They use other
        values than the timed window that follows. On an H200, after one untimed window, 18 of
        39 timed windows of KernelBench L1/36 took up to 4.1 ms instead of 3.7; after two, 3 of 21.
        """
        self._move_in(which)
        # With state, an extra call would leave the two sides' models in different states.
        for _ in range(0 if self._reference.stateful else _UNTIMED):
            numbers = self._number_calls()
            self._window(which, self._draw_window(numbers), self._forward_seeds(numbers), [])

    def _choose_as_layers(self, at_the_end: bool) -> tuple[list[int], dict[int, str]]:
        """Choose several verified calls, on the problem's own inputs and on other kinds.

        A kernel that is right only on some kinds, once it is timed, is wrong here. What comes
        before the first call, or before parameters change, shows.
        """
        usable = self._reference.usable_kinds
        if at_the_end:
            usable = tuple(kind for kind in usable if kind not in self._asked_at_the_end)
        # Few of the timed calls: on some kinds they may take longer.
        share = self.calls // (_CALLS_PER_KIND_AT_THE_END if at_the_end else _CALLS_PER_KIND)
        count = min(_KINDS_AT_ONCE, max(1, share), len(usable))
        calls = range(min(self._change_at, self.calls - 1), self.calls)
        places = self._secret.sample(calls, min(len(calls), 1 + count))
        kinds = dict(zip(places[1:] or places, self._secret.sample(usable, count), strict=False))
        if at_the_end:
            self._asked_at_the_end.update(kinds.values())
        return places, kinds

    def _choose(self) -> tuple[list[int], dict[int, str]]:
        """Choose the next verified call, and calls on other kinds of inputs.

        Where the problem tolerates other kinds of inputs, one of every two pairs is verified on
        such a kind, in a secret order. A window of several calls always holds one call on another
        kind, so that a kernel that recognises it cannot tell whether that call is verified.
        """
        telltales = self._reference.telltales
        if not telltales:
            return [self._secret.randrange(self.calls)], {}
        if not self._turns:
            self._turns = [True, False]
            self._secret.shuffle(self._turns)
        on_other, kind = self._turns.pop(), self._secret.choice(telltales)
        if self.calls == 1:
            return [0], {0: kind} if on_other else {}
        other, own = self._secret.sample(range(self.calls), 2)
        return [other if on_other else own], {other: kind}

    def forget_kernels(self) -> None:
        """Run only the reference from now on: the kernels' processes are gone."""
        if self._alternating:
            self._alternating = False
            self._move_in(0)

    def of_reference(self) -> tuple[float, float | None]:
        """Run one window of the reference alone.

        Returns:
            Milliseconds per call; and the share of the window that it waited for other programs,
            on the CPU, None if unknown.
        """
        numbers, keep = self._number_calls(), [self._secret.randrange(self.calls)]
        batches = self._draw_window(numbers)
        ms, window = self._window(0, batches, self._forward_seeds(numbers), keep)
        return ms, self._waited(window, trusted=True)

    def _number_calls(self) -> range:
        """Return the numbers of a window's calls, which seed their inputs; none is used twice."""
        first, self._drawn = self._drawn + 1, self._drawn + self.calls
        return range(first, self._drawn + 1)

    def _forward_seeds(self, numbers: range) -> list[int]:
        return [self._seeds.derive("timing-forward", number) for number in numbers]

    def _draw_window(
        self, numbers: range, kinds: Mapping[int, str] = _NO_OTHERS
    ) -> list[list[Any]]:
        return [self._draw(number, kinds.get(index, GIVEN)) for index, number in enumerate(numbers)]

    def _window(
        self,
        which: int,
        batches: list[list[Any]],
        forward_seeds: list[int],
        keep: list[int],
        others: int = 0,
        late: int | None = None,
    ) -> tuple[float, TimedWindow]:
        """Run one window; return ms per call, and the window."""
        side = self._sides[which]
        if not which and not self._on_device:
            keep = []
        window: TimedWindow = self._guarded(
            which, side.timed_run, batches, forward_seeds, keep, others, late
        )
        if self._on_device:
            return max(window.claimed_ms, 1e-6) / self.calls, window
        return self._call_ms(window), window

    def _verify(
        self,
        which: int,
        batches: list[list[Any]],
        forward_seeds: list[int],
        kinds: Mapping[int, str],
        window: TimedWindow,
        beside: dict[int, list[torch.Tensor]],
        known: dict[int, ExpectedOutput],
    ) -> None:
        """Compare the outputs that were kept from a kernel's window.

        Args:
            which: The kernel's side.
            batches: Inputs of the calls.
            forward_seeds: Seeds set before the calls.
            kinds: Kind of inputs by call, for calls on other kinds than the problem's own.
            window: The kernel's window.
            beside: Outputs of the reference's process in its own window on the same inputs. A
                kernel's output near one of them is right; for any other output the worker
                computes the reference again and makes the whole comparison.
            known: Output of the worker's reference for the last call, by its index; filled here.

        Raises:
            Rejected: If an output is wrong.
        """
        kernel, reference = self._sides[which], self._reference
        for index, outputs in window.kept.items():
            inputs, result = batches[index], window.results[index]
            kind = kinds.get(index, GIVEN)
            around = kernel.around.get(kind)
            if around is not None and index in beside:
                if kernel.resembles(index, inputs, outputs, result, beside[index], around):
                    continue
            if index not in known:
                known.clear()  # one call's outputs at a time: a window may hold very many
                known[index] = reference.expect(inputs, forward_seeds[index], kind)
            outcome = kernel.compare(index, inputs, outputs, result, known[index])
            if not outcome.passed:
                # Where the reference is ill-conditioned, a difference is no fault of the kernel.
                if kind != GIVEN and not reference.bears(known[index]):
                    continue
                where = "" if kind == GIVEN else f"on {kind} inputs, "
                message = f"while it was timed: {where}{outcome.message}"
                mismatch = outcome.mismatch
                raise Rejected(Status.WRONG, message, mismatch=mismatch, kernel=which - 1)
            kernel.learn(reference, known[index])

    def _draw(self, number: int, kind: str) -> list[Any]:
        """Draw a call's tensors; other arguments, which slots cannot hold, stay."""
        example, _ = self._sides[1].buffers.example
        seed = self._seeds.derive("timing", number)
        inputs = self._reference.inputs_for_timing(seed, kind)
        if len(inputs) != len(example) or not self._sides[1].buffers.alike(inputs):
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
                raise our_failure(f"the reference cannot be timed: {end}") from None
            message, kernel = f"while it was timed: {end}", which - 1
            raise Rejected(
                end.status, message, end.log, failure=end.failure, kernel=kernel
            ) from None
