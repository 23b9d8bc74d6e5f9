"""Many variants in one build; plain kernels for what counts."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from kernelgym import Kernel, LocalEvaluator, Problem
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Build, Verdict
from kernelgym_train.mcgs.build_groups import MOST_TOGETHER, BuildGroups, together
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.kernel_file import read_kernel_file
from kernelgym_train.mcgs.proposing import Proposal, Proposer, RuleProposer
from kernelgym_train.mcgs.selection import SelectionContext
from kernelgym_train.mcgs.static_priors import REPORT_FLAG
from kernelgym_train.mcgs.variant import MoveStep, Variant, read_variant, state_key
from support import searches
from support.searches import TASK

START = read_variant(TASK.start)


def tiles():
    proposer = RuleProposer(START)
    count = 0
    while (found := proposer.propose(START, "register_block", count)) is not None:
        yield found.variant
        count += 1


def with_cpp(text: str):
    return dataclasses.replace(START, source=file_of(START).with_cpp(text).source)


def test_kernels_of_a_build_differ_in_a_number() -> None:
    variants = [START, *tiles()]
    kernels = together(variants)
    assert kernels is not None and len(kernels) == len(variants) > 4
    files = [read_kernel_file(kernel.source) for kernel in kernels]
    assert len({(file.cpp, file.flags, file.functions) for file in files}) == 1
    assert len({kernel.source for kernel in kernels}) == len(kernels)
    assert files[0].functions == tuple(f"matrix_product_{n}" for n in range(len(kernels)))
    assert files[0].cpp.count("#include <torch/extension.h>") == 1
    for number, variant in enumerate(variants):
        body = file_of(variant).cpp.partition("#include <torch/extension.h>")[2]
        assert f"namespace setting_{number} {{" in files[0].cpp and body.strip() in files[0].cpp


def test_a_module_calls_the_chosen_setting() -> None:
    kernels = together([START, *tiles()])
    assert kernels is not None
    stub = "def load_inline(functions, **given):\n"
    stub += "    return type('Made', (), {name: name for name in functions})\n"
    for number, kernel in enumerate(kernels):
        lines = ast.parse(kernel.source).body
        (bound,) = [
            node
            for node in lines
            if isinstance(node, ast.Assign) and "load_inline" in ast.unparse(node)
        ]
        code = stub + "source = ''\n" + ast.unparse(bound) + "\nprint(extension.matrix_product)"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert said.stdout == f"matrix_product_{number}\n", said.stderr
        if number == 2:
            break


@pytest.mark.parametrize(
    "text",
    [
        "#define N 4\n",
        "#if 1\n#endif\n",
        'extern "C" int f();\n',
        "namespace std { struct mine {}; }\n",
        "PYBIND11_MODULE(x, m) {}\n",
    ],
)
def test_what_a_namespace_changes_is_built_alone(text: str) -> None:
    variants = [START, with_cpp(file_of(START).cpp + text)]
    assert together(variants) is None
    assert (
        together([START, with_cpp(file_of(START).cpp + "int helper() { return 1; }\n")]) is not None
    )


def test_other_modules_or_flags_share_no_build() -> None:
    other = dataclasses.replace(START, source=START.source.replace("forward(self", "forward(this"))
    assert together([START, other]) is None
    assert together([START, dataclasses.replace(START, flags=("-O3",))]) is None


class Shared(ScriptedEvaluator):
    """Judges a setting as its plain kernel is judged."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__(self.judged_alone)
        self.broken, self.builds = broken, []

    def judged_alone(self, problem: Problem, kernel: Kernel) -> Verdict:
        file = read_kernel_file(kernel.source)
        if "namespace setting_0 " not in file.cpp:
            return searches.judged(problem, kernel)
        if self.broken:
            return verdict("compile_error")
        number = kernel.source[kernel.source.rindex("), ") + 3 :].partition(")")[0]
        cpp = file.cpp.partition(f"namespace setting_{number} ")[2].partition("#undef")[0]
        return searches.judged(problem, Kernel(f"{cpp}{list(file.flags)}".replace("'", '"'), "cpp"))

    def artifacts(self, kernel: Kernel, *, assembly: bool = False) -> dict[str, bytes]:
        return {}

    def build(self, kernel: Kernel) -> Build | None:
        if REPORT_FLAG in kernel.source:
            return None  # what a report says of the start would change the search
        self.builds.append(read_kernel_file(kernel.source).cpp)
        return None if self.broken else Build(digest="0" * 32)


def found(outdir: Path) -> list[dict]:
    events = read_events(outdir / "kernels/matmul/events.jsonl")
    kept = ("key", "status", "value")
    return [{k: e.fields[k] for k in kept} for e in events if e.name == "judged"]


