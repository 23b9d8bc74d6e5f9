"""Drives one candidate from the worker: makes calls, times windows, compares outputs.

Contract: a failure on the candidate's side is raised as `Rejected`, with the status it earns. The
worker draws inputs into private tensors, copies them to the candidate's slot just before the call,
and compares them with the slot afterwards; the reference never reads a slot.

Not covered, but held by a `CandidateSession`:
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
    OutputBounds,
    OutputComparison,
    byte_copy,
    compare,
    near,
    surroundings,
    unchanging,
)
from kernelgym.judge.compare.sampled_share import wrong_share
from kernelgym.judge.compare.structure import describe_shape_of, outline
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.inputs.kinds import GIVEN, is_salted
from kernelgym.judge.memory.slots import TimedWindow
from kernelgym.judge.processes.candidate_handle import Candidate
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.judge.session.advice import advice
from kernelgym.judge.session.call_buffers import CallBuffers
from kernelgym.judge.session.channel import Channel, Rejected
from kernelgym.judge.session.launch_count import LaunchTally
from kernelgym.judge.session.model import CandidateModel
from kernelgym.judge.tensors import same_bytes, tensors_of
from kernelgym.rulesets import Ruleset, TimingProtocol
from kernelgym.types import Finding, Kernel, Severity, Status

_CPU = torch.device("cpu")
AS_LAYER = (
    "outputs of earlier calls had been overwritten, so memory that is returned again must be "
    "written whole; inputs may be written on the current stream just before a call, so other "
    "streams must wait for it, and no call can compute the output of a later one"
)
"""Explanation for a kernel that is wrong only when it is called like a layer of a model."""


class CandidateSession:
    """Drives one candidate.

    Args:
        candidate: A fresh process.
        ruleset: The rules.
        build: Builds extensions for the candidate; None if the candidate may ask for none.
        device: The device that holds the candidate's tensors.
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
        self.channel = Channel(candidate, ruleset, build, device_lock, device.type == "cuda")
        """Channel that carries requests to the candidate, and its answers."""
        self.model = CandidateModel(self.channel, ruleset)
        """Loader of the candidate's module and constructor of its model."""
        self.buffers = CallBuffers(self.channel, device)
        """The memory of the calls' inputs and outputs."""
        self._launched: Any = 0
        self.untried = 0
        """Number of configs of an autotuned kernel that no call has used, as the process claims."""
        self._spoil: list[bool] = []  # for each tensor of an output: whether to overwrite it
        self.public: PublicCalls | None = None
        """Inputs and expected outputs of calls on public values, kept between verdicts."""
        self.around: dict[str, OutputBounds] = {}
        """Bounds of the distance to the reference process's output within which a timed output is
        right, by kind of inputs; learned from calls that had the whole comparison."""
        self.tally = LaunchTally()
        """Count of calls and launches, judged or timed, on the problem's own kind of inputs."""
        self._is_advised = False
        self._was_right = False  # whether an earlier call agreed with the reference
        self.ended = False
        """Whether the candidate's process and the buffers are gone."""
        self._is_watched = False

    @property
    def protocol(self) -> TimingProtocol:
        """Timing protocol of the ruleset."""
        return self._ruleset.timing

    @property
    def as_layer(self) -> bool:
        """Whether the ruleset calls kernels like layers of a model."""
        return self._ruleset.as_layer

    def rest(self) -> None:
        """Free the buffers, and halt the process until its next window."""
        self.buffers.vacate()
        self.channel.pause()

    def begin_end(self) -> None:
        """Begin to kill the process, without waiting: on a GPU its end takes long."""
        self.channel.begin_kill()

    def end(self) -> None:
        """Kill the candidate's process, and free its buffers."""
        self.channel.kill()
        self.buffers.close()
        self.ended = True

    def run(
        self,
        batches: list[list[Any]],
        forward_seeds: list[int],
        late: int | None = None,
        *,
        fresh: bool = True,
    ) -> list[Any]:
        """Make one call per batch; return the candidate's descriptions of its outputs.

        Args:
            batches: Inputs of the calls.
            forward_seeds: Seeds set before the calls.
            late: Index of a call whose inputs the candidate writes late, on its current stream.
            fresh: Whether memory that the candidate allocates holds numbers that are wrong.
        """
        self.buffers.fill(batches, poison=True)
        self.buffers.finish()
        asked = {"seeds": forward_seeds, "late": late, "spoil": self._spoil}
        self.channel.post({"op": "go", "timed": False, "fresh": fresh, **asked})
        return self._results(self.channel.answer("go"), len(batches))

    def timed_run(
        self,
        batches: list[list[Any]],
        forward_seeds: list[int],
        keep: list[int],
        others: int = 0,
        late: int | None = None,
    ) -> TimedWindow:
        """Make one call per batch within one window of the worker's clock.

        The candidate is halted between windows: values reach its slots while none of its threads
        runs, and it writes nothing more once it has answered.

        Args:
            batches: Inputs of the calls.
            forward_seeds: Seeds set before the calls.
            keep: Indices of the calls whose outputs are returned.
            others: Number of calls on other kinds of inputs than the problem's own. A kernel may
                rightly launch nothing for these.
            late: Index of a call to make as a layer of a model is called (`Ruleset.as_layer`); all
                calls' outputs are overwritten after they were copied. None to time the window.
        """
        # No poison: values are fresh in every window, so stale outputs are wrong.
        self.buffers.finish()
        begun = time.perf_counter()
        self.buffers.fill(batches, poison=False)
        self.buffers.flush_cache()
        self.buffers.finish()
        layout_ms = (time.perf_counter() - begun) * 1e3 if self.buffers.on_device else 0.0
        before = None if self.buffers.on_device else self.channel.run_times()
        after = None
        # Fresh memory is filled in judged calls only, or a kernel could tell windows apart by it.
        asked: dict[str, Any] = {"op": "go", "seeds": forward_seeds, "fresh": False}
        asked["timed"] = late is None
        if late is not None:
            asked |= {"late": late, "spoil": self._spoil}
        self.channel.post(asked)
        started = time.perf_counter()
        self.channel.resume()
        answer = self.channel.answer("go")
        results = self._results(answer, len(batches))
        self.tally.add(len(batches) - others, self._launched)
        kept = {}
        if self.buffers.on_device:
            # Reading the outputs is part of the window: work that the process did not wait for
            # before it answered delays this read, and so counts.
            kept = {index: self.buffers.read(results[index]) for index in keep}
            self.buffers.finish()
            window_ms = (time.perf_counter() - started) * 1e3
            self.channel.pause()
        else:
            # The window ends when the process is halted: it finishes a system call in progress.
            self.channel.pause()
            window_ms = (time.perf_counter() - started) * 1e3
            after = self.channel.run_times()
            kept = {
                index: [byte_copy(view) for view in self.buffers.slots[index].outputs]
                for index in keep
            }
        said = answer.get("device_ms", 0.0)
        claimed_ms = float(said) if type(said) in (int, float) and 0 < said < 1e9 else 0.0
        return TimedWindow(window_ms, claimed_ms, layout_ms, results, kept, (before, after))

    def capture(self, tells: bool = False, late: bool = False, change_at: int = 0) -> bool:
        """Capture the reserved calls in a CUDA graph; return False if impossible.

        Args:
            late: Whether windows of these calls may be asked for with `timed_run`'s `late`.
            change_at: Index of the call before which state put `later` takes effect in such
                windows; below 0 for no such call.
            tells: Whether the answer to every window describes its outputs, as it does without
                capture. Describing them takes longer than short calls do, and a graph's outputs lie
                where its capture said. But the overhead of windows must be the same on both sides,
                so the kernel's side describes them if the reference could not be captured.
        """
        self.buffers.captured = None
        asked = {"tells": tells, "late": late, "change_at": change_at}
        self.channel.post({"op": "capture", **asked})
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
        """Set how the candidate watches its calls; return what it saw.

        Args:
            mode: ``record``, ``ablate``, ``off``, or ``end``, after which no mode can be set.

        Returns:
            The report on the calls since the mode was last set. A hostile candidate may have made
            it up.
        """
        self._is_watched = mode not in ("off", "end")
        self.channel.post({"op": "trace", "mode": mode})
        seen = self.channel.answer("trace").get("seen")
        return seen if isinstance(seen, dict) else {}

    def graph_kernels(self) -> dict[str, Any]:
        """Return the candidate's list of the kernels in its captured graph.

        Empty without a graph, and where the profiler cannot be used.
        """
        self.channel.post({"op": "graph_kernels"})
        try:
            seen = self.channel.answer("go").get("seen")
        except Rejected as end:
            if end.status is Status.RUNTIME_ERROR and not self.channel.has_ended():
                return {}
            raise
        return seen if isinstance(seen, dict) else {}

    def launches(self) -> Any:
        """Return the candidate's report on its interpreted launches.

        A hostile candidate may have made it up; `kernelgym.judge.evidence.front_end` reads it.
        """
        self.channel.post({"op": "launches"})
        return self.channel.answer("launches").get("record")

    def _results(self, answer: dict[str, Any], calls: int) -> list[Any]:
        results, self._launched = answer.get("results"), answer.get("launches")
        untried = answer.get("untried")
        self.untried = untried if type(untried) is int else 0
        return self._listed(self.buffers.captured if results is None else results, calls)

    def _listed(self, results: Any, calls: int) -> list[Any]:
        if not isinstance(results, list) or len(results) != calls:
            raise Rejected(Status.RUNTIME_ERROR, "the kernel's process sent no readable results")
        return results

    def call(self, reference: Reference, index: int, explain: bool = True) -> OutputComparison:
        """Make and judge one untimed call on fresh inputs.

        Args:
            reference: The reference, which draws the inputs and gives the right output.
            index: Index of the call; calls past the planned ones have inputs with work to do.
            explain: Whether to look at every wrong element, which takes a second for an output of
                2e9 elements; if False, the comparison stops soon after the first.
        """
        kind, seeds = reference.kind_of(index), reference.seeds
        if reference.is_renewed_at(index):
            reference.renew_state()
            self.put_state(reference)
        late = 0 if index == self._late_call(reference) else None
        outcome, expected = self._attempt(
            reference, seeds.trial(index), seeds.forward(index), kind, explain, late
        )
        if not outcome.passed and kind != GIVEN:
            if reference.bears(expected):
                outcome = replace(outcome, message=f"on {kind} inputs, {outcome.message}")
            else:
                # The reference is ill-conditioned there with these weights: no fault of the kernel.
                seed, kind = seeds.derive("trial-again", index), GIVEN
                outcome, _ = self._attempt(
                    reference, seed, seeds.forward(index), GIVEN, explain, late
                )
        if outcome.mismatch is None:
            return outcome
        calls = max(len(reference.plan), index + 1)
        place = replace(outcome.mismatch, call=index + 1, calls=calls, inputs=kind)
        return replace(outcome, mismatch=place)

    def put_state(self, reference: Reference, later: bool = False) -> None:
        """Give the candidate the reference's present state, which outputs then follow.

        Args:
            reference: The reference.
            later: Whether it takes effect before the next call with late inputs alone.
        """
        self.model.put_state(reference, later)
        self.around.clear()

    def _late_call(self, reference: Reference) -> int | None:
        """Return the index of the judged call whose inputs are written late; None for no call."""
        if self.device.type != "cuda" or not self.as_layer:
            return None
        # Not the first call: a kernel that compiles there starts after the inputs were written.
        return 1 + reference.seeds.derive("late") % max(1, len(reference.plan) - 1)

    def _attempt(
        self,
        reference: Reference,
        seed: int,
        forward_seed: int,
        kind: str,
        locate: bool,
        late: int | None = None,
    ) -> tuple[OutputComparison, ExpectedOutput]:
        inputs, expected = reference.judged_call(seed, forward_seed, kind, self.public)
        result, outputs = self.answered(inputs, expected, forward_seed, late)
        # On other kinds of inputs a kernel may rightly launch nothing. A watched call with launches
        # is not counted: the kernel may launch only while it is watched.
        if kind == GIVEN and not (self._is_watched and self._launched):
            self.tally.add(1, self._launched)
        compared = self.compare(0, inputs, outputs, result, expected, locate)
        if compared.passed and locate:
            self.learn(reference, expected)
        elif locate and not self._is_advised:
            self._is_advised = True  # a verdict's message tells of its first failed call only
            claimed = describe_shape_of(expected.output) if result == "fits" else result
            rules = self._ruleset.at(expected.precision)
            told = advice(
                compared, claimed, outputs, inputs, forward_seed, expected, reference, rules
            )
            if told:
                compared = replace(compared, message=f"{compared.message}; {told}")
        if not (locate or compared.passed):
            share = wrong_share(outputs, tensors_of(expected.output), tensors_of(inputs))
            compared = replace(compared, wrong_share=share)
        if self._was_right and compared.mismatch is not None and self.as_layer:
            if late is not None or compared.mismatch.nonfinite:
                compared = replace(compared, message=f"{compared.message}; {AS_LAYER}")
        self._was_right |= compared.passed
        self.channel.resume()
        return compared, expected

    def answered(
        self,
        inputs: list[Any],
        expected: ExpectedOutput,
        forward_seed: int,
        late: int | None = None,
        *,
        fresh: bool = True,
    ) -> tuple[Any, list[torch.Tensor]]:
        """Make one call; return the candidate's claim and its outputs.

        The candidate stays halted.

        Args:
            inputs: The call's inputs.
            expected: Tells what outputs to reserve memory for.
            forward_seed: Seed set before the call.
            late: 0 to have the inputs written late, on the candidate's current stream.
            fresh: See `run`.
        """
        self._spoil = list(expected.new) if self.as_layer else []
        if not self.buffers.fits(inputs, expected.output):
            self.buffers.reserve(inputs, expected.output, 1)
        self.buffers.example = (outline(inputs), outline(expected.output))
        self.buffers.make_room(inputs)
        results = self.run([inputs], [forward_seed], late, fresh=fresh)
        # Halt the candidate: a thread of it could write to the outputs while they are read.
        self.channel.pause()
        return results[0], [unchanging(view) for view in self.buffers.slots[0].outputs]

    def compare(
        self,
        slot_index: int,
        inputs: list[Any],
        outputs: list[torch.Tensor],
        result: Any,
        expected: ExpectedOutput,
        locate: bool = True,
    ) -> OutputComparison:
        """Judge one call by its outputs, and by whether its inputs changed."""
        if not expected.mutates_inputs and (changed := self._changed(slot_index, inputs)):
            return OutputComparison(False, message=changed)
        # The bytes decide, not what a candidate says of its one tensor's type and shape.
        claimed = describe_shape_of(expected.output) if result == "fits" else result
        return compare(
            claimed,
            outputs,
            expected.output,
            expected.precise,
            self._ruleset.at(expected.precision),
            expected.calibration,
            locate,
            expected.sensitivity,
        )

    def resembles(
        self,
        slot_index: int,
        inputs: list[Any],
        outputs: list[torch.Tensor],
        result: Any,
        references: list[torch.Tensor],
        around: OutputBounds,
    ) -> bool:
        """Return True if the reference process's outputs prove a call right.

        Args:
            slot_index: Index of the call's slot.
            inputs: The call's inputs.
            outputs: The call's outputs.
            result: The candidate's description of the outputs.
            references: Outputs of the reference's process on the same inputs.
            around: How far apart the two may be, learned from a call with the whole comparison.
        """
        return not self._changed(slot_index, inputs) and near(
            result, outputs, references, around, self._ruleset
        )

    def learn(self, reference: Reference, expected: ExpectedOutput) -> None:
        """Learn from a compared call the bounds within which later outputs are right."""
        if expected.kind in self.around or self.device.type != "cuda":
            return
        if expected.kind != GIVEN and not is_salted(expected.kind):
            return  # the scale differs in every call: one call's bounds are too wide for others
        if expected.mutates_inputs or reference.stateful or reference.draws:
            return
        rules = self._ruleset.at(expected.precision)
        found = surroundings(expected.output, expected.precise, rules, expected.calibration)
        if found is not None:
            self.around[expected.kind] = found

    def _changed(self, slot_index: int, inputs: list[Any]) -> str:
        """Return a complaint if the kernel changed an input, or ''."""
        if not self._ruleset.forbid_input_mutation:
            return ""
        pairs = zip(self.buffers.slots[slot_index].inputs, tensors_of(inputs), strict=True)
        for number, (now, tensor) in enumerate(pairs):
            if not same_bytes(now, tensor):
                return f"the kernel changed input tensor {number}, or returned its memory"
        return ""

    def findings(self, kernel: Kernel) -> tuple[Finding, ...]:
        """Return findings on calls without launches.

        A hostile kernel can forge the counts.
        """
        idle = self.tally.finding(kernel, Severity.SOFT)
        return () if idle is None else (idle,)
