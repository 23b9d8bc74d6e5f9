from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.retrieval import plants
from benchmarks.retrieval.disguises import DISGUISES
from kernelgym.indexing.copies import copy_test
from kernelgym.indexing.judging import Judged
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.index import Index
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, verdict
from kernelgym.types import Problem

HEAD = '''"""A module of one operator."""
import torch
import torch.nn as nn

rows = 7
cols = 33
'''
BODY = """

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, {arguments}):
        return {formula}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
FORMULAS = {
    "softmax": "torch.softmax(x, dim=1)",
    "gelu": "nn.functional.gelu(x)",
    "mean": "torch.mean(x, dim=1, keepdim=True)",
    "sum": "torch.sum(x, dim=1)",
    "sigmoid": "torch.sigmoid(x * 2.5)",
    "cumsum": "torch.cumsum(torch.tanh(x), dim=1)",
    "argmax": "torch.argmax(x - 1.0, dim=1)",
    "matmul": "torch.matmul(torch.relu(x), y)",
    "log_softmax": "torch.log_softmax(x, dim=1) / 3.5",
}


def problem_of(name: str) -> Problem:
    formula = FORMULAS[name]
    two = "y" in formula
    source = HEAD + BODY.format(
        arguments="x, y" if two else "x",
        formula=formula,
        inputs="torch.rand(rows, cols)" + ", torch.rand(cols, 5)" * two,
    )
    return Problem(f"Made/{name}", "Made", 1, name, source)


PROBLEMS = [problem_of(name) for name in FORMULAS]
KERNELS = {p.id: f"{SAMPLE_KERNELS['triton'].source}# {p.id}\n" for p in PROBLEMS}
PLANTS = plants.planted(PROBLEMS, KERNELS)
OTHERS = [
    Entry("solution", problem.source, "class ModelNew: ...", "triton", problem_id=problem.id)
    for problem in SyntheticSuite(per_level=40).problems(2)
]
INDEX = Index.from_entries([*OTHERS, *(plant.entry for plant in PLANTS)])


def test_every_disguise_changes_the_text() -> None:
    assert {plant.disguise for plant in PLANTS} == set(DISGUISES)
    texts = {plant.entry.reference for plant in PLANTS}
    assert len(texts) == len(PLANTS) and not texts & {p.source for p in PROBLEMS}
    assert len(INDEX.entries) == len(PLANTS) + 40


def test_text_finds_all_disguises_but_other_formulas() -> None:
    reasons = plants.excluded(INDEX, PROBLEMS)
    strict = INDEX.without(reasons.keys())
    rows = {row["disguise"]: row for row in plants.counted(PLANTS, reasons, strict, None)}
    for name, row in rows.items():
        assert row["n"] >= 4
        found = row["source"] + row["operators"]
        assert row["id"] == 0 and (found == row["n"]) == (name != "rewritten")
    assert rows["renamed"]["source"] == rows["resized"]["source"] == len(PROBLEMS)
    assert rows["rewritten"]["shown"] > 0
    assert not {entry.id for entry in OTHERS} & reasons.keys()


def test_copy_test_finds_other_formulas(tmp_path: Path) -> None:
    reasons = plants.excluded(INDEX, PROBLEMS)
    strict = INDEX.without(reasons.keys())
    judge = ScriptedEvaluator(
        lambda problem, kernel: verdict(
            "correct" if KERNELS[problem.id] == kernel.source else "wrong"
        )
    )
    judged = Judged(judge, tmp_path / "verdicts.jsonl")
    tested = copy_test(strict, PROBLEMS, judged, needed=8, device="cpu")
    rows = {row["disguise"]: row for row in plants.counted(PLANTS, reasons, strict, tested)}
    last = rows["rewritten"]
    assert last["judged"] >= last["held_out_copy"] > 0 and last["shown_after"] == 0


def test_right_kernels_come_with_the_benchmark() -> None:
    kernels = plants.right_kernels()
    assert len(kernels) >= 20 and all(each.startswith("KernelBench/L1/") for each in kernels)
    assert all("ModelNew" in source for source in kernels.values())


@pytest.mark.slow
def test_honest_entries_are_of_the_levels_asked() -> None:
    entries = plants.honest_entries(30)
    assert len(entries) == 30 and entries == plants.honest_entries(30)
    assert {entry.problem_id.split("/")[1] for entry in entries} == {"L2", "L3"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_disguises_compute_the_same(name: str) -> None:
    import torch

    def outcome(source: str, inputs: list[torch.Tensor]) -> torch.Tensor:
        space: dict[str, object] = {}
        exec(compile(source, name, "exec"), space)
        return space["Model"]()(*inputs)

    problem = problem_of(name)
    space: dict[str, object] = {}
    exec(compile(problem.source, name, "exec"), space)
    inputs = space["get_inputs"]()
    wanted = outcome(problem.source, inputs)
    for disguise, write in DISGUISES.items():
        text = write(problem.source, 3)
        if text and disguise != "resized":
            torch.testing.assert_close(outcome(text, inputs), wanted, msg=disguise)
