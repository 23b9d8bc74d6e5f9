"""The pages read first: sessions run, commands exist, messages are those of the code."""

from __future__ import annotations

import ast
import doctest
import functools
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import kernelgym
from kernelgym.cli import COMMANDS, option_names
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.cli import main as train
from support import tiny

ROOT = Path(kernelgym.__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ("quickstart.md", "troubleshooting.md", "from-kernelbench.md")
SOURCES = [*(ROOT / "src").rglob("*.py")]


@pytest.mark.parametrize(("page", "least"), [("quickstart.md", 9), ("from-kernelbench.md", 8)])
def test_page_session_runs_as_it_stands(page: str, least: int) -> None:
    found = doctest.testfile(str(DOCS / page), module_relative=False)
    assert found.attempted >= least and found.failed == 0


@pytest.mark.parametrize("page", PAGES)
def test_page_commands_and_options_exist(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / page).read_text()
    for name, rest in re.findall(r"\bkernelgym ([a-z][\w-]*)((?: [^\n`#|]*)?)", text):
        if name not in COMMANDS:
            assert f"`kernelgym {name}" not in text, name
            continue
        known = option_names(COMMANDS[name])
        assert set(re.findall(r"--[a-z-]+", rest)) <= set(known), (name, rest)
    assert train(["--help"]) == 0
    told = capsys.readouterr().out
    for line in re.findall(r"kernelgym-train (--.*)", text):
        assert all(option in told for option in re.findall(r"--[a-z-]+", line))


THEIRS = """
    api_query_interval backend baseline baseline_file budget_tokens build_cache build_dir_prefix
    check_kernel clear_cache custom_prompt_key dataset_name dataset_src eval_mode eval_results_dir
    gpu gpu_arch greedy_sample hardware hardware_gpu_name hardware_name include_hardware_info
    is_reasoning_model kernel_eval_build_dir kernel_src_path level log log_eval_result
    log_generated_kernel log_prompt logdir max_tokens measure_performance model_name
    num_correct_trials num_cpu_workers num_gpu_devices num_perf_trials num_samples
    num_samples_per_problem num_trials num_workers output_file pass_at_k_values precision problem_id
    problem_ids prompt_option reasoning_effort ref_arch_src_path ref_origin run_name runs_dir
    server_type store_type subset temperature timeout timing_method verbose
"""
"""Every option of the scripts of KernelBench's commit 423217d: `self.NAME =` of their settings."""


def test_every_option_of_kernelbench_is_told() -> None:
    table = (DOCS / "from-kernelbench.md").read_text().partition("## Options")[2]
    rows = re.findall(r"^\| (.*?) \|", table.partition("\n## ")[0], re.MULTILINE)
    told = {word for row in rows for code in re.findall(r"`(.*?)`", row) for word in code.split()}
    assert set(THEIRS.split()) <= {word.partition("=")[0] for word in told}


@functools.cache
def messages() -> tuple[str, ...]:
    """Return the texts in the sources, with a NUL for what is filled in."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    str(part.value) if isinstance(part, ast.Constant) else "\0"
                    for part in node.values
                )
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


def quoted() -> list[str]:
    """Return the messages in the first column of the page on troubles: those with a blank in it."""
    text = (DOCS / "troubleshooting.md").read_text()
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return [cell.strip("`") for cell in cells if " " in cell and cell.count("`") == 2]


COMPOSED = ("unknown ...; did you mean ...?; known: ...",)
"""Put together from parts; `tests/cli/test_mistyped.py` has it."""


@pytest.mark.parametrize("message", [m for m in quoted() if m not in COMPOSED])
def test_message_quoted_is_one_of_the_code(message: str) -> None:
    pieces = [re.escape(piece.strip()) for piece in message.split("...") if piece.strip()]
    pieces[0] = pieces[0].removeprefix(re.escape("unavailable: "))
    pattern = re.compile(".*".join(pieces), re.DOTALL)
    assert any(pattern.search(text) for text in messages()), message


def trl_program() -> str:
    text = (DOCS / "quickstart.md").read_text()
    (program,) = re.findall(r"```python\n(import gymnasium as gym\n.*?)```", text, re.DOTALL)
    return program


def test_trl_program_names_what_is_there() -> None:
    for node in ast.walk(ast.parse(trl_program())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "GRPOConfig":
            break
    else:
        pytest.fail("the program makes no GRPOConfig")
    assert 'gym.make("kernelgym:KernelBench-L1-SingleTurn-v0", sizes="small"' in trl_program()


@pytest.mark.slow
def test_trl_program_trains_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(tmp_path / "tiny")
    words.save_pretrained(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    judge = ScriptedEvaluator()
    made = gym.make

    def small(env_id: str, **options: Any) -> Any:
        del options["sizes"]
        env_id = env_id.replace("KernelBench", "Synthetic")
        return made(env_id, evaluator=judge, language="cpp", **options)

    monkeypatch.setattr(gym, "make", small)
    program = trl_program().replace("Qwen/Qwen2.5-Coder-1.5B-Instruct", str(tmp_path / "tiny"))
    program = program.replace("max_completion_length=2048", "max_completion_length=8, max_steps=1")
    program = program.replace("[:16]", "[:2]").replace('"grpo",', '"grpo", use_cpu=True,')
    names: dict[str, Any] = {}
    exec(compile(program, "quickstart.md", "exec"), names)
    played = names["env"].unwrapped.episode
    assert played.over and played.turns, "no answer of the model reached the environment"
