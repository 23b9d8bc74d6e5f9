"""Tests of the degeneracy gate, on one problem.

An answer "passes" if it passes the ruleset's own comparison on all of a few calls, with the error
bound from the fp64 twin, the kinds of inputs and the varied state where the ruleset has them.
Weights and inputs are drawn as for a verdict, but from a fixed seed, so that a problem gets the
same result every time.

Contract: the tests run the problem's own code in the calling process, which is the degeneracy
gate's. A problem that cannot be run is broken, unless it lacks what another machine may have
(memory, a package, a file, the network): then it counts as not tested.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.compare.compare import Calibration, RowBlocks, byte_copy, compare
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.lint.trivial_answers import Answer, trivial_answers
from kernelgym.judge.reference.fixed_state import put_state
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.judge.tensors import leaves_of, tensors_of
from kernelgym.rulesets import Ruleset
from kernelgym.types import Problem

Found = Callable[[str, str], None]
"""Function that is called with a reason against a problem and its details."""

_SECRET = b"hygiene".hex()
_OTHER = 32  # number of the draw that gives the other inputs
_NAMED = 5  # parameters that a message names


@dataclass(frozen=True, slots=True)
class _Call:
    """One set of inputs, and the reference's output for it."""

    inputs: list[Any]
    kind: str
    forward_seed: int
    expected: ExpectedOutput


class _Gate:
    """Tests of the degeneracy gate on one problem."""

    def __init__(self, problem: Problem, rules: Ruleset, device: str) -> None:
        self._problem, self._rules, self._device = problem, rules, device
        self._seeds = Seeds(_SECRET if rules.secret_seed else "")
        self._reference = self._build(rules)
        self._reference.prepare()
        others = sorted(set(self._reference.plan) - {GIVEN})
        self._kinds = (GIVEN, GIVEN, *(others or [GIVEN]))
        self.first = self._call(0)

    def _build(self, rules: Ruleset) -> Reference:
        return Reference(self._problem, rules, self._seeds, self._device)

    def _fresh(self) -> Reference:
        """Return a newly built reference without its fp64 twin.

        These runs need no twin.
        """
        reference = self._build(dataclasses.replace(self._rules, tolerance="allclose"))
        put_state(reference.model, self._reference.state)
        return reference

    def _call(self, index: int) -> _Call:
        kind, seed = self._kinds[index], self._seeds.forward(index)
        for last in (False, True):
            inputs = self._reference.inputs(self._seeds.trial(index), kind)
            try:
                return _Call(inputs, kind, seed, self._reference.expect(inputs, seed, kind))
            except JudgeError as error:
                # An error without a cause means that the reference changed inputs too large to copy
                # beforehand (`InputsChanged`): with new inputs, which are copied, it can run.
                if last or error.__cause__ is not None:
                    raise
        raise AssertionError

    def _calls(self) -> Iterator[_Call]:
        """Yield the first call, then calls on each kind of inputs that the reference bears."""
        yield self.first
        for index in range(1, len(self._kinds)):
            call = self._call(index)
            if call.kind == GIVEN or self._reference.bears(call.expected):
                yield call

    def _complaint(self, output: Any, call: _Call) -> str:
        """Return the reason why an output fails the ruleset's comparison; '' if it passes."""
        expected = call.expected
        return self._judge(output, expected.output, expected.precise, expected.calibration)

    def _judge(
        self, output: Any, expected: Any, precise: Any, known: Calibration | None = None
    ) -> str:
        copies = [byte_copy(tensor) for tensor in tensors_of(output)]
        claimed = describe_shape_of(output)
        verdict = compare(claimed, copies, expected, precise, self._reference.rules, known)
        return "" if verdict.passed else verdict.message or "it does not pass"

    def non_finite(self) -> str:
        """Return which outputs of the reference hold NaN or infinity, and how many; '' if none."""
        for number, tensor in enumerate(tensors_of(self.first.expected.output)):
            if tensor.is_floating_point() or tensor.is_complex():
                count = int((~tensor.isfinite()).sum())
                if count:
                    return f"{count} of {tensor.numel()} elements of output {number}"
        return ""

    def worthless(self) -> Iterator[str]:
        """Yield a reason for each answer without work, such as zeros, that passes all calls."""
        left = trivial_answers(self.first.inputs, self.first.expected.output)
        left["input_independent"] = []
        for call in self._calls():
            for reason in list(left):
                if reason == "input_independent":
                    passes = self._passes_with_other_inputs(call)
                else:
                    left[reason] = self._still_passing(left[reason], call)
                    passes = all(left[reason])
                if not passes:
                    del left[reason]
            if not left:
                return
        yield from left

    def _still_passing(self, choices: list[list[Answer]], call: _Call) -> list[list[Answer]]:
        """Return, for every part of the output, the trivial answers that pass this call, too."""
        given = leaves_of(call.inputs)
        parts = leaves_of(call.expected.output)
        precise = _twins(call.expected.precise, len(parts))
        if len(choices) != len(parts):
            return [[]]
        known = call.expected.calibration
        if known is not None and len(parts) > 1:
            known = Calibration(known.factors)  # own errors are listed for all parts together
        kept: list[list[Answer]] = []
        for answers, part, twin in zip(choices, parts, precise, strict=True):
            passing = [a for a in answers if not self._judge(a(given), part, twin, known)]
            kept.append(passing)
            if not passing:
                break
        return kept

    def _passes_with_other_inputs(self, call: _Call) -> bool:
        other = self._reference.inputs(self._seeds.trial(_OTHER), call.kind)
        output = self._reference.expect(other, call.forward_seed, call.kind).output
        return not self._complaint(output, call)

    def disagreement(self) -> str:
        """Return how two runs of the reference differ on the same inputs; '' if they do not."""
        first = self.first
        runs = [("run twice with the same seeds", first.forward_seed)]
        if self._reference.draws:
            runs.append(("run with another forward seed", self._seeds.forward(_OTHER)))
        for how, seed in runs:
            reference = self._fresh()
            complaint = self._complaint(reference.expect(first.inputs, seed).output, first)
            if complaint:
                return f"{how}, {complaint}"
        return ""

    def idle_parameters(self, deadline: float) -> tuple[list[str], str]:
        """Return parameters whose change alters no output, and a note on untested parameters."""
        reference = self._fresh()
        model = reference.model
        state = {name: buffer.clone() for name, buffer in model.named_buffers()}

        def run(call: _Call) -> Any:
            with torch.no_grad():
                for name, buffer in model.named_buffers():
                    if name in state and state[name].shape == buffer.shape:
                        buffer.copy_(state[name])
            return reference.expect(call.inputs, call.forward_seed, call.kind).output

        candidates = [
            (name, value)
            for name, value in model.named_parameters()
            if value.numel() and (value.is_floating_point() or value.is_complex())
        ]
        if not candidates:
            return [], ""
        if self._complaint(run(self.first), self.first):
            return [], "parameters: the reference does not repeat itself from call to call"
        idle: list[str] = []
        for number, (name, value) in enumerate(candidates):
            if time.monotonic() > deadline:
                return idle, f"parameters from {name!r} on ({number} of {len(candidates)} done)"
            kept = value.detach().clone()
            with torch.no_grad():
                value.add_(_noise_like(kept))
            if not any(self._complaint(run(call), call) for call in self._calls()):
                idle.append(name)
            with torch.no_grad():
                value.copy_(kept)
        return idle, ""


