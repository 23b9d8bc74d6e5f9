"""KernelBench's own prompt: composed from the files of a checkout, refused without one.

That it is equal to what KernelBench's constructor makes of its real files was compared once, for 30
problems, three backends, three options and three precisions, at its commit 423217d.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.kernelbench import KernelBenchObserver, kernelbench_prompt
from kernelgym.records.observer_settings import observer_settings, recorded_observer
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.rulesets import ruleset
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Trajectory

FILES = {
    "src/kernelbench/prompts/prompts.toml": '''
[shared]
problem_statement = """
Write {backend_display}.
"""
instruction = """
Answer with {backend_display}!
"""
few_shot_example_arch = "before.py"
[backends.cuda]
backend_display = "CUDA operators"
one_shot_new_arch = "after.py"
few_shot_examples = [["before.py", "after.py"], ["more.py", "after.py"]]
[backends.triton]
backend_display = "Triton kernels"
one_shot_new_arch = "after.py"
[precision.fp32]
precision_display = "FP32"
[precision.fp16]
precision_display = "FP16"
[templates.common]
arch_block = """

This is given:

{ref_arch_src}
"""
precision_note = "In {precision_display}."
examples_block = """
{examples_intro}

{examples_entries}
"""
example_intro_one_shot = "One of {backend_display}:"
example_intro_few_shot = "Some of {backend_display}:"
example_entry_template = """
{example_label}
{input_code}
becomes
{output_code}
"""
[options.zero_shot]
components = ["problem_statement", "arch_block", "precision_note", "instruction"]
[options.one_shot]
components = ["problem_statement", "examples_block", "arch_block", "instruction"]
requires_example = "one_shot"
[options.few_shot]
components = ["examples_block", "instruction"]
requires_example = "few_shot"
''',
    "before.py": "x = {1: 2}\n",
    "after.py": "y = {}\n",
    "more.py": "z = 3\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "KernelBench").mkdir()
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("root")
def test_blocks_stand_in_the_files_order() -> None:
    assert kernelbench_prompt(SAMPLE_PROBLEM, "triton", "zero_shot", "fp16") == (
        "Write Triton kernels.\n\nThis is given:\n\n"
        f"{SAMPLE_PROBLEM.source}\n\nIn FP16.\n\nAnswer with Triton kernels!\n"
    )


@pytest.mark.usefixtures("root")
def test_examples_are_those_of_the_backend() -> None:
    one = kernelbench_prompt(SAMPLE_PROBLEM, "cuda", "one_shot")
    assert "One of CUDA operators:\n\nExample:\nx = {1: 2}\n\nbecomes\ny = {}" in one
    few = kernelbench_prompt(SAMPLE_PROBLEM, "cuda", "few_shot")
    assert few.startswith("Some of CUDA operators:\n\nExample 1:\n") and "Example 2:\nz = 3" in few
    # A backend without several examples shows its one.
    assert "One of Triton kernels:" in kernelbench_prompt(SAMPLE_PROBLEM, "triton", "few_shot")


def test_folder_of_problems_names_the_checkout_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = kernelbench_prompt(SAMPLE_PROBLEM, "triton")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root / "KernelBench"))
    assert kernelbench_prompt(SAMPLE_PROBLEM, "triton") == whole


@pytest.mark.usefixtures("root")
def test_observer_comes_back_from_a_record() -> None:
    observer = KernelBenchObserver("triton", "cpu", "strict", 1, "zero_shot")
    system, user = observer.observe(SAMPLE_PROBLEM)
    assert system.content == "You are a helpful assistant"
    assert user.content == kernelbench_prompt(SAMPLE_PROBLEM, "triton", "zero_shot")
    played = Trajectory(SAMPLE_PROBLEM, (), "cut", 1)
    rules = ruleset("strict").label
    settings = observer_settings(observer)
    record = EpisodeRecord(played, "triton", "cpu", rules, "stage2", observer=settings)
    assert recorded_observer(record).observe(SAMPLE_PROBLEM) == (system, user)


def test_what_it_cannot_show_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="known: cuda, triton"):
        KernelBenchObserver("cpp", "cpu")
    with pytest.raises(UsageError, match="neither parts nor hardware"):
        KernelBenchObserver("triton", "cpu", hardware=Hardware("H100"))
    with pytest.raises(UsageError, match="no kernel to start from"):
        KernelBenchObserver("triton", "cpu").observe(SAMPLE_PROBLEM, start=SAMPLE_KERNELS["triton"])
    (root / "after.py").unlink()
    with pytest.raises(UsageError, match="cannot read KernelBench's example"):
        kernelbench_prompt(SAMPLE_PROBLEM, "triton")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root / "src" / "kernelbench"))
    with pytest.raises(UsageError, match="set it to the root of a whole checkout"):
        kernelbench_prompt(SAMPLE_PROBLEM, "triton")
    monkeypatch.delenv("KERNELBENCH_ROOT")
    with pytest.raises(UsageError, match="KERNELBENCH_ROOT is not set"):
        KernelBenchObserver("triton", "cpu")


def test_files_of_another_layout_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    path = tmp_path / "src/kernelbench/prompts/prompts.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[backends.triton]\n")
    with pytest.raises(UsageError, match=r"not laid out as expected \(KeyError"):
        kernelbench_prompt(SAMPLE_PROBLEM, "triton")
