"""Sentences on the verdict service: what it costs, how fast and fair it is, and what faults lose.

Contract: a function is given the content of one result file and returns Markdown.
"""

from __future__ import annotations

from typing import Any

from benchmarks.table_rows import number, whole

__all__ = ["MEASURED_ELSEWHERE", "cost", "ray_soak", "soak"]

MEASURED_ELSEWHERE = ("verdicts", "verdicts_on_gpu", "stream", "ray_on_gpus")
"""Keys of the cost's parts that ran on another machine than the rest; each records its own."""


def cost(data: Any) -> str:
    """Return how many verdicts the service passes on, how fair it is, and what verdicts lose."""
    found, fair, judged = data["scripted"], data["fairness"], data["verdicts"]
    rates, where = judged["many_per_s"], judged["machine"]
    streamed, hourly = data["stream"], data["stream"]["per_hour"]
    one, ray = data["verdicts_on_gpu"], data["ray_on_gpus"]
    return (
        f"With an evaluator that takes no time, one server passes on "
        f"{whole(found['sequence_per_s'])} verdicts a second sent as a sequence, and "
        f"{whole(found['single_per_s'])} sent one by one by 32 threads. Ten verdicts of "
        f"{1e3 * fair['verdict_s']:.0f} ms on {fair['workers']} workers take "
        f"{number(fair['idle_s'])} s, and {number(fair['beside_s'])} s while another key has "
        f"{whole(fair['queued'])} jobs queued. On {where['cores']} cores of the busy host "
        f"({where['cpu']}), `kernelgym serve` on loopback adds {number(judged['added_ms'])} ms to "
        f"a verdict on the CPU ({number(judged['added_outside_ms'])} ms outside of judging, "
        f"medians); {judged['many']} kernels of {judged['problem']} at once give "
        f"{number(rates['service'])} verdicts a second through it and {number(rates['local'])} "
        f"without, by {judged['workers']} workers, untimed. On one GPU, {one['many']} kernels of "
        f"{one['problem']} at once give {number(one['many_per_s']['service'])} verdicts a second "
        f"through it and {number(one['many_per_s']['local'])} without, by {one['workers']} "
        f"workers, timed; on both sides memory ran out at times, and kernels were judged again. "
        f"On {streamed['gpus']} GPUs, groups of eight answers to four problems of KernelBench give "
        f"{whole(hourly['service'])} verdicts an hour through the service and "
        f"{whole(hourly['local'])} without it, with {streamed['workers']} workers per GPU. On two "
        f"GPUs, {ray['many']} kernels of {ray['problem']} at once give "
        f"{number(ray['many_per_s']['ray'])} verdicts a second through a Ray cluster and "
        f"{number(ray['many_per_s']['local'])} by a local evaluator, with {ray['workers']} workers "
        f"per GPU, timed."
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