def examine(problem: Problem, rules: Ruleset, device: str, found: Found, deadline: float) -> str:
    """Run every test on one problem.

    Args:
        problem: The problem; its code runs in this process.
        rules: The ruleset that decides comparison and precision.
        device: Device on which the reference runs.
        found: Function that is called with each reason and its details as soon as it is known.
        deadline: Time, by `time.monotonic`, after which no further parameter is tried.

    Returns:
        A note on tests that were not made and why; '' if all were made.
    """
    try:
        gate = _Gate(problem, rules, device)
        if where := gate.non_finite():
            found("non_finite_output", where)
        for reason in gate.worthless():
            found(reason, "")
        if how := gate.disagreement():
            found("nondeterministic_reference", how)
        idle, untested = gate.idle_parameters(deadline)
        if idle:
            more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
            found("idle_parameters", ", ".join(idle[:_NAMED]) + more)
        return untested
    except (JudgeError, MemoryError, RuntimeError) as error:
        cause = error.__cause__ or error
        text = " ".join(str(error).split())[:500]
        if _lacks_memory(cause):
            return f"out of memory: {text}"
        if _lacks_machine(cause) or not isinstance(error, JudgeError):
            return text
        found("broken_reference", text)
        return ""


def _twins(precise: Any, parts: int) -> list[Any]:
    """Return the outputs of the reference's fp64 twin, one for each part of the output.

    None for each part if the twin gives another number of parts.
    """
    if isinstance(precise, RowBlocks):
        columns = [leaves_of(output) for output in precise.outputs]
        if all(len(column) == parts for column in columns):
            return [RowBlocks(precise.rows, part) for part in zip(*columns, strict=True)]
    leaves = leaves_of(precise)
    return leaves if len(leaves) == parts else [None] * parts


def _noise_like(value: torch.Tensor) -> torch.Tensor:
    """Return random changes as large as a parameter's values.

    They are of size 1 where all values are zero.
    """
    generator = torch.Generator().manual_seed(value.numel())
    real = torch.float64 if not value.is_complex() else torch.complex128
    noise = torch.randn(value.shape, dtype=real, generator=generator)
    scale = float(value.abs().double().square().mean().sqrt())
    return (noise * (scale if 0.0 < scale < float("inf") else 1.0)).to(value)


def _lacks_machine(error: BaseException) -> bool:
    """Return True if an error arose because a package, a file or the network is missing.

    The network is denied to the tests, so a problem that loads a model's configuration needs a copy
    of it on this machine.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, ImportError | OSError):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def _lacks_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in text for words in ("out of memory", "can't allocate memory", "not enough memory")
    )
