"""The actor of a `RayEvaluator`: an evaluator in a process of Ray. Part of `ray_evaluator`.

Imported on the nodes of the cluster, where kernelgym has to be installed.
"""

from __future__ import annotations

import os
import pkgutil
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.capabilities import Capabilities
from kernelgym.errors import JudgeError, UsageError
from kernelgym.types import Evaluator, Job, Verdict


@dataclass(frozen=True, slots=True)
class ActorReport:
    """Facts that an actor reports once it has started."""

    node: str
    """Id of the node in Ray's form."""
    host: str
    """Name of the node's host."""
    process: int
    """Id of the actor's process."""
    device: str
    """Device of the actor, such as ``gpu-box/cuda:3``: the host, and the GPU's number there."""
    capabilities: Capabilities
    """Capabilities of the actor's evaluator."""


class JudgeActor:
    """Judges kernels with an evaluator of its own; made by Ray.

    Args:
        made_by: Class of the evaluator, as ``module:name``.
        arguments: Arguments of that class.
    """

    def __init__(self, made_by: str, arguments: Mapping[str, Any]) -> None:
        _undo_thread_limit()
        self._refusal: UsageError | None = None
        try:
            self._evaluator: Evaluator = pkgutil.resolve_name(made_by)(**arguments)
        except UsageError as refusal:  # a value, so that the caller can tell it from a lost process
            self._refusal = refusal

    def report(self) -> ActorReport | UsageError:
        """Return the facts on this actor, or the reason why its evaluator could not be made."""
        if self._refusal is not None:
            return self._refusal
        import ray

        try:
            can = self._evaluator.capabilities
        except UsageError as refusal:
            return refusal
        context, host = ray.get_runtime_context(), socket.gethostname()
        gpus = context.get_accelerator_ids().get("GPU", [])
        device = f"cuda:{gpus[0]}" if gpus and can.device != "cpu" else can.device
        return ActorReport(context.get_node_id(), host, os.getpid(), f"{host}/{device}", can)

    def judge(self, job: Job, seed: str) -> Verdict | Exception:
        """Return the verdict of a job, or the error that the evaluator raised for it."""
        try:
            return self._evaluator.evaluate(job.problem, job.kernel, seed=seed)
        except UsageError as error:
            return error
        except Exception as error:  # of a class that the caller may not have
            return JudgeError(f"{type(error).__name__}: {error}")

    def stay(self) -> None:
        """Never return: the call fails when the actor is lost, by which the caller notices."""
        threading.Event().wait()

    def close(self) -> None:
        """Close the evaluator, and so end its processes."""
        if self._refusal is None:
            self._evaluator.close()


def _undo_thread_limit() -> None:
    """Drop the limit of threads that Ray sets, so that times are those of a local evaluator.

    Ray sets OMP_NUM_THREADS to the number of CPUs that an actor asks for, 1 if it asks for none. A
    limit with which the node was started is kept: `/proc` shows the variables of the start.
    """
    started_with = Path("/proc/self/environ").read_bytes().split(b"\0")
    if not any(each.startswith(b"OMP_NUM_THREADS=") for each in started_with):
        os.environ.pop("OMP_NUM_THREADS", None)
