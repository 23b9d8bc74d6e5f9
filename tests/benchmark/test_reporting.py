"""Numbers of a report by hand, comparisons that are refused, and baselines from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgym.benchmark import report
from kernelgym.benchmark.baseline_files import baseline_mode
from kernelgym.benchmark.reporting import COLUMNS
from kernelgym.errors import UsageError
from kernelgym.rulesets import RULESETS
from kernelgym.suites.kernelbench_facts import facts
from kernelgym.types import Problem
from support.benchmark_runs import eval_run, fast, made, record

BASE = {"std": 0.1, "num_trials": 100, "hardware": "NVIDIA H100", "device": "cpu"}


def test_numbers_are_those_of_a_hand_computation(tmp_path: Path) -> None:
    """A: 2 of 4 first answers right, 3 of 4 episodes; B: none; C: not judged; D: missing."""
    folder = eval_run(
        tmp_path / "one", {"A": "2 w4 1 ww", "B": "w w c c", "C": "x", "D": ""}, samples=4
    )
    data = report(folder).to_dict()["runs"][0]
    json.dumps(data, allow_nan=False)
    card = data["tables"]["all problems"]
    assert card["correct"]["value"] == pytest.approx(2 / 8) and card["correct"]["n"] == 8
    assert card["pass@1"]["value"] == pytest.approx((2 / 4 + 0) / 2), "the mean over problems"
    assert card["pass@2"]["value"] == pytest.approx((5 / 6 + 0) / 2)
    assert card["correct_within"]["value"] == pytest.approx(3 / 8)
    assert card["fast_1"]["value"] == pytest.approx(1 / 8), "1x is not faster than 1x"
    assert card["fast_1_within"]["value"] == pytest.approx(2 / 8)
    assert card["fast_2_certain_within"]["value"] == pytest.approx(1 / 8)
    assert card["speedup"]["value"] == pytest.approx(2**0.5)
    assert card["rejected"]["value"] == pytest.approx(2 / 8)
    assert data["solved"] == 1
    assert data["counts"] == {
        "problems": 4,
        "answered": 2,
        "episodes": 9,
        "answers": 10,
        "missing": 7,
        "timed": 3,
        "distrusted": 0,
        "distrusted_untimed": 0,
        "unavailable": 1,
        "degenerate": 0,
        "unconfirmed": 0,
    }
    assert all(row["low"] < row["high"] for row in card.values())


def test_degenerate_problems_are_told_and_left_out(tmp_path: Path) -> None:
    """KernelBench L1/23 passes zeros; L1/1 is not known to be degenerate."""
    played = []
    for number, speed in ((23, 9.0), (1, 1.5)):
        entry = facts()[f"KernelBench/L1/{number}"]
        one = Problem(entry.problem_id, "KernelBench", 1, entry.name, f"# {number}")
        played.append(record(made([fast(speed)], one)))
    data = report(eval_run(tmp_path / "one", {}, episodes=played)).to_dict()["runs"][0]
    assert list(data["degenerate"]) == ["KernelBench/L1/23"]
    assert data["tables"]["all problems"]["fast_2"]["value"] == 0.5
    assert data["tables"]["without degenerate problems"]["fast_2"]["value"] == 0.0


def test_rows_are_answers(tmp_path: Path) -> None:
    rows = list(report(eval_run(tmp_path / "one", {"A": "w3", "B": "x"})).rows())
    assert [tuple(row) for row in rows] == [COLUMNS] * 3
    assert [row["status"] for row in rows] == ["wrong", "correct", "unavailable"]
    assert (rows[0]["speedup"], rows[1]["speedup"]) == ("", 3.0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"ruleset": RULESETS["kernelbench"].label}, "kernelbench@"),
        ({"problem_digest": "0" * 16}, "different sources of Test/L1/A"),
    ],
)
def test_runs_of_other_rules_are_not_compared(
    tmp_path: Path, changed: dict[str, str], says: str
) -> None:
    one = eval_run(tmp_path / "one", {"A": "r"})
    two = eval_run(tmp_path / "two", {"A": "r"}, **changed)
    with pytest.raises(UsageError, match=says):
        report(one, two)
    assert report(two).runs[0].name == "two"


def test_runs_without_a_common_problem_are_refused(tmp_path: Path) -> None:
    sides = [eval_run(tmp_path / name, {name: "r"}) for name in ("A", "B")]
    with pytest.raises(UsageError, match="no problem in common"):
        report(*sides)


def test_cautions_tell_of_other_devices_and_turns(tmp_path: Path) -> None:
    one = eval_run(tmp_path / "one", {"A": "r"})
    two = eval_run(tmp_path / "two", {"A": "r"}, device="cuda:0", language="cuda")
    (found,) = report(one, two).comparisons
    assert len(found.cautions) == 2 and "cuda:0" in found.cautions[0]


def test_two_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    sides = [eval_run(tmp_path / n / "run", {"A": w}) for n, w in (("x", "r"), ("y", "w"))]
    found = report(*sides)
    assert [view.name for view in found.views] == ["run", "run (2)"]
    row = found.to_dict()["comparisons"][0]["rows"]["correct"]
    assert row["difference"] == -1.0 and row["losses"] == ("Test/L1/A",)


def baselines(tmp_path: Path, entry: dict[str, object], mode: str = "_compile_x") -> Path:
    path = tmp_path / f"baseline_time_torch{mode}.json"
    path.write_text(json.dumps({"level1": {"A.py": entry}}))
    return path


def test_baselines_of_files_are_unpaired(tmp_path: Path) -> None:
    folder = eval_run(tmp_path / "one", {"A": "2", "B": "2"})
    path = baselines(tmp_path, BASE | {"mean": 1.5, "precision": "fp32"})
    found = report(folder, baselines=[path])
    (time,) = found.views[0].baselines["Test/L1/A"]
    assert (time.mean_ms, time.mode) == (1.5, "x") and len(found.views[0].baselines) == 1
    assert "fastest mode of the baseline files" in found.html()


@pytest.mark.parametrize(
    ("entry", "machine", "says"),
    [
        (BASE | {"mean": 1.0}, {"gpu": "NVIDIA H200, 570.1"}, "NVIDIA H200"),
        (BASE | {"mean": 1.0, "device": "cuda:0"}, {}, "on 'NVIDIA H100' and one .* on 'cpu'"),
        (BASE | {"mean": 1.0, "tf32": "torch"}, {}, "tf32=torch"),
        (BASE | {"mean": 1.0, "precision": "bf16"}, {}, "precision=bf16"),
        (BASE | {"mean": -1.0}, {}, "positive time"),
        (BASE, {}, "makes no sense"),
    ],
)
def test_other_baselines_are_refused(
    tmp_path: Path, entry: dict[str, object], machine: dict[str, str], says: str
) -> None:
    folder = eval_run(tmp_path / "one", {"A": "2"})
    (folder / "machine.json").write_text(json.dumps(machine))
    with pytest.raises(UsageError, match=says):
        report(folder, baselines=[baselines(tmp_path, entry)])


def test_a_file_without_the_run_s_problems_is_refused(tmp_path: Path) -> None:
    folder = eval_run(tmp_path / "one", {"B": "2"})
    with pytest.raises(UsageError, match="none of the problems"):
        report(folder, baselines=[baselines(tmp_path, BASE | {"mean": 1.0})])
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UsageError, match="holds no baselines"):
        report(folder, baselines=[tmp_path / "x.json"])


def test_modes_are_read_from_names() -> None:
    names = ("baseline_time_torch", "baseline_time_torch_compile_inductor_max-autotune")
    modes = [baseline_mode(Path(f"{name}.json")) for name in names]
    assert modes == ["eager", "inductor_max-autotune"]
