"""Correct and broken kernels as text: they parse, vary, screen clean and say what is wrong."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelgym.answers.parsing import parse
from kernelgym.answers.screening import screen
from kernelgym.errors import ProblemError, UnsupportedLanguage
from kernelgym.rulesets import ruleset
from kernelgym.suites.synthetic import (
    Defect,
    SyntheticSuite,
    broken_variants,
    reaches,
    solve,
)
from kernelgym.suites.synthetic.source import make_problem, spec_of
from kernelgym.types import Problem, Status

problems = st.builds(
    make_problem,
    st.integers(0, 10**6),
    st.sampled_from(["cpu", "gpu"]),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 10**6),
)
LANGUAGES = ("triton", "cpp", "gluon", "cute", "tilelang")
languages = st.sampled_from(LANGUAGES)
style_seeds = st.integers(0, 10**6)

SUITE = SyntheticSuite(per_level=60)


def class_named(source: str, name: str) -> ast.ClassDef:
    return next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )


def constructor(source: str, name: str) -> str:
    return ast.unparse(
        next(n for n in class_named(source, name).body if getattr(n, "name", "") == "__init__")
    )


@pytest.mark.slow
@given(problems, languages, style_seeds)
@settings(max_examples=150, deadline=None)
def test_a_correct_kernel_parses_screens_clean_and_has_the_references_constructor(
    problem: Problem, language: str, seed: int
) -> None:
    assume(reaches(language, problem))  # type: ignore[arg-type]
    kernel = solve(problem, language, seed)  # type: ignore[arg-type]
    assert kernel.language == language
    assert solve(problem, language, seed) == kernel  # type: ignore[arg-type]
    assert screen(kernel, ruleset("strict")) == ()
    assert constructor(kernel.source, "ModelNew") == constructor(problem.source, "Model")


@pytest.mark.slow
@given(problems, languages, style_seeds)
@settings(max_examples=150, deadline=None)
def test_broken_kernels_are_labelled_and_differ_from_each_other(
    problem: Problem, language: str, seed: int
) -> None:
    assume(reaches(language, problem))  # type: ignore[arg-type]
    broken = broken_variants(problem, language, seed)  # type: ignore[arg-type]
    assert len({b.kernel.source for b in broken}) == len(broken) >= 2
    assert len({b.defect for b in broken}) == len(broken)
    for variant in broken:
        ast.parse(variant.kernel.source)
        assert Defect(variant.defect)
        assert variant.expected not in (Status.CORRECT, Status.UNAVAILABLE)
        assert variant.kernel.language == language
        assert constructor(variant.kernel.source, "ModelNew") == constructor(
            problem.source, "Model"
        )


def test_a_reply_holding_a_kernel_is_read_back() -> None:
    for language in LANGUAGES:
        kernel = solve(SUITE.get("Synthetic/L1/3"), language)  # type: ignore[arg-type]
        reply = parse(f"Here:\n```python\n{kernel.source}```\n", language)
        assert reply.kernel is not None
        assert reply.kernel.source.strip() == kernel.source.strip()


def test_every_defect_occurs_often_and_with_its_status() -> None:
    seen: Counter[tuple[str, str, Status]] = Counter()
    for problem in SUITE.problems():
        for language in ("triton", "cpp"):
            for b in broken_variants(problem, language):  # type: ignore[arg-type]
                seen[language, b.defect, b.expected] += 1
    total = len(SUITE.problems())
    assert seen["triton", "missing_mask", Status.RUNTIME_ERROR] >= 0.9 * total
    assert seen["triton", "name_error", Status.RUNTIME_ERROR] == total
    assert seen["cpp", "name_error", Status.COMPILE_ERROR] == total
    wrong = {
        "wrong_constant": 0.5,
        "wrong_axis": 0.4,
        "no_bounds_check": 0.6,
        "type_slip": 1.0,
        "missing_step": 0.6,
    }
    for language in ("triton", "cpp"):
        for defect, share in wrong.items():
            assert seen[language, defect, Status.WRONG] >= share * total, (language, defect)
    assert seen["triton", "missing_loop", Status.WRONG] >= 0.8 * total
    assert not any(language == "cpp" and defect == "missing_mask" for language, defect, _ in seen)


def test_style_seeds_vary_skeleton_block_names_and_argument_order() -> None:
    chains = [p for p in SUITE.problems(level=2) if p.family == "chain"]
    problem = next(p for p in chains if p.source.count("randn") >= 3)
    sources = {solve(problem, "triton", seed).source for seed in range(12)}
    assert len(sources) >= 8
    blocks = {match for s in sources for match in re.findall(r"[A-Z_]+=(\d+)", s)}
    signatures = {re.search(r"def \w+_kernel\((.*)\):", s)[1] for s in sources}  # type: ignore[index]
    assert len(blocks) >= 3 and len(signatures) >= 6
    everything = [
        solve(p, "triton", seed).source for p in SUITE.problems(level=1) for seed in range(3)
    ]
    marks = {
        "flat": lambda s: not any(mark in s for mark in ("for ", "[:, None]", "row =", "lane =")),
        "row": lambda s: "row = tl.program_id(0)\n" in s or "lane = tl.program_id(0)\n" in s,
        "tile": lambda s: "[:, None]" in s,
        "loop": lambda s: "    for " in s,
    }
    for name, mark in marks.items():
        assert sum(map(mark, everything)) >= 10, name
    assert len({solve(problem, "cpp", seed).source for seed in range(12)}) >= 6


def test_broken_kernels_change_only_what_they_say() -> None:
    # Against the correct kernel of the same style, few lines may differ.
    problem = SUITE.get("Synthetic/L2/4")
    for b in broken_variants(problem, "triton", 0):
        lines = set(b.kernel.source.splitlines())
        closest = min(
            len(lines ^ set(solve(problem, "triton", 1000 * k).source.splitlines()))
            for k in range(24)
        )
        assert 1 <= closest <= 16, (b.defect, closest)


def test_kernels_keep_to_the_rules_that_make_them_run_everywhere() -> None:
    for problem in SUITE.problems():
        triton = solve(problem, "triton").source
        for value in re.findall(r"[A-Z_]+=(\d+)", triton):
            assert int(value) & (int(value) - 1) == 0
        assert "numpy" not in triton and "np." not in triton
        assert triton.count("tl.dot(") == triton.count('input_precision="ieee"')
        if "tl.dot(" in triton:
            dot_blocks = re.findall(r"BLOCK_[MNK]=(\d+)", triton)
            assert min(map(int, dot_blocks)) >= 16
        cpp = solve(problem, "cpp").source
        assert "#include <torch/extension.h>" in cpp and "at::" not in cpp
        # An exponential that overflows on its way to a finite result must stay infinite.
        assert 0 < cpp.index('"-ffast-math"') < cpp.index('"-fno-finite-math-only"')
        stages = spec_of(problem).stages
        assert cpp.count("torch::Tensor ") >= 2 * len(stages)


@pytest.mark.parametrize("language", ["gluon", "cute", "tilelang"])
def test_kernels_of_the_lower_languages_screen_clean_and_broken_ones_differ(language: str) -> None:
    seen: Counter[str] = Counter()
    for problem in SUITE.problems(level=1):
        if not reaches(language, problem):  # type: ignore[arg-type]
            continue
        kernel = solve(problem, language)  # type: ignore[arg-type]
        assert screen(kernel, ruleset("strict")) == ()
        assert "tl." not in kernel.source and "triton.jit" not in kernel.source
        for b in broken_variants(problem, language):  # type: ignore[arg-type]
            ast.parse(b.kernel.source)
            assert b.kernel.source != kernel.source and b.kernel.language == language
            assert b.expected is (
                Status.COMPILE_ERROR if b.defect == "name_error" else Status.WRONG
            )
            seen[b.defect] += 1
        seen["correct"] += 1
    assert seen["correct"] >= 40 and "missing_mask" not in seen
    assert min(seen[each] for each in ("wrong_constant", "wrong_axis", "no_bounds_check")) >= 12
    assert seen["name_error"] == seen["type_slip"] == seen["correct"]


def test_problem_beyond_a_languages_templates_is_refused() -> None:
    product = next(p for p in SUITE.problems(level=1) if "matmul" in p.name)
    for function in (solve, broken_variants):
        with pytest.raises(UnsupportedLanguage, match=r"no kernel in 'cute' for problem .*matmul"):
            function(product, "cute")  # type: ignore[operator]
    scan = next(p for p in SUITE.problems(level=1) if "cumsum" in p.name)
    assert reaches("gluon", scan) and not reaches("tilelang", scan)


def test_other_languages_and_foreign_problems_are_refused() -> None:
    problem = SUITE.get("Synthetic/L1/1")
    for function in (solve, broken_variants):
        with pytest.raises(UnsupportedLanguage, match="gluon, cute and tilelang"):
            function(problem, "cuda")  # type: ignore[operator]
    foreign = Problem("mine/1", "mine", 1, "1_Mine", problem.source)
    for write in (solve, broken_variants):
        with pytest.raises(ProblemError, match="not one that the Synthetic suite wrote"):
            write(foreign)  # type: ignore[operator]
