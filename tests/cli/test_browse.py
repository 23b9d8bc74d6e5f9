"""`kernelgym ls` and `kernelgym show`."""

from __future__ import annotations

import pytest

import kernelgym
from kernelgym.prompts.observer import render
from kernelgym.suites import get_problem
from kernelgym.types import Problem


def test_ls_lists_suites_counts_and_environments(run, folder, monkeypatch, kernelbench_checkout):
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))
    code, out, err = run("ls")
    assert (code, err) == (0, "")
    assert all(env_id in out for env_id in kernelgym.ENV_IDS)
    lines = [line.split()[:3] for line in out.splitlines()]
    assert ["KernelBench", "4", "2"] in lines and ["Synthetic", "3", "100"] in lines


def test_ls_says_where_kernelbench_is_not_available(run, folder, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_ROOT", str(folder))
    code, out, _ = run("ls")
    assert code == 0
    assert "not available" in out and "is not a KernelBench checkout" in out
    assert "Synthetic-L1-MultiTurn-v0" in out


def test_ls_of_a_suite(run, folder, monkeypatch, kernelbench_checkout):
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))
    code, out, _ = run("ls", "--suite", "KernelBench", "--level", "2")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "id", "KernelBench/L2/1", "KernelBench/L2/10",
    ]  # fmt: skip
    listed = {}
    for split in ("rl", "heldout"):
        _, out, _ = run("ls", "--suite", "Synthetic", "--level", "1", "--split", split)
        listed[split] = {line.split()[0] for line in out.splitlines() if "/L1/" in line[:15]}
    assert listed["rl"] and listed["heldout"] and not listed["rl"] & listed["heldout"]


def test_ls_of_a_folder(run, tmp_path):
    from kernelgym.testing import SAMPLE_PROBLEM

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "scale.py").write_text(SAMPLE_PROBLEM.source)
    code, out, _ = run("ls", "--suite", tmp_path / "mine")
    assert code == 0 and "mine/scale" in out


def test_show_prints_the_source_untouched(run, folder):
    code, out, _ = run("show", "Synthetic/L1/2")
    problem = get_problem("Synthetic/L1/2")
    assert code == 0
    assert out.startswith(problem.source.rstrip("\n"))
    assert problem.digest in out and problem.family in out


def test_show_tells_the_facts_of_kernelbench(run, folder, monkeypatch):
    import kernelgym.suites.kernelbench as kernelbench

    lstm = Problem("KernelBench/L3/35", "KernelBench", 3, "35_LSTM", "class Model: ...\n", "rnn")
    monkeypatch.setattr(kernelbench.KernelBenchSuite, "get", lambda self, problem_id: lstm)
    code, out, _ = run("show", lstm.id)
    assert code == 0
    assert "2.6 MB" in out and "input_independent: the output for other inputs passes" in out


@pytest.mark.parametrize(("language", "says"), [("triton", "triton.jit"), ("cpp", "load_inline")])
def test_show_prompt_is_the_first_observation(run, folder, language, says):
    import gymnasium as gym

    from kernelgym.testing import ScriptedEvaluator

    env = gym.make(
        "Synthetic-L1-MultiTurn-v0", language=language, evaluator=ScriptedEvaluator(), max_turns=3
    )
    observation, _ = env.reset(options={"problem_id": 2})
    code, out, _ = run(
        "show", "Synthetic/L1/2", "--prompt", "--language", language, "--max-turns", "3"
    )
    assert code == 0 and says in out
    assert out.rstrip("\n") == observation.rstrip("\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("ls", "--suite", "Nope"), "known: KernelBench, Synthetic"),
        (("ls", "--level", "1"), "name it with --suite"),
        (("ls", "--suite", "Synthetic", "--level", "9"), "unknown level"),
        (("ls", "--suite", "Synthetic", "--split", "tset"), "unknown split"),
        (("ls", "--suite", "."), "holds no problem file"),
        (("show", "Synthetic/L1/0"), "unknown problem"),
        (("show", "bad/nomodel.py"), "does not define Model"),
        (("show", "Synthetic/L1/1", "--prompt", "--language", "cuda"), "does not run on device"),
        (("show", "Synthetic/L1/1", "--prompt", "--max-turns", "0"), "at least 1"),
        (("show", "Synthetic/L1/1", "--retrieval", "synthetic"), "give --prompt with it"),
        (("show", "Synthetic/L1/1", "--prompt", "--retrieval", "web"), "'web' is not an index"),
    ],
)
def test_usage_errors(run, tmp_path, monkeypatch, argv, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "nomodel.py").write_text("x = 1\n")
    code, out, err = run(*argv)
    assert (code, out) == (2, "") and said in err
    assert len(err.splitlines()) == 1


def test_show_prompt_with_retrieval_shows_examples(run, folder):
    arguments = ("show", "Synthetic/L1/2", "--prompt", "--language", "cpp")
    _, plain, _ = run(*arguments)
    code, out, err = run(*arguments, "--retrieval", "synthetic")
    assert (code, err) == (0, "") and out.startswith(plain.rstrip())
    observer = kernelgym.Observer("cpp", "cpu", parts=(kernelgym.Retrieval(),))
    assert out.rstrip() == render(observer.observe(get_problem("Synthetic/L1/2"))).rstrip()
