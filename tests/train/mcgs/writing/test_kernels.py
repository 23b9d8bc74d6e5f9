"""What writers write: every language, modules that rules cannot read, knobs, and exploits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelgym import Kernel, LocalEvaluator, UsageError
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Problem, Verdict
from kernelgym_train.mcgs import optimize
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.task import task_of
from kernelgym_train.mcgs.writing.writer import KernelWriter
from support import searches, writers
from support.offered import Offered, offer
from support.writers import WholePolicy

CPP = Offered("cpp", "cpu")
MARK = "FASTER = 1\n\n\nclass ModelNew"
UNREAD = """
import torch
from torch.utils.cpp_extension import load_inline

one = load_inline(name="one", cpp_sources="int one() { return 1; }", functions=["one"])
two = load_inline(name="two", cpp_sources="int two() { return 2; }", functions=["two"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * one.one()
"""
KERNELS = {
    **{name: kernel.source for name, kernel in SAMPLE_KERNELS.items()},
    "hip": SAMPLE_KERNELS["cuda"].source if "cuda" in SAMPLE_KERNELS else UNREAD,
}


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    return verdict("correct", speedup=4.0 if "FASTER" in kernel.source else 1.0)


@pytest.mark.parametrize("language", ["triton", "cpp", "cuda", "hip"])
def test_writer_changes_kernels_of_every_language(language: str, tmp_path: Path) -> None:
    source = KERNELS.get(language, UNREAD)
    faster = Kernel(source.replace("class ModelNew", MARK), language)
    with KernelWriter(WholePolicy([faster])) as writer:
        config = SearchConfig(Budget(2), algo="best_first", workers=1, writer=writer)
        judge = ScriptedEvaluator(judged)
        result = optimize(SAMPLE_PROBLEM, Kernel(source, language), judge, tmp_path, config)
    assert result["speedup"] == pytest.approx(4.0)
    assert result["best"]["moves"][0][0].startswith("written:")
    assert "FASTER" in (tmp_path / result["best"]["path"]).read_text()


def test_useless_change_goes_from_a_written_kernel_whose_knob_was_set(tmp_path: Path) -> None:
    def script(problem: Problem, kernel: Kernel) -> Verdict:
        sizes = re.findall(r"^FASTER = (\d+)", kernel.source, re.MULTILINE)
        return verdict("correct", speedup=float(sizes[0]) if sizes else 1.0)

    start = SAMPLE_KERNELS["triton"]
    mark = "FASTER = 2  # knob: 2, 4, 8\n\n\nclass ModelNew"
    text = start.source.replace("class ModelNew", mark)
    first, _, rest = text.partition("\n")
    written = Kernel(f"{first}\nUSELESS = 1\n{rest}", "triton")
    with KernelWriter(WholePolicy([written])) as writer:
        config = SearchConfig(Budget(12), workers=1, writer=writer)
        result = optimize(SAMPLE_PROBLEM, start, ScriptedEvaluator(script), tmp_path, config)
    assert result["speedup"] == pytest.approx(8.0) and result["minimised"]["done"]
    found = (tmp_path / result["best"]["path"]).read_text()
    assert "FASTER = 8" in found and "USELESS" not in found


def test_module_that_no_rule_reads_is_searched_by_a_writer_alone(tmp_path: Path) -> None:
    start, faster = (
        Kernel(text, "cpp") for text in (UNREAD, UNREAD.replace("class Mod", MARK[:-5]))
    )
    with pytest.raises(UsageError, match="calls load_inline once, this one 2 times"):
        optimize(SAMPLE_PROBLEM, start, ScriptedEvaluator(judged), tmp_path / "rules")
    with KernelWriter(WholePolicy([faster])) as writer:
        config = SearchConfig(Budget(2), algo="best_first", workers=1, writer=writer)
        judge = ScriptedEvaluator(judged)
        result = optimize(SAMPLE_PROBLEM, start, judge, tmp_path / "writer", config)
    assert result["speedup"] == pytest.approx(4.0) and result["stopped"] == "writer_closed"


def test_tuner_sets_the_knobs_of_a_written_kernel(tmp_path: Path) -> None:
    """The text is a base of its own, with the rules' moves beside its knobs."""
    source = searches.TASK.start.source.replace(
        "#include <torch/extension.h>",
        "#include <torch/extension.h>\nconstexpr int TILE = 8;  // knob: 8, 16, 32, 64",
    )

    def by_tile(problem: Problem, kernel: Kernel) -> Verdict:
        found = re.search(r"TILE = (\d+);", kernel.source)
        worth = 1.0 if found is None else {8: 2.0, 16: 3.0, 32: 6.0, 64: 4.0}[int(found[1])]
        return verdict("correct", speedup=worth * (1.3 if '"-O3"' in kernel.source else 1.0))

    result = writers.run(
        tmp_path,
        WholePolicy([Kernel(source, "cpp")]),
        writers.evaluator(by_tile),
        algo="tpe",
        moves=("compiler_flags",),
        budget=Budget(40, min_pred_gain=0.0),
    )
    best = (tmp_path / result["best"]["path"]).read_text()
    assert "TILE = 32;" in best and result["speedup"] == pytest.approx(6.0 * 1.3)
    moves = [move for move, *_ in result["best"]["moves"]]
    assert moves[0].startswith("written:") and "written_knob" in moves[1:]
    rows = searches.rows(tmp_path)
    written = next(row["key"] for row in rows if row.get("answer") and row["event"] == "proposed")
    assert {row["node"] for row in rows if row.get("move") == "tune"} == {written}


def test_lucky_exploits_of_a_writer_are_not_promoted(tmp_path: Path) -> None:
    """Each passes once, and is caught when it is judged again."""
    seen: set[str] = set()
    name = CPP.names[0]

    def lucky(problem: Problem, kernel: Kernel) -> Verdict:
        if kernel.digest == CPP.starts[name].kernel.digest:
            return verdict("correct", speedup=0.5)
        if kernel.digest in seen:
            return verdict("wrong", message="it had learnt the first inputs")
        seen.add(kernel.digest)
        return verdict("correct", speedup=40.0)

    outcomes = offer(CPP, name, ScriptedEvaluator(lucky), tmp_path)
    assert outcomes["proposed"] >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "row_sum"])
