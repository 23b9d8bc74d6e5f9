"""Which pretrained models a problem loads, and what of them is on this machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import ProblemError
from kernelgym.cli import main
from kernelgym.envs.problem_choice import choose_problems
from kernelgym.judging_memory import SPARE_BYTES
from kernelgym.precision import judged_precisions
from kernelgym.pretrained import (
    check_models,
    files_to_fetch,
    held,
    hub_variables,
    missing_models,
    models_of,
    modules_of,
    uses_transformers,
    what_is_missing,
)
from kernelgym.prompts.first_message import problem_prompt
from kernelgym.rulesets import RULESETS
from kernelgym.suites.known_memory import needed_bytes
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Problem
from support.pretrained_models import problem


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of models, which holds owner/here with weights of 5000 bytes."""
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path))
    folder = tmp_path / "models" / "models--owner--here"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text('{"model_type": "gpt_neo"}')
    (folder / "snapshots" / "abc" / "model.safetensors").write_bytes(b"w" * 5000)
    return tmp_path / "models"


def of(source: str) -> Problem:
    return dataclasses.replace(SAMPLE_PROBLEM, source=source)


def test_models_of_level_4s_form_are_those_that_it_names() -> None:
    assert models_of(problem("facebook/opt-1.3b")) == ("facebook/opt-1.3b",)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('m = AutoModel.from_pretrained("a/b")\nn = X.from_pretrained("c")', ("a/b", "c")),
        ('N = "a/b"\ndef f():\n    return A.from_pretrained(N, dtype="auto")', ("a/b",)),
        ('A.from_pretrained("a/b"); B.from_pretrained("a/b")', ("a/b",)),
        ("def f(name):\n    return A.from_pretrained(name)", ()),
        ('A.from_pretrained("../../etc/passwd")', ()),
        ('N: str = "a/b"\nA.from_pretrained(pretrained_model_name_or_path=N)', ("a/b",)),
        ("from_pretrained(", ()),
        ("from_pretrained(\0", ()),
        ("x = 1", ()),
    ],
)
def test_models_of_a_source_are_its_texts_and_constants(
    source: str, names: tuple[str, ...]
) -> None:
    assert models_of(of(source)) == names


@pytest.mark.parametrize(
    ("line", "imports"),
    [
        ("from transformers import AutoModel", True),
        ("    import torch, transformers", True),
        ("from transformers.models import gpt2", True),
        ("import sentence_transformers", False),
        ("import torch  # not transformers", False),
    ],
)
def test_problem_that_imports_transformers_is_recognised(line: str, imports: bool) -> None:
    assert uses_transformers(of(f"import math\n{line}\n")) is imports


def test_held_model_has_revision_size_and_modules(models: Path) -> None:
    found = held("owner/here")
    assert found is not None and (found.revision, found.weight_bytes) == ("abc", 5000)
    modules = modules_of(problem("owner/here"))
    assert "transformers.models.gpt_neo.modeling_gpt_neo" in modules
    assert modules_of(SAMPLE_PROBLEM) == ()


def test_precision_of_a_problem_is_that_of_the_weights_that_it_loads(models: Path) -> None:
    strict = RULESETS["strict"]
    assert judged_precisions(problem("owner/here"), strict) == ("fp32",)
    config = models / "models--owner--here" / "snapshots" / "abc" / "config.json"
    config.write_text('{"model_type": "opt", "torch_dtype": "float16"}')
    assert judged_precisions(problem("owner/here"), strict) == ("fp16",)
    assert judged_precisions(problem("owner/here"), RULESETS["kernelbench"]) == ("fp32",)
    config.write_text('["no", "configuration"]')
    assert judged_precisions(problem("owner/here"), strict) == ("fp32",)


def test_prompt_of_a_whole_model_says_what_may_be_left_to_torch(models: Path) -> None:
    told = problem_prompt(problem("owner/here"), "triton", "cuda:0")
    assert "at least 10% of the reference's work" in told
    assert "`from_pretrained` finds owner/here on this machine" in told
    loose = problem_prompt(problem("owner/here"), "triton", "cuda:0", ruleset="kernelbench")
    assert "may import that package" in loose and "10%" not in loose
    assert "transformers" not in problem_prompt(SAMPLE_PROBLEM, "triton", "cuda:0")


def test_model_without_weights_is_not_held(models: Path) -> None:
    (models / "models--owner--here" / "snapshots" / "abc" / "model.safetensors").unlink()
    assert held("owner/here") is None and missing_models(problem("owner/here")) == ("owner/here",)


