"""A Triton kernel's first run on a GPU, in a process that no verdict rests on.

Triton starts other programs when it compiles, which a judged process may not do. What it compiles
here is kept, and handed to the processes that are judged.
"""

from __future__ import annotations

import functools
import os
import secrets
from pathlib import Path

import torch

from kernelgym.judge.accelerator import Accelerator
from kernelgym.judge.compiled import CompiledAhead, pack_common
from kernelgym.judge.conversation import Rejected
from kernelgym.judge.fused import load as load_own_kernels
from kernelgym.judge.processes import Processes
from kernelgym.judge.reference import Reference, Seeds
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Problem, Status

__all__ = ["Rehearsal"]


class Rehearsal:
    """Has kernels compiled ahead on one device.

    Args:
        ruleset: The rules.
        accelerator: The device.
        processes: Opens processes on it.
        ahead: Keeps what was compiled.
    """

    def __init__(
        self,
        ruleset: Ruleset,
        accelerator: Accelerator,
        processes: Processes,
        ahead: CompiledAhead,
    ) -> None:
        self._ruleset, self._accelerator = ruleset, accelerator
        self._processes, self._ahead = processes, ahead
        self._name = str(accelerator.device)
        self._on_cuda = accelerator.on_cuda

    def compile_ahead(self, problem: Problem, kernel: Kernel) -> bytes:
        """Have Triton compile everything in a process that no verdict rests on.

        Raises:
            Rejected: If the kernel fails there.
        """
        if not self._on_cuda or kernel.language != "triton":
            return b""
        kept = self._ahead.find(problem, kernel, self._ruleset.precision)
        if kept is not None:
            return kept
        seeds = Seeds(secrets.token_hex(16))  # of its own: it learns nothing of the judged values
        with self._processes.open(kernel.language, exec_allowed=True) as session:
            try:
                session.load(kernel.source, "ModelNew", _common())
                session.await_load()
                room = self._accelerator.room(problem, inputs=3, outputs=2)
                with room, self._accelerator.lease.shared():
                    reference = Reference(problem, self._ruleset, seeds, self._name)
                    session.construct(reference, seeds)
                    inputs = reference.inputs_for_timing(seeds.trial(0))
                    # What it gives is not looked at: nothing but its compilation is of use.
                    session.reserve(inputs, (), 1, timed=True)
                    session.run([inputs], [seeds.forward(0)])
                    del inputs
                    session.end()
            except Rejected as end:
                log = end.log or session.log()
                raise Rejected(
                    end.status, str(end), log, compiled=session.loaded, findings=end.findings
                ) from None
            try:
                return self._ahead.keep(problem, kernel, self._ruleset.precision, session.scratch)
            except ValueError as error:
                message = f"its compiled kernels take {error}"
                raise Rejected(Status.RUNTIME_ERROR, message, compiled=True) from None


@functools.cache
def _common() -> bytes:
    """Return what Triton builds for any kernel, from what it built for one of ours."""
    own, folder = load_own_kernels(), os.environ.get("TRITON_CACHE_DIR")
    if own is None or not folder:
        return b""
    numbers = torch.zeros(1, device="cuda")
    own.within_fixed(numbers, numbers, 1.0, 1.0)
    return pack_common(Path(folder))
