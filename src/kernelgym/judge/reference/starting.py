"""The stand-in for a problem's model where a starting kernel's outputs are right.

Contract: `StartingModel` is called as any reference is, so that inputs, comparisons and the tests
of a problem are the same. Its outputs come from the starting kernel's own process, by value, in the
shapes that the problem lists. It has no fp64 twin: the kernel's own error is not known, so fixed
tolerances apply, and calls are made on the problem's own inputs alone.

Not covered: the process (`kernelgym.judge.session.starting`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.compare.structure import outline
from kernelgym.judge.tensors import bytes_of
from kernelgym.types import Kernel


class StartingKernelFailed(JudgeError):
    """Raised if a starting kernel fails: verdicts on its problem would be meaningless."""


@dataclass(frozen=True, slots=True)
class Construction:
    """What a process constructs a kernel's model from."""

    init_args: list[Any]
    seed: int
    dtype: torch.dtype | None
    """Type that floating-point parameters are cast to; None leaves theirs."""


StartAnswers: TypeAlias = Callable[[Kernel, Construction, list[Any], Any, int], Any]
"""Function that returns a starting kernel's output: given the kernel, what its model is constructed
from, the inputs, the output's shapes as tensors without memory, and the seed set before the
call."""


class StartingModel(torch.nn.Module):  # type: ignore[misc]
    """Reference model whose forward pass returns a starting kernel's outputs.

    Args:
        shapes: The problem's own ``Model``, which computes shapes on the device ``meta``.
        kernel: The starting kernel.
        built: What its model is constructed from.
        answers: Has the kernel's process answer.
    """

    def __init__(
        self,
        shapes: torch.nn.Module,
        kernel: Kernel,
        built: Construction,
        answers: StartAnswers,
    ) -> None:
        super().__init__()
        self._shapes, self._kernel, self._built, self._answers = shapes, kernel, built, answers
        self.moved_bytes = 0
        """Bytes of the last call's inputs and outputs: the least that its work moves."""

    def forward(self, *inputs: Any) -> Any:
        """Return the kernel's output on `inputs`, which stay unchanged."""
        given = list(inputs)
        shapes = self._shapes(*outline(given))
        self.moved_bytes = bytes_of(given) + bytes_of(shapes)
        seed = torch.default_generator.initial_seed()  # set by the caller just before
        return self._answers(self._kernel, self._built, given, shapes, seed)

    def __deepcopy__(self, _: Any) -> StartingModel:
        """Refuse a copy: an fp64 twin would compute in the kernel's own precision."""
        raise TypeError("the model of a starting kernel cannot be copied")
