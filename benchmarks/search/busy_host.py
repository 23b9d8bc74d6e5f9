"""Search among kernels that are no faster while other processes use both cores.

Run ``python -m benchmarks.search.busy_host [--spinning 2] [--out FILE]``, on more than two cores
under ``taskset -c 0,1``. While processes spin beside it, a search is offered kernels that differ
from its start in names and comments alone: it must promote none. It may refuse to begin because its
start cannot be timed. `benchmarks.judge.interval_coverage` measures single verdicts.
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
from kernelgym import LocalEvaluator, UsageError
from kernelgym_train.mcgs.examples import EXAMPLES

__all__ = ["spinning"]


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


def main(argv: Sequence[str] | None = None) -> None:
    """Search beside spinning processes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spinning", type=int, default=2)
    parser.add_argument("--kernels", type=int, default=8, help="offered to the search")
    parser.add_argument("--example", default="softmax", choices=EXAMPLES)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    cores = len(os.sched_getaffinity(0))
    data: dict[str, Any] = {"machine": machine(), "cores": cores, "spinning": given.spinning}
    data["example"] = given.example
    with LocalEvaluator(workers=2) as evaluator, tempfile.TemporaryDirectory() as folder:
        evaluator.evaluate(*EXAMPLES[given.example], seed="build")
        with spinning(given.spinning):
            try:
                result = false_search(given.example, evaluator, Path(folder), 0, given.kernels)
                names = ("speedup", "speedup_low", "noise", "evaluations", "seconds")
                data["search"] = {name: result[name] for name in names}
            except UsageError as refused:
                data["search"] = {"refused": str(refused)}
    print(json.dumps(data, indent=1))
    if given.out:
        given.out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
