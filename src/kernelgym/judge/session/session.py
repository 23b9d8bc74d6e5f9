"""One candidate seen from the trusted side: call, time, compare.

Contract: a failure on the candidate's side is raised as `Rejected`, with the status it earns.
Inputs are drawn into private tensors, copied to the candidate's slot just before the call, and
compared with the slot afterwards; the reference never reads a slot.

Not covered, but held by a `Session`:
- requests and answers: `kernelgym.judge.session.channel`;
- making the model: `kernelgym.judge.session.model`;
- the memory of calls: `kernelgym.judge.session.call_buffers`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from kernelgym.judge.compare.compare import (
    Comparison,
    Surroundings,
    byte_copy,
    compare,
    near,
    surroundings,
    unchanging,
)
from kernelgym.judge.compare.structure import describe_shape_of, outline
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.inputs.kinds import GIVEN, is_salted
from kernelgym.judge.memory.slots import Slot, Window
from kernelgym.judge.processes.candidate_handle import Candidate
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.reference.reference import Expected, Reference, same_bytes, tensors_of
from kernelgym.judge.session.call_buffers import CallBuffers
from kernelgym.judge.session.channel import Channel, Rejected
from kernelgym.judge.session.launch_count import Tally
from kernelgym.judge.session.model import CandidateModel
from kernelgym.rulesets import Ruleset, TimingProtocol
from kernelgym.types import Finding, Kernel, Severity, Status

__all__ = ["Rejected", "Session", "Slot", "Window"]

_CPU = torch.device("cpu")


class Session:
    """Drives one candidate.

    Args:
        candidate: A fresh process.
        ruleset: The rules.
        build: Builds extensions for the candidate; None where it may ask for none.
        device: Where the candidate's tensors lie.
        device_lock: The lock that the worker may hold meanwhile; None if no other worker needs it.
    """

    def __init__(
        self,
        candidate: Candidate,
        ruleset: Ruleset,
        build: Any,
        device: torch.device = _CPU,
        device_lock: DeviceLock | None = None,
    ) -> None:
        self._ruleset, self.device = ruleset, device
        self.channel = Channel(candidate, ruleset, build, device_lock)
        """Requests to the candidate, and its answers."""
        self.model = CandidateModel(self.channel, ruleset)
        """The candidate's model while it is made."""
        self.buffers = CallBuffers(self.channel, device)
        """Where inputs and outputs of calls lie."""
        self._launched: Any = 0
        self.public: PublicCalls | None = None
        """What is known of calls on values that everybody knows."""
        self.around: dict[str, Surroundings] = {}
        """How near outputs of timed calls must lie to the reference's, by the kind of their inputs:
        as judged calls have told."""
        self.tally = Tally()
        """Launches in calls on the problem's own kind of inputs, judged or timed."""
        self.ended = False
        """Whether the candidate's process and the buffers are gone."""
        self._is_watched = False

    @property
    def protocol(self) -> TimingProtocol:
        """How its ruleset times kernels."""
        return self._ruleset.timing

    def begin_end(self) -> None:
        """Begin to `end`, without waiting for it: on a device that takes the driver long."""
        self.channel.begin_kill()

    def end(self) -> None:
        """Kill the candidate's process, and give its buffers back."""
        self.channel.kill()
        self.buffers.close()
        self.ended = True

    def run(self, batches: list[list[Any]], forward_seeds: list[int]) -> list[Any]:
        """Make one call per batch; return the candidate's descriptions of its outputs."""
        self.buffers.fill(batches, poison=True)
        self.buffers.finish()
        self.channel.post({"op": "go", "seeds": forward_seeds, "timed": False})
        return self._results(self.channel.answer("go"), len(batches))

    def timed_run(
        self,
        batches: list[list[Any]],
        forward_seeds: list[int],
        keep: list[int],
        others: int = 0,
    ) -> Window:
        """Make one call per batch within one window of this side's clock.

        The candidate stands still from one window to the next: values reach its slots while
        none of its threads runs, and once it has answered nothing more is written.

        Args:
            batches: Inputs of the calls.
            forward_seeds: Seeds set before the calls.
            keep: Calls whose outputs are wanted.
            others: How many are on other kinds of inputs than the problem's own, where a kernel may
                see that there is nothing to launch for.
        """
        # Stale outputs are wrong outputs here, since values are fresh: no poison needed.
        self.buffers.finish()
        begun = time.perf_counter()
        self.buffers.fill(batches, poison=False)
        self.buffers.flush_cache()
        self.buffers.finish()
        layout_ms = (time.perf_counter() - begun) * 1e3 if self.buffers.on_device else 0.0
        self.channel.post({"op": "go", "seeds": forward_seeds, "timed": True})
        started = time.perf_counter()
        self.channel.resume()
        answer = self.channel.answer("go")
        results = self._results(answer, len(batches))
        self.tally.add(len(batches) - others, self._launched)
        kept = {}
        if self.buffers.on_device:
            # On a device, reading the outputs is part of the window: what the process has not
            # waited for, in spite of its answer, stands in the way of that.
            kept = {index: self.buffers.read(results[index]) for index in keep}
            self.buffers.finish()
            window_ms = (time.perf_counter() - started) * 1e3
            self.channel.pause()
        else:
            # Until it stands still: a system call that has begun is finished first.
            self.channel.pause()
            window_ms = (time.perf_counter() - started) * 1e3
            kept = {
                index: [byte_copy(view) for view in self.buffers.slots[index].outputs]
                for index in keep
            }
        said = answer.get("device_ms", 0.0)
        claimed_ms = float(said) if type(said) in (int, float) and 0 < said < 1e9 else 0.0
        return Window(window_ms, claimed_ms, layout_ms, results, kept)

    def capture(self, tells: bool = False) -> bool:
        """Turn the reserved calls into a CUDA graph for timed windows; False if it cannot be.

        Args:
            tells: Whether every window's answer tells where its outputs lie, as it does of calls
                that are not captured. That takes longer than short calls do; told once, it is
                known, but what windows cost beside their calls must be alike on both sides.
        """
        self.buffers.captured = None
        self.channel.post({"op": "capture", "tells": tells})
        try:
            self.buffers.captured = self._listed(
                self.channel.answer("go").get("results"), len(self.buffers.slots)
            )
        except Rejected as end:
            if end.status is Status.RUNTIME_ERROR and not self.channel.has_ended():
                return False
            raise
        return True

    def trace(self, mode: str) -> dict[str, Any]:
        """Have calls watched from now on (``record``, ``ablate``, ``off``, or ``end`` for good).

        Returns:
            What was seen since the mode was last set. The candidate may have made it up.
        """
        self._is_watched = mode not in ("off", "end")
        self.channel.post({"op": "trace", "mode": mode})
        seen = self.channel.answer("trace").get("seen")
        return seen if isinstance(seen, dict) else {}

    def _results(self, answer: dict[str, Any], calls: int) -> list[Any]:
        results, self._launched = answer.get("results"), answer.get("launches")
        return self._listed(self.buffers.captured if results is None else results, calls)

    def _listed(self, results: Any, calls: int) -> list[Any]:
        if not isinstance(results, list) or len(results) != calls:
            raise Rejected(Status.RUNTIME_ERROR, "the kernel's process sent no readable results")
        return results

    def call(self, reference: Reference, index: int) -> Comparison:
        """Make and judge one untimed call on fresh inputs."""
        kind, seeds = reference.kind_of(index), reference.seeds
        # Calls past the planned ones look for evidence: a failure there is hoped for.
        locate = index < len(reference.plan)
        outcome, expected = self._attempt(
            reference, seeds.trial(index), seeds.forward(index), kind, locate
        )
        if not outcome.passed and kind != GIVEN:
            if reference.bears(expected):
                outcome = replace(outcome, message=f"on {kind} inputs, {outcome.message}")
            else:
                # With these weights the reference itself is at its limits there: nobody's fault.
                seed, kind = seeds.derive("trial-again", index), GIVEN
                outcome, _ = self._attempt(reference, seed, seeds.forward(index), GIVEN, locate)
        if outcome.mismatch is None:
            return outcome
        place = replace(outcome.mismatch, call=index + 1, calls=len(reference.plan), inputs=kind)
        return replace(outcome, mismatch=place)

    def _attempt(
        self, reference: Reference, seed: int, forward_seed: int, kind: str, locate: bool
    ) -> tuple[Comparison, Expected]:
        inputs, expected = reference.judged_call(seed, forward_seed, kind, self.public)
        if not self.buffers.fits(inputs, expected.output):
            self.buffers.reserve(inputs, expected.output, 1)
        self.buffers.example = (outline(inputs), outline(expected.output))
        self.buffers.make_room(inputs)
        results = self.run([inputs], [forward_seed])
        # On other kinds a kernel may see that there is nothing to do; and that it launches while it
        # is watched says nothing of what it does when it is not.
        if kind == GIVEN and not (self._is_watched and self._launched):
            self.tally.add(1, self._launched)
        # Nothing is written any more while it is read: a thread may still be at work.
        self.channel.pause()
        outputs = [unchanging(view) for view in self.buffers.slots[0].outputs]
        compared = self.compare(0, inputs, outputs, results[0], expected, locate)
        if compared.passed and locate:
            self.learn(reference, expected)
        self.channel.resume()
        return compared, expected

    def compare(
        self,
        slot_index: int,
        inputs: list[Any],
        outputs: list[torch.Tensor],
        result: Any,
        expected: Expected,
        locate: bool = True,
    ) -> Comparison:
        """Judge one call: what lay in its output slot, and what became of its inputs."""
        if not expected.mutates_inputs and (changed := self._changed(slot_index, inputs)):
            return Comparison(False, message=changed)
        # What a candidate says of its one tensor's type and shape decides nothing: bytes do.
        claimed = describe_shape_of(expected.output) if result == "fits" else result
        return compare(
            claimed,
            outputs,
            expected.output,
            expected.precise,
            self._ruleset,
            expected.calibration,
            locate,
        )

    def resembles(
        self,
        slot_index: int,
        inputs: list[Any],
        outputs: list[torch.Tensor],
        result: Any,
        references: list[torch.Tensor],
        around: Surroundings,
    ) -> bool:
        """Return True if another process's answer puts a call beyond doubt.

        Args:
            slot_index: Its slot.
            inputs: Its inputs.
            outputs: What it gave.
            result: How it describes that.
            references: What the reference's process gave on the same inputs.
            around: How far apart they may be, known from a call compared with more care.
        """
        return not self._changed(slot_index, inputs) and near(
            result, outputs, references, around, self._ruleset
        )

    def learn(self, reference: Reference, expected: Expected) -> None:
        """Take from one call on a device how near others' outputs must lie to the reference's."""
        if expected.kind in self.around or self.device.type != "cuda":
            return
        if expected.kind != GIVEN and not is_salted(expected.kind):
            return  # another scale in every call: what one tells is too much for others
        if expected.mutates_inputs or reference.stateful or reference.draws:
            return
        found = surroundings(expected.output, expected.precise, self._ruleset, expected.calibration)
        if found is not None:
            self.around[expected.kind] = found

    def _changed(self, slot_index: int, inputs: list[Any]) -> str:
        """Return a complaint if the kernel changed an input against the rules, or ''."""
        if not self._ruleset.forbid_input_mutation:
            return ""
        pairs = zip(self.buffers.slots[slot_index].inputs, tensors_of(inputs), strict=True)
        for number, (now, tensor) in enumerate(pairs):
            if not same_bytes(now, tensor):
                return f"the kernel changed input tensor {number}"
        return ""

    def findings(self, kernel: Kernel) -> tuple[Finding, ...]:
        """What the run itself showed; policy for honest kernels, forgeable by hostile ones."""
        idle = self.tally.finding(kernel, Severity.SOFT)
        return () if idle is None else (idle,)
