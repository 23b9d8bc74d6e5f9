"""The process of a starting kernel, whose outputs say what is right.

Contract: the kernel is untrusted. It runs as a candidate does, in a sandboxed process of its own
that runs no other kernel's code, halted between calls, and its outputs are copied out of memory
that the worker owns. The process is kept between verdicts on the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

from kernelgym.errors import DeviceFull
from kernelgym.judge.compare.compare import byte_copy
from kernelgym.judge.compare.structure import describe_shape_of, structure_problem
from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.judge.reference.starting import Construction, StartingKernelFailed
from kernelgym.judge.retries import Failure
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.session import CandidateSession
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Status


class StartingProcess:
    """Runs one starting kernel after the other.

    Args:
        open_process: Opens a fresh process for a language and a source.
        ruleset: The rules, whose limit of seconds holds for each answer.
    """

    def __init__(
        self,
        open_process: Callable[[str, str], AbstractContextManager[CandidateSession]],
        ruleset: Ruleset,
    ) -> None:
        self._open, self._ruleset = open_process, ruleset
        self._kernel: Kernel | None = None
        self._built: Construction | None = None
        self._session: CandidateSession | None = None
        self._opened, self._called = ExitStack(), False

    def answer(
        self, kernel: Kernel, built: Construction, inputs: list[Any], shapes: Any, seed: int
    ) -> Any:
        """Return the kernel's output, as `kernelgym.judge.reference.starting.StartAnswers` does.

        Raises:
            StartingKernelFailed: If the kernel fails, or gives an output of other shapes.
            DeviceFull: If it lacks memory on the device.
        """
        try:
            session = self._ready(kernel, built)
            expected = ExpectedOutput(shapes, None, mutates_inputs=False)
            # Not in a model's first call: a kernel that leaves memory unwritten then disagrees with
            # itself. Filled first, that memory would hold the same in later calls.
            fresh, self._called = self._called, True
            said, outputs = session.answered(inputs, expected, seed, fresh=fresh)
            wanted = describe_shape_of(shapes)
            problem = "" if said == "fits" else structure_problem(said, wanted, self._ruleset)
            if problem:
                raise Rejected(Status.WRONG, f"it is not what the spec lists: {problem}")
            copies = iter([byte_copy(view) for view in outputs])
            return _filled(shapes, lambda: next(copies))
        except Rejected as end:
            self.dismiss()
            if end.failure is Failure.MEMORY:  # other workers may hold it
                raise DeviceFull(
                    f"the starting kernel ran out of memory, which other processes may hold: {end}"
                ) from None
            raise StartingKernelFailed(
                f"the starting kernel, which says what is right, failed ({end.status.value}): {end}"
            ) from None
        except BaseException:
            self.dismiss()
            raise

    def _ready(self, kernel: Kernel, built: Construction) -> CandidateSession:
        """Return the kernel's process, with a model constructed from `built`."""
        session = self._session
        if session is not None and (kernel != self._kernel or session.channel.has_ended()):
            self.dismiss()
            session = None
        if session is None:
            session = self._opened.enter_context(self._open(kernel.language, kernel.source))
            self._session, self._kernel = session, kernel
            session.model.load(kernel.source, "ModelNew")
            session.model.await_load()
        else:
            session.channel.resume()
        session.channel.grant(self._ruleset.limits.run_s)
        if built is not self._built:
            self._built, self._called = None, False
            session.buffers.vacate()  # the arguments' memory is mapped in the place of the inputs'
            session.model.build(built)
            self._built = built
        return session

    def dismiss(self) -> None:
        """End the process."""
        opened, self._opened = self._opened, ExitStack()
        self._session = self._kernel = self._built = None
        opened.close()


def _filled(shapes: Any, value: Callable[[], torch.Tensor]) -> Any:
    """Return a nested value with each tensor replaced by one of its strides and given values."""
    if isinstance(shapes, torch.Tensor):
        found = value()
        if found.stride() == shapes.stride():
            return found
        laid = torch.empty_strided(
            shapes.shape, shapes.stride(), dtype=shapes.dtype, device=found.device
        )
        return laid.copy_(found)
    if isinstance(shapes, tuple | list):
        return type(shapes)(_filled(each, value) for each in shapes)
    return shapes
