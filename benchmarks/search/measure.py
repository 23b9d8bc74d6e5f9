"""Measure every configuration of a C++ kernel's moves into a table.

Run ``python -m benchmarks.search.measure EXAMPLE NAME [--columns MOVE ...] [--most N]`` on a quiet
machine. A column is a place where a move can be made, its choices are the ways to make it, and
``-`` stands for not at all. Configurations that give one program are judged once, up to 32 in one
build. Each takes a verdict of some seconds, and what was judged is kept in ``NAME.jsonl`` beside
the table, so that a run that was cut off goes on.

A time in the table is the median time of the reference over the kernel's speedup: the reference is
timed beside each kernel, so that a host that is slower for a while does not count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.search.hub import TABLES
from benchmarks.search.table import Config, Table, write_table
from kernelgym import LocalEvaluator
from kernelgym.types import Evaluator, Job, Kernel, Problem
from kernelgym_train.mcgs.build_groups import MOST_TOGETHER, together
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.knobs import KnobSpace
from kernelgym_train.mcgs.moves.table import OWN_MOVES
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.variant import Variant, launch_key, read_variant, state_key

__all__ = ["ABSENT_AS", "measured", "space_of", "times_of"]

ABSENT_AS = "-"
COLUMNS = (
    *("hoist", "parallelise", "loop_order", "register_block"),
    *("vectorize_global_loads", "compiler_flags"),
)


def space_of(proposer: RuleProposer, moves: Sequence[str]) -> KnobSpace:
    """Return the whole space of some moves."""
    whole = proposer.space()
    knobs = [knob for knob in whole.knobs if knob.name.partition("/")[0] in moves]
    return KnobSpace(whole.base, tuple(knobs))


def _variants(proposer: RuleProposer, space: KnobSpace) -> Iterator[tuple[Config, Variant]]:
    for config in itertools.product(*(knob.choices for knob in space.knobs)):
        names = [knob.name for knob in space.knobs]
        proposal = proposer.tuned(space, dict(zip(names, config, strict=True)))
        if proposal is not None:
            yield config, proposal.variant


def measured(
    name: str,
    problem: Problem,
    proposer: RuleProposer,
    space: KnobSpace,
    evaluator: Evaluator,
    kept: Path,
    most: int = 0,
) -> Table:
    """Judge every configuration, and return the table.

    Args:
        name: Name of the table.
        problem: Problem that the kernels solve.
        proposer: Proposer that makes the kernels.
        space: Space of configurations to measure.
        evaluator: Evaluator that judges and times the kernels.
        kept: File of results, which is read first and then extended.
        most: Number of programs to judge at most; 0 for all. Configurations without a verdict are
            left out.
    """
    found: dict[str, list[float]] = {}
    if kept.exists():
        found = dict(json.loads(line) for line in kept.read_text().splitlines())
    configs = {config: variant for config, variant in _variants(proposer, space)}
    keys = {config: state_key(variant) for config, variant in configs.items()}
    todo = {keys[config]: variant for config, variant in configs.items()}
    left = [key for key in todo if key not in found]
    left = left[: most or len(left)]
    done = 0
    with kept.open("a", encoding="utf-8") as file:
        for chunk in _built_together({key: todo[key] for key in left}):
            kernels = _kernels(evaluator, [todo[key] for key in chunk])
            verdicts = evaluator.evaluate_many([Job(problem, kernel) for kernel in kernels])
            for key, verdict in zip(chunk, verdicts, strict=True):
                if verdict.valid:
                    timing = verdict.timing
                    found[key] = [] if timing is None else [timing.kernel_ms, timing.reference_ms]
                    file.write(json.dumps([key, found[key]]) + "\n")
            file.flush()
            done += len(chunk)
            print(f"{done} of {len(left)} programs judged", flush=True)
    times = times_of({key: found[key] for key in todo if key in found})
    rows = {
        tuple(choice or ABSENT_AS for choice in config): times[key]
        for config, key in keys.items()
        if key in times
    }
    columns = {
        knob.name: tuple(choice or ABSENT_AS for choice in knob.choices) for knob in space.knobs
    }
    notes = (f"{problem.id}, programs judged, times in ms by speedups", json.dumps(machine()))
    return Table(name, columns, rows, notes)


def _built_together(variants: Mapping[str, Variant]) -> Iterator[list[str]]:
    """Yield keys of variants that one build may serve."""
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for key, variant in variants.items():
        groups[variant.flags, launch_key(variant)].append(key)
    for keys in groups.values():
        for at in range(0, len(keys), MOST_TOGETHER):
            yield keys[at : at + MOST_TOGETHER]


def _kernels(evaluator: Evaluator, variants: Sequence[Variant]) -> list[Kernel]:
    """Return kernels to judge: of one build where that can be made, which is made."""
    build = getattr(evaluator, "build", None)
    if build is not None and len(variants) > 1:
        shared = together(variants)
        if shared is not None and build(shared[0]) is not None:
            return shared
    return [variant.kernel() for variant in variants]


def times_of(found: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """Return milliseconds by key; None where a kernel failed."""
    reference_ms = statistics.median([pair[1] for pair in found.values() if pair] or [0.0])
    return {key: pair[0] / pair[1] * reference_ms if pair else None for key, pair in found.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("name", help="of the table, such as matmul_cpu")
    parser.add_argument(
        "--columns", nargs="*", default=COLUMNS, choices=OWN_MOVES["cpp"], metavar="MOVE"
    )
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
