"""Compare searches with and without priors from a kernel's text.

Run ``python -m benchmarks.search.priors EXAMPLE NAME [--seeds 50] [--out FILE]`` on a table that
``benchmarks.search.measure EXAMPLE NAME`` wrote. Searches start from the example's own kernel and
see the moves of the table's columns. Printed is the true share of the optimum that the best
measured state has after 20 and 60 evaluations, median/10th percentile, with 0 and 5 % noise, for
each algorithm whose choices depend on priors. Needs no quiet machine: nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.hub import TABLES
from benchmarks.search.measure import ABSENT_AS
from benchmarks.search.offline import play_from
from benchmarks.search.table import Config, Table, read_table
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.variant import Variant, read_variant

__all__ = ["AT", "USES_PRIORS", "shares"]

AT = (20, 60)
USES_PRIORS = ("best_first", "mcgs")
_NOISES = (0.0, 0.05)


def shares(
    start: Variant, table: Table, algo: str, *, static: bool, seed: int, noise: float = 0.0
) -> tuple[float, ...]:
    """Return the shares of the optimum after each evaluation of one search.

    Args:
        start: The kernel that the table's configurations were made from.
        table: Table of configurations of that kernel.
        algo: Name of the algorithm.
        static: Whether priors depend on the kernels' texts.
        seed: Seed of the algorithm and the noise.
        noise: Standard deviation of ln of a measured time.
    """
    moves = {name.partition("/")[0] for name in table.columns}
    proposer = RuleProposer(start, moves=moves, static=static)
    space = proposer.space()

    def config_of(variant: Variant) -> Config | None:
        values = proposer.values(space, variant)
        if values is None or set(values) - set(table.columns):
            return None
        return tuple(values[name] or ABSENT_AS for name in table.columns)

    found = play_from(
        ALGORITHMS[algo], table, proposer, start, config_of, seed=seed, budget=max(AT), noise=noise
    )
    return found.shares


def main(argv: Sequence[str] | None = None) -> None:
    """Play all searches, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("name", help="of the table, such as matmul_cpu")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    start, table = (
        read_variant(EXAMPLES[given.example][1]),
        read_table(TABLES / f"{given.name}.csv"),
    )
    rows: list[dict[str, Any]] = []
    for algo in USES_PRIORS:
        for noise in _NOISES:
            for static in (False, True):
                runs = [
                    shares(start, table, algo, static=static, seed=seed, noise=noise)
                    for seed in range(given.seeds)
                ]
                row: dict[str, Any] = {"algorithm": algo, "noise": noise, "static": static}
                for at in AT:
                    then = sorted(run[at - 1] for run in runs)
                    tenth = then[(len(then) - 1) // 10]
                    row[str(at)] = [round(statistics.median(then), 4), round(tenth, 4)]
                rows.append(row)
                print(json.dumps(row), flush=True)
    if given.out:
        data = {"machine": machine("optuna"), "table": given.name, "notes": table.notes}
        given.out.write_text(json.dumps({**data, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
