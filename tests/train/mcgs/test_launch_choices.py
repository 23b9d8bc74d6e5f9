"""Choices of a spec's meta-parameters, as moves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Kernel, Problem, UsageError, Verdict
from kernelgym.suites.spec_files import read_spec
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.launch_choices import launch_choices
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.search import optimize_spec
from kernelgym_train.mcgs.task import task_of_spec
from kernelgym_train.mcgs.variant import plain_variant, read_variant, state_key, variant_of
from support.specs import SPEC, TRITON_SPEC, changed, written

META = {"WIDTH": [16, 32, 64], "DEPTH": [2, 4], "FIXED": [1]}
TUNED: dict[str, Any] = changed(SPEC, launch={"meta": META})


def test_each_other_choice_is_a_proposal(tmp_path: Path) -> None:
    task = task_of_spec(written(tmp_path, TUNED))
    start = read_variant(task.start)
    proposer = RuleProposer(start, more=launch_choices(task.spec, "cpp"))
    made = [proposer.propose(start, "launch_choice", number) for number in range(4)]
    steps = [(each.step.target, each.step.choice) for each in made if each is not None]
    assert steps == [("WIDTH", "32"), ("WIDTH", "64"), ("DEPTH", "4")] and made[3] is None
    first = made[0]
    assert first is not None and "constexpr int WIDTH = 32;" in file_of(first.variant).cpp
    assert first.variant.launch == (("WIDTH", 32),)
    assert "constexpr int WIDTH = 32;" in first.variant.kernel().source
    again = proposer.propose(first.variant, "launch_choice", 0)
    assert again is not None and len(again.variant.applied) == 1
    assert "launch_choice" in dict(proposer.priors(start))


def test_a_search_takes_the_best_choice(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        wide = "constexpr int WIDTH = 64;" in kernel.source
        return verdict("correct", speedup=3.0 if wide else 1.0)

    path = written(tmp_path, TUNED)
    config = SearchConfig(budget=Budget(20))
    result = optimize_spec(path, ScriptedEvaluator(judged), tmp_path / "o", config)
    assert result["best"]["moves"] == [["launch_choice", "WIDTH", "64"]]
    best = tmp_path / "o" / result["best"]["path"]
    assert json.loads((best.parent / "control.json").read_text())["launch"] == {"WIDTH": 64}
    assert abs(result["speedup"] - 3.0) < 1e-9 and result["risk"] == "reassociates"


def test_choice_and_its_text_are_one_state(tmp_path: Path) -> None:
    start = read_variant(task_of_spec(written(tmp_path, TUNED)).start)
    chosen = dataclasses.replace(start, launch=(("WIDTH", 32),))
    text = start.source.replace("constexpr int WIDTH = 16;", "constexpr int WIDTH = 32;")
    assert text != start.source
    assert state_key(chosen) == state_key(dataclasses.replace(start, source=text))
    assert state_key(chosen) != state_key(start)
    same = dataclasses.replace(start, launch=(("WIDTH", 16),))
    assert state_key(same) == state_key(start)
    assert variant_of(json.loads(json.dumps(plain_variant(chosen)))) == chosen
    with pytest.raises(UsageError, match="no one line 'constexpr int ABSENT"):
        dataclasses.replace(start, launch=(("ABSENT", 1),)).kernel()


def test_without_choices_there_is_no_move(tmp_path: Path) -> None:
    spec = task_of_spec(written(tmp_path, changed(SPEC, launch={"meta": {"A": [1]}}))).spec
    assert launch_choices(spec, "cpp") == () == launch_choices(None, "cpp")
    (triton,) = launch_choices(read_spec(written(tmp_path, TRITON_SPEC)), "triton")
    assert triton.languages == ("triton",)