@pytest.mark.parametrize("broken", [False, True])
def test_a_search_finds_the_same_with_fewer_builds(tmp_path: Path, broken: bool) -> None:
    shared = Shared(broken)
    alone = searches.run(tmp_path / "alone", searches.evaluator(), 12)
    result = searches.run(tmp_path / "shared", shared, 12)
    assert found(tmp_path / "shared") == found(tmp_path / "alone")
    assert result["evaluations"] == alone["evaluations"] == 12
    many = [cpp for cpp in shared.builds if "namespace setting_1 " in cpp]
    assert many and all(cpp.count("namespace setting_") <= MOST_TOGETHER for cpp in many)
    assert len(many) == len(set(many))  # each once
    if not broken:
        assert len(many) < 8
    best = (tmp_path / "shared/kernels/matmul/best/kernel_module.py").read_text()
    assert "setting_" not in best and result["best"] == alone["best"] | {
        "seed": result["best"]["seed"]
    }


def test_a_wrong_kernel_gets_no_second_try(tmp_path: Path) -> None:
    class Wrong(Shared):
        def judged_alone(self, problem: Problem, kernel: Kernel) -> Verdict:
            if "namespace setting_0 " in read_kernel_file(kernel.source).cpp:
                return verdict("wrong")
            return searches.judged(problem, kernel)

    searches.run(tmp_path, Wrong(), 12)
    assert any(row["status"] == "wrong" for row in found(tmp_path))


class Ways:
    """A proposer whose one move has a way for each text."""

    def __init__(self, texts: list[str]) -> None:
        self.variants = [with_cpp(file_of(START).cpp + text) for text in texts]

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        return (("m", 1.0),)

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        found = self.variants[attempt : attempt + 1]
        return Proposal(MoveStep("m", "t", str(attempt)), found[0], "exact") if found else None


def gathered(texts: list[str]) -> tuple[BuildGroups, list[str]]:
    """Return what builds the texts' states together, and their keys."""
    ways, state = Ways(texts), searches.empty_state(START)
    keys = [state_key(variant) for variant in ways.variants]
    state.variants |= zip(keys, ways.variants, strict=True)
    state.graph.in_flight = InFlight(state.start)
    around = SelectionContext(state.graph, state.variants, cast("Proposer", ways), 0)
    return BuildGroups(around), keys


class InFlight(dict):
    """Every state, in flight by one move, and none known."""

    def __init__(self, start: str) -> None:
        super().__init__()
        self.start = start

    def __missing__(self, key: str) -> tuple:
        return (), self.start, "m"


HELPERS = [f"int helper_{n}() {{ return {n}; }}\n" for n in range(8)]


def test_a_text_without_a_scope_is_left_out() -> None:
    made, keys = gathered([HELPERS[0], "#define N 4\n", *HELPERS[1:3]])
    first = made.find(keys[0])
    assert first is not None
    assert read_kernel_file(first.kernel.source).cpp.count("namespace setting_") == 3
    assert [made.find(key) is None for key in keys] == [False, True, False, False]


def test_states_of_a_failed_build_are_built_alone() -> None:
    made, keys = gathered(HELPERS)
    first = made.find(keys[0])
    assert first is not None
    made.part(first.build)
    made.part(first.build)  # each of its states may tell
    assert [made.find(key) for key in keys] == [None] * len(keys)


@pytest.mark.parametrize(("failed", "still"), [(2, True), (3, False)])
def test_three_failed_builds_end_shared_ones(
    failed: int, still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelgym_train.mcgs.build_groups.MOST_TOGETHER", 2)
    made, keys = gathered(HELPERS)
    for key in keys[: 2 * failed : 2]:
        found = made.find(key)
        assert found is not None
        made.part(found.build)
    assert (made.find(keys[-1]) is not None) == still


def test_a_broken_search_stops_building_together(tmp_path: Path) -> None:
    shared = Shared(broken=True)
    searches.run(tmp_path, shared, 16, algo="random", workers=1)
    assert sum("namespace setting_1 " in cpp for cpp in shared.builds) == 3


@pytest.mark.slow
def test_settings_of_one_build_are_judged_right() -> None:
    """The judge finds each setting correct, and builds once."""
    kernels = together([START, *tiles()])
    assert kernels is not None
    with LocalEvaluator(timing=False) as evaluator:
        verdicts = [evaluator.evaluate(TASK.problem, kernel) for kernel in kernels[:3]]
    assert [each.correct for each in verdicts] == [True] * 3, verdicts
    assert verdicts[0].build is not None and all(
        each.build == verdicts[0].build for each in verdicts
    )
