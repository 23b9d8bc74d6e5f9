"""KernelBench's suite: checkouts, the hub's dataset, splits, and what is said if nothing works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import ProblemError, UnknownName
from kernelgym.hub import PROBE_S
from kernelgym.rulesets import ruleset
from kernelgym.suites import base, kernelbench
from kernelgym.suites.kernelbench import (
    REPRESENTATIVE,
    TEST_FAMILIES,
    KernelBenchSuite,
    split_of,
)
from kernelgym.suites.known_hygiene import passing
from kernelgym.types import Problem

SOURCE = """\
from torch import nn
class Model(nn.Module):
    pass
def get_inputs():
    return []
def get_init_inputs():
    return []
"""


def hub(monkeypatch: pytest.MonkeyPatch, rows: dict[str, list[dict[str, object]]]) -> list[str]:
    """Put a dataset of our own behind `datasets.load_dataset`; returns the splits asked for."""
    import datasets

    asked: list[str] = []

    def load_dataset(name: str, *, split: str) -> datasets.Dataset:
        assert name == "ScalingIntelligence/KernelBench"
        asked.append(split)
        return datasets.Dataset.from_list(rows[split])

    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(kernelbench, "ask_hub", lambda *_: "")
    return asked


def row(number: int, name: str, level: int = 1, code: str = SOURCE) -> dict[str, object]:
    return {"code": code, "level": level, "name": name, "problem_id": number}


@pytest.mark.parametrize("inner", ["", "KernelBench"])
def test_checkout_by_repository_root_or_dataset_folder(
    kernelbench_checkout: Path, inner: str
) -> None:
    suite = KernelBenchSuite(str(kernelbench_checkout / inner))
    problems = suite.problems()
    assert [problem.id for problem in problems[:4]] == [
        "KernelBench/L1/1",
        "KernelBench/L1/2",
        "KernelBench/L2/1",
        "KernelBench/L2/10",
    ]
    assert problems[3].name == "10_AddTen"
    assert problems[3].suite == "KernelBench" and problems[3].level == 2
    assert "21" in problems[3].source
    assert len({problem.digest for problem in problems}) == 8


def test_environment_variable_names_the_checkout(
    kernelbench_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))
    assert KernelBenchSuite().get("KernelBench/L1/2").name == "2_AddTwice"


def test_a_suite_is_a_suite(kernelbench_checkout: Path) -> None:
    assert isinstance(KernelBenchSuite(str(kernelbench_checkout)), base.Suite)


def test_wrong_root_says_what_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    with pytest.raises(ProblemError, match=r"KERNELBENCH_ROOT=.*not a KernelBench checkout"):
        KernelBenchSuite()


def test_level_without_files_and_broken_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    suite = KernelBenchSuite(str(tmp_path))
    with pytest.raises(ProblemError, match="holds no KernelBench problem"):
        suite.problems(level=1)
    (tmp_path / "level1" / "7_Broken.py").write_text("class Model: pass\n")
    with pytest.raises(ProblemError, match=r"7_Broken\.py does not define get_inputs, get_init"):
        suite.problems(level=1)


def test_two_problems_of_one_number_are_refused(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    for name in ("1_A", "1_B"):
        (tmp_path / "level1" / f"{name}.py").write_text(SOURCE)
    with pytest.raises(ProblemError, match="two problems 1: 1_A and 1_B"):
        KernelBenchSuite(str(tmp_path)).problems(level=1)


@pytest.mark.parametrize(
    ("problem_id", "suggestion"),
    [
        ("KernelBench/L1/3", "KernelBench/L1/1"),
        ("KernelBench/L9/1", "KernelBench/L"),
        ("Kernelbench/L1/1", "KernelBench/L1/1"),
    ],
)
def test_unknown_id(kernelbench_checkout: Path, problem_id: str, suggestion: str) -> None:
    with pytest.raises(UnknownName, match=suggestion):
        KernelBenchSuite(str(kernelbench_checkout)).get(problem_id)


@pytest.mark.parametrize("choice", [{"level": 5}, {"split": "validation"}, {"ids": "L1/9"}])
def test_unknown_choices(kernelbench_checkout: Path, choice: dict[str, object]) -> None:
    with pytest.raises(UnknownName):
        KernelBenchSuite(str(kernelbench_checkout)).problems(**choice)  # type: ignore[arg-type]


def test_conditions_combine(kernelbench_checkout: Path) -> None:
    suite = KernelBenchSuite(str(kernelbench_checkout))
    assert [p.id for p in suite.problems(level=2, ids="5-12,1")] == [
        "KernelBench/L2/10",
        "KernelBench/L2/1",
    ]
    with pytest.raises(ProblemError, match="split='representative'"):
        suite.problems(level=4, split="representative")


def test_hub_rows_become_problems_lazily_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "level_1": [row(23, "23_Softmax"), row(3, "3_Batched_matrix_multiplication")],
        "level_2": [row(9, "9_Matmul_Subtract_Multiply_ReLU.py", 2)],
    }
    asked = hub(monkeypatch, rows)
    suite = KernelBenchSuite()
    assert asked == []
    assert [p.id for p in suite.problems(level=1)] == ["KernelBench/L1/3", "KernelBench/L1/23"]
    assert suite.get("KernelBench/L2/9").name == "9_Matmul_Subtract_Multiply_ReLU"
    assert suite.get("KernelBench/L1/23").family == "activation"
    assert asked == ["level_1", "level_2"]
    kept = passing(suite.problems(level=1), ruleset("kernelbench"))
    assert [p.id for p in kept] == ["KernelBench/L1/3"]


def test_hub_rows_from_a_parquet_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    datasets.disable_progress_bars()
    for level in (1, 2):
        data = datasets.Dataset.from_list([row(1, "1_Own", level)])
        data.to_parquet(tmp_path / "data" / f"level_{level}-00000-of-00001.parquet")
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    monkeypatch.setattr(kernelbench, "DATASET", str(tmp_path))
    monkeypatch.setattr(kernelbench, "ask_hub", lambda *_: "")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    problems = KernelBenchSuite().problems(level=2)
    assert [(p.id, p.name, p.source) for p in problems] == [("KernelBench/L2/1", "1_Own", SOURCE)]


def test_hub_row_that_is_no_problem_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, {"level_1": [row(4, "4_Bad", code="x = 1\n")]})
    with pytest.raises(ProblemError, match=r"problem 4 \(4_Bad\) does not define Model"):
        KernelBenchSuite().problems(level=1)


def test_unreachable_hub_is_asked_once_and_the_error_names_every_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import datasets
    from huggingface_hub import constants

    probes: list[float] = []
    offline: list[tuple[bool, bool]] = []

    class Hub:
        def repo_info(self, name: str, repo_type: str, timeout: float) -> None:
            assert repo_type == "dataset"
            probes.append(timeout)
            raise ConnectionError("no route")

    def load_dataset(*_: object, **__: object) -> None:
        offline.append((constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE))
        raise ConnectionError("not cached")

    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    before = (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE)
    suite = KernelBenchSuite()
    for level in (1, 2):
        with pytest.raises(ProblemError) as caught:
            suite.problems(level=level)
        for way in ("KERNELBENCH_ROOT", "ScalingIntelligence/KernelBench", "Synthetic"):
            assert way in str(caught.value)
    # The probe is short, and nothing after it may retry: the client is offline for that call.
    assert probes == [PROBE_S] and probes[0] <= 10
    assert offline == [(True, True), (True, True)]
    assert (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE) == before


def test_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ProblemError, match="package `datasets` is missing"):
        KernelBenchSuite().problems(level=1)


def test_families_stay_on_one_side() -> None:
    from kernelgym.suites.kernelbench_facts import facts

    sides: dict[str, set[str]] = {}
    share: dict[int, list[bool]] = {}
    for entry in facts().values():
        problem = Problem(
            entry.problem_id, "KernelBench", entry.level, entry.name, "", entry.family
        )
        side = split_of(problem)[0]
        sides.setdefault(entry.family, set()).add(side)
        share.setdefault(entry.level, []).append(side == "test")
    assert all(len(side) == 1 for side in sides.values())
    assert set(sides) >= TEST_FAMILIES
    for level, tests in share.items():
        assert 0.15 <= sum(tests) / len(tests) <= 0.25, level
    convolutions = [family for family in sides if family.startswith("conv")]
    assert len({next(iter(sides[family])) for family in convolutions}) == 1


@given(st.text(min_size=1, max_size=20), st.integers(1, 500))
def test_unknown_families_get_one_stable_side(name: str, number: int) -> None:
    name = name.encode("utf-8", "replace").decode()
    problem = Problem(f"KernelBench/L4/{number}", "KernelBench", 4, name, "")
    assert split_of(problem) == split_of(problem)
    assert split_of(problem)[0] in ("train", "test") and len(split_of(problem)) == 1


def test_representative_numbers_are_known_problems() -> None:
    from kernelgym.suites.kernelbench_facts import fact

    assert {level: len(numbers) for level, numbers in REPRESENTATIVE.items()} == {1: 18, 2: 8, 3: 9}
    for level, numbers in REPRESENTATIVE.items():
        assert all(fact(f"KernelBench/L{level}/{number}") for number in numbers)


@pytest.mark.skipif(not os.environ.get("KERNELBENCH_ROOT"), reason="KERNELBENCH_ROOT is not set")
def test_all_270_problems_of_a_real_checkout_load() -> None:
    suite = KernelBenchSuite()
    problems = suite.problems()
    assert [sum(p.level == level for p in problems) for level in suite.levels] == [100, 100, 50, 20]
    assert [p.id for p in problems if not p.family] == []
    assert len(suite.problems(split="representative")) == 35
    for level in suite.levels:
        train = {p.id for p in suite.problems(level=level, split="train")}
        test = {p.id for p in suite.problems(level=level, split="test")}
        assert not train & test
        assert len(train | test) == sum(p.level == level for p in problems)
