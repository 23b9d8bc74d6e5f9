"""Judge kernels by the actors of a Ray cluster, here one that is started on this machine.

    python examples/12_ray_judge.py [ADDRESS]

Give the address of a cluster's head, or `auto` on one of its nodes, to judge on its CPUs. Needs
`pip install 'kernelgym[ray]'`.
"""

from __future__ import annotations

import sys

from kernelgym import RayEvaluator
from kernelgym.testing import SAMPLE_BROKEN, SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Job

kernels = [SAMPLE_KERNELS["triton"], SAMPLE_BROKEN["triton"]]
jobs = [Job(SAMPLE_PROBLEM, kernel) for kernel in kernels]
address = sys.argv[1] if len(sys.argv) > 1 else "local"
with RayEvaluator(address, "cpu", timing=False) as judge:
    can = judge.capabilities
    print(f"{can.ruleset.label} by {can.workers} workers on {', '.join(can.devices)}")
    for verdict in judge.evaluate_many(jobs):
        print(f"verdict of an actor: {verdict.status.value}")