def test_missing_model_is_told_with_the_command_that_brings_it(models: Path) -> None:
    assert what_is_missing(problem("owner/here")) == what_is_missing(SAMPLE_PROBLEM) == ""
    said = r"loads owner/gone .* `kernelgym fetch Tiny/L4/1` .* of your own `kernelgym fetch FILE`"
    with pytest.raises(ProblemError, match=said):
        check_models(problem("owner/gone"))


@pytest.mark.parametrize("installed", ["none", "4.57.1"])
def test_missing_or_old_package_is_told(
    models: Path, monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    monkeypatch.setattr("kernelgym.pretrained.installed_version", lambda *_, **__: installed)
    said = what_is_missing(problem("owner/here"))
    assert f"here is {installed}" in said and "pip install 'transformers>=5'" in said


def test_needed_memory_holds_all_copies_of_the_weights_and_one_in_fp64(models: Path) -> None:
    assert needed_bytes(problem("owner/here")) == (3 + 2) * 5000 + SPARE_BYTES
    config = models / "models--owner--here" / "snapshots" / "abc" / "config.json"
    config.write_text('{"dtype": "float16"}')
    assert needed_bytes(problem("owner/here")) == (3 + 4) * 5000 + SPARE_BYTES
    assert needed_bytes(problem("owner/gone")) is None


def test_environment_that_judges_here_draws_problems_whose_models_are_here(models: Path) -> None:
    here, gone = problem("owner/here"), problem("owner/gone", 2)
    rules = RULESETS["strict"]

    def choice(*problems: Problem, judged_here: bool) -> tuple[Problem, ...]:
        given_ = list(problems)
        return choose_problems(
            "Synthetic", None, given_, None, ruleset=rules, device="cpu", judged_here=judged_here
        ).drawn

    assert choice(here, gone, judged_here=True) == (here,)
    assert choice(here, gone, judged_here=False) == (here, gone)
    with pytest.raises(ProblemError, match="kernelgym fetch Tiny/L4/2"):
        choice(gone, judged_here=True)


def test_variables_of_the_judge_keep_it_off_the_network(models: Path) -> None:
    variables = hub_variables()
    assert variables["HF_HUB_OFFLINE"] == "1" and variables["HF_HUB_CACHE"] == str(models)


_NAMES = st.sampled_from(
    [
        *("config.json", "tokenizer.json", "merges.txt", "spiece.model", "README.md"),
        *("model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin"),
        *("model.fp32-00001-of-00002.safetensors", "pytorch_model.fp16.bin"),
        *("model.safetensors.index.json", "onnx/model.safetensors", "rust_model.ot", "tf_model.h5"),
        "flax_model.msgpack",
    ]
)


@given(st.sets(_NAMES))
def test_files_to_fetch_are_one_format_and_small_files(names: set[str]) -> None:
    chosen = set(files_to_fetch(names))
    assert chosen <= names and not any("/" in name for name in chosen)
    assert not chosen & {"README.md", "rust_model.ot", "tf_model.h5", "flax_model.msgpack"}
    assert not any(".fp" in name for name in chosen), "weights of a variant, which nothing asks for"
    safe = any(name.endswith(".safetensors") for name in chosen)
    assert ("pytorch_model.bin" in chosen) == ("pytorch_model.bin" in names and not safe)
    assert chosen >= {n for n in names if n.endswith((".json", ".txt")) and "/" not in n}


def test_batch_and_eval_refuse_a_missing_model_before_anything_is_asked_for(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "gone.py").write_text(problem("owner/gone").source)
    (tmp_path / "kernel.py").write_text("x = 1")
    row = {"id": "1", "problem": "problems/gone.py", "kernel": "kernel.py"}
    (tmp_path / "jobs.jsonl").write_text(json.dumps(row))
    jobs, out = str(tmp_path / "jobs.jsonl"), str(tmp_path / "out.jsonl")
    assert main(["check", "--batch", jobs, "--out", out]) == 2
    assert "jobs.jsonl, line 1: problem 'file/gone' loads owner/gone" in capsys.readouterr().err
    chosen = ["--suite", str(tmp_path / "problems"), "--out", str(tmp_path / "run")]
    assert main(["eval", "--policy", "scripted", *chosen]) == 2
    assert "loads owner/gone" in capsys.readouterr().err
