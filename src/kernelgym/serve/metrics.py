"""Figures of the service in Prometheus' text format."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from kernelgym.serve.runner import Runner

_Rows = Iterable[tuple[dict[str, str], float]]


def metrics_text(runner: Runner) -> str:
    """Return all figures of a service; runs ``nvidia-smi`` if kernels are judged on GPUs."""
    status = runner.judges.status
    lines: list[str] = []

    def add(name: str, kind: str, told: str, rows: _Rows) -> None:
        lines.append(f"# HELP kernelgym_{name} {told}")
        lines.append(f"# TYPE kernelgym_{name} {kind}")
        for labels, value in rows:
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"kernelgym_{name}{{{inner}}} {value:g}".replace("{}", ""))

    counts = runner.store.counts()
    open_jobs = [({"tenant": who, "state": state}, n) for (who, state), n in counts.items()]
    add("jobs", "gauge", "Open jobs by tenant and state.", open_jobs)
    by_status = [({"status": name}, n) for name, n in list(runner.verdicts.items())]
    add("verdicts_total", "counter", "Outcomes by status.", by_status)
    by_stage = [({"stage": name}, spent) for name, spent in list(runner.stage_s.items())]
    add("stage_seconds_total", "counter", "Seconds of verdicts by stage.", by_stage)
    add("requeued_total", "counter", "Jobs judged again after a restart.", [({}, runner.requeued)])
    health = status.health
    lost = [({"device": each.device}, each.lost) for each in health]
    add("attempts_lost_total", "counter", "Failed attempts at a verdict by device.", lost)
    in_service = [({"device": each.device}, float(each.in_service)) for each in health]
    add("device_in_service", "gauge", "1 if the device is given kernels.", in_service)
    hits = [({"result": "hit"}, status.hits), ({"result": "miss"}, status.misses)]
    add("cache_total", "counter", "Verdicts by result of the cache.", hits)
    add("state_bytes", "gauge", "Size of the state file.", [({}, runner.store.size_bytes())])
    if runner.judges.own.capabilities.devices != ("cpu",):
        add("gpu_memory_used_bytes", "gauge", "Memory in use by GPU.", _gpu_memory())
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _gpu_memory() -> list[tuple[dict[str, str], float]]:
    """Return the bytes in use on each GPU of the host; empty if unknown."""
    query = ("nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=10).stdout
        rows = [line.split(",") for line in said.splitlines()]
        return [({"gpu": index.strip()}, float(used) * 2**20) for index, used in rows]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
