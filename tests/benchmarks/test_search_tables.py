"""Tables of measured spaces: read, masked, compared; and what the real benchmarks record."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.search import compare, cpu, priors
from benchmarks.search import decisions as search_decisions
from benchmarks.search.hub import TABLES, table_of
from benchmarks.search.measure import ABSENT_AS, measured, space_of
from benchmarks.search.offline import anywhere, play
from benchmarks.search.table import Config, Table, TableProposer, read_table, write_table
from kernelgym import UsageError
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Build, Kernel, Problem, Verdict
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.kernel_file import read_kernel_file
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.selection import best_first
from kernelgym_train.mcgs.variant import read_variant
from support import searches

CACHE = {
    "device_name": "",
    "kernel_name": "k",
    "tune_params_keys": ["a", "b", "c"],
    "tune_params": {"a": [1, 2], "b": [0], "c": [1, 10, 2]},
    "cache": {
        "1,0,1": {"a": 1, "b": 0, "c": 1, "time": 2.5},
        "1,0,10": {"a": 1, "b": 0, "c": 10, "time": "RuntimeFailedConfig"},
        "2,0,2": {"a": 2, "b": 0, "c": 2, "time": 1},
    },
}


@pytest.mark.parametrize("name", ["convolution_A100", "convolution_MI250X"])
def test_committed_space_is_whole_and_attributed(name: str) -> None:
    table = read_table(TABLES / f"{name}.csv")
    assert len(table.times_ms) == 4362 and len(table.columns) == 7
    assert "doi:10.5281/zenodo.15364124" in table.notes[0] and "MIT" in table.notes[0]
    assert "MIT License" in (TABLES / "LICENSE.benchmark_hub").read_text()
    near = [t for t in table.times_ms.values() if t is not None and t <= table.best_ms / 0.95]
    assert len(near) == {"convolution_A100": 1, "convolution_MI250X": 9}[name]


def test_cache_file_becomes_a_table(tmp_path: Path) -> None:
    table = table_of(CACHE, "t", "card")
    assert dict(table.times_ms) == {("1", "1"): 2.5, ("1", "10"): None, ("2", "2"): 1.0}
    assert table.notes[1] == "k on card, times in ms"
    write_table(table, tmp_path / "t.csv")
    again = read_table(tmp_path / "t.csv")
    assert again.times_ms == table.times_ms
    assert again.columns == {"a": ("1", "2"), "c": ("1", "2", "10")}, "in the order of numbers"


def test_configuration_outside_is_not_proposed() -> None:
    table = table_of(CACHE, "t")
    proposer = TableProposer(table, ("1", "1"))
    start = proposer.variant(("1", "1"))
    offered = [proposer.propose(start, "c", number) for number in range(3)]
    configs = [proposer.config(each.variant) for each in offered if each is not None]
    assert configs == [("1", "10")]
    assert proposer.tuned(proposer.space(), {"a": "2", "c": "1"}) is None


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_mask_is_of_the_seed_and_fails_its_share(seed: int) -> None:
    configs = {(str(a), str(b)): 1.0 + a for a in range(20) for b in range(20)}
    names = tuple(map(str, range(20)))
    table = Table("t", {"a": names, "b": names}, configs)
    masked = table.masked(0.3, seed)
    assert masked.times_ms == table.masked(0.3, seed).times_ms
    assert 60 < sum(time is None for time in masked.times_ms.values()) < 180
    assert masked.times_ms[masked.start(seed)] is not None


def test_noise_misleads_the_choice_and_not_the_share() -> None:
    configs = {(str(a),): 1.0 + 0.01 * a for a in range(60)}
    table = Table("t", {"a": tuple(map(str, range(60)))}, configs)
    true = [play(best_first, table, seed=s, budget=59).shares[-1] for s in range(5)]
    noisy = [play(best_first, table, seed=s, budget=59, noise=0.2).shares[-1] for s in range(5)]
    assert set(true) == {1.0} and min(noisy) < 1.0 and max(noisy) <= 1.0


def test_random_search_of_a_table_takes_each_once() -> None:
    found = play(anywhere, table_of(CACHE, "t"), seed=1, budget=9)
    assert len(set(found.configs)) == len(found.configs) == 2 and found.shares[-1] == 1.0


def test_figures_are_of_the_shares() -> None:
    curves = {compare.RANDOM: [[0.5] * 20] * 10, "tpe": [[0.1 * n] * 20 for n in range(1, 11)]}
    found = compare.figures(curves)
    assert found["tpe"]["20"] == [0.55, 0.1] and found["tpe"]["area"] == pytest.approx(0.05)
    assert found[compare.RANDOM] == {"20": [0.5, 0.5], "area": 0.0}
    (miss,) = compare.goal(("t", 0.3, 0.0), found)
    assert miss == "t, 30% failing, 0% noise, 20 evaluations: 10th percentile 0.10, random has 0.50"
    found["mcgs"] = {"20": [0.7, 0.6], "area": 0.1}
    assert any("median 0.55, mcgs has 0.70" in each for each in compare.goal(("t", 0, 0), found))


def test_compare_plays_every_algorithm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o.json"
    given = ["--tables", "convolution_A100", "--seeds", "2", "--budget", "20", "--masks", "0.3"]
    algorithms = ["--algorithms", "best_first", "mcgs", "--noises", "0"]
    compare.main([*given, *algorithms, "--processes", "1", "--out", str(out)])
    said = capsys.readouterr().out
    assert said.startswith("convolution_A100, 30% failing, 0% noise\n  random in the table")
    assert said.count("area") == 3 and out.exists()


def test_compared_cases_join_those_of_the_file(tmp_path: Path) -> None:
    def row(table: str, failing: float, figures: int) -> dict[str, Any]:
        return {"table": table, "failing": failing, "noise": 0.0, "figures": figures}

    path = tmp_path / "o.json"
    rows = [row("c", 0.3, 1), row("c", 0.0, 1), row("a", 0.0, 1)]
    compare.write(path, rows, 2)
    compare.write(path, [row("c", 0.3, 2), row("b", 0.0, 2)], 2)
    found = json.loads(path.read_text())["rows"]
    assert [(each["table"], each["failing"], each["figures"]) for each in found] == [
        ("a", 0.0, 1),
        ("b", 0.0, 2),
        ("c", 0.0, 1),
        ("c", 0.3, 2),
    ]
    with pytest.raises(ValueError, match="rows of 2 seeds, not 3"):
        compare.write(path, rows, 3)


def test_measured_table_judges_each_program_once(tmp_path: Path) -> None:
    problem, start = EXAMPLES["matmul"]
    proposer = RuleProposer(read_variant(start))
    space = space_of(proposer, ("loop_order", "unroll"))
    judge = searches.evaluator()
    kept = tmp_path / "t.jsonl"
    part = measured("t", problem, proposer, space, judge, kept, most=3)
    whole = measured("t", problem, proposer, space, judge, kept)
    assert 0 < len(part.times_ms) < len(whole.times_ms)
    digests = [job.kernel.digest for job in judge.judged]
    assert len(digests) == len(set(digests)), "a run that was cut off goes on"
    plain = tuple(ABSENT_AS for _ in whole.columns)
    assert whole.times_ms[plain] == pytest.approx(100.0)


def test_measured_programs_share_builds(tmp_path: Path) -> None:
    """Kernels of one build are judged; a host twice as slow for a while does not count."""
    problem, start = EXAMPLES["matmul"]
    proposer = RuleProposer(read_variant(start))
    space = space_of(proposer, ("loop_order", "compiler_flags"))
    built: list[Kernel] = []
    slow = itertools.cycle([1.0, 2.0, 1.0])

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        factor = next(slow)
        found = verdict("correct", speedup=0.5)
        assert found.timing is not None
        timing = replace(found.timing, kernel_ms=20.0 * factor, reference_ms=10.0 * factor)
        return replace(found, timing=timing)

    judge = Building(judged, built)
    table = measured("t", problem, proposer, space, judge, tmp_path / "t.jsonl")
    assert set(table.times_ms.values()) == {20.0}
    assert 1 < len(built) < len(judge.judged), "one build for many programs"
    files = [read_kernel_file(job.kernel.source) for job in judge.judged]
    assert len({(file.cpp, file.flags) for file in files}) == len(built)


class Building(ScriptedEvaluator):
    """Builds without judging, too."""

    def __init__(self, judged: Callable[[Problem, Kernel], Verdict], built: list[Kernel]) -> None:
        super().__init__(judged)
        self._built = built

    def build(self, kernel: Kernel) -> Build:
        self._built.append(kernel)
        return Build()


def test_cpu_rows_hold_what_goals_ask_for(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        return verdict("correct", speedup=0.45 if "vector_size" in kernel.source else 0.01)

    judge = searches.evaluator(judged)
    row: dict[str, Any] = cpu.row_of("matmul", "best_first", 0, judge, tmp_path, Budget(4))
    assert row["speedup"] == pytest.approx(45.0) and row["over_torch"] == pytest.approx(0.45)
    assert row["evaluations"] == 4 and row["moves"][0][0] == "register_block"
    assert cpu.reached([row], "best_first") == {"matmul": True}
    assert cpu.reached([{**row, "over_torch": 0.3}], "best_first") == {"matmul": False}
    assert cpu.reached([row], "tpe") == {}
    assert len(row["load"]) == 2 and row["host_busy"] in (False, True)
    again = cpu.row_of("matmul", "best_first", 0, judge, tmp_path, Budget(4))
    assert again["speedup"] == row["speedup"], "a search that has ended is read, not run"
    file = tmp_path / "rows.json"
    cpu.write(file, [row], 4, 360.0)
    assert cpu.kept_rows(file, 4, 360.0) == [row] and cpu.kept_rows(None, 4, 360.0) == []
    with pytest.raises(UsageError, match="holds searches of 4 evaluations"):
        cpu.kept_rows(file, 60, 360.0)


def test_task_without_moves_of_its_own_is_searched() -> None:
    (_, start), _, _, _ = cpu.TASKS["linear_gelu"]
    variant = read_variant(start)
    assert len(RuleProposer(variant).priors(variant)) >= 4


@pytest.mark.parametrize("static", [False, True])
def test_priors_are_compared_on_a_table_of_rules(static: bool) -> None:
    start = read_variant(EXAMPLES["softmax"][1])
    space = space_of(RuleProposer(start), ("hoist", "parallelise", "compiler_flags"))
    columns = {
        knob.name: tuple(choice or ABSENT_AS for choice in knob.choices) for knob in space.knobs
    }
    worth = {"hoist": 2.0, "parallelise": 1.9}
    times: dict[Config, float | None] = {}
    for config in itertools.product(*columns.values()):
        made = [name for name, each in zip(columns, config, strict=True) if each != ABSENT_AS]
        times[config] = 10.0 / math.prod(worth.get(name.partition("/")[0], 1.0) for name in made)
    table = Table("made_up", columns, times)
    found = priors.shares(start, table, "best_first", static=static, seed=0)
    assert len(found) == max(priors.AT) and found[0] < 1.0
    assert found[19] == pytest.approx(1.0), "both moves that help are found at once"


def test_decisions_are_timed_until_enough_states() -> None:
    ticks = itertools.count()
    took = search_decisions.decisions(ALGORITHMS["mcgs"], 12, clock=lambda: float(next(ticks)))
    assert 11 <= len(took) < 40 and set(took) == {1.0}
    found = search_decisions.figures([0.001 * each for each in range(1, 201)])
    assert found == {"decisions": 200, "first": [50.5, 96.0], "last": [150.5, 196.0]}
