"""What differs where Triton compiles for a GPU: labels, what is told of them, and plain tokens."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.prompts.short import brief
from kernelgym.suites.synthetic import Defect, broken_variants
from kernelgym.types import Status, Verdict
from kernelgym_train.demo.corpus import Example, first_answers, repairs
from kernelgym_train.demo.dialogue import answer_of, told
from kernelgym_train.demo.splits import Scope, draw_splits
from kernelgym_train.demo.tokenizer import train_tokenizer, within_budget


@functools.cache
def examples() -> tuple[Example, ...]:
    problems = draw_splits(0, Scope(300)).warmstart
    made = first_answers(problems, 0, 3, device="cuda:0")
    return (*made, *repairs(problems, 0, 1, device="cuda:0"))


@functools.cache
def words() -> Any:
    return train_tokenizer(examples(), words=True)


def test_no_defect_that_a_gpu_does_not_show() -> None:
    on_cpu = {each.label for each in first_answers(draw_splits(0, Scope(300)).warmstart, 0, 3)}
    on_gpu = {each.label for each in examples()}
    assert on_cpu - on_gpu == {Defect.MISSING_MASK}
    with pytest.raises(ValueError, match="does not decide"):
        told("<KERNEL>\npass\n</KERNEL>", Status.RUNTIME_ERROR, "cuda")


def test_a_name_that_does_not_exist_is_told_as_tritons_compiler_tells_it(tmp_path: Path) -> None:
    """Triton's own front end compiles for a GPU that is not here; the judge adds type and line."""
    problem = draw_splits(0, Scope(300)).warmstart[0]
    (broken,) = (
        each.kernel.source
        for each in broken_variants(problem, "triton", 3)
        if each.defect == Defect.NAME_ERROR
    )
    answer = answer_of(broken)
    kernel = parse(answer, "triton").kernel
    assert kernel is not None
    said = compiled(kernel.source, tmp_path)
    assert "result_" in said and "is not defined" in said
    failed = Verdict(
        Status.RUNTIME_ERROR, compiled=True, trials=1, message=f"CompilationError: {said} (line 9)"
    )
    judged = feedback(failed, parse(answer, "triton"), level="minimal", budget=200)
    expected = told(answer, Status.RUNTIME_ERROR, "cuda:0")
    assert brief(judged) == brief(expected) != brief(told(answer, Status.RUNTIME_ERROR))
    assert "CompilationError" in brief(expected)


def compiled(source: str, folder: Path) -> str:
    """Return what Triton says of a module's only kernel, compiled for an H100."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.errors import CompilationError

    path = folder / "kernel.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (name,) = re.findall(r"@triton\.jit\ndef (\w+)", source)
    kernel = getattr(module, name)
    constants = {n: 64 for n in kernel.arg_names if n.isupper()}
    kinds = {n: "*fp32" if "p_" in n or "_p" in n else "i32" for n in kernel.arg_names}
    signature = {n: "constexpr" if n in constants else kind for n, kind in kinds.items()}
    places = {(kernel.arg_names.index(n),): value for n, value in constants.items()}
    from triton import compile as build

    with pytest.raises(CompilationError) as caught:
        build(ASTSource(kernel, signature, places), target=GPUTarget("cuda", 90, 32))
    return str(caught.value)


def test_plain_tokens_are_names_numbers_and_signs() -> None:
    tokenizer = words()
    for example in examples()[:200]:
        ids = tokenizer(example.answer, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=False) == example.answer
        for number in ids:
            piece = tokenizer.decode([number])
            assert re.fullmatch(r" ?\w+| ?[^\s\w]+|\n *|\s+", piece), piece
    assert len(tokenizer) < 2048, "so many words there are not"


def test_the_budget_of_plain_tokens_is_the_callers() -> None:
    kept = within_budget(words(), examples(), module_tokens=300, prompt_tokens=160)
    lengths = [len(words()(each.answer)["input_ids"]) for each in kept]
    assert len(kept) > 0.4 * len(examples()) and max(lengths) <= 300
    of_phrases = within_budget(words(), examples())
    assert {each.label for each in of_phrases} <= {"torch"}, "no kernel is that short"
    families = {each.problem.family for each in kept}
    assert len(families) >= 6, families
