"""Verdicts of a Ray cluster that loses actors and a node: is any lost, doubled or changed?

Run ``python -m benchmarks.service.ray_soak --folder DIR [--out FILE]``. The cluster is on this
machine (`ray.cluster_utils`): a head without resources and two nodes.

`scripted`: 2,000 verdicts by scripted evaluators in four actors, of which one is killed every 8 s;
`real`: 200 verdicts of the CPU judge in two actors, of which one is killed every 30 s.

An actor is killed only if ten verdicts have come since the last one was: on a busy machine, a new
one needs longer to start than the time between two kills. In each phase a node is killed after a
third of the verdicts, and added again after two thirds.

Every job must have exactly one outcome, equal to that of the same kernel without faults; none may
be `unavailable`; this process must not grow, and no process may be left. Exit code 0: all holds; 1:
something does not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.service.clients import told
from benchmarks.service.soak import GROWTH_MIB, Phase, real_phase, scripted_phase
from benchmarks.soak.watch import below, command, naming, open_files, processes, resident_mib
from kernelgym import RayEvaluator
from kernelgym.types import Job, Kernel

SETTINGS: dict[str, dict[str, Any]] = {
    "scripted": {"made_by": "benchmarks.service.ray_actors:ScriptedActor"},
    "real": {"timing": False},
}
CPUS = {"scripted": 4, "real": 2}  # an actor takes two, so each node has two actors, or one
KILL_EVERY_S = {"scripted": 8.0, "real": 30.0}
PROGRESS = 10  # verdicts between two kills
STORE_BYTES = 80 << 20
GONE_S = 60.0  # of a worker that Ray was starting when its node was killed
MARK = "KERNELGYM_SOAK"
"""Variable that names the run's folder in the environment of all its processes."""


