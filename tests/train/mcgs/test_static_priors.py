"""Static priors: counts of a text, and what follows from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search.texts import TextProposer
from kernelgym import Kernel, LocalEvaluator
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Build
from kernelgym_train.mcgs.cpp.cost import LoopCost, cost_of
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.moves.table import OWN_MOVES
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.static_priors import (
    LEAST,
    MOST,
    REPORT_FLAG,
    factors,
    read_report,
    report_factors,
)
from kernelgym_train.mcgs.variant import Variant, read_variant
from support import searches

STARTS = {name: read_variant(kernel) for name, (_, kernel) in EXAMPLES.items()}


def test_costs_of_the_examples_are_counted() -> None:
    assert cost_of(file_of(STARTS["matmul"]).cpp) == LoopCost(
        loops=1, depth=3, far=1, sums=1, operations=2, bytes_moved=8
    )
    softmax = cost_of(file_of(STARTS["softmax"]).cpp)
    assert (softmax.exponentials, softmax.divisions, softmax.far) == (2, 1, 0)
    gelu = file_of(STARTS["softmax"]).cpp.replace("std::exp", "std::erf")
    assert gelu != file_of(STARTS["softmax"]).cpp and cost_of(gelu) == softmax
    changed = cost_of("#pragma omp parallel for\nfor (;;) {\n#pragma omp atomic\nx += 1;}")
    assert changed == LoopCost(atomics=1, parallel=True)


def prior(start: Variant, move: str, static: bool = True) -> float:
    return dict(RuleProposer(start, static=static).priors(start))[move]


def test_far_elements_speak_for_another_order() -> None:
    assert prior(STARTS["matmul"], "loop_order") > prior(STARTS["matmul"], "loop_order", False)
    rules = RuleProposer(STARTS["matmul"])
    better = next(
        found.variant
        for number in range(2)
        if (found := rules.propose(STARTS["matmul"], "loop_order", number)) is not None
        and found.step.choice == "terms outside"
    )
    far = prior(STARTS["matmul"], "vectorize_global_loads")
    assert dict(rules.priors(better))["vectorize_global_loads"] > far


def test_exponentials_speak_for_hoisting() -> None:
    for name in ("softmax", "layernorm"):
        assert prior(STARTS[name], "hoist") > prior(STARTS[name], "hoist", False)


counts = st.integers(0, 50)


@given(st.builds(LoopCost, *[counts] * 8, atomics=counts, parallel=st.booleans()))
def test_factors_never_rule_a_move_out(cost: LoopCost) -> None:
    found = factors(cost)
    assert set(found) <= set(OWN_MOVES["cpp"])
    assert all(LEAST <= factor <= MOST for factor in found.values())


@pytest.mark.parametrize("name", STARTS)
def test_priors_are_shares_of_the_same_moves(name: str) -> None:
    both = [RuleProposer(STARTS[name], static=static) for static in (True, False)]
    shares = [dict(each.priors(STARTS[name])) for each in both]
    assert list(shares[0]) == list(shares[1]) and all(share > 0 for share in shares[0].values())
    assert [sum(each.values()) for each in shares] == pytest.approx([1.0, 1.0])


def test_source_of_priors_is_named() -> None:
    start = STARTS["matmul"]
    assert RuleProposer(start).prior_source == "static"
    assert RuleProposer(start, static=False).prior_source == "moves"
    assert TextProposer(start.kernel(), {}).prior_source == "uniform"
    plain = RuleProposer(dataclasses.replace(start, applied=()))
    assert plain.priors(start) == RuleProposer(start).priors(start)


# What g++ 12.2 said of the examples by -fopt-info-vec, as `Build.log` has it.
FAST = ("-O3", "-march=native")
LOGS = {
    "matmul": """\
kernel.cpp:17:29: optimized: loop vectorized using 8 byte vectors
kernel.cpp:4:15: optimized: basic block part vectorized using 64 byte vectors
kernel.cpp:4:15: optimized: basic block part vectorized using 64 byte vectors""",
    "softmax": """\
kernel.cpp:6:15: optimized: basic block part vectorized using 64 byte vectors
kernel.cpp:6:15: optimized: basic block part vectorized using 64 byte vectors""",
    "layernorm": """\
