"""A spec with a Triton kernel: its choices, the diff of its own file, and a search of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kernelgym_train.mcgs import Budget, SearchConfig
from kernelgym_train.mcgs.own_file import own_diff
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.session import rules_for
from kernelgym_train.mcgs.task import SearchTask, task_of_spec
from kernelgym_train.mcgs.variant import read_variant
from support.triton_searches import TimedByTable

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(folder: Path, **launch: object) -> SearchTask:
    """Return the task of the example's spec, copied into a folder."""
    given = json.loads((EXAMPLES / "triton_softmax.json").read_text())
    given["launch"]["meta"] |= launch
    (folder / "triton_softmax.py").write_text((EXAMPLES / "triton_softmax.py").read_text())
    (folder / "spec.json").write_text(json.dumps(given))
    return task_of_spec(folder / "spec.json")


@pytest.mark.parametrize("move", ["single_pass_row", "softmax_math_fusion", "change_block_sizes"])
def test_diff_of_a_triton_spec_applies_to_its_own_file(move: str, tmp_path: Path) -> None:
    task = example(tmp_path)
    start = read_variant(task.start)
    made = RuleProposer(start).propose(start, move, 0)
    assert made is not None
    diff = own_diff(task, made.variant)
    launched = [line for line in diff.splitlines() if line.startswith("# launch: ")]
    assert bool(launched) == (move != "softmax_math_fusion")
    assert "ModelNew" not in diff
    if move == "change_block_sizes":
        assert "@@" not in diff and "BLOCK=64" in launched[0]
        return
    (tmp_path / "own.diff").write_text(diff)
    subprocess.run(["git", "apply", "own.diff"], cwd=tmp_path, check=True)
    changed = (tmp_path / "triton_softmax.py").read_text()
    assert made.variant.source.startswith(changed.rstrip())


def test_listed_choices_are_the_only_ones(tmp_path: Path) -> None:
    task = example(tmp_path, BLOCK=[128, 640], num_warps=[4, 8])
    start, rules = read_variant(task.start), rules_for(task, False)
    made = [rules.propose(start, "launch_choice", number) for number in range(3)]
    choices = [each.step.choice for each in made if each is not None]
    assert choices == ["BLOCK=640", "num_warps=8"] and made[2] is None
    number, warps = 0, set()
    while (each := rules.propose(start, "change_block_sizes", number)) is not None:
        number += 1
        assert not each.step.choice.startswith("BLOCK=")
        warps |= {each.step.choice} if "num_warps" in each.step.choice else set()
    assert warps == {"num_warps=8"}


def test_search_of_a_triton_spec_reports_every_shape(tmp_path: Path) -> None:
    task = example(tmp_path)
    config = SearchConfig(budget=Budget(6))
    result = search(task, TimedByTable(), tmp_path / "out", config)
    assert result["speedup"] > 5 and len(result["shapes"]) == 3
    diff = (tmp_path / "out" / result["best"]["diff"]).read_text()
    assert "next_power_of_2(columns)" in diff and "a/triton_softmax.py" in diff
