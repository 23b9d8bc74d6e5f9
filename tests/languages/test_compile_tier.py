"""Kernels of languages with packages or headers of their own compile for a GPU that is not here.

A language whose packages or headers are missing is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym.answers.parsing import parse
from kernelgym.cli.redteam import load_corpus
from kernelgym.errors import UnsupportedLanguage
from kernelgym.feedback import feedback
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling.requirements import check_requirements
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import RULESETS
from kernelgym.suites.synthetic import SyntheticSuite, broken_variants, solve
from kernelgym.testing import SAMPLE_PROBLEM, verdict
from kernelgym.types import Kernel, Problem

RULES = dataclasses.replace(RULESETS["strict"], front_end="cuda:90a", cuda_on_cpu=True)
OWN = [name for name, entry in LANGUAGES.items() if entry.half or entry.headers]
SLOW = {"thunderkittens"}  # nvcc takes half a minute for each kernel
ENTRIES, PROBLEMS = load_corpus(Path(__file__).parents[1] / "adversarial")
HEAVY = {"heavy_chain"}  # takes the reference on a CPU half a minute
MISTAKES = {
    "thunderkittens": ("LENGTH = 512", "LENGTH = 520", "vector v;"),
    "gluon": ("gl.maximum(x, 0.0)", "gl.maximm(x, 0.0)", "gl.maximm(x, 0.0) * 2.0 + 1.0"),
    "tilelang": ("T.max(x", "T.maxx(x", "T.maxx(x[bx * block + i], T.cast(0, dtype))"),
    "cute": ("fmax(x[i], 0.0)", "fmax(x[i], lost)", "fmax(x[i], lost) * 2.0 + 1.0"),
}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEvaluator]:
    folder = tmp_path_factory.mktemp("cache")
    with LocalEvaluator(ruleset=RULES, cache_dir=folder, timing=False) as evaluator:
        yield evaluator


def needs(language: str) -> None:
    try:
        check_requirements(LANGUAGES[language])
    except UnsupportedLanguage as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    "language",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in OWN],
)
def test_sample_compiles_and_a_mistake_is_quoted(compiler: LocalEvaluator, language: str) -> None:
    needs(language)
    sample = LANGUAGES[language].sample
    found = compiler.compile_only(SAMPLE_PROBLEM, Kernel(sample, language))
    assert found.compiled and found.launches == 1, found.complaints
    before, after, quoted = MISTAKES[language]
    mistaken = Kernel(sample.replace(before, after), language)
    refused = compiler.compile_only(SAMPLE_PROBLEM, mistaken)
    assert not refused.compiled and quoted in "\n".join(refused.complaints)


@pytest.mark.parametrize("language", ["triton", "gluon", "cuda", "hip"])
def test_gpu_that_the_compiler_does_not_know_is_refused_before_anything_runs(
    tmp_path: Path, language: str
) -> None:
    needs(language)
    target, told = ("hip:gfx9999", "gfx9999") if language == "hip" else ("cuda:999", "sm_999")
    kernel = Kernel(LANGUAGES[language].sample, language)
    rules = dataclasses.replace(RULES, front_end=target)
    with LocalEvaluator(ruleset=rules, cache_dir=tmp_path, timing=False) as compiler:
        with pytest.raises(UnsupportedLanguage, match=told):
            compiler.compile_only(SAMPLE_PROBLEM, kernel)


FOR_HOPPER = (
    "= cute.arch.block_idx()",
    "= cute.arch.block_idx()\n    cute.arch.mbarrier_init_fence()",
)
"""Change of the sample for `cute` after which it compiles for sm_90 and later only."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "arch", "change", "complaint"),
    [
        ("gluon", "100a", ("", ""), ""),  # by another assembler than sm_90
        ("cute", "90a", FOR_HOPPER, ""),
        ("cute", "80", FOR_HOPPER, "mbarrier_init_fence"),
        ("cute", "999", ("", ""), "CuTe DSL cannot compile for sm_999, only for sm_80, "),
    ],
)
def test_sample_is_compiled_for_the_gpu_that_was_asked_for(
    tmp_path: Path, language: str, arch: str, change: tuple[str, str], complaint: str
) -> None:
    needs(language)
    kernel = Kernel(LANGUAGES[language].sample.replace(*change), language)
    rules = dataclasses.replace(RULES, front_end=f"cuda:{arch}")
    with LocalEvaluator(ruleset=rules, cache_dir=tmp_path, timing=False) as compiler:
        found = compiler.compile_only(SAMPLE_PROBLEM, kernel)
    assert found.compiled == (not complaint), found.complaints
    assert complaint in "\n".join(found.complaints)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "before", "after", "quoted"),
    [
        ("cute", "from_dlpack(t.view(-1)).mark_layout_dynamic()", "t.view(-1)", "cute.compile("),
        ("cute", "fmax(x[i], 0.0)", "fmax(x[i, 3], 0.0)", "fmax(x[i, 3], 0.0)"),
        ("tilelang", "T.max(", 'T.call_extern("float32", "nosuch", ', '"nosuch" is undefined'),
    ],
)
def test_complaint_without_a_line_of_the_kernel_gets_one(
    compiler: LocalEvaluator, language: str, before: str, after: str, quoted: str
) -> None:
    needs(language)
    source = LANGUAGES[language].sample.replace(before, after)
    (told,) = compiler.compile_only(SAMPLE_PROBLEM, Kernel(source, language)).complaints
    assert quoted in told and "  --> kernel.py:" in told and "warning" not in told
    assert "untrusted" not in told, "the judge's own code is quoted"


