"""Sentences on the verdict service: what it costs, how fast and fair it is, and what faults lose.

Contract: a function is given the content of one result file and returns Markdown.
"""

from __future__ import annotations

from typing import Any

from benchmarks.table_rows import number, whole

__all__ = ["cost", "cost_on_gpus", "rate", "ray_soak", "soak"]


def cost(data: Any) -> str:
    """Return what single verdicts and throughput lose through the service."""
    found = data["verdicts"]
    where = "an H100" if "gpu" in data["machine"] else "the CPU"
    what = f"{found['many']} kernels of {found['problem'].removeprefix('KernelBench/')}"
    rates = found["many_per_s"]
    return (
        f"On {where}, `kernelgym serve` on loopback adds {number(found['added_outside_ms'])} ms to "
        f"a verdict outside of judging (median); {what} at once give {number(rates['service'])} "
        f"verdicts a second through it and {number(rates['local'])} without, by "
        f"{found['workers']} workers{'' if found['timed'] else ', untimed'}."
    )


def cost_on_gpus(data: Any) -> str:
    """Return what a stream on several GPUs loses through the service."""
    found = data["stream"]
    rates, gpus = found["per_hour"], found["rounds"]["local"][0]["gpus"]
    return (
        f"A stream of groups on {gpus} GPUs gives {whole(rates['service'])} verdicts an hour "
        f"through `kernelgym serve --device all`, and {whole(rates['local'])} without it."
    )


def rate(data: Any) -> str:
    """Return how many verdicts the service itself passes on, how fair it is, and its cost."""
    found, fair = data["scripted"], data["fairness"]
    added = f" {cost(data)}" if "verdicts" in data else ""
    return (
        f"With an evaluator that takes no time, one server passes on "
        f"{whole(found['sequence_per_s'])} verdicts a second sent as a sequence, and "
        f"{whole(found['single_per_s'])} sent one by one by 32 threads. Ten verdicts of "
        f"{1e3 * fair['verdict_s']:.0f} ms on {fair['workers']} workers take "
        f"{number(fair['idle_s'])} s, and {number(fair['beside_s'])} s while another key has "
        f"{whole(fair['queued'])} jobs queued.{added}"
    )


def soak(data: Any) -> str:
    """Return what a service lost while its parts were killed."""
    said = []
    for phase in data["phases"]:
        gone = phase["statuses"].get("unavailable", 0)
        said.append(
            f"{whole(phase['verdicts'])} {phase['phase']} verdicts while {phase['worker_kills']} "
            f"workers, the server {phase['server_kills']} times and a client were killed and "
            f"{phase['cuts']} connections cut: "
            f"{phase['wanted'] - phase['stored']['finals']} lost, "
            f"{phase['stored']['jobs'] - phase['wanted']} judged twice, {len(phase['unequal'])} "
            f"unlike those without faults, {gone} unavailable "
            f"({100 * gone / phase['wanted']:.2f} %)"
        )
    return f"{'; '.join(said)}."


def ray_soak(data: Any) -> str:
    """Return what a cluster lost while its actors and a node were killed."""
    said = []
    for phase in data["phases"]:
        gone = phase["statuses"].get("unavailable", 0)
        said.append(
            f"{whole(phase['wanted'])} {phase['phase']} verdicts of a Ray cluster while "
            f"{phase['actor_kills']} actors and a node were killed: "
            f"{phase['wanted'] - phase['jobs_with_an_outcome']} lost, "
            f"{phase['outcomes'] - phase['jobs_with_an_outcome']} given twice, "
            f"{len(phase['unequal'])} unlike those without faults, {gone} unavailable; "
            f"{phase['resubmissions']} were judged again by another actor"
        )
    return f"{'; '.join(said)}."
