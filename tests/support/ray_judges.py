"""Evaluators for the actors of a Ray cluster in tests, and a cluster on this machine.

Actors import this module: the cluster's processes have the tests' folder in their path.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Kernel, Problem, Verdict

TESTS = Path(__file__).parents[1]
_STORE_BYTES = 80 << 20


class ScriptedActor(ScriptedEvaluator):
    """Judges by the comments of kernels; ``# takes: SECONDS`` has a verdict take that long."""

    facts: tuple[str, ...] = ("scripted",)

    def __init__(self, device: str, ruleset: Any, workers: int, timing: bool, **_: Any) -> None:
        super().__init__(
            None, ruleset, device, workers=workers, timed=timing, provenance=self.facts
        )

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        if found := re.search(r"# takes: ([0-9.]+)", kernel.source):
            time.sleep(float(found[1]))
        return super().evaluate(problem, kernel, seed=seed)


class ActorOfTheNode(ScriptedActor):
    """Has the provenance that the node's file ``KIND`` in Ray's resources says."""

    def __init__(self, **arguments: Any) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id()
        resources = next(each["Resources"] for each in ray.nodes() if each["NodeID"] == node)
        self.facts = tuple(sorted(key for key in resources if key.startswith("accelerator_type:")))
        super().__init__(**arguments)


@contextlib.contextmanager
def ray_cluster(*nodes: Mapping[str, Any]) -> Iterator[Any]:
    """Run a Ray cluster on this machine: a head without resources, and nodes."""
    from ray.cluster_utils import Cluster

    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH", ""))))
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "RAY_USAGE_STATS_ENABLED")}
    os.environ |= {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    head = {"num_cpus": 0, "num_gpus": 0, "object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
    try:
        for node in nodes:
            add_node(cluster, **node)
        yield cluster
    finally:
        cluster.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def add_node(cluster: Any, **resources: Any) -> Any:
    """Add a node to a cluster and return it."""
    return cluster.add_node(object_store_memory=_STORE_BYTES, **resources)
