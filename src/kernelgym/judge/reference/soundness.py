"""Tells whether a problem can be judged: whether its output shows that work was done.

A problem cannot be judged if its outputs hold nothing, if they are the same whatever inputs it
draws, so that a stored answer passes, or if the reference does not repeat itself. The reference
runs a second time in memory filled with other numbers, so that one that reads memory before it
writes there shows.

Not here: the other tests of `kernelgym lint`, which take longer (`kernelgym.judge.lint.checks`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelgym.judge.compare.compare import Calibration, OutputComparison, compare
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.reference.runner import ExpectedOutput, ReferenceRunner
from kernelgym.judge.reference.starting import StartingModel
from kernelgym.judge.tensors import bytes_of, leaves_of, tensors_of
from kernelgym.judge.untrusted.buffers import fill_fresh_device_memory, fill_fresh_memory
from kernelgym.rulesets import Ruleset
from kernelgym.types import Finding, Severity

_MOST_BYTES = 1 << 30
"""Inputs and outputs above this size are not tested: another set would take much memory."""
_GIVEN_DRAWS = 3


class SoundnessTest:
    """Tests one problem.

    Args:
        runner: The reference, in the state in which it gave `own`.
        build: Makes the model anew, on the device.
        draw: Draws inputs of a kind under a seed.
        own: The reference's output on inputs of the problem's own kind.
        ruleset: The rules, at the problem's precision.
        calibration: The problem's calibration; None for that of an unknown operation.
        seed: Seed of the inputs, and set before each run.
    """

    def __init__(
        self,
        runner: ReferenceRunner,
        build: Callable[[], Any],
        draw: Callable[[int, str], tuple[list[Any], bool]],
        own: ExpectedOutput,
        ruleset: Ruleset,
        calibration: Calibration | None,
        seed: int,
    ) -> None:
        self._runner, self._build, self._draw, self._own = runner, build, draw, own
        self._ruleset, self._calibration, self._seed = ruleset, calibration, seed

    def flaw(self, usable: Sequence[str]) -> Finding | None:
        """Return a finding with the reason why the problem cannot be judged; None if it can be.

        Args:
            usable: Kinds of inputs that suit the problem.

        Raises:
            Exception: Whatever the reference raises in another run.
        """
        parts = leaves_of(self._own.output)
        if all(isinstance(part, torch.Tensor) and not part.numel() for part in parts):
            return _flaw("empty_output", "the reference's output holds no elements to compare")
        if bytes_of(self._own.output) > _MOST_BYTES:
            return None
        started = isinstance(self._runner.model, StartingModel)
        what = "the starting kernel, which says what is right," if started else "the reference"
        inputs, _ = self._draw(self._seed, GIVEN)
        if bytes_of(inputs) > _MOST_BYTES:
            return None
        if complaint := self._disagreement(inputs):
            return _flaw(
                "nondeterministic_reference",
                f"{what} disagrees with itself when it is run again on the same inputs and "
                f"seed ({complaint}): it may read memory that it has not written, as torch.empty "
                "gives it",
            )
        if self._ignores_inputs(usable):
            return _flaw(
                "input_independent",
                f"{what} gives the same output for all inputs that get_inputs draws, so that a "
                "stored answer would pass: let it draw inputs at random that the output depends on",
            )
        return None

    def _disagreement(self, inputs: list[Any]) -> str:
        with _filled_memory(self._runner.device, self._own.output):
            again = self._runner.run_aside(inputs, self._seed)
        told = self._compared(again)
        # The process of a starting kernel is kept between verdicts, so what it counts would differ.
        if told.passed or isinstance(self._runner.model, StartingModel):
            return told.message
        # A model that counts its calls may rightly differ: compare first calls of two new models.
        outputs = []
        for filled in (False, True):
            runner = ReferenceRunner(self._build(), self._runner.device, twin=False)
            runner.copies_inputs = True
            with contextlib.ExitStack() as stack:
                if filled:
                    stack.enter_context(_filled_memory(runner.device, self._own.output))
                outputs.append(runner.expect(inputs, self._seed).output)
        claimed, found = describe_shape_of(outputs[1]), tensors_of(outputs[1])
        alike = compare(claimed, found, outputs[0], None, self._ruleset, None)
        return "" if alike.passed else told.message

    def _ignores_inputs(self, usable: Sequence[str]) -> bool:
        kinds = (*[GIVEN] * _GIVEN_DRAWS, *usable)
        return all(
            self._compared(self._runner.run_aside(self._draw(seed, kind)[0], self._seed)).passed
            for seed, kind in enumerate(kinds, self._seed + 1)
        )

    def _compared(self, output: Any) -> OutputComparison:
        own = self._own
        claimed, found = describe_shape_of(output), tensors_of(output)
        return compare(claimed, found, own.output, own.precise, self._ruleset, self._calibration)


def _flaw(code: str, message: str) -> Finding:
    return Finding(code, f"the problem cannot be judged: {message}", Severity.INFO)


@contextlib.contextmanager
def _filled_memory(device: torch.device, outputs: Any) -> Iterator[None]:
    """Fill memory that the block allocates with numbers that are wrong in almost every output."""
    if device.type == "cuda":
        fill_fresh_device_memory(tensors_of(outputs))
        yield
        return
    fill_fresh_memory(True)
    try:
        yield
    finally:
        fill_fresh_memory(False)
