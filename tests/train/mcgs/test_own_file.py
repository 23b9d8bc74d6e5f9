"""What a search of a spec changes is told as a change of the user's own file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.own_file import own_diff
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.task import task_of, task_of_spec
from kernelgym_train.mcgs.variant import read_variant
from support import searches
from support.specs import PRODUCT


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("meta", [{}, {"BLOCK": [8, 16]}])
def test_diff_of_a_spec_applies_to_the_source_it_names(
    tmp_path: Path, end: str, meta: dict
) -> None:
    source = PRODUCT["source"].strip("\n") + end
    (tmp_path / "src").mkdir()
    (tmp_path / "src/product.cpp").write_text(source)
    given = {key: value for key, value in PRODUCT.items() if key != "source"}
    given |= {"path": "src/product.cpp", "launch": {"flags": ["-O2"], "meta": meta}}
    (tmp_path / "product.json").write_text(json.dumps(given))
    task = task_of_spec(tmp_path / "product.json")
    start = read_variant(task.start)
    rules = RuleProposer(start)
    for move in ("loop_order", "parallelise", "cache_policy_cg", "compiler_flags"):
        proposal = rules.propose(start, move, 0)
        if proposal is None:
            continue
        diff = own_diff(task, proposal.variant)
        (tmp_path / "src/product.cpp").write_text(source)
        if move == "compiler_flags":
            assert diff.startswith("# compiler flags: -") and "product.cpp" not in diff
            (tmp_path / "kernel_module.py").write_text(task.start.source)
            subprocess.run(["git", "apply", "-"], cwd=tmp_path, check=True, input=diff.encode())
            module = (tmp_path / "kernel_module.py").read_text()
            assert module == proposal.variant.kernel().source
            continue
        assert "--- a/src/product.cpp" in diff and "kernel_module" not in diff
        (tmp_path / "own.diff").write_text(diff)
        subprocess.run(["git", "apply", "own.diff"], cwd=tmp_path, check=True)
        changed = (tmp_path / "src/product.cpp").read_text()
        assert changed != source and changed.strip() in file_of(proposal.variant).cpp


def test_diff_of_a_module_is_of_the_module() -> None:
    task = searches.TASK
    start = read_variant(task.start)
    proposal = RuleProposer(start).propose(start, "loop_order", 0)
    assert proposal is not None
    diff = own_diff(task_of(task.problem, task.start), proposal.variant)
    assert diff.startswith("--- a/kernel_module.py")
