"""Count how often a search promotes a kernel that is no faster, and how well its intervals repeat.

Run ``python -m benchmarks.search.false_promotions [--searches 20] [--out FILE]`` on a quiet
machine. Each search is offered kernels that differ from its start in names and comments alone, so
every promotion is false: of twenty searches one may promote at the most. Then, with ``--again
OUTDIR ...``, the best of finished searches is compared with the start once more: nine of ten such
duels should fall into the interval that the search reported. The searches and duels that FILE
holds are not run again, so that a command that was cut off is given once more.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.linear_gelu import KERNEL, PROBLEM
from benchmarks.search.texts import TextProposer
from kernelgym import Kernel, LocalEvaluator, duel
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.task import task_of

__all__ = ["again", "false_search", "renamed"]

_NAMES = re.compile(r"\b(total|best|rows|columns|inner|scale|mean|middle|variance|out|[ijkrcxy])\b")


def renamed(kernel: Kernel, number: int) -> Kernel:
    """Return a kernel with other names in its C++ text, and a comment more.

    Args:
        kernel: One of the search's examples.
        number: Number of the renamed kernel; each has other names.
    """
    before, quotes, rest = kernel.source.partition('source = """')
    cpp, end, after = rest.partition('"""')
    assert quotes and end, "an example keeps its C++ text in `source`"
    changed = _NAMES.sub(lambda found: f"{found[0]}_{number}", cpp)
    changed = re.sub(rf"(?<=[.>])(\w+)_{number}\b", r"\1", changed)  # members keep their names
    return Kernel(f"{before}{quotes}// {number}{changed}{end}{after}", kernel.language)


def false_search(
    example: str, evaluator: Evaluator, outdir: Path, seed: int, kernels: int, workers: int = 2
) -> dict[str, Any]:
    """Search among kernels that are the start; returns the search's result."""
    problem, start = EXAMPLES[example]
    offered = {
        str(number): renamed(start, number)
        for number in range(seed * kernels, (seed + 1) * kernels)
    }
    return search(
        task_of(problem, start, example),
        evaluator,
        outdir,
        SearchConfig(
            # Each of them is judged, however little the last ones gained.
            budget=Budget(kernels, min_pred_gain=0.0),
            approximate=True,
            seed=seed,
            workers=workers,
            proposer=TextProposer(start, offered, risk="exact"),
        ),
    )


def again(outdir: Path, evaluator: Evaluator) -> dict[str, Any] | None:
    """Compare the best of a finished search with its start once more.

    Args:
        outdir: Folder of a search of an example, or of `benchmarks.search.linear_gelu`.
        evaluator: Evaluator that judges both kernels.

    Returns:
        The search's folder, the reported interval, the new ratio, and whether it lies inside; None
        if the start won.
    """
    result = json.loads((outdir / "result.json").read_text())
    if not result["best"]["diff"]:
        return None
    problem, start = {**EXAMPLES, "linear_gelu": (PROBLEM, KERNEL)}[result["task"]]
    best = Kernel((outdir / result["best"]["path"]).read_bytes().decode(), start.language)
    found = duel(evaluator, problem, start, best)
    low, high = result["speedup_low"], result["speedup_high"]
    inside = low <= found.ratio <= high
    return {
        "search": outdir.name,
        "low": low,
        "high": high,
        "again": found.ratio,
        "inside": inside,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the searches and print what was promoted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=8, help="offered to each search")
    parser.add_argument("--example", default="softmax", choices=EXAMPLES)
    parser.add_argument("--again", type=Path, nargs="*", default=[], help="outdirs of searches")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    data: dict[str, Any] = {"machine": machine(), "promoted": 0, "searches": [], "again": []}
    if given.out is not None and given.out.exists():
        data = json.loads(given.out.read_text())
    with LocalEvaluator(workers=2) as evaluator:
        for seed in range(len(data["searches"]), given.searches):
            with tempfile.TemporaryDirectory() as folder:
                result = false_search(given.example, evaluator, Path(folder), seed, given.kernels)
            row = {name: result[name] for name in ("speedup", "speedup_low", "noise", "seconds")}
            data["searches"].append(row)
            data["promoted"] += row["speedup"] > 1.0
            _keep(data, given.out)
            print(f"search {seed}: {row}", flush=True)
        there = {row["search"] for row in data["again"]}
        for outdir in (each for each in given.again if each.name not in there):
            if (interval := again(outdir, evaluator)) is not None:
                data["again"].append(interval)
                _keep(data, given.out)
                print(f"{outdir}: {interval}", flush=True)
    searches, repeated = data["searches"], data["again"]
    print(f"{data['promoted']} of {len(searches)} searches promoted a kernel that is no faster")
    if repeated:
        inside = sum(row["inside"] for row in repeated)
        print(f"{inside} of {len(repeated)} repeated duels fell into the reported interval")


def _keep(data: dict[str, Any], out: Path | None) -> None:
    """Write what there is so far: a run may be cut off."""
    if out is not None:
        out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
