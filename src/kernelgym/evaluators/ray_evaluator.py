"""`RayEvaluator`: judges kernels on the machines of a Ray cluster.

Contract:

- one actor for each GPU, with an evaluator of its own inside; on the CPU, one for every two cores
  of a worker. Ray places the actors, and an actor that waits for its resources is the demand that
  Ray's autoscaler sees;
- a lost actor is replaced, after pauses that double while actors end without a verdict. Its jobs
  are judged by other actors, and each job gets one outcome. A job with which `MOST_LOST` actors
  were lost is `unavailable`;
- all verdicts come from actors of one provenance (`Capabilities.provenance`). A cluster that is
  mixed from the start is refused with the list; an actor that comes later and differs is not used;
- jobs wait while no actor is there, or the head is gone. After `patience_s` of that they become
  `unavailable`, with the reason. A head that comes back is used again.

Threads may share an object; it copies deeply to itself. Not covered: processes forked from the one
that made it; the abilities `Builds` and `Duels`.
"""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import Future

from kernelgym.capabilities import Capabilities, EvaluatorStatus
from kernelgym.devices import check_device
from kernelgym.errors import UsageError
from kernelgym.evaluators.base import EvaluatorBase
from kernelgym.evaluators.ray_cluster import RayCluster
from kernelgym.evaluators.ray_keeper import ActorKeeper
from kernelgym.evaluators.ray_posts import ActorPlan
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Job, Verdict

_JUDGED_BY = "kernelgym.judge:LocalEvaluator"  # a name: this room stands before the judge's
_CORES_OF_A_WORKER = 2


class RayEvaluator(EvaluatorBase):
    """Judges kernels by actors of a Ray cluster. Close it, so that its actors end.

    Args:
        address: Address of the head, such as ``10.0.0.5:6379``; ``auto`` for the cluster that this
            machine belongs to, or that the variable ``RAY_ADDRESS`` names; ``local`` to start one
            on this machine. A connection that this process already has is used.
        device: ``cuda`` for the GPUs of the cluster, or ``cpu``.
        ruleset: A ruleset or the name of one.
        workers: Number of kernels that an actor judges at the same time; 4 on a GPU and 1 on the
            CPU if None.
        timing: Whether correct kernels are timed.
        actors: Number of actors. If None, as many as the cluster has GPUs, or pairs of cores for
            each worker, also when machines join. If larger, Ray's autoscaler adds machines.
        device_kind: Accelerator type by which Ray knows the nodes to use, such as ``H100``; empty
            for all nodes, which then have to be alike.
        isolation: Sandbox tier, as for `kernelgym.judge.LocalEvaluator`.
        memory_bytes: Memory budget of judging one kernel, as for `LocalEvaluator`.
        patience_s: Seconds without any actor after which waiting jobs become `unavailable`.
        made_by: Class of the evaluator in each actor, as ``module:name``; it is called with the
            arguments `device`, `ruleset`, `workers`, `timing`, `isolation` and `memory_bytes`.

    Raises:
        UsageError: If Ray is not installed, no head answers, the cluster has no such devices, or an
            argument is invalid.
        UnknownName: If there is no such ruleset.
    """

    def __init__(
        self,
        address: str = "auto",
        device: str = "cuda",
        ruleset: str | Ruleset = "strict",
        workers: int | None = None,
        timing: bool = True,
        *,
        actors: int | None = None,
        device_kind: str = "",
        isolation: str = "auto",
        memory_bytes: float | None = None,
        patience_s: float = 600.0,
        made_by: str = _JUDGED_BY,
    ) -> None:
        name = check_device(device)
        if name not in ("cpu", "cuda:0"):
            raise UsageError(
                f"a Ray cluster has no device {device!r}; give 'cuda' for its GPUs, or 'cpu'"
            )
        workers = (1 if name == "cpu" else 4) if workers is None else workers
        for what, number in (("workers", workers), ("actors", 1 if actors is None else actors)):
            if number < 1:
                raise UsageError(f"{what} must be at least 1, got {number}")
        if not patience_s > 0:
            raise UsageError(f"patience_s must be above 0, got {patience_s}")
        rules = find_ruleset(ruleset)
        needs: dict[str, float] = (
            {"CPU": _CORES_OF_A_WORKER * workers} if name == "cpu" else {"GPU": 1}
        )
        if device_kind:
            needs[f"accelerator_type:{device_kind}"] = 0.001  # as much as Ray's own option takes
        arguments = {
            "device": name,
            "ruleset": rules,
            "workers": workers,
            "timing": timing,
            "isolation": isolation,
            "memory_bytes": memory_bytes,
        }
        plan = ActorPlan(made_by, arguments, needs, workers, actors, name, rules.label, patience_s)
        self._process = os.getpid()
        self._keeper = ActorKeeper(RayCluster(address), plan)
        try:
            self._keeper.start()
        except BaseException:
            self.close()
            raise

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the actors that are there now; waits for the first ones.

        Raises:
            UsageError: If actors cannot be used, are not alike, or none came within `patience_s`.
        """
        model, reports = self._keeper.model()
        budgets = [each.capabilities.memory_bytes for each in reports]
        known = [budget for budget in budgets if budget is not None]
        return dataclasses.replace(
            model,
            devices=tuple(sorted({each.device for each in reports})),
            workers=max(1, len(reports)) * model.workers,
            memory_bytes=min(known) if known else model.memory_bytes,
        )

    @property
    def status(self) -> EvaluatorStatus:
        """Counts of each actor's place; ``lost`` are calls, ``taken_out`` are actors."""
        return EvaluatorStatus(self._keeper.health())

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a job's verdict.

        Args:
            job: The job.
            seed: Seed of inputs and weights, as for `evaluate`.

        The future raises `UsageError` for what the actor's evaluator refuses, or if the actors
        cannot be used.

        Raises:
            UsageError: If this object is closed, or was made in another process.
        """
        if self._process != os.getpid():
            raise UsageError(
                "this RayEvaluator was made in another process; make one in this process"
            )
        return self._keeper.submit(job, seed)

    def close(self) -> None:
        """End the actors and their processes; jobs become `unavailable`. Twice is harmless."""
        if self._process == os.getpid():
            self._keeper.close()
