"""A run in KernelBench's layout: its own formulas on our files give our numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.benchmark import report
from kernelgym.benchmark.interchange.exporting import export_kernelbench, pass_at_k_results
from kernelgym.benchmark.interchange.hub import TEXTS, answer_rows, export_dataset
from kernelgym.benchmark.kernelbench import as_kernelbench
from kernelgym.benchmark.kernelbench_folder import read_folder
from kernelgym.benchmark.numbers.rates import fast_rate
from kernelgym.benchmark.numbers.speeds import geometric_mean
from kernelgym.benchmark.recorded_runs import read_run
from kernelgym.errors import UsageError
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.testing import reply
from kernelgym.types import Kernel, Problem, Verdict
from support.benchmark_runs import CHEAT, LOST, RIGHT, WRONG, eval_run, fast, made, record
from support.strategies import verdicts


def asked(number: int) -> Problem:
    name = f"{number}_Problem"
    return Problem(f"KernelBench/L1/{number}", "KernelBench", 1, name, f"# {number}")


def episode(number: int, *found: Verdict, sample: int = 0, source: str = "") -> EpisodeRecord:
    text = reply(Kernel(f"class ModelNew: '''{source}'''\n", "triton"))
    return record(made(found, asked(number), texts=[text] * len(found)), sample)


def results(folder: Path) -> dict[str, list[dict[str, object]]]:
    return dict(json.loads((folder / "eval_results.json").read_text()))


def analysed(folder: Path, level: int, size: int) -> dict[str, float]:
    """Compute what KernelBench's analysis does, as its documentation describes it.

    Sample 0 only; problems without a result have failed; fast_p over the problems that also have a
    baseline; speedup = baseline mean / runtime.
    """
    (path,) = folder.glob("results/timing/*/baseline_time_torch.json")
    baselines = json.loads(path.read_text())[f"level{level}"]
    found = results(folder)
    speeds, correct = [], 0
    for number in range(1, size + 1):
        entries = [each for each in found.get(str(number), []) if each["sample_id"] == 0]
        assert len(entries) <= 1
        right = bool(entries and entries[0]["correctness"])
        correct += right
        if f"{number}_Problem.py" in baselines:
            mean = baselines[f"{number}_Problem.py"]["mean"]
            speeds.append(mean / entries[0]["runtime"] if right else 0.0)
    timed = [math.log(speed) for speed in speeds if speed]
    told = {f"fast_{p}": sum(s > p for s in speeds) / len(speeds) for p in (0, 0.5, 1, 1.5, 2)}
    mean = math.exp(sum(timed) / len(timed)) if timed else math.nan
    return told | {"correct": correct / size, "speedup": mean}


def test_their_analysis_gives_our_numbers(tmp_path: Path) -> None:
    first = [fast(3.0), WRONG, fast(0.7), CHEAT, fast(2.0)]
    played = [episode(number, found) for number, found in enumerate(first, 1)]
    run = read_run(eval_run(tmp_path / "run", {}, episodes=played))
    export_kernelbench(run, tmp_path / "out", level=1)
    theirs = analysed(tmp_path / "out", 1, 5)
    for p in (0, 0.5, 1, 1.5, 2):
        ours = fast_rate(run.outcomes, p)
        assert ours is not None and theirs[f"fast_{p}"] == pytest.approx(ours.value, abs=1e-12)
    mean = geometric_mean(run.outcomes)
    assert mean is not None and theirs["speedup"] == pytest.approx(mean.value, abs=1e-9)
    assert theirs["correct"] == 3 / 5


@settings(max_examples=30, deadline=None)
@given(st.lists(verdicts(), min_size=1, max_size=4), st.text(max_size=20))
def test_export_and_import_keep_kernels_and_verdicts(
    tmp_path_factory: pytest.TempPathFactory, found: list[Verdict], source: str
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    played = [episode(1, each, sample=n, source=source) for n, each in enumerate(found)]
    run = read_run(eval_run(folder / "run", {}, episodes=played))
    export_kernelbench(run, folder / "out", level=1, untimed="keep")
    kernels = {(1, n): each.trajectory.turns[0].reply.kernel for n, each in enumerate(played)}
    sources = {place: kernel.source for place, kernel in kernels.items() if kernel is not None}
    writable = {p: s for p, s in sources.items() if s.encode("utf-8", "ignore").decode() == s}
    if not writable:
        return
    back = read_folder(folder / "out", 1)
    assert back.kernels == writable
    for place, claim in back.claims.items():
        verdict = found[place[1]]
        theirs = as_kernelbench(verdict)
        assert (claim.compiled, claim.correct) == (theirs.compiled, theirs.correctness)
        if verdict.timing is not None:
            assert claim.runtime_ms == pytest.approx(verdict.timing.kernel_ms, rel=1e-9)
    assert {n for n, each in enumerate(found) if each.valid} >= {n for _, n in back.claims}


def test_untimed_kernels_are_refused_unless_kept(tmp_path: Path) -> None:
    run = read_run(eval_run(tmp_path / "run", {}, episodes=[episode(1, RIGHT)]))
    with pytest.raises(UsageError, match="--untimed keep"):
        export_kernelbench(run, tmp_path / "out", level=1)
    export_kernelbench(run, tmp_path / "out", level=1, untimed="keep")
    assert results(tmp_path / "out")["1"][0]["runtime"] == -1.0


def test_what_says_nothing_is_left_out_and_listed(tmp_path: Path) -> None:
    played = [episode(1, LOST), episode(2, WRONG)]
    run = read_run(eval_run(tmp_path / "run", {}, episodes=played, samples=2))
    done = export_kernelbench(run, tmp_path / "out", level=1)
    assert list(results(tmp_path / "out")) == ["2"] and done.results == 1
    left = json.loads((tmp_path / "out" / "left_out.json").read_text())
    assert [(each["problem_id"], each["sample_id"]) for each in left] == [(1, 0), (1, 1), (2, 1)]


@pytest.mark.parametrize(("which", "speed"), [("first", 2.0), ("best", 4.0), ("last", 3.0)])
def test_a_turn_stands_for_its_episode(tmp_path: Path, which: str, speed: float) -> None:
    played = made([fast(2.0), fast(4.0), fast(3.0)], asked(7), ended="budget")
    run = read_run(eval_run(tmp_path / "run", {}, episodes=[record(played)]))
    export_kernelbench(run, tmp_path / "out", level=1, turn=which)  # type: ignore[arg-type]
    assert analysed(tmp_path / "out", 1, 7)["speedup"] == pytest.approx(speed)


def test_entries_are_sorted_by_number(tmp_path: Path) -> None:
    played = [episode(n, WRONG, sample=s) for n in (10, 9) for s in (1, 0)]
    run = read_run(eval_run(tmp_path / "run", {}, episodes=played))
    export_kernelbench(run, tmp_path / "out", level=1)
    found = results(tmp_path / "out")
    assert [(n, [e["sample_id"] for e in found[n]]) for n in found] == [
        ("9", [0, 1]),
        ("10", [0, 1]),
    ]


def test_another_level_is_refused(tmp_path: Path) -> None:
    run = read_run(eval_run(tmp_path / "run", {}, episodes=[episode(1, WRONG)]))
    with pytest.raises(UsageError, match="levels that it has: 1"):
        export_kernelbench(run, tmp_path / "out", level=3)


def test_averages_are_over_problems_that_count() -> None:
    """KernelBench divides by all problems, which gives 0.2 in place of 0.4 for k = 2."""

    def entries(*right: bool) -> list[dict[str, bool]]:
        return [{"compiled": True, "correctness": each} for each in right]

    found = pass_at_k_results(
        {"1": entries(True, False, False, False, False), "2": entries(True)}, (1, 2)
    )
    assert found["averages"] == {"avg_pass@1": pytest.approx(0.6), "avg_pass@2": pytest.approx(0.4)}
    assert found["metadata"]["pass@2_count"] == 1 and "pass@2" not in found["problems"]["2"]


def test_a_dataset_has_a_row_per_answer(tmp_path: Path) -> None:
    played = [episode(1, WRONG, fast(2.0)), episode(2, CHEAT, source="\ud800")]
    run = read_run(eval_run(tmp_path / "run", {}, episodes=played))
    rows = list(answer_rows(run))
    assert [row["status"] for row in rows] == ["wrong", "correct", "rejected"]
    assert set(TEXTS) <= set(rows[0]) and rows[0]["speedup"] is None
    rows[2]["kernel"].encode("utf-8")


@pytest.mark.slow
def test_a_dataset_is_read_from_disk(tmp_path: Path) -> None:
    import datasets

    run = read_run(eval_run(tmp_path / "run", {}, episodes=[episode(1, WRONG, fast(2.0))]))
    assert export_dataset(run, tmp_path / "out") == 2
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert found["status"][:] == ["wrong", "correct"] and found["speedup"][:] == [None, 2.0]


def sized(number: int, size: str) -> Problem:
    name = f"{number}_Problem"
    return Problem(f"KernelBench/L1/{number}{size}", "KernelBench", 1, name, f"# {number}")


def test_export_of_small_forms_names_their_size_everywhere(tmp_path: Path) -> None:
    played = [record(made([fast(2.0)], sized(1, "@small"), texts=[""]), 0)]
    run = read_run(eval_run(tmp_path / "run", {}, episodes=played))
    out = tmp_path / "out"
    export_kernelbench(run, out, level=1)
    told = results(out)["1"][0]["metadata"]
    assert isinstance(told, dict)
    assert (told["kernelgym_suite"], told["kernelgym_sizes"]) == ("KernelBench", "small")
    config = (out / "generation_config.yaml").read_text()
    assert "kernelgym_suite: KernelBench" in config and "kernelgym_sizes: small" in config
    (path,) = out.glob("results/timing/*/baseline_time_torch.json")
    assert json.loads(path.read_text())["level1"]["1_Problem.py"]["kernelgym_sizes"] == "small"
    full = read_run(eval_run(tmp_path / "full", {}, episodes=[episode(1, fast(2.0))]))
    with pytest.raises(UsageError, match="in small size, and full has KernelBench/L1/1;"):
        report(full, baselines=[path])


def test_export_of_two_sizes_or_of_another_suite_is_refused(tmp_path: Path) -> None:
    played = [
        record(made([WRONG], sized(n, size), texts=[""]), 0) for n, size in ((1, ""), (2, "@small"))
    ]
    mixed = read_run(eval_run(tmp_path / "mixed", {}, episodes=played))
    with pytest.raises(UsageError, match="export runs of one size"):
        export_kernelbench(mixed, tmp_path / "out", level=1)
    other = Problem("Synthetic/L1/1", "Synthetic", 1, "1_Problem", "# 1")
    run = read_run(
        eval_run(tmp_path / "run", {}, episodes=[record(made([WRONG], other, texts=[""]), 0)])
    )
    with pytest.raises(UsageError, match=r"KernelBench only, and run has Synthetic/L1/1; .*hf"):
        export_kernelbench(run, tmp_path / "out", level=1)
    assert not (tmp_path / "out").exists()