kernel.cpp:28:27: optimized: loop vectorized using 64 byte vectors
kernel.cpp:28:27: optimized:  loop versioned for vectorization because of possible aliasing
kernel.cpp:28:27: optimized: loop vectorized using 32 byte vectors
kernel.cpp:5:15: optimized: basic block part vectorized using 64 byte vectors
kernel.cpp:5:15: optimized: basic block part vectorized using 64 byte vectors""",
}
FAST_STARTS = {
    name: dataclasses.replace(
        start, source=file_of(start).with_flags(FAST).source, flags=FAST, applied=()
    )
    for name, start in STARTS.items()
}
ALL_WIDE = "\n".join(
    f"kernel.cpp:{line}:5: optimized: loop vectorized using 32 byte vectors" for line in range(60)
)


@pytest.mark.parametrize(
    ("name", "wide", "plain", "widest"),
    [("matmul", 0, 1, [8]), ("softmax", 0, 3, [0, 0, 0]), ("layernorm", 1, 2, [0, 0, 64])],
)
def test_report_tells_loops_with_vectors(name: str, wide: int, plain: int, widest: list) -> None:
    start = FAST_STARTS[name]
    report = read_report(start, LOGS[name])
    assert report is not None and list(report.loops.values()) == widest
    assert report.of(start) == (wide, plain)
    assert report.of(STARTS[name]) == (0, 0)  # other flags
    assert read_report(start, "") is not None


def test_report_knows_no_loop_that_has_changed() -> None:
    start = FAST_STARTS["layernorm"]
    report = read_report(start, LOGS["layernorm"])
    assert report is not None
    file = file_of(start)
    cpp = file.cpp.replace("scaled * weight[c]", "weight[c] * scaled")
    changed = dataclasses.replace(start, source=file.with_cpp(cpp).source)
    assert cpp != file.cpp and report.of(changed) == (0, 2)
    moved = dataclasses.replace(start, source=file.with_cpp(f"\n\n{file.cpp}").source)
    assert report.of(moved) == (1, 2)


def test_report_on_a_header_is_passed_over() -> None:
    start = FAST_STARTS["matmul"]
    line = "/usr/include/c++/12/bits/x.h:17:29: optimized: loop vectorized using 64 byte vectors"
    missed = "kernel.cpp:17:29: missed: couldn't vectorize loop"
    report = read_report(start, f"{line}\n{missed}\n")
    assert report is not None and report.of(start) == (0, 1)


def test_loops_without_vectors_speak_for_vectors() -> None:
    start = FAST_STARTS["softmax"]
    shares = {}
    for name, log in (("none", None), ("plain", ""), ("wide", ALL_WIDE)):
        rules = RuleProposer(start)
        asked = dict(rules.priors(start))  # what was kept before is not given again
        if log is not None:
            rules.take_report(log)
        shares[name] = dict(rules.priors(start))
        assert rules.prior_source == ("static" if log is None else "static+report")
        assert (shares[name] == asked) == (log is None)
    for move in ("vectorize_global_loads", "compiler_flags"):
        assert shares["wide"][move] < shares["none"][move] < shares["plain"][move]
    plain = RuleProposer(start, static=False)
    plain.take_report(ALL_WIDE)
    assert plain.prior_source == "moves" and plain.priors(start) == RuleProposer(
        start, static=False
    ).priors(start)


@given(counts, counts, st.builds(LoopCost, *[counts] * 8, atomics=counts, parallel=st.booleans()))
def test_reports_never_rule_a_move_out(wide: int, plain: int, cost: LoopCost) -> None:
    found = report_factors(wide, plain)
    assert set(found) <= set(OWN_MOVES["cpp"]) and (not found) == (wide + plain == 0)
    assert all(LEAST <= factor <= MOST for factor in found.values())


class Reporting(ScriptedEvaluator):
    """Builds, and says of every loop that it has vectors."""

    asked = 0

    def artifacts(self, kernel: Kernel, *, assembly: bool = False) -> dict[str, bytes]:
        return {}

    def build(self, kernel: Kernel) -> Build | None:
        if REPORT_FLAG not in kernel.source:
            return None
        self.asked += 1
        return Build(log=ALL_WIDE)


def test_a_search_asks_for_one_report(tmp_path: Path) -> None:
    judge = Reporting(searches.judged)
    result = searches.run(tmp_path, judge, 3)
    assert judge.asked == 1 and result["evaluations"] == 3
    searches.run(tmp_path, judge, 5, resume=True)
    rows = read_events(tmp_path / "kernels/matmul/events.jsonl")
    assert judge.asked == 1 and [row.name for row in rows].count("report") == 1
    sources = {row.fields["prior_source"] for row in rows if row.name == "proposed"}
    assert all(source.startswith("static+report") for source in sources)
    assert not any(REPORT_FLAG in job.kernel.source for job in judge.judged)


@pytest.mark.slow
def test_the_judge_gives_a_report_that_is_read() -> None:
    start = FAST_STARTS["layernorm"]
    asked = dataclasses.replace(start, flags=(*FAST, REPORT_FLAG))
    with LocalEvaluator(timing=False) as evaluator:
        built = evaluator.build(asked.kernel())
    assert built is not None and "optimized: loop vectorized" in built.log
    report = read_report(start, built.log)
    assert report is not None and report.of(start)[0] >= 1
