"""What leaves a search: a solution of flashinfer-bench, rows to train on, entries for retrieval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelgym import LocalEvaluator, suite
from kernelgym.indexing.corpora import corpus_of, read_corpus
from kernelgym.records.export import ExportRules, preference_rows, sft_rows
from kernelgym.records.trajectories import read_records
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.suites.spec import KernelSpec
from kernelgym.suites.spec_files import read_spec
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.solution import solution_of
from kernelgym_train.mcgs.task import SearchTask, task_of_spec
from kernelgym_train.mcgs.variant import read_variant
from support import searches
from support.specs import GLOBAL_SPEC, PRODUCT, SPEC, TRITON_SPEC, changed, written
from support.triton_searches import TimedByTable

EXAMPLES = Path(__file__).parents[3] / "examples"


def solution(task: SearchTask, move: str = "") -> dict[str, Any] | None:
    """Return a task's start, or the first way of a move, as a solution."""
    start = read_variant(task.start, any_form=True)
    if move:
        made = RuleProposer(start).propose(start, move, 0)
        assert made is not None
        start = made.variant
    return solution_of(task, start, "cuda:90")


def again(given: dict[str, Any] | None, folder: Path) -> KernelSpec:
    assert given is not None
    return read_spec(written(folder, json.loads(json.dumps(given)), "again.json"))


@pytest.mark.parametrize("given", [SPEC, TRITON_SPEC, GLOBAL_SPEC, PRODUCT], ids=str)
def test_solution_is_read_as_a_spec_of_the_same_shapes(
    given: dict[str, Any], tmp_path: Path
) -> None:
    own = task_of_spec(written(tmp_path, given), any_form=True)
    assert own.spec is not None
    found = again(solution(own), tmp_path)
    assert found.kind == own.spec.kind and found.inputs == own.spec.inputs
    for mine, theirs in zip(own.spec.shapes, found.shapes, strict=True):
        assert (theirs.axes, theirs.role) == (mine.axes, mine.role.replace("both", "tune"))
        assert found.call_bytes(theirs) == own.spec.call_bytes(mine)


def test_cuda_solution_has_three_sources_that_are_joined_again(tmp_path: Path) -> None:
    made = solution(task_of_spec(EXAMPLES / "cuda_matmul.json"), "register_block")
    assert made is not None
    sources = {each["path"]: each["content"] for each in made["solution"]["sources"]}
    assert list(sources) == ["kernel.h", "kernel.cu", "main.cpp"]
    assert "left_tile" in sources["kernel.cu"] and "PYBIND11_MODULE" in sources["main.cpp"]
    assert "register_block" in made["solution"]["description"]
    found = again(made, tmp_path)
    assert "PYBIND11_MODULE" not in found.source and '#include "kernel.h"' not in found.source
    assert found.source.count("#ifndef SPEC_ARITHMETIC") == 1
    assert found.returns == "arguments" and found.entry == "run"


@pytest.mark.parametrize(
    "change",
    [
        {"contract__tensors__0__role": "inout"},
        {"contract__tensors__0__shape": ["rows", "columns * 1"]},
        {"contract__tensors__0__layout": "transposed"},
    ],
)
def test_solution_is_none_where_the_form_cannot_hold_a_spec(
    change: dict[str, Any], tmp_path: Path
) -> None:
    assert solution(task_of_spec(written(tmp_path, changed(SPEC, **change)))) is None


@pytest.mark.slow
def test_solution_of_a_cpp_kernel_is_judged_as_correct(tmp_path: Path) -> None:
    own = task_of_spec(written(tmp_path, PRODUCT))
    made = solution(own, "vectorize_global_loads")
    path = written(tmp_path, made or {}, "again.json")
    found = suite(str(path))
    with LocalEvaluator(timing=False) as evaluator:
        verdict = evaluator.evaluate(found.problems()[0], found.kernel)
    assert verdict.correct, verdict.message


def test_search_of_a_spec_leaves_a_solution(tmp_path: Path) -> None:
    task = task_of_spec(EXAMPLES / "cuda_matmul.json")
    search(task, TimedByTable(), tmp_path, SearchConfig(Budget(2)))
    (file,) = tmp_path.glob("kernels/*/flashinfer.json")
    assert read_spec(file).kind == "cuda"


def test_episode_of_a_search_gives_rows_pairs_and_entries(tmp_path: Path) -> None:
    searches.run(tmp_path, searches.evaluator(), 30)
    file = tmp_path / "kernels" / "matmul" / "episode.jsonl"
    records = list(read_records(file))
    turns = len(records[0].trajectory.turns)
    assert turns > 1
    assert len(list(sft_rows(records))) == turns
    pairs = list(preference_rows(records, ExportRules(pairs="problem", most=9)))
    assert pairs and all(row["chosen"] != row["rejected"] for row in pairs)
    entries = list(read_corpus(corpus_of(f"trajectories:{file}"), ("cpp",), "cpu"))
    kept = [each for each in entries if isinstance(each, IndexEntry)]
    assert kept and {each.language for each in kept} == {"cpp"}
