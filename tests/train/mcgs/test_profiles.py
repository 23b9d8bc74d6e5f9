"""Hardware counters in a search: when they are read, what they change, and what a refusal does."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import Kernel, Problem
from kernelgym.counters import BOTTLENECKS, Counters
from kernelgym_train.mcgs import Budget, SearchConfig
from kernelgym_train.mcgs.bottleneck_priors import (
    estimated,
    family_of_module,
    relief,
    weighed_by_bottlenecks,
)
from kernelgym_train.mcgs.moves.table import OWN_MOVES
from kernelgym_train.mcgs.profiling import is_refused
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.task import task_of
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import read_variant
from support import searches
from support.triton_kernels import TRITON_KERNELS
from support.triton_searches import TimedByTable

SHARES = st.dictionaries(st.sampled_from(BOTTLENECKS), st.floats(0, 1))


class Profiled(TimedByTable):
    """An evaluator whose counters are written down."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self.counters, self.profiled = counters, list[str]()

    def profile(self, problem: Problem, kernel: Kernel, **_: Any) -> Counters:
        self.profiled.append(kernel.digest)
        return self.counters


MEASURED = Counters("measured", {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 90.0})


def searched(judge: Profiled, folder: Path, **more: Any) -> tuple[dict[str, Any], list[Any]]:
    task = task_of(*TRITON_KERNELS["softmax"], "softmax")
    config = SearchConfig(**({"budget": Budget(12, patience=0), "ncu_every": 4} | more))
    result = search(task, judge, folder, config)
    lines = (folder / "kernels" / "softmax" / "events.jsonl").read_text().splitlines()
    return result, [json.loads(line) for line in lines]


@pytest.mark.parametrize("algo", ["tpe", "mcgs"])
def test_best_is_profiled_once_and_not_more_often_than_asked(algo: str, tmp_path: Path) -> None:
    judge = Profiled(MEASURED)
    result, rows = searched(judge, tmp_path, algo=algo)
    assert len(set(judge.profiled)) == len(judge.profiled) >= 2
    at = [
        sum(row["event"] == "judged" for row in rows[: rows.index(each)])
        for each in rows
        if each["event"] == "profiled"
    ]
    assert at[0] == 0, "the start is profiled before anything else is judged"
    assert all(two - one >= 4 for one, two in itertools.pairwise(at[:-1]))
    assert result["counters"]["start"]["gmem"] == 0.9 == result["counters"]["best"]["gmem"]
    sources = {row["prior_source"] for row in rows if row["event"] == "proposed"}
    assert all("ncu" in source for source in sources)


def test_counters_that_are_forbidden_are_asked_for_once(tmp_path: Path) -> None:
    judge = Profiled(Counters("forbidden", message="administrators only"))
    result, rows = searched(judge, tmp_path)
    assert len(judge.profiled) == 1 and result["counters"] == {"start": {}}
    sources = {row["prior_source"] for row in rows if row["event"] == "proposed"}
    assert all("text" in source and "ncu" not in source for source in sources)


def test_refusal_after_a_profile_is_no_drivers() -> None:
    state = searches.empty_state(read_variant(searches.TASK.start))
    state.profiles["first"] = {"status": "forbidden"}
    assert is_refused(state)
    state.profiles["start"] = {"status": "measured"}
    assert not is_refused(state)


def test_search_without_profiles_reads_no_counters(tmp_path: Path) -> None:
    judge = Profiled(MEASURED)
    result, _ = searched(judge, tmp_path, ncu_every=0)
    assert not judge.profiled and result["counters"] is None


@given(
    SHARES, st.lists(st.sampled_from([*OWN_MOVES["triton"], "another"]), min_size=1, unique=True)
)
def test_no_prior_becomes_zero_whatever_the_shares(
    shares: dict[str, float], moves: list[str]
) -> None:
    priors = tuple((move, 1 / len(moves)) for move in moves)
    found = weighed_by_bottlenecks(priors, shares)
    assert [move for move, _ in found] == moves
    assert sum(share for _, share in found) == pytest.approx(1.0)
    assert min(share for _, share in found) >= 0.2 / len(moves) - 1e-12


def test_moves_against_a_bottleneck_count_for_more() -> None:
    assert relief("avoid_atomics_reduce", {"atomics": 1.0}) > relief("avoid_atomics_reduce", {})
    assert relief("single_pass_row", {"gmem": 0.9}) > relief("grouped_gemm_colmajor", {"gmem": 0.9})


def test_families_and_estimates_of_kernels_follow_from_their_calls() -> None:
    modules = {name: read_module(kernel.source) for name, (_, kernel) in TRITON_KERNELS.items()}
    families = {name: family_of_module(module) for name, module in modules.items()}
    assert families == {
        "matmul": "product",
        "naive_matmul": "reduction",
        "outer": "elementwise",
        "softmax": "exponentials",
        "total": "reduction",
        "gelu": "elementwise",
        "row_range": "reduction",
        "rms_norm": "reduction",
    }
    for module in modules.values():
        assert set(estimated(module, 0.0)) == set(BOTTLENECKS)
    assert estimated(modules["total"], 0.0)["atomics"] > estimated(modules["gelu"], 0.0)["atomics"]
