"""`BuildGroups`: compiles many C++ variants in one build; an argument picks the one that runs.

Most of a C++ build is reading headers: 32 kernels in one text take the compiler three times as long
as one, and not 32 times. So variants that are likely to be judged are compiled together: each text
in a namespace of its own. Not as parameters of a template: directives such as
``#pragma GCC unroll`` take literals alone.

`together` returns kernels that share one C++ text, so that one build serves all. These kernels are
only measured: a search compares, keeps and writes out each variant's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernelgym import Kernel
from kernelgym_train.mcgs.graph import GraphNode
from kernelgym_train.mcgs.kernel_file import KernelFile, read_kernel_file
from kernelgym_train.mcgs.selection import SelectionContext
from kernelgym_train.mcgs.source_forms import holds_cpp
from kernelgym_train.mcgs.variant import Variant, launch_key, state_key

MOST_TOGETHER = 32
_MOST_FAILED = 3  # failed shared builds, after which each state is built alone
_INCLUDE = re.compile(r"[ \t]*#[ \t]*include\b.*")
_OTHER = re.compile(r"[ \t]*#[ \t]*(?!include\b|pragma\b)\w")
# Text that means something else inside a namespace, or may occur only once in a build.
_GLOBAL = re.compile(
    r"\b(PYBIND11_|TORCH_LIBRARY|extern\b|namespace\s+std\b|asm\b)|#\s*pragma\s+once"
)


def together(variants: Sequence[Variant]) -> list[Kernel] | None:
    """Return the variants' kernels with one C++ text; None if that cannot be made.

    Args:
        variants: Variants of one language that differ in their C++ text alone.
    """
    files = [read_kernel_file(variant.kernel().source) for variant in variants]
    first = files[0]
    if not first.functions or len({file.with_cpp("").source for file in files}) > 1:
        return None
    includes: dict[str, None] = {}
    parts: list[str] = []
    for number, file in enumerate(files):
        if (part := _scoped(file, number)) is None:
            return None
        parts.append(part)
        includes |= dict.fromkeys(line for line in file.cpp.split("\n") if _INCLUDE.match(line))
    cpp = "\n".join([*includes, *parts])
    language = variants[0].language
    return [
        Kernel(first.choosing(cpp, len(files), number).source, language)
        for number in range(len(files))
    ]


def _scoped(file: KernelFile, number: int) -> str | None:
    """Return a C++ text whose functions carry a number in their names; None if that fails."""
    lines = file.cpp.split("\n")
    if _GLOBAL.search(file.cpp) or any(_OTHER.match(line) for line in lines):
        return None
    body = [line for line in lines if not _INCLUDE.match(line)]
    begun = [f"#define {name} {name}_{number}" for name in file.functions]
    ended = [f"#undef {name}" for name in file.functions]
    ended += [f"using setting_{number}::{name}_{number};" for name in file.functions]
    return "\n".join([*begun, f"namespace setting_{number} {{", *body, "}", *ended])


@dataclass(frozen=True, slots=True)
class BuildMember:
    """One state's kernel within a build that many states share."""

    build: int
    """Number of the shared build."""
    kernel: Kernel


class BuildGroups:
    """Chooses which variants are built together.

    A state is built with those that the search may try next: other ways of its move at its node,
    and other moves at that node. All have the same compiler flags. A tuner's setting is built
    alone.

    Args:
        around: Knowledge of the search.
    """

    def __init__(self, around: SelectionContext) -> None:
        self._around = around
        self._members: dict[str, BuildMember] = {}
        self._alone: set[str] = set()
        self._builds = self._failed = 0

    def find(self, key: str) -> BuildMember | None:
        """Return a state's kernel in a shared build; None if the state is built alone.

        Args:
            key: Key of a state that was dispatched and has no result.
        """
        if key not in self._members and key not in self._alone:
            if self._failed < _MOST_FAILED:
                self._gather(key)
        return self._members.get(key)

    def part(self, build: int) -> None:
        """Build each state of a failed shared build alone from now on.

        After three failed shared builds, no other states are built together.
        """
        members = {key for key, each in self._members.items() if each.build == build}
        self._alone |= members
        self._failed += bool(members)
        for key in members:
            del self._members[key]

    def _gather(self, key: str) -> None:
        variant = self._around.variants[key]
        if not holds_cpp(variant.language, variant.source):
            return
        launch = launch_key(variant)
        chosen = {key: variant} if self._fits(key, variant, variant) else {}
        for other in self._others(key) if chosen else ():
            name = state_key(other)
            known = self._around.graph.knows(name) or name in self._members or name in chosen
            if not known and other.flags == variant.flags and launch_key(other) == launch:
                if self._fits(name, other, variant):
                    chosen[name] = other
            if len(chosen) == MOST_TOGETHER:
                break
        if len(chosen) > 1 and (kernels := together(list(chosen.values()))) is not None:
            self._builds += 1
            for each, kernel in zip(chosen, kernels, strict=True):
                self._members[each] = BuildMember(self._builds, kernel)

    def _fits(self, key: str, variant: Variant, beside: Variant) -> bool:
        """Return True if a variant's text can be part of a shared build."""
        if key not in self._alone and together([beside, variant]) is None:
            self._alone.add(key)
        return key not in self._alone

    def _others(self, key: str) -> Iterator[Variant]:
        _, name, move = self._around.graph.in_flight[key]
        node = self._around.graph.nodes[name]
        moves = [each for each, _ in self._around.moves(node)]
        if move not in moves:
            return  # a tuner's next setting is not known, and mostly has other flags
        yield from self._untried(node, [move])
        yield from self._untried(node, [each for each in moves if each != move])

    def _untried(self, node: GraphNode, moves: Iterable[str]) -> Iterator[Variant]:
        for move in moves:
            for _, proposal in self._around.all_untried(node, move):
                yield proposal.variant
