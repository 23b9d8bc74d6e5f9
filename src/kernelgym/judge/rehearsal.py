"""A Triton kernel's first run on a GPU, in a process that no verdict rests on.

Triton starts other programs when it compiles, which a judged process may not do. What it compiles
here is kept, and handed to the processes that are judged.
"""

from __future__ import annotations

import secrets

from kernelgym.judge.compiled import CompiledAhead
from kernelgym.judge.conversation import Rejected
from kernelgym.judge.processes import Processes
from kernelgym.judge.reference import Reference, Seeds
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Problem, Status

__all__ = ["Rehearsal"]


class Rehearsal:
    """Has kernels compiled ahead on one device.

    Args:
        ruleset: The rules.
        name: The device, ``cpu`` or such as ``cuda:0``.
        processes: Opens processes on it.
        ahead: Keeps what was compiled.
    """

    def __init__(
        self, ruleset: Ruleset, name: str, processes: Processes, ahead: CompiledAhead
    ) -> None:
        self._ruleset, self._name, self._processes, self._ahead = ruleset, name, processes, ahead
        self._on_cuda = name != "cpu"

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
                session.load(kernel.source, "ModelNew")
                session.await_load()
                reference = Reference(problem, self._ruleset, seeds, self._name)
                session.construct(reference, seeds)
                session.call(reference, seeds, 0)
            except Rejected as end:
                log = end.log or session.log()
                raise Rejected(
                    end.status, str(end), log, compiled=session.loaded, findings=end.findings
                ) from None
            session.end()
            try:
                return self._ahead.keep(problem, kernel, self._ruleset.precision, session.scratch)
            except ValueError as error:
                message = f"its compiled kernels take {error}"
                raise Rejected(Status.RUNTIME_ERROR, message, compiled=True) from None