@pytest.mark.slow
@pytest.mark.parametrize("language", ["gluon", "cute", "tilelang"])
def test_synthetic_kernels_compile_and_a_misspelt_name_is_refused(
    compiler: LocalEvaluator, language: str
) -> None:
    needs(language)
    for number in (2, 3, 34):  # a chain, a norm with weights, a softmax
        problem = SyntheticSuite(per_level=40).get(f"Synthetic/L1/{number}")
        for seed in range(2):
            found = compiler.compile_only(problem, solve(problem, language, seed))  # type: ignore[arg-type]
            assert found.compiled, (problem.name, found.complaints)
        broken = broken_variants(problem, language)  # type: ignore[arg-type]
        (misspelt,) = (each.kernel for each in broken if each.defect == "name_error")
        refused = compiler.compile_only(problem, misspelt)
        assert not refused.compiled and "result_" in "\n".join(refused.complaints)


@pytest.mark.slow
@pytest.mark.parametrize("language", OWN)
def test_examples_of_prompts_compile(compiler: LocalEvaluator, language: str) -> None:
    needs(language)
    for number, example in enumerate(LANGUAGES[language].examples):
        problem = Problem(f"Test/L1/{number}", "Test", 1, example.title, example.reference)
        found = compiler.compile_only(problem, Kernel(example.kernel, language))
        assert found.compiled, (example.title, found.complaints)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        e.name
        for e in ENTRIES
        if e.language in OWN and e.kind == "honest" and e.problem not in HEAVY
    ],
)
def test_honest_kernels_of_the_corpus_compile(compiler: LocalEvaluator, name: str) -> None:
    (entry,) = (each for each in ENTRIES if each.name == name)
    needs(entry.language)
    found = compiler.compile_only(PROBLEMS[entry.problem], entry.kernel)
    assert found.compiled, found.complaints


@pytest.mark.parametrize("language", OWN)
def test_feedback_on_a_refused_kernel_quotes_its_line(language: str) -> None:
    before, after, quoted = MISTAKES[language]
    source = LANGUAGES[language].sample.replace(before, after)
    line = 1 + next(i for i, text in enumerate(source.splitlines()) if quoted in text)
    refused = dataclasses.replace(
        verdict("compile_error", message=f"the kernel did not compile: no such name (line {line})"),
        log=f"no such name\n  --> kernel.py:{line}\n{quoted}",
    )
    told = feedback(refused, parse(f"<KERNEL>\n```python\n{source}```\n</KERNEL>", language))
    assert f"line {line}: " in str(told) and str(told).count(quoted) == 2
