"""Finding suites and problems by name, and the selection rules that suites share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import KernelgymError, ProblemError, UnknownName, UsageError
from kernelgym.suites import SUITES, get_problem, suite
from kernelgym.suites.base import check_source, natural_key, parse_ids, select_ids
from kernelgym.types import Problem

PROBLEMS = tuple(
    Problem(f"S/L{level}/{number}", "S", level, f"{number}_name{level}", "")
    for level in (1, 2)
    for number in range(1, 31)
)


def test_suites_by_name(kernelbench_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert suite("KernelBench", root=str(kernelbench_checkout)).name == "KernelBench"
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))
    assert get_problem("KernelBench/L4/2").name == "2_Net"
    same = suite("KernelBench")
    assert suite(same) is same


def test_a_folder_is_a_suite(kernelbench_checkout: Path) -> None:
    folder = kernelbench_checkout / "KernelBench"
    own = suite(str(folder), name="own")
    assert suite(folder, name="own").problems() == own.problems()
    assert own.get("own/L1/1_Add").level == 1
    assert get_problem(str(folder / "level1" / "1_Add.py")).source == own.problems()[0].source


def test_unknown_suites_options_and_problems(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean KernelBench"):
        suite("KernelBnch")
    with pytest.raises(UsageError, match="does not take these options"):
        suite("KernelBench", rot="x")
    for unknown in ("Nowhere/L1/1", "", "\0", "x" * 10_000):
        with pytest.raises(UnknownName):
            get_problem(unknown)
    with pytest.raises(ProblemError, match="cannot read"):
        get_problem(str(tmp_path / "absent.py"))
    with pytest.raises(ProblemError, match="cannot read"):
        get_problem(str(tmp_path))


def test_importing_suites_is_light() -> None:
    code = (
        "import sys, kernelgym.suites\n"
        "heavy = {'torch', 'triton', 'datasets', 'kernelgym.suites.kernelbench'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(SUITES) == {"KernelBench", "Synthetic"}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (3, (3,)),
        ("1-4,33", (1, 2, 3, 4, 33)),
        (" 2 - 3 , L1/5,", (2, 3, "L1/5")),
        (["1-2", 9, "K/L1/3"], (1, 2, 9, "K/L1/3")),
        ("23_Softmax", ("23_Softmax",)),
        ("", ()),
    ],
)
def test_parse_ids(ids: str | int | list[str | int], expected: tuple[str | int, ...]) -> None:
    assert parse_ids(ids) == expected


@pytest.mark.parametrize("ids", ["5-1", "0-99999999999", [1.5], [True], [None]])
def test_ids_that_make_no_sense(ids: str | list[object]) -> None:
    with pytest.raises(UsageError):
        parse_ids(ids)  # type: ignore[arg-type]


def test_selection_keeps_the_order_given_and_drops_repeats() -> None:
    chosen = select_ids(PROBLEMS, ["L2/5", "S/L1/9", "9_name1", "3-4"])
    assert [p.id for p in chosen] == [*("S/L2/5", "S/L1/9", "S/L1/3", "S/L2/3", "S/L1/4", "S/L2/4")]


def test_a_range_may_reach_past_the_end_but_not_miss() -> None:
    assert len(select_ids(PROBLEMS, "29-40")) == 4
    for missed in ("31-40", 99, "S/L1/99", "name"):
        with pytest.raises(UnknownName):
            select_ids(PROBLEMS, missed)
    with pytest.raises(UnknownName, match="'31-40'"):
        select_ids(PROBLEMS, "1-3,31-40")


@given(st.lists(st.one_of(st.text(max_size=12), st.integers(-5, 50)), max_size=6))
def test_selection_raises_only_usage_errors(ids: list[str | int]) -> None:
    try:
        chosen = select_ids(PROBLEMS, ids)
    except UsageError:
        return
    assert len({p.id for p in chosen}) == len(chosen)
    assert set(chosen) <= set(PROBLEMS)


@given(st.text(max_size=200))
def test_check_source_raises_only_problem_errors(source: str) -> None:
    try:
        check_source(source, "here")
    except KernelgymError as error:
        assert isinstance(error, ProblemError) and str(error).startswith("here ")


@given(st.lists(st.text(alphabet="ab019_²", max_size=6)))
def test_natural_keys_are_comparable(texts: list[str]) -> None:
    assert sorted(texts, key=natural_key) == sorted(sorted(texts), key=natural_key)


def test_natural_key_orders_numbers() -> None:
    assert sorted(["10_b", "2_a", "a"], key=natural_key) == ["a", "2_a", "10_b"]