def test_exploits_of_a_writer_are_not_promoted_by_the_judge(name: str, tmp_path: Path) -> None:
    with LocalEvaluator() as evaluator:
        assert offer(CPP, name, evaluator, tmp_path)["proposed"] >= 3


def test_changed_places_that_gain_nothing_are_taken_back(tmp_path: Path) -> None:
    source = searches.TASK.start.source.replace('"-O2"', '"-O3"').replace(
        "#include <torch/extension.h>", "#include <torch/extension.h>\nint unused() { return 1; }"
    )

    def only_o3(problem: Problem, kernel: Kernel) -> Verdict:
        return verdict("correct", speedup=3.0 if '"-O3"' in kernel.source else 1.0)

    policy, judge = WholePolicy([Kernel(source, "cpp")]), searches.evaluator(only_o3)
    result = writers.run(tmp_path, policy, judge, builds=3)
    best = (tmp_path / result["best"]["path"]).read_text()
    assert result["speedup"] == pytest.approx(3.0) and result["minimised"]["done"]
    assert best == searches.TASK.start.source.replace('"-O2"', '"-O3"')


def test_task_of_a_language_without_moves_needs_a_writer() -> None:
    start = Kernel(UNREAD, "hip")
    with pytest.raises(UsageError, match="language=hip has no moves by rules"):
        task_of(SAMPLE_PROBLEM, start)
    assert task_of(SAMPLE_PROBLEM, start, any_form=True).start == start
