"""Command line of NVIDIA Nsight Compute (``ncu``), and parser of its output. Pure."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence

from kernelgym.counters import Counters, CountersStatus

TIME = "gpu__time_duration.sum"
"""Metric of a launch's time in nanoseconds, which every profile reads."""
_MOST_LAUNCHES = 8
_FIRST_COLUMN = '"ID",'
_FORBIDDEN = "ERR_NVGPUCTRPERM"


def command(ncu: str, metrics: Sequence[str], program: Sequence[str]) -> list[str]:
    """Return ncu's command line, which profiles a program from its profiler start to its stop.

    Args:
        ncu: Path of ``ncu``.
        metrics: Metrics to read; the time of launches is added.
        program: The program with its arguments.
    """
    named = ",".join(dict.fromkeys((TIME, *metrics)))
    options = ["--profile-from-start", "off", "--launch-count", str(_MOST_LAUNCHES)]
    options += ["--csv", "--page", "raw", "--print-units", "base"]
    return [ncu, *options, "--metrics", named, *program]


def read_output(text: str) -> Counters | None:
    """Return the counters in ncu's output; None if it has none.

    The values are those of the launch that took longest.

    Args:
        text: Everything that ``ncu`` and the program wrote; the values come last.
    """
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    begins = [number for number, line in enumerate(lines) if line.startswith(_FIRST_COLUMN)]
    try:
        rows = list(csv.reader(lines[begins[-1] :] if begins else ()))
    except csv.Error:  # a field of over 131,072 characters, which the program wrote
        return None
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return None
    head = rows[0]
    launches = [dict(zip(head, row, strict=False)) for row in rows[2:] if len(row) == len(head)]
    if not launches:
        return None
    longest = max(launches, key=lambda launch: _number(launch.get(TIME, "")) or 0.0)
    values = {
        name: value
        for name, text in longest.items()
        if "__" in name and (value := _number(text)) is not None
    }
    return Counters("measured", values, longest["Kernel Name"][:200], len(launches))


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if 0.0 <= value < math.inf else None  # the program can write what it likes


def unknown_metrics(text: str) -> tuple[str, ...]:
    """Return the metrics that ncu's output reports as unknown for the device."""
    found = re.findall(r"Failed to find metric\s+(?:regex:)?\W*([a-z][\w.]*)", text)
    return tuple(dict.fromkeys(found))


def failure(text: str) -> tuple[CountersStatus, str]:
    """Return the status of a profile without values, and the reason.

    Args:
        text: Everything that ``ncu`` and the program wrote.
    """
    if _FORBIDDEN in text:
        return "forbidden", (
            "the driver lets only administrators read counters; load it with "
            "NVreg_RestrictProfilingToAdminUsers=0, or run with CAP_SYS_ADMIN"
        )
    told = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in told if "==ERROR==" in line or "Error" in line]
    return "failed", ((errors or told or ["ncu wrote nothing"])[-1])[:500]
