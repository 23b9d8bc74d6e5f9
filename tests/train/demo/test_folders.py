"""The demonstration's problems as folders: what is written is what an ordinary run reads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kernelgym.rulesets import RULESETS
from kernelgym.suites import suite
from kernelgym.suites.known_hygiene import passing
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.types import Problem
from kernelgym_train.demo.folders import PRACTICE, write_problems
from kernelgym_train.demo.plan import CPU_PLAN, TINY_PLAN
from kernelgym_train.demo.warmstart import FitRule

PROBLEMS = (
    *SyntheticSuite().problems(level=1, ids="1-20"),
    *SyntheticSuite().problems(level=2, ids="1-20"),
)
TABLES = {"compositions": PROBLEMS[30:35], "shapes": PROBLEMS[:3], "composed": ()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("demo") / "problems"
    write_problems(found, {PRACTICE: PROBLEMS, **TABLES})
    return found


def test_folders_hold_the_problems_under_equal_digests(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {PRACTICE, "compositions", "shapes"}
    written = {PRACTICE: PROBLEMS, **TABLES}
    for path in folder.iterdir():
        read = suite(str(path)).problems()
        facts = {(each.digest, each.name, each.level) for each in read}
        assert facts == {(each.digest, each.name, each.level) for each in written[path.name]}
        assert len(read) == len(written[path.name])


@pytest.mark.parametrize("ruleset", RULESETS)
def test_no_problem_of_a_folder_is_gated(folder: Path, ruleset: str) -> None:
    read = suite(str(folder / PRACTICE)).problems()
    assert passing(read, RULESETS[ruleset], "cpu") == read


def test_folders_that_are_there_are_left_alone(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    write_problems(folder, {"more": PROBLEMS[:1]})
    assert sorted(folder.rglob("*")) == before


def test_what_an_interrupted_write_left_is_dropped(tmp_path: Path) -> None:
    """A folder that holds some of the problems would be taken for all of them."""
    bad = [*PROBLEMS[:2], Problem("a", "a", 1, "a\0b", PROBLEMS[0].source)]
    with pytest.raises(ValueError, match="null"):
        write_problems(tmp_path / "problems", {"first": bad})
    assert not (tmp_path / "problems").exists()
    write_problems(tmp_path / "problems", {"second": PROBLEMS[:2]})
    assert [path.name for path in tmp_path.iterdir()] == ["problems"]
    assert [path.name for path in (tmp_path / "problems").iterdir()] == ["second"]


def test_a_plan_is_told_by_what_decides_the_start() -> None:
    digest = CPU_PLAN.start_digest
    assert dataclasses.replace(CPU_PLAN, steps=1, samples=1).start_digest == digest
    operators = set(CPU_PLAN.scope.operators or ())
    same = dataclasses.replace(CPU_PLAN.scope, operators=operators)
    assert dataclasses.replace(CPU_PLAN, scope=same).start_digest == digest
    fewer = dataclasses.replace(CPU_PLAN.scope, operators=operators - {"gelu"})
    others = (
        TINY_PLAN,
        dataclasses.replace(CPU_PLAN, scope=fewer),
        dataclasses.replace(CPU_PLAN, fit=FitRule(epochs=1)),
        dataclasses.replace(CPU_PLAN, held_out={"shapes": 1}),
    )
    assert len({digest, *(plan.start_digest for plan in others)}) == 5
