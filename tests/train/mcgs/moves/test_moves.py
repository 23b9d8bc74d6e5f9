"""Moves: each fires, is deterministic, keeps what a kernel computes, and stops at what it cannot
prove."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.linear_gelu import KERNEL
from kernelgym import UnknownName
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.moves.cpp.parallelise import parallelise
from kernelgym_train.mcgs.moves.table import OWN_MOVES
from kernelgym_train.mcgs.proposing import Proposal, RuleProposer
from kernelgym_train.mcgs.variant import Variant, read_variant, state_key
from support import cpp_nests
from support.specs import CPP

_TOTAL = """
#include <torch/extension.h>

torch::Tensor whole_sum(torch::Tensor x_in) {
  auto x_c = x_in.contiguous();
  const int64_t count = x_c.numel();
  auto out = torch::empty({1}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  float total = 0.0f;
  #pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) {
    const float square = x[i] * x[i];
    #pragma omp atomic
    total += square;
  }
  y[0] = total;
  return out;
}
"""
"""A sum that all threads add to: no kernel of the examples has one."""


def written(name: str, cpp: str) -> Variant:
    file = file_of(read_variant(EXAMPLES["matmul"][1]))
    return Variant(file.with_cpp(cpp).source.replace("matrix_product", name), "cpp", ("-O2",))


STARTS = {name: read_variant(kernel) for name, (_, kernel) in EXAMPLES.items()} | {
    "linear_gelu": read_variant(KERNEL),
    "total": written("whole_sum", _TOTAL),
}
CALLS = {
    "linear_gelu": "linear_gelu(t(0), t(1), t(2))",
    "total": "whole_sum(t(0))",
    "matmul": "matrix_product(t(0), t(1))",
    "softmax": "row_softmax(t(0))",
    "layernorm": "layer_norm(t(0), t(1), t(2), 1e-5)",
}
ODD = {
    "linear_gelu": ((13, 37), (21, 37), (21,)),
    "total": ((5, 37),),
    "matmul": ((13, 21), (21, 37)),
    "softmax": ((5, 37),),
    "layernorm": ((5, 37), (37,), (37,)),
}
"""Shapes at which every tile has edges."""


def proposals(start: Variant, at: Variant, approximate: bool = True) -> Iterator[Proposal]:
    proposer = RuleProposer(start, approximate=approximate)
    for move, _ in proposer.priors(at):
        number = 0
        while (found := proposer.propose(at, move, number)) is not None:
            yield found
            number += 1


def with_text(start: Variant, old: str, new: str) -> Variant:
    file = file_of(start)
    assert old in file.cpp
    return Variant(file.with_cpp(file.cpp.replace(old, new)).source, "cpp", flags=start.flags)


def test_every_move_fires_on_an_example() -> None:
    fired = {each.step.move for start in STARTS.values() for each in proposals(start, start)}
    assert fired == set(OWN_MOVES["cpp"])


@pytest.mark.parametrize("name", STARTS)
def test_proposals_are_the_same_each_time(name: str) -> None:
    start = STARTS[name]
    once, again = list(proposals(start, start)), list(proposals(start, start))
    assert once == again
    assert [each.variant.kernel() for each in once] == [each.variant.kernel() for each in again]


@pytest.mark.parametrize("name", STARTS)
def test_proposals_another_order_gives_one_state(name: str) -> None:
    start = STARTS[name]
    proposer = RuleProposer(start)
    first = [each for each in proposals(start, start, False)]
    met = 0
    for one in first:
        for two in first:
            if one.step.move >= two.step.move:
                continue
            ways = [
                proposer.replay([*pair]) for pair in ((one.step, two.step), (two.step, one.step))
            ]
            assert ways[0] == ways[1]
            met += ways[0] is not None
    assert met > 5


def test_approximate_moves_are_off_unless_allowed() -> None:
    start = STARTS["softmax"]
    assert all(each.risk != "approximate" for each in proposals(start, start, False))
    allowed = {each.step.move for each in proposals(start, start) if each.risk == "approximate"}
    assert allowed == {"fast_math", "lower_precision", "softmax_math_fusion"}


_DIRECTIVES = 40
"""Phase of the first move that changes no structure."""


def deep(start: Variant, approximate: bool = False) -> list[Proposal]:
    """Return proposals from the start, and from the first of every structural move."""
    found = list(proposals(start, start, approximate))
    for each in list(found):
        if OWN_MOVES["cpp"][each.step.move].phase < _DIRECTIVES:
            found += proposals(start, each.variant, approximate)
    unique = {state_key(each.variant): each for each in found}
    return [each for each in unique.values() if each.step.move not in ("compiler_flags", "unroll")]


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.slow
def test_realisations_of_two_moves_keep_results(name: str, tmp_path: Path) -> None:
    check(name, deep(STARTS[name]), tmp_path)


def test_realisations_compute_what_the_start_does(tmp_path: Path) -> None:
    start = STARTS["matmul"]
    first = {(each.step.move, each.step.target): each for each in proposals(start, start, False)}
    unbuilt = ("compiler_flags", "unroll", "enable_async_pipeline")
    check("matmul", [each for each in first.values() if each.step.move not in unbuilt], tmp_path)


def check(name: str, found: list[Proposal], folder: Path) -> None:
    """Build variants, and compare what they compute with what the start does."""
    texts = [file_of(STARTS[name]).cpp, *(file_of(each.variant).cpp for each in found)]
    flags = ("-O1", "-ffp-contract=off", "-fopenmp")
    library = cpp_nests.build(folder, texts, CALLS[name], flags)
    numbers = np.random.default_rng(1)
    inputs = [numbers.standard_normal(shape, np.float32) for shape in ODD[name]]
    shape = {"matmul": (13, 37), "linear_gelu": (13, 21), "total": (1,)}.get(name, (5, 37))
    wanted = cpp_nests.run(library, 0, inputs, shape)
    assert np.isfinite(wanted).all()
    for at, each in enumerate(found, 1):
        got = cpp_nests.run(library, at, inputs, shape)
        if each.risk == "exact":
            np.testing.assert_array_equal(got, wanted, str(each.variant.applied))
        else:
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-6, err_msg=str(each.variant.applied))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y[i * columns + j] = total;", "y[i * columns + 2 * j] = total;"),
        ("y[i * columns + j] = total;", "y[j] = total;"),
        ("y[i * columns + j] = total;", "y[i * inner + j] = total;"),
        ("y[i * columns + j] = total;", "y[i * columns + j / 2] = total;"),
        ("y[i * columns + j] = total;", "y[i * columns + j] = total; rows_left -= 1;"),
        ("++i) {", "++i) { if (i == 7) break;"),
        ("auto out = torch::empty({rows, columns}, a_c.options());", "auto out = a_c;"),
        ("const float* b = b_c", "const float* b = out"),
        ("const float* b = b_c", "auto z = out.view({-1}); const float* b = z"),
        ("float* y = out.data_ptr<float>();", "float* y = out.data_ptr<float>(); y = nullptr;"),
        ("float total = 0.0f;", "float total = next();"),
    ],
)
def test_nest_that_is_not_understood_gives_nothing(old: str, new: str) -> None:
    changed = with_text(STARTS["matmul"], old, new)
    loops = {each.step.target for each in proposals(changed, changed) if "/" in each.step.target}
    assert "matrix_product/i" not in loops, "the outer loop is not proven"


@pytest.mark.parametrize(
    ("old", "new", "move"),
    [
        ("total += a[", "total *= a[", "register_block"),
        ("k < inner", "k < i", "register_block"),
        ("* b[k * columns + j]", "* std::exp(b[k * columns + j])", "register_block"),
        ("* b[k * columns + j]", "* b[k * columns + 2 * j]", "register_block"),
        ("* b[k * columns + j]", "* b[k * columns + j] * 2.0", "register_block"),
        ("float total = 0.0f;", "double total = 0.0;", "register_block"),
        ("k < inner", "k < j", "loop_order"),
        ("float total = 0.0f;", "double total = 0.0;", "loop_order"),
        ("total += a[", "total = total * 0.5f + a[", "vectorize_global_loads"),
    ],
)
def test_precondition_that_fails_stops_its_move(old: str, new: str, move: str) -> None:
    before, after = STARTS["matmul"], with_text(STARTS["matmul"], old, new)
    assert any(each.step.move == move for each in proposals(before, before))
    stopped = [
        each
        for each in proposals(after, after)
        if each.step.move == move and each.step.choice != "swapped"
    ]
    assert not stopped


def test_loop_with_an_empty_body_is_no_error() -> None:
    changed = with_text(
        STARTS["matmul"], "  return out;", "  for (int64_t i = 0; i < rows; ++i) {}\n  return out;"
    )
    targets = {each.step.target for each in proposals(changed, changed)}
    assert {"matrix_product/i", "matrix_product/i2"} <= targets


def test_loop_order_comment_after_a_head_is_dropped() -> None:
    rows, columns = "++i) {", "++j) {"
    start = with_text(STARTS["matmul"], rows, "++i)  // rows (all)\n  {")
    start = with_text(start, columns, "++j)  // columns\n    {")
    orders = [each for each in proposals(start, start) if each.step.move == "loop_order"]
    assert orders
    for each in orders:
        assert not re.search(r"//.*\{", file_of(each.variant).cpp)


def test_register_block_captures_no_outer_name() -> None:
    start = STARTS["matmul"]
    cpp = file_of(start).cpp.replace(
        "  for (int64_t i", "  for (int64_t r = 0; r < 2; ++r) {\n  for (int64_t i", 1
    )
    cpp = cpp.replace("  return out;", "  }\n  return out;").replace("i * ", "(r * rows + i) * ")
    changed = Variant(file_of(start).with_cpp(cpp).source, "cpp", flags=start.flags)
    tiles = [each for each in proposals(changed, changed) if each.step.move == "register_block"]
    assert tiles
    for each in tiles:
        assert re.findall(r"for \(\w+ r =", file_of(each.variant).cpp) == ["for (int64_t r ="]


def test_hoist_keeps_nothing_that_changes_between() -> None:
    start = STARTS["softmax"]
    between = "    best = best + 1.0f;\n    for (int64_t c = 0; c < columns; ++c) {\n      y["
    changed = with_text(start, "    for (int64_t c = 0; c < columns; ++c) {\n      y[", between)
    assert any(each.step.choice == "keep" for each in proposals(start, start))
    assert not any(each.step.choice == "keep" for each in proposals(changed, changed))


def test_hoist_reads_no_element_before_a_loop() -> None:
    start = STARTS["layernorm"]
    number, element = "std::sqrt(variance + eps)", "std::sqrt(variance + weight[rows])"
    changed = with_text(start, number, element)
    assert any(each.step.choice == "before the loop" for each in proposals(start, start))
    assert not any(each.step.choice == "before the loop" for each in proposals(changed, changed))


def test_hoist_keeps_nothing_read_from_a_changed_array() -> None:
    file = file_of(STARTS["softmax"])
    allocated = "  auto out = torch::empty({rows, columns}, x_c.options());\n"
    pointed = "  float* y = out.data_ptr<float>();\n"
    head = file.cpp.partition("  for (int64_t r")[0]
    head = head.replace(allocated, allocated + allocated.replace("out", "work"))
    head = head.replace(pointed, pointed + pointed.replace("y =", "z =").replace("out", "work"))
    each_c = "for (int64_t c = 0; c < columns; ++c)"
    at = "r * columns + c"

    def changed(between: str) -> Variant:
        cpp = (
            f"{head}  for (int64_t r = 0; r < rows; ++r) {{\n"
            f"    {each_c} {{ z[{at}] = x[{at}]; }}\n    float t = 0.0f;\n"
            f"    {each_c} {{ t += std::exp(z[{at}]); }}\n    {between}\n"
            f"    {each_c} {{ y[{at}] = std::exp(z[{at}]) / t; }}\n  }}\n  return out;\n}}\n"
        )
        return Variant(file.with_cpp(cpp).source, "cpp", flags=STARTS["softmax"].flags)

    plain, written = changed(""), changed(f"{each_c} {{ z[{at}] = 2.0f * x[{at}]; }}")
    assert any(each.step.choice == "keep" for each in proposals(plain, plain))
    assert not any(each.step.choice == "keep" for each in proposals(written, written))


def lowered(start: Variant) -> list[Proposal]:
    return [each for each in proposals(start, start) if each.step.move == "lower_precision"]


def test_doubles_of_loops_become_floats(tmp_path: Path) -> None:
    (found,) = lowered(STARTS["layernorm"])
    loops = file_of(found.variant).cpp.partition("for (")[2]
    assert "double" not in loops and "variance + static_cast<float>(eps)" in loops
    assert "double eps" in file_of(found.variant).cpp, "a parameter keeps its type"
    again = dataclasses.replace(found.variant, applied=())
    assert not list(OWN_MOVES["cpp"]["lower_precision"].realise(again)), "there is nothing left"
    check("layernorm", [found], tmp_path)


def test_constants_become_floats(tmp_path: Path) -> None:
    start = with_text(STARTS["linear_gelu"], "0.5f * total", "0.5 * total * std::max(0.0, 1.0)")
    (found,) = lowered(start)
    assert "0.5f * total * std::max(0.0f, 1.0f)" in file_of(found.variant).cpp
    check("linear_gelu", [found], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum += x[r * columns + c];", "sum += x[r * columns + c] * 1e300;"),
        ("sum += x[r * columns + c];", "sum += x[r * columns + c] + 1e-300;"),
        ("double sum = 0.0;", "double sum = 0x1p-3;"),
        ("sum / columns", "std::max(sum, unknown)"),
        ("sum / columns", "std::max(sum, wide[r])"),
    ],
)
def test_doubles_that_no_float_holds_stay(old: str, new: str) -> None:
    start = with_text(STARTS["layernorm"], old, new)
    array = "  const double* wide = w_c.data_ptr<double>();\n  for (int64_t r"
    assert not lowered(with_text(start, "  for (int64_t r", array))


@pytest.mark.parametrize(("cores", "counts"), [(1, []), (2, []), (3, [2]), (8, [4, 2])])
def test_threads_are_fewer_than_the_cores(cores: int, counts: list[int]) -> None:
    start = STARTS["softmax"]
    shared = list(parallelise(cores).realise(start))
    found = [re.findall(r"num_threads\((\d+)\)", file_of(each.variant).cpp) for each in shared]
    assert [int(each[0]) for each in found if each] == counts
    for each in shared[1:]:
        later = list(OWN_MOVES["cpp"]["change_block_sizes"].realise(each.variant))
        schedules = [more for more in later if "schedule" in more.choice]
        assert schedules and all("num_threads" in file_of(more.variant).cpp for more in schedules)


def test_directives_survive_a_later_change_of_loops() -> None:
    start = STARTS["matmul"]
    proposer = RuleProposer(start)
    steps = [each.step for each in proposals(start, start)]
    wanted = [
        next(step for step in steps if step.move == "register_block"),
        next(step for step in steps if step.choice == "parallel for"),
    ]
    found = proposer.replay(wanted)
    assert found is not None
    assert re.search(r"#pragma omp parallel for\n\s+for \(int64_t i_0", file_of(found[0]).cpp)
    assert "-fopenmp" in found[0].flags


@pytest.mark.parametrize(
    ("directive", "move"),
    [
        ("#pragma omp simd", "cache_policy_cg"),
        ("#pragma omp parallel for", "change_block_sizes"),
        ("#pragma omp parallel for", "vectorize_global_loads"),
    ],
)
def test_comment_below_a_directive_is_none(directive: str, move: str) -> None:
    """It is not taken for the directive of the loop."""
    plain = written("scaled", CPP.replace("  for (", f"  {directive}\n  for ("))
    noted = written("scaled", CPP.replace("  for (", f"  {directive}\n  // each\n  for ("))
    found = [
        [each for each in proposals(start, start) if each.step.move == move]
        for start in (plain, noted)
    ]
    assert found[0] and len(found[0]) == len(found[1])
    for one, other in zip(*found, strict=True):
        assert state_key(one.variant) == state_key(other.variant)


def test_proposer_unknown_move_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown move 'tile'"):
        RuleProposer(STARTS["matmul"], moves=["tile"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#pragma omp atomic", "#pragma omp critical"),
        ("omp parallel for", "omp parallel for schedule(static, 8)"),
    ],
)
def test_atomic_sum_becomes_a_reduction(old: str, new: str) -> None:
    changed = with_text(STARTS["total"], old, new)
    (found,) = [each for each in proposals(changed, changed) if "atomics" in each.step.move]
    assert "reduction(+:total)" in file_of(found.variant).cpp and found.risk == "reassociates"
    assert not re.search("atomic|critical", file_of(found.variant).cpp)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total += square;", "total += square * total;"),
        ("total += square;", "total += square; y[0] = total;"),
        ("total += square;", "total *= square;"),
        ("float total = 0.0f;", "float total = 0.0f; float* there = &total;"),
        ("float total = 0.0f;", "float total = 0.0f; float& there = total;"),
        ("float total = 0.0f;", "std::vector<float> total(1);"),
        ("omp parallel for", "omp parallel for private(total)"),
        ("omp parallel for", "omp for"),
        ("#pragma omp atomic\n    total += square;", "#pragma omp critical\n    total += next();"),
        ("#pragma omp atomic", "#pragma omp atomic capture"),
    ],
)
def test_atomic_that_is_not_a_sum_alone_stays(old: str, new: str) -> None:
    changed = with_text(STARTS["total"], old, new)
    moves = {each.step.move for each in proposals(changed, changed)}
    assert "avoid_atomics_reduce" not in moves


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w[j * inner + k]", "w[j * inner + 2 * k]"),
        ("w[j * inner + k]", "w[j * inner + k + i]"),
        ("w[j * inner + k]", "w[j * inner + k] + w[j]"),
        ("int64_t j = 0;", "int64_t j = 1;"),
        ("k < inner", "k < i"),
        ("const float* w = w_c", "const float* w = out"),
    ],
)
def test_operand_read_otherwise_is_not_copied(old: str, new: str) -> None:
    changed = with_text(STARTS["linear_gelu"], old, new)
    assert not any(
        each.step.move == "grouped_gemm_colmajor" and each.step.target.endswith(" w")
        for each in proposals(changed, changed)
    )


def test_output_that_is_read_stays_in_the_caches() -> None:
    start = STARTS["softmax"]
    assert any(each.step.move == "cache_policy_cg" for each in proposals(start, start))
    read = "y[r * columns + c] = y[r * columns + c] + std::exp("
    changed = with_text(start, "y[r * columns + c] = std::exp(", read)
    assert not any(each.step.move == "cache_policy_cg" for each in proposals(changed, changed))


def test_block_calls_a_function_of_each_sum(tmp_path: Path) -> None:
    start = STARTS["linear_gelu"]
    proposer = RuleProposer(start)
    (copied,) = [each for each in proposals(start, start) if "colmajor" in each.step.move]
    found = proposer.propose(copied.variant, "register_block", 0)
    assert found is not None and found.risk == "exact" and "std::erf" in file_of(found.variant).cpp
    check("linear_gelu", [copied, found], tmp_path)
