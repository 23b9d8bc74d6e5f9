"""Compare the algorithms of a search on tables of which every configuration was measured.

Run ``python -m benchmarks.search.compare [--seeds 50] [--tables NAME ...] [--out FILE]``. Each
algorithm searches each table with 0 and 30 % of the configurations failing by chance, with 0 and
5 % noise on times, from the same starts. A start is drawn from the slower half. Every evaluation is
charged, failures too; a proposal of a known state is refused before, and free.

Printed is the true share of the optimum that the incumbent has, the state with the best measured
time, after 20, 60, 100 and 200 evaluations: median/10th percentile. ``area`` is the mean over all
evaluations of the share's difference from random search of the whole table, with the same seed.
``held out`` marks tables on which no algorithm was tuned. Rows go into the file as they come, and
those of other cases stay in it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.offline import anywhere, play
from benchmarks.search.table import Table, read_table
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.selection import Algorithm

__all__ = ["AT", "COMPARED", "DEFAULT", "HELD_OUT", "figures", "goal", "write"]

TABLES = Path(__file__).with_name("tables")
AT = (20, 60, 100, 200)
MASKS, NOISES = (0.0, 0.3), (0.0, 0.05)
HELD_OUT = ("convolution_MI250X", "layernorm_cpu", "matmul_triton", "softmax_triton")
"""Tables that no algorithm was tuned on."""
RANDOM = "random in the table"
DEFAULT = SearchConfig().algo
COMPARED: Mapping[str, Algorithm] = MappingProxyType({RANDOM: anywhere, **ALGORITHMS})
_NEAR = 0.10
_DECIDED_AT = (20, 60, 200)

Case = tuple[str, float, float]
"""(table, share that fails, noise)."""


def curve(job: tuple[str, float, float, str, int, int]) -> tuple[float, ...]:
    """Return the shares of one search."""
    name, mask, noise, algo, seed, budget = job
    table = _table(name).masked(mask, seed)
    return play(COMPARED[algo], table, seed=seed, budget=budget, noise=noise).shares


@functools.lru_cache(maxsize=2)
def _table(name: str) -> Table:
    return read_table(TABLES / f"{name}.csv")


def figures(curves: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, dict[str, Any]]:
    """Return the figures of one table, by algorithm.

    Args:
        curves: Shares after each evaluation, one sequence a seed, by algorithm.
    """
    base = curves[RANDOM]
    found = {}
    for algo, runs in curves.items():
        row: dict[str, Any] = {}
        for at in AT:
            if at <= len(runs[0]):
                shares = sorted(run[at - 1] for run in runs)
                tenth = shares[(len(shares) - 1) // 10]
                row[str(at)] = [round(statistics.median(shares), 4), round(tenth, 4)]
        areas = [
            statistics.fmean(a - b for a, b in zip(run, other, strict=True))
            for run, other in zip(runs, base, strict=True)
        ]
        row["area"] = round(statistics.fmean(areas), 4)
        found[algo] = row
    return found


def goal(case: Case, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return where the default algorithm misses its goal, in sentences.

    The goal: within 0.10 of the best algorithm's median, and not below random search's 10th
    percentile.
    """
    misses = []
    for at in map(str, _DECIDED_AT):
        if at not in found[DEFAULT]:
            continue
        median, tenth = found[DEFAULT][at]
        best = max(found, key=lambda algo: found[algo][at][0])
        where = f"{case[0]}, {case[1]:.0%} failing, {case[2]:.0%} noise, {at} evaluations"
        if median < found[best][at][0] - _NEAR:
            misses.append(f"{where}: median {median:.2f}, {best} has {found[best][at][0]:.2f}")
        if tenth < found[RANDOM][at][1]:
            misses.append(
                f"{where}: 10th percentile {tenth:.2f}, random has {found[RANDOM][at][1]:.2f}"
            )
    return misses


def main(argv: Sequence[str] | None = None) -> None:
    """Play all searches and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = sorted(path.stem for path in TABLES.glob("*.csv"))
    parser.add_argument("--tables", nargs="*", default=known, choices=known)
    parser.add_argument("--algorithms", nargs="*", default=list(COMPARED), choices=COMPARED)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--budget", type=int, default=max(AT))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--masks", type=float, nargs="*", default=MASKS)
    parser.add_argument("--noises", type=float, nargs="*", default=NOISES)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    algorithms = list(dict.fromkeys([RANDOM, *given.algorithms]))
    rows: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for case in itertools.product(given.tables, given.masks, given.noises):
            jobs = [
                (*case, algo, seed, given.budget)
                for algo in algorithms
                for seed in range(given.seeds)
            ]
            curves = iter(pool.map(curve, jobs, chunksize=4))
            found = figures(
                {algo: [next(curves) for _ in range(given.seeds)] for algo in algorithms}
            )
            told = " (held out)" if case[0] in HELD_OUT else ""
            print(f"{case[0]}{told}, {case[1]:.0%} failing, {case[2]:.0%} noise", flush=True)
            for algo, row in found.items():
                cells = [
                    f"{at}: {row[str(at)][0]:.2f}/{row[str(at)][1]:.2f}"
                    for at in AT
                    if str(at) in row
                ]
                print(f"  {algo:20} {'  '.join(cells)}  area {row['area']:+.3f}", flush=True)
            misses = goal(case, found) if DEFAULT in found else []
            for miss in misses:
                print(f"  {DEFAULT} misses its goal: {miss}", flush=True)
            keys = ("table", "failing", "noise")
            rows.append({**dict(zip(keys, case, strict=True)), "figures": found, "misses": misses})
            if given.out:
                write(given.out, rows, given.seeds)


def _case(row: Mapping[str, Any]) -> Case:
    return row["table"], row["failing"], row["noise"]


def write(path: Path, rows: Sequence[Mapping[str, Any]], seeds: int) -> None:
    """Write rows into a file, and keep its rows of other cases.

    Raises:
        ValueError: If the file's rows were made with another number of seeds.
    """
    there: dict[str, Any] = {"seeds": seeds, "rows": []}
    if path.exists():
        there = json.loads(path.read_text())
    if there["seeds"] != seeds:
        raise ValueError(f"{path} holds rows of {there['seeds']} seeds, not {seeds}")
    cases = {_case(row) for row in rows}
    kept = [row for row in there["rows"] if _case(row) not in cases]
    data = {"machine": machine("optuna"), "seeds": seeds, "held_out": HELD_OUT}
    ordered = sorted([*kept, *rows], key=_case)
    path.write_text(json.dumps({**data, "rows": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
