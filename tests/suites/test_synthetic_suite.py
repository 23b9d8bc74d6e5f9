"""The Synthetic suite as a suite: ids, selection, splits, and sources that are pure functions."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.errors import ProblemError, UnknownName, UsageError
from kernelgym.suites import Suite, get_problem, suite
from kernelgym.suites.base import check_source
from kernelgym.suites.synthetic import SyntheticSuite, canonical_form, respelled
from kernelgym.suites.synthetic.source import make_id, make_problem, parse_id

sizes = st.sampled_from(["cpu", "gpu"])
seeds = st.integers(-(10**6), 10**6)
levels = st.sampled_from([1, 2, 3])
indices = st.integers(1, 10**6)

FAMILIES = {
    1: {
        "elementwise", "binary", "reduction", "softmax", "norm", "matmul", "matvec", "transpose",
        "gather", "scan",
    },
    2: {
        "chain", "chain_reduction", "chain_softmax", "chain_norm", "linear_chain", "matmul_chain",
        "gather_chain",
    },
    3: {"mlp", "gated_mlp", "attention", "residual_norm", "norm_mlp", "linear_norm"},
}  # fmt: skip


def test_it_is_a_suite_and_found_by_name() -> None:
    found = suite("Synthetic", seed=3)
    assert isinstance(found, Suite) and found == SyntheticSuite(seed=3)
    assert found.name == "Synthetic" and found.levels == (1, 2, 3)
    assert found.splits == ("warmstart", "rl", "heldout")


def test_default_ids_are_plain_and_others_name_their_source() -> None:
    plain = SyntheticSuite().problems(level=2)
    assert [p.id for p in plain] == [f"Synthetic/L2/{i}" for i in range(1, 101)]
    other = SyntheticSuite(seed=3, size="gpu", per_level=2).problems(level=1)
    assert [p.id for p in other] == ["Synthetic/L1/1@seed3-gpu", "Synthetic/L1/2@seed3-gpu"]
    assert len({p.source for p in plain + other}) > 95


def test_problems_carry_what_the_protocol_asks_for() -> None:
    for level, families in FAMILIES.items():
        problems = SyntheticSuite().problems(level=level)
        assert {p.family for p in problems} == families
        assert {(p.suite, p.level) for p in problems} == {("Synthetic", level)}
        assert all(p.name.partition("_")[0] == p.id.rpartition("/")[2] for p in problems)


@given(seeds, sizes, levels, indices)
@settings(max_examples=150, deadline=None)
def test_any_id_resolves_to_a_sound_source(seed: int, size: str, level: int, index: int) -> None:
    problem_id = make_id(seed, size, level, index)
    problem = get_problem(problem_id)
    assert problem.id == problem_id and problem.level == level
    assert parse_id(problem_id) == (seed, size, level, index)
    check_source(problem.source, problem_id)
    assert problem.source.isascii() and max(map(len, problem.source.splitlines())) <= 100


@given(seeds, sizes, levels, indices)
@settings(max_examples=30, deadline=None)
def test_a_problem_is_a_pure_function_of_its_id(
    seed: int, size: str, level: int, index: int
) -> None:
    make = make_problem.__wrapped__
    assert make(seed, size, level, index) == make(seed, size, level, index)


def test_sources_do_not_depend_on_the_process() -> None:
    # A hash seed or global random state leaking in would show between processes.
    code = (
        "import hashlib, sys\n"
        "from kernelgym.suites.synthetic import *\n"
        "s = SyntheticSuite(seed=11, per_level=40)\n"
        "text = ''.join(p.source + solve(p).source for p in s.problems())\n"
        "text += ''.join(b.kernel.source for p in s.problems(ids='1-5') "
        "for b in broken_variants(p, 'cpp'))\n"
        "print(hashlib.sha256(text.encode()).hexdigest(), 'torch' in sys.modules)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().split()[1] == "False"


def test_get_goes_on_past_the_listed_problems() -> None:
    small = SyntheticSuite(per_level=3)
    assert len(small.problems()) == 9
    assert small.get("Synthetic/L3/12345").id == "Synthetic/L3/12345"
    assert small.get("Synthetic/L1/9@seed5-gpu").id == "Synthetic/L1/9@seed5-gpu"


@pytest.mark.parametrize(
    "bad",
    [
        "Synthetic/L4/1", "Synthetic/L1/0", "Synthetic/L1/01", "Synthetic/L1/-1", "Synthetic/L1/",
        "Synthetic/L1/1@seed0-cpu", "Synthetic/L1/1@seed-0-cpu", "Synthetic/L1/1@seed01-gpu",
        "Synthetic/L1/1@seed1", "synthetic/L1/1", "KernelBench/L1/1", "Synthetic/L1/١", "", 7,
    ],
)  # fmt: skip
def test_unknown_ids_say_what_there_is(bad: object) -> None:
    with pytest.raises(UnknownName, match=r"Synthetic/L1/1"):
        SyntheticSuite().get(bad)  # type: ignore[arg-type]


def test_selection_by_number_range_name_and_id() -> None:
    s = SyntheticSuite(per_level=20)
    name = s.get("Synthetic/L2/7").name
    chosen = s.problems(level=2, ids=["3-5,19", "L2/1", "Synthetic/L2/2", name, 400, 3])
    assert [p.id.rpartition("/")[2] for p in chosen] == ["3", "4", "5", "19", "1", "2", "7", "400"]
    assert [p.level for p in s.problems(ids=4)] == [1, 2, 3]
    for bad in ("Synthetic/L1/1", "nonsense", 0):
        with pytest.raises(UnknownName):
            s.problems(level=2, ids=[bad])
    with pytest.raises(UnknownName):
        s.problems(level=4)
    with pytest.raises(UnknownName):
        s.problems(split="train")
    with pytest.raises(ProblemError, match="no problem"):
        s.problems(ids=[])


def test_numbers_stay_with_the_suites_own_seed_and_size() -> None:
    s = SyntheticSuite(seed=2, size="gpu")
    assert [p.id for p in s.problems(level=1, ids=[5])] == ["Synthetic/L1/5@seed2-gpu"]


@pytest.mark.parametrize(
    "options",
    [{"size": "tpu"}, {"seed": 1.5}, {"seed": True}, {"seed": 10**18}, {"per_level": 0}],
)
def test_bad_options_are_usage_errors(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        SyntheticSuite(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", ["cpu", "gpu"])
def test_splits_cover_the_suite_each_with_a_decent_share(size: str) -> None:
    s = SyntheticSuite(size=size, per_level=200)  # type: ignore[arg-type]
    for level in s.levels:
        parts = {split: s.problems(level=level, split=split) for split in s.splits}
        assert sum(map(len, parts.values())) == 200
        assert {p.id for part in parts.values() for p in part} == {
            p.id for p in s.problems(level=level)
        }
        assert all(len(part) >= 20 for part in parts.values())
        assert len(parts["warmstart"]) == max(map(len, parts.values()))


def test_many_forms_and_every_family_in_the_large_part() -> None:
    s = SyntheticSuite(per_level=200)
    for level, families in FAMILIES.items():
        problems = s.problems(level=level)
        assert len({canonical_form(p) for p in problems}) >= 90
        assert {p.family for p in s.problems(level=level, split="warmstart")} == families


def test_sources_are_in_kernelbench_format() -> None:
    for problem in SyntheticSuite(per_level=40).problems():
        tree = ast.parse(problem.source)
        names = [getattr(node, "name", "") for node in tree.body]
        assert names[-3:] == ["Model", "get_inputs", "get_init_inputs"]
        sizes = [node for node in tree.body if isinstance(node, ast.Assign)]
        assert sizes and all(isinstance(node.value, ast.Constant) for node in sizes)
        model = next(node for node in tree.body if isinstance(node, ast.ClassDef))
        methods = [node.name for node in model.body if isinstance(node, ast.FunctionDef)]
        assert methods == ["__init__", "forward"]


@given(levels, st.integers(1, 500), st.integers(0, 1 << 30))
def test_another_spelling_is_the_same_problem_and_no_longer_the_suites_own(
    level: int, number: int, spelling: int
) -> None:
    problem = SyntheticSuite().get(f"Synthetic/L{level}/{number}")
    other = respelled(problem, spelling)
    assert (other.id, other.family) == (problem.id, problem.family)
    check_source(other.source, other.id)
    assert respelled(problem, spelling) == other
    if other.source != problem.source:
        with pytest.raises(ProblemError):
            respelled(other, spelling)


@pytest.mark.parametrize("size", ["cpu", "gpu"])
@pytest.mark.parametrize("longest", [2, 3, 9])
def test_short_chains_are_those_that_drawing_all_gives(size: str, longest: int) -> None:
    suite = SyntheticSuite(seed=5, size=size)  # type: ignore[arg-type]
    numbers, families = range(1, 301), ("chain", "chain_softmax", "matmul_chain")
    drawn = (suite.get(f"Synthetic/L2/{number}@seed5-{size}") for number in numbers)
    wanted = [
        problem
        for problem in drawn
        if problem.family in families
        and (problem.family == "matmul_chain" or len(canonical_form(problem).split()) <= longest)
    ]
    assert list(suite.chains(numbers, families, longest)) == wanted
    assert {problem.family for problem in wanted} == {*families}
