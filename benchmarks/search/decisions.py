"""Measure the time that each algorithm takes to choose the next state.

Run ``python -m benchmarks.search.decisions [--out FILE]``. Each algorithm grows the graph of the
matmul example by the rules' real proposals, whose values are drawn by their keys and not judged,
until it holds 1,000 states. Told are the milliseconds of one decision, from asking the algorithm to
a new state in the graph, over the first hundred states and the last hundred: median and 95th
percentile. Proposals of known states, which cost the budget nothing, are part of the decision that
they delay. ``tpe`` asks Optuna for 20 of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.offline import Seen
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.selection import Algorithm, stream
from kernelgym_train.mcgs.variant import read_variant, state_key

__all__ = ["decisions", "figures"]

STATES = 1000
_FAILING = 0.2
_SPREAD = 0.5  # standard deviation of ln of a state's speedup over that of its parent


def decisions(
    algorithm: Algorithm, states: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the seconds of each decision until a graph holds so many states.

    Args:
        algorithm: Algorithm that chooses the next state.
        states: Number of correct states; about a quarter as many fail beside them.
        clock: Function that returns the time in seconds.
    """
    start = read_variant(EXAMPLES["matmul"][1])
    seen = Seen(RuleProposer(start), start, 0)
    took: list[float] = []
    began = clock()
    while len(seen.graph.nodes) < states and (choice := algorithm(seen.around)) is not None:
        if seen.repeats(choice):
            continue
        numbers = stream("value", state_key(choice.proposal.variant))
        worth = seen.graph.nodes[choice.node].value + numbers.gauss(0.0, _SPREAD)
        seen.settle(choice, None if numbers.random() < _FAILING else worth)
        took.append(clock() - began)
        began = clock()
    return took


def figures(took: Sequence[float]) -> dict[str, Any]:
    """Return milliseconds: (median, 95th percentile) of the first hundred and the last."""
    found: dict[str, Any] = {"decisions": len(took)}
    for name, part in (("first", took[:100]), ("last", took[-100:])):
        ordered = sorted(1000.0 * each for each in part)
        late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        found[name] = [round(statistics.median(ordered), 2), round(late, 2)]
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all algorithms, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--algorithms", nargs="*", default=list(ALGORITHMS), choices=ALGORITHMS)
    parser.add_argument("--states", type=int, default=STATES)
    parser.add_argument("--processes", type=int, default=1, help="algorithms at the same time")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    rows = {}
    jobs = [(name, given.states) for name in given.algorithms]
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for name, found in pool.imap_unordered(_measured, jobs):
            rows[name] = found
            print(f"{name:12} {json.dumps(found)}", flush=True)
            if given.out:
                data = {"machine": machine("optuna"), "states": given.states, "algorithms": rows}
                given.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _measured(job: tuple[str, int]) -> tuple[str, dict[str, Any]]:
    name, states = job
    return name, figures(decisions(ALGORITHMS[name], states))


if __name__ == "__main__":
    main()
