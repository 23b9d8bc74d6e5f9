"""Record verdicts and a search while other processes use both cores.

Run ``python -m benchmarks.search.busy_host [--verdicts 10] [--spinning 2] [--out FILE]``, on more
than two cores under ``taskset -c 0,1``. While processes spin beside it, one correct C++ kernel is
judged again and again, each time with another seed: the intervals of its speedup must have a point
in common, or say `host_busy`. Then a search is offered kernels that differ from its start in names
and comments alone: it must promote none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.false_promotions import false_search
from kernelgym import LocalEvaluator
from kernelgym.types import Verdict
from kernelgym_train.mcgs.examples import EXAMPLES

__all__ = ["consistent", "spinning"]


@contextmanager
def spinning(number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep processors busy with processes that only count; yield them."""
    # A program ends with its parent: one that outlives it would load the machine for good.
    spin = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    programs = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(number)]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


def consistent(rows: Sequence[dict[str, Any]]) -> bool:
    """Return True if the intervals of verdicts that do not say `host_busy` overlap, each pair."""
    told = [row for row in rows if not row["host_busy"]]
    return not told or max(r["low"] for r in told) <= min(r["high"] for r in told)


def _row(verdict: Verdict) -> dict[str, Any]:
    timing = verdict.timing
    codes = {finding.code for finding in verdict.findings}
    if timing is None:
        raise RuntimeError(f"the kernel was not timed: {verdict.status.value}: {verdict.message}")
    return {
        "speedup": timing.speedup,
        "low": timing.speedup_low,
        "high": timing.speedup_high,
        "host_busy": "host_busy" in codes,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Judge and search beside spinning processes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--verdicts", type=int, default=10)
    parser.add_argument("--spinning", type=int, default=2)
    parser.add_argument("--kernels", type=int, default=8, help="offered to the search")
    parser.add_argument("--example", default="softmax", choices=EXAMPLES)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    problem, kernel = EXAMPLES[given.example]
    cores = sorted(os.sched_getaffinity(0))
    data: dict[str, Any] = {"machine": machine(), "cores": len(cores), "spinning": given.spinning}
    with LocalEvaluator(workers=2) as evaluator:
        evaluator.evaluate(problem, kernel, seed="build")
        with spinning(given.spinning):
            rows = []
            for number in range(given.verdicts):
                rows.append(_row(evaluator.evaluate(problem, kernel, seed=str(number))))
                print(rows[-1], flush=True)
            data |= {"example": given.example, "verdicts": rows, "consistent": consistent(rows)}
            with tempfile.TemporaryDirectory() as folder:
                result = false_search(given.example, evaluator, Path(folder), 0, given.kernels)
            names = ("speedup", "speedup_low", "noise", "evaluations", "seconds")
            data["search"] = {name: result[name] for name in names}
    print(json.dumps(data, indent=1))
    if given.out:
        given.out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