class RaySoak:
    """One phase over a cluster.

    Args:
        phase: Jobs and what their verdicts are without faults.
        folder: Folder for the expected verdicts.
    """

    def __init__(self, phase: Phase, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self._phase, self._folder = phase, folder
        self._node = {"num_cpus": CPUS[phase.name], "object_store_memory": STORE_BYTES}
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes = [self._cluster.add_node(**self._node) for _ in range(2)]
        self._random = random.Random(0)
        self.facts: dict[str, Any] = {"actor_kills": 0, "node_kills": 0, "nodes_added": 0}
        self.samples: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """Judge all jobs while actors and a node are killed; return what it came to."""
        phase, outcomes = self._phase, list[tuple[int, list[Any]]]()
        # The seed of a job is its kernel's, so that real verdicts can be compared in every field.
        rows = [phase.kernel(number) for number in range(phase.count)]
        settings = SETTINGS[phase.name]
        evaluator = RayEvaluator(self._cluster.address, "cpu", **settings)
        with evaluator:
            started_workers = evaluator.capabilities.workers
            started = time.monotonic()
            futures = [
                evaluator.submit(Job(phase.problem, Kernel(row[1], row[0])), row[2]) for row in rows
            ]
            for number, future in enumerate(futures):
                future.add_done_callback(
                    lambda done, number=number: outcomes.append((number, told(done.result())))
                )
            self._disturb(outcomes, started)
            wall_s = time.monotonic() - started
            health = evaluator.status.health
        return self._result(outcomes, wall_s) | {
            "actors": started_workers,
            "actors_lost": sum(each.taken_out for each in health),
            "resubmissions": sum(each.lost for each in health),
        }

    def _disturb(self, outcomes: list[tuple[int, list[Any]]], started: float) -> None:
        """Kill actors and a node until all jobs have outcomes."""
        every_s = KILL_EVERY_S[self._phase.name]
        next_kill = next_sample = started + every_s
        killed_after = 0
        while len(outcomes) < self._phase.count:
            time.sleep(0.1)
            now, share = time.monotonic(), len(outcomes) / self._phase.count
            if now >= next_kill and len(outcomes) >= killed_after + PROGRESS:
                next_kill, killed_after = now + every_s, len(outcomes)
                self._kill_actor()
            if not self.facts["node_kills"] and share >= 1 / 3:
                self._cluster.remove_node(self._nodes.pop(), allow_graceful=False)
                self.facts["node_kills"] += 1
                print(f"a node was killed after {len(outcomes)} verdicts", flush=True)
            if not self.facts["nodes_added"] and share >= 2 / 3:
                self._nodes.append(self._cluster.add_node(**self._node))
                self.facts["nodes_added"] += 1
                print(f"a node was added after {len(outcomes)} verdicts", flush=True)
            if now >= next_sample:
                next_sample = now + 5.0
                sample = {
                    "verdicts": len(outcomes),
                    "caller_mib": round(resident_mib(os.getpid()), 1),
                    "caller_files": open_files(os.getpid()),
                }
                self.samples.append(sample)
                print(" ".join(f"{key} {value}" for key, value in sample.items()), flush=True)

    def _kill_actor(self) -> None:
        actors = [each[0] for each in naming(self._folder, processes()) if _is_actor(each)]
        if actors:
            os.kill(self._random.choice(actors), signal.SIGKILL)
            self.facts["actor_kills"] += 1

    def _result(self, outcomes: list[tuple[int, list[Any]]], wall_s: float) -> dict[str, Any]:
        expected = self._phase.expected(self._folder)
        unequal = [[n, given, expected[n]] for n, given in outcomes if given != expected[n]]
        return {
            "phase": self._phase.name,
            "wanted": self._phase.count,
            "outcomes": len(outcomes),
            "jobs_with_an_outcome": len({number for number, _ in outcomes}),
            "statuses": dict(Counter(given[0] for _, given in outcomes)),
            "unequal": unequal[:20],
            "wall_s": round(wall_s, 1),
            **self.facts,
        }

    def close(self) -> list[str]:
        """End the cluster; return the processes that are left."""
        self._cluster.shutdown()
        deadline = time.monotonic() + GONE_S
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return sorted(map(command, left))

    def _left(self) -> set[tuple[int, str]]:
        living = processes()
        found = naming(self._folder, living) | below(os.getpid(), living)
        return {each for each in found if each[0] != os.getpid()}


def _is_actor(process: tuple[int, str]) -> bool:
    return "ray::JudgeActor" in command(process)


def faults(found: dict[str, Any]) -> list[str]:
    """Return everything that ought not to be."""
    wanted, wrong = found["wanted"], []
    if found["outcomes"] != wanted or found["jobs_with_an_outcome"] != wanted:
        wrong.append(f"{found['outcomes']} outcomes of {found['jobs_with_an_outcome']} jobs")
    if found["unequal"]:
        wrong.append(f"unequal verdicts: {found['unequal']}")
    if found["left"]:
        wrong.append(f"processes are left: {found['left']}")
    samples = found["samples"]
    if len(samples) >= 5:
        early, late = samples[len(samples) // 5], samples[-1]
        if late["caller_mib"] > early["caller_mib"] + GROWTH_MIB:
            wrong.append(f"this process grew: {early} {late}")
    return wrong


def main() -> int:
    """Run the phases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="folder of the run; a temporary one if none")
    parser.add_argument("--scripted", type=int, default=2000, help="scripted verdicts; 0 for none")
    parser.add_argument("--real", type=int, default=200, help="verdicts of the CPU; 0 for none")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="ray-soak-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH", ""))))
    os.environ |= {MARK: str(folder), "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    phases = [scripted_phase(options.scripted)] if options.scripted else []
    phases += [real_phase(options.real)] if options.real else []
    data: dict[str, Any] = {"machine": machine("torch", "triton", "ray"), "phases": []}
    for phase in phases:
        phase.expected(folder)  # without faults, and before the cluster takes the processor
        soak = RaySoak(phase, folder)
        try:
            found = soak.run()
        finally:
            left = soak.close()
        found |= {"samples": soak.samples, "left": left[:20]}
        data["phases"].append(found | {"faults": faults(found)})
        shown = {name: value for name, value in data["phases"][-1].items() if name != "samples"}
        print(json.dumps(shown), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(data, indent=1) + "\n")
    return int(any(found["faults"] for found in data["phases"]))


if __name__ == "__main__":
    sys.exit(main())
