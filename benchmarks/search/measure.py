"""Measure every configuration of a C++ kernel's moves into a table.

Run ``python -m benchmarks.search.measure EXAMPLE NAME [--columns MOVE ...] [--most N]`` on a quiet
machine. A column is a place where a move can be made, its choices are the ways to make it, and
``-`` stands for not at all. Configurations that give one program are judged once. Each takes a
verdict of some seconds, and what was judged is kept in ``NAME.jsonl`` beside the table, so that a
run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.search.hub import TABLES
from benchmarks.search.table import Config, Table, write_table
from kernelgym import LocalEvaluator
from kernelgym.types import Evaluator, Job, Problem
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.knobs import Knob, Space
from kernelgym_train.mcgs.moves.table import MOVES
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.variant import Variant, read_variant, state_key

__all__ = ["ABSENT_AS", "measured", "space_of"]

ABSENT_AS = "-"
COLUMNS = (
    *("hoist", "parallelise", "loop_order", "register_block"),
    *("vectorize_global_loads", "compiler_flags"),
)
_CHUNK = 16


def space_of(proposer: RuleProposer, moves: Sequence[str]) -> Space:
    """Return the whole space of some moves."""
    whole = proposer.space(None)
    knobs = [knob for knob in whole.knobs if knob.name.partition("/")[0] in moves]
    return Space(whole.base, tuple(knobs))


def _variants(proposer: RuleProposer, space: Space) -> Iterator[tuple[Config, Variant]]:
    for config in itertools.product(*(knob.choices for knob in space.knobs)):
        names = [knob.name for knob in space.knobs]
        proposal = proposer.tuned(space, dict(zip(names, config, strict=True)))
        if proposal is not None:
            yield config, proposal.variant


def measured(
    name: str,
    problem: Problem,
    proposer: RuleProposer,
    space: Space,
    evaluator: Evaluator,
    kept: Path,
    most: int = 0,
) -> Table:
    """Judge every configuration, and return the table.

    Args:
        name: Of the table.
        problem: What the kernels solve.
        proposer: Makes them.
        space: Which.
        evaluator: Judges and times them.
        kept: File of what was judged; read first, then appended to.
        most: Programs to judge; all if 0. Configurations without a verdict are left out.
    """
    times: dict[str, float | None] = {}
    if kept.exists():
        times = dict(json.loads(line) for line in kept.read_text().splitlines())
    configs = {config: variant for config, variant in _variants(proposer, space)}
    keys = {config: state_key(variant) for config, variant in configs.items()}
    todo = {keys[config]: variant for config, variant in configs.items()}
    left = [key for key in todo if key not in times]
    left = left[: most or len(left)]
    with kept.open("a", encoding="utf-8") as file:
        for at in range(0, len(left), _CHUNK):
            chunk = left[at : at + _CHUNK]
            verdicts = evaluator.evaluate_many([Job(problem, todo[key].kernel()) for key in chunk])
            for key, verdict in zip(chunk, verdicts, strict=True):
                if verdict.valid:
                    times[key] = None if verdict.timing is None else verdict.timing.kernel_ms
                    file.write(json.dumps([key, times[key]]) + "\n")
            file.flush()
            print(f"{at + len(chunk)} of {len(left)} programs judged", flush=True)
    rows = {
        tuple(choice or ABSENT_AS for choice in config): times[key]
        for config, key in keys.items()
        if key in times
    }
    columns = {
        knob.name: tuple(choice or ABSENT_AS for choice in knob.choices) for knob in space.knobs
    }
    structure = frozenset(knob.name for knob in space.knobs if _is_structure(knob))
    notes = (f"{problem.id}, every program judged, times in ms", json.dumps(machine()))
    return Table(name, columns, structure, rows, notes)


def _is_structure(knob: Knob) -> bool:
    return MOVES[knob.name.partition("/")[0]].knob == ""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("name", help="of the table, such as matmul_cpu")
    parser.add_argument("--columns", nargs="*", default=COLUMNS, choices=MOVES, metavar="MOVE")
    parser.add_argument("--most", type=int, default=0, help="programs to judge in this run")
    parser.add_argument("--count", action="store_true", help="only say how many there are")
    given = parser.parse_args(argv)
    problem, start = EXAMPLES[given.example]
    proposer = RuleProposer(read_variant(start))
    space = space_of(proposer, given.columns)
    if given.count:
        keys = {state_key(variant) for _, variant in _variants(proposer, space)}
        print(f"{len(keys)} programs")
        return
    kept = TABLES / f"{given.name}.jsonl"
    with LocalEvaluator(workers=2) as evaluator:
        table = measured(given.name, problem, proposer, space, evaluator, kept, given.most)
    write_table(table, TABLES / f"{given.name}.csv")


if __name__ == "__main__":
    main()
