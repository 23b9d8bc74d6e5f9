"""`Counters`: a GPU's hardware counters of one call of a kernel, and the kernel's bottlenecks.

`METRICS` are metrics of NVIDIA Nsight Compute (``ncu``). `bottlenecks` turns their values into one
share for each of six categories. Part of the nouns: standard library only, and no IO but for
`find_ncu`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

CountersStatus = Literal["measured", "unavailable", "forbidden", "timeout", "failed"]
"""``unavailable``: no profiler, or none for this kernel or device. ``forbidden``: the driver lets
only administrators read counters. ``failed``: the profiler or the kernel failed."""
BOTTLENECKS = ("compute", "gmem", "sfu", "atomics", "smem", "overlap")
"""Categories: arithmetic, global memory, special functions, atomics, shared memory, and latency
that is not hidden."""
_SM, _ACTIVE = "pct_of_peak_sustained_elapsed", "pct_of_peak_sustained_active"
_STALLED = "smsp__average_warps_issue_stalled_"
METRICS: tuple[str, ...] = (
    "gpu__time_duration.sum",
    f"sm__throughput.avg.{_SM}",
    f"sm__pipe_tensor_cycles_active.avg.{_ACTIVE}",
    f"sm__inst_executed_pipe_fma.avg.{_ACTIVE}",
    f"sm__inst_executed_pipe_xu.avg.{_ACTIVE}",
    f"gpu__dram_throughput.avg.{_SM}",
    f"lts__throughput.avg.{_SM}",
    f"l1tex__throughput.avg.{_ACTIVE}",
    "lts__t_sector_hit_rate.pct",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors.sum",
    f"l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.{_SM}",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    f"sm__warps_active.avg.{_ACTIVE}",
    f"smsp__issue_active.avg.{_ACTIVE}",
    f"{_STALLED}long_scoreboard_per_issue_active.ratio",
    f"{_STALLED}barrier_per_issue_active.ratio",
    "launch__registers_per_thread",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
)
"""Metrics that are read where none are named."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Hardware counters of one call of a kernel."""

    status: CountersStatus
    values: Mapping[str, float] = field(default_factory=dict)
    """Values by metric, of the launch of the call that took longest; empty unless measured.
    Times are in nanoseconds, ``pct`` are percent."""
    kernel: str = ""
    """Name of the launched function to which the values belong."""
    launches: int = 0
    """Number of launches in the call; eight are counted at most."""
    source: str = ""
    """Name and version of the profiler."""
    seconds: float = 0.0
    """Wall seconds that the profile took."""
    message: str = ""
    """Reason why there are no values; empty if there are."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the counters that plain data describes."""
        return cls(**data)

    @property
    def bottlenecks(self) -> Mapping[str, float]:
        """Share of each category of bottlenecks; empty unless counters were measured."""
        return bottlenecks(self.values) if self.status == "measured" else {}


def bottlenecks(values: Mapping[str, float]) -> dict[str, float]:
    """Return how far each category limits a kernel, from 0 to 1.

    Arithmetic, memory, special functions and shared memory are shares of the device's peak; so is
    the part of the first cache's work that repeats accesses because of bank conflicts. Atomics are
    four times their share of the accesses to the second cache, 1 at most. Latency is what the
    busiest unit leaves idle, weighed by the share of stalls that wait for memory or at barriers.

    Args:
        values: Values by metric, of `METRICS`; those that are missing count as 0.
    """

    def of(name: str) -> float:
        return values.get(name, 0.0)

    tensor = of(f"sm__pipe_tensor_cycles_active.avg.{_ACTIVE}")
    compute = max(of(f"sm__throughput.avg.{_SM}"), tensor) / 100
    memory = max(of(f"gpu__dram_throughput.avg.{_SM}"), of(f"lts__throughput.avg.{_SM}")) / 100
    sectors = of("lts__t_sectors.sum")
    atomic = of("lts__t_sectors_op_atom.sum") + of("lts__t_sectors_op_red.sum")
    shared = of(f"l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.{_SM}") / 100
    waves = of("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    conflicts = of("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    cache = min(1.0, of(f"l1tex__throughput.avg.{_ACTIVE}") / 100)
    waits = of(f"{_STALLED}long_scoreboard_per_issue_active.ratio")
    waits += of(f"{_STALLED}barrier_per_issue_active.ratio")
    found = {
        "compute": compute,
        "gmem": memory,
        "sfu": of(f"sm__inst_executed_pipe_xu.avg.{_ACTIVE}") / 100,
        "atomics": 4 * atomic / sectors if sectors else 0.0,
        "smem": max(shared, cache * conflicts / waves if waves else 0.0),
        "overlap": (1 - min(1.0, max(compute, memory))) * waits / (1 + waits),
    }
    return {name: min(1.0, max(0.0, value)) for name, value in found.items()}


def find_ncu() -> str:
    """Return the path of ``ncu``; empty if it is not installed."""
    root = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    found = shutil.which("ncu") or shutil.which("ncu", path=f"{root}/bin")
    return os.path.realpath(found) if found else ""
