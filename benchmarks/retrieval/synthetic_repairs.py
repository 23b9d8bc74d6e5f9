"""What the judge says of the Synthetic suite's broken kernels: the embedded index's repairs.

Run ``python -m benchmarks.retrieval.synthetic_repairs --out FILE [--language L] [--problems N]``.
For broken kernels of problems that are not held out it asks the judge, on the CPU, and writes one
line per kernel: problem, language, defect, the kernel's digest, the style seed of the correct
kernel that differs least from it, the feedback's category and its text as JSON. Kernels that ran
into a deadline are passed over, since that depends on the machine. `kernelgym.retrieval.synthetic`
reads the file that comes with the package; the file holds the rows of all languages, one run's
after the other's.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from kernelgym.feedback import feedback
from kernelgym.judge import LocalEvaluator
from kernelgym.suites.synthetic import (
    BrokenKernel,
    SyntheticSuite,
    broken_variants,
    canonical_form,
    part_of,
    solve,
)
from kernelgym.types import Job, Problem, Reply, Status

_FOLDER = re.compile(r"/[^\s:\"']*/(?=(?:kernelgym|triton|torch|numpy)/)")
"""Where packages lie on this machine, in warnings that a kernel's process printed."""
_PER_LEVEL = {1: 1, 2: 2}
"""Share of the problems by level."""
_STYLES = 24
_FAILED = (Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.WRONG)


def problems(count: int) -> Iterator[Problem]:
    """Yield problems that are not held out, each of a canonical form of its own."""
    seen: set[str] = set()
    for level, share in _PER_LEVEL.items():
        wanted = count * share // sum(_PER_LEVEL.values())
        for problem in SyntheticSuite(per_level=10 * count).problems(level):
            form = canonical_form(problem)
            if form in seen or part_of(form) == "heldout":
                continue
            seen.add(form)
            yield problem
            wanted -= 1
            if not wanted:
                break


def nearest_style(problem: Problem, broken: BrokenKernel, language: str) -> int:
    """Return the style seed of the correct kernel that differs least from a broken one."""
    lines = broken.kernel.source.splitlines()

    def differing(seed: int) -> int:
        right = solve(problem, language, seed).source.splitlines()  # type: ignore[arg-type]
        return sum(line[:1] in "+-" for line in difflib.unified_diff(lines, right, n=0))

    return min((1000 * attempt for attempt in range(_STYLES)), key=differing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--language", default="triton")
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    broken = [
        (problem, each)
        for problem in problems(options.problems)
        for each in broken_variants(problem, options.language)
    ]
    print(f"{len(broken)} broken kernels", flush=True)
    rows = []
    judge = LocalEvaluator("cpu", "strict", options.workers, False)
    try:
        jobs = [Job(problem, each.kernel) for problem, each in broken]
        for index, verdict in judge.evaluate_iter(jobs):
            problem, each = broken[index]
            if verdict.status not in _FAILED:
                print(f"passed over: {problem.id} {each.defect} {verdict.status}", flush=True)
                continue
            told = feedback(verdict, Reply(each.kernel))
            text = _FOLDER.sub("", str(told))
            style = nearest_style(problem, each, options.language)
            where = (problem.id, options.language, each.defect, each.kernel.digest, str(style))
            rows.append((*where, told.category, json.dumps(text)))
    finally:
        judge.close()
    rows.sort(key=lambda row: (row[1], row[0], row[2]))
    options.out.write_text("".join("\t".join(row) + "\n" for row in rows))
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main()
