"""Measure in how many C++ kernels a search can change the loop that counts.

Run ``python -m benchmarks.search.reading [FOLDER ...] [--out FILE]``. Kernels are those that this
project has (the honest ones of the red team, and one of each Synthetic family), and the Python
modules in the folders named. The loop that counts is the deepest one of a kernel's C++ text, the
first of equals.
Printed is the share of kernels with at least one move, other than compiler flags, that changes text
of that loop, of the loops around it, or of their directives, and for each other kernel why its
loops are not read. Counted apart are kernels with such a move that proves something of the
iterations: all but unrolling a loop, splitting it in two, and fetching ahead, for which a loop only
has to be recognised.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tree_sitter import Node

from benchmarks.machine import machine
from kernelgym import Kernel, UsageError, get_problem
from kernelgym.suites.synthetic.solve import solve
from kernelgym.suites.synthetic.source import spec_of
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.cpp.loops import unread_loops
from kernelgym_train.mcgs.cpp.syntax import parsed, walk
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.variant import Variant, read_variant

__all__ = ["is_changed", "own_kernels"]

_HONEST = Path(__file__).parents[2] / "tests" / "adversarial" / "honest"
_FLAGS = ("compiler_flags", "fast_math")
_EASY = ("unroll", "pad_tail_and_mask", "enable_async_pipeline")
"""Moves that leave the order of iterations as it is."""


def own_kernels() -> Iterator[tuple[str, str]]:
    """Yield (name, module) of the C++ kernels that the project has."""
    for path in sorted(_HONEST.glob("*.cpp.py")):
        yield path.name, path.read_text(encoding="utf-8")
    seen: set[str] = set()
    for level, number in itertools.product((1, 2, 3), range(1, 60)):
        problem = get_problem(f"Synthetic/L{level}/{number}")
        family = spec_of(problem).family
        if family not in seen:
            seen.add(family)
            yield f"Synthetic {family}", solve(problem, "cpp").source


def is_changed(start: Variant, without: Sequence[str] = ()) -> bool:
    """Return True if a move changes text of the deepest loop, or of those around it.

    Args:
        start: The kernel.
        without: Moves that do not count.
    """
    cpp = file_of(start).cpp
    nest = _deepest(parsed(cpp))
    if nest is None:
        return False
    directive = nest.prev_named_sibling
    is_directed = directive is not None and directive.type == "preproc_call"
    begin = directive.start_byte if directive is not None and is_directed else nest.start_byte
    proposer = RuleProposer(start)
    for move, _ in proposer.priors(start):
        for number in itertools.count():
            proposal = proposer.propose(start, move, number)
            if proposal is None or move in (*_FLAGS, *without):
                break
            first, last = _changed(cpp, file_of(proposal.variant).cpp)
            if first <= nest.end_byte and last >= begin:
                return True
    return False


def _deepest(root: Node) -> Node | None:
    """Return the outermost loop around the deepest one; None without a loop."""
    best: tuple[int, Node] | None = None
    for node in walk(root):
        if node.type not in ("for_statement", "while_statement", "do_statement", "for_range_loop"):
            continue
        around, outer, above = 1, node, node.parent
        while above is not None:
            if above.type == "for_statement":
                around, outer = around + 1, above
            above = above.parent
        if best is None or around > best[0]:
            best = around, outer
    return None if best is None else best[1]


def _changed(before: str, after: str) -> tuple[int, int]:
    """Return the first and the last byte of a text that another text changes."""
    one, other = before.encode(), after.encode()
    first = _same(one, other)
    return first, len(one) - _same(one[:first:-1], other[:first:-1])


def _same(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the shares, and why loops are not read."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    counts: dict[str, dict[str, int]] = {}
    groups = {"of the project": list(own_kernels())}
    for folder in given.folders:
        paths = sorted(folder.glob("*.py"))
        groups[folder.name] = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
    for name, kernels in groups.items():
        changed = read = proven = 0
        for each, source in kernels:
            try:
                start = read_variant(Kernel(source, "cpp"))
            except UsageError:
                continue  # no kernel that builds an extension
            read += 1
            if is_changed(start):
                changed += 1
                proven += is_changed(start, _EASY)
            else:
                why = "; ".join(map(str, unread_loops(file_of(start).cpp))) or "no move fits"
                print(f"  {each}: {why}")
        print(
            f"{name}: {changed} of {read} kernels have a move for their deepest loop, {proven} one "
            "that proves something of its iterations",
            flush=True,
        )
        counts[name] = {"kernels": read, "changed": changed, "proven": proven}
    if given.out:
        data = {"machine": machine("tree-sitter", "tree-sitter-cpp"), "groups": counts}
        given.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
