"""Tasks in Harbor's format: their files, and their own test scripts on right and wrong kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelgym.cli import main
from kernelgym.rulesets import ruleset
from kernelgym.suites import get_problem, suite
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.workspace.harbor_tasks import TaskSettings, task_files, task_name, write_task
from support.workspaces import KERNELGYM, decoy

CPU = TaskSettings("cpp", "cpu", ruleset("strict"), "kernelgym[serve]==0.2.0", "heldout")


def files(problem_id: str = "Synthetic/L2/7", settings: TaskSettings = CPU) -> dict[str, str]:
    return task_files(get_problem(problem_id), settings)


def test_task_has_what_harbor_reads() -> None:
    found = files()
    assert set(found) == {
        *("instruction.md", "task.toml", "environment/Dockerfile", "environment/problem.py"),
        *("environment/kernel.py", "tests/Dockerfile", "tests/test.sh", "tests/problem.py"),
        *("tests/task.json", "solution/solve.sh", "solution/kernel.py"),
    }
    config = tomllib.loads(found["task.toml"])
    assert config["task"]["name"] == "kernelgym/synthetic-l2-7"
    assert config["verifier"]["environment_mode"] == "separate"
    assert config["artifacts"] == ["/app/kernel.py"] and "gpus" not in config["environment"]
    problem = get_problem("Synthetic/L2/7")
    assert config["metadata"]["digest"] == problem.digest
    assert config["metadata"]["ruleset"] == CPU.ruleset.label
    assert json.loads(found["tests/task.json"])["problem"]["id"] == problem.id
    assert problem.source.strip() in found["instruction.md"]


def test_key_of_the_service_reaches_the_verifier_alone() -> None:
    config = tomllib.loads(files()["task.toml"])
    assert config["verifier"]["env"] == {
        "KERNELGYM_EVALUATOR": "${KERNELGYM_EVALUATOR:-}",
        "KERNELGYM_API_KEY": "${KERNELGYM_API_KEY:-}",
    }
    assert "env" not in config["environment"] and "env" not in config["agent"]


def test_solution_is_nowhere_but_in_its_folder() -> None:
    found = files()
    holders = [name for name, text in found.items() if found["solution/kernel.py"] in text]
    assert holders == ["solution/kernel.py"]


def test_problem_without_a_right_kernel_has_no_solution() -> None:
    assert not [name for name in task_files(SAMPLE_PROBLEM, CPU) if "solution" in name]
    gpu = TaskSettings("cuda", "cuda:0", ruleset("strict"), "kernelgym")
    found = files(settings=gpu)
    assert not [name for name in found if "solution" in name]
    assert tomllib.loads(found["task.toml"])["environment"]["gpus"] == 1


def test_names_are_unique_over_levels_seeds_and_sizes() -> None:
    names = (f"Synthetic/L{level}/{number}" for level in (1, 2) for number in (1, 11))
    ids = [f"{name}{end}" for name in names for end in ("", "@seed3-cpu", "@seed3-gpu")]
    assert len({task_name(get_problem(each)) for each in ids}) == len(ids)


def test_same_problem_gives_the_same_files_and_another_seed_others() -> None:
    assert files() == files()
    assert files("Synthetic/L2/7@seed3-cpu") != files()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "needs --out DIR"),
        (("--out", "t", "--limit", "0"), "--limit must be at least 1"),
        (
            ("--out", "t", "--suite", "KernelBench", "--seed", "3"),
            "--seed draws problems of the suite Synthetic",
        ),
        (("--out", "t", "--language", "cuda"), "does not run on device 'cpu'"),
        (("--out", "t", "--suite", "Nothing"), "unknown suite 'Nothing'"),
        (("--out", "t", "--split", "test"), "unknown split of Synthetic 'test'"),
        (("--out", "t", "--level", "9"), "unknown level of Synthetic"),
        (("--out", "t", "--format", "zip"), "--format"),
        (("--out", "/dev/null/t", "--limit", "1"), "give another --out"),
    ],
)
def test_argument_that_cannot_be_used_is_a_usage_error(
    tmp_path, monkeypatch, capsys, arguments, told
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export-tasks", *arguments]) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "t").exists()


def exported(out: Path, limit: int, seed: int = 0) -> list[Path]:
    given = ["--level", "2", "--split", "heldout", "--limit", str(limit), "--seed", str(seed)]
    assert main(["export-tasks", *given, "--language", "cpp", "--out", str(out)]) == 0
    return sorted(out.iterdir())


def test_as_many_tasks_as_asked_for_are_written_from_a_seed(tmp_path) -> None:
    first, again, other = (
        exported(tmp_path / name, 50, seed) for name, seed in (("a", 7), ("b", 7), ("c", 8))
    )
    assert len(first) == 50 and [p.name for p in first] == [p.name for p in again]
    assert not {p.name for p in first} & {p.name for p in other}
    digests = {
        json.loads((task / "tests/task.json").read_text())["digest"] for task in (*first, *other)
    }
    assert len(digests) == 100


def graded(task: Path, kernel: Path, logs: Path, url: str = "") -> dict[str, float]:
    """Run a task's own test script, as its container does, and return the reward."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KERNEL_FILE": str(kernel),
        "LOGS_DIR": str(logs),
        "KERNELGYM_EVALUATOR": url,
    }
    script = [str(task / "tests" / "test.sh")]
    ran = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads((logs / "reward.json").read_text())


def rewards(task: Path, folder: Path, url: str = "") -> list[dict[str, float]]:
    """Return the rewards of a task's solution, its start, and an exploit."""
    folder.mkdir()
    about = json.loads((task / "tests" / "task.json").read_text())
    (folder / "exploit.py").write_text(decoy(get_problem(about["problem"]["id"])))
    solved = {**os.environ, "KERNEL_FILE": str(folder / "solution.py")}
    subprocess.run([str(task / "solution" / "solve.sh")], env=solved, check=True)
    kernels = (folder / "solution.py", task / "environment" / "kernel.py", folder / "exploit.py")
    return [graded(task, each, folder / f"logs{n}", url) for n, each in enumerate(kernels)]


def assert_told_apart(found: list[dict[str, float]], task: Path) -> None:
    assert [reward["correct"] for reward in found] == [1.0, 0.0, 0.0], task
    assert found[0]["reward"] > 0.6 and max(found[1]["reward"], found[2]["reward"]) <= 0.0, task


@pytest.mark.slow
def test_script_of_a_task_grades_without_a_service(tmp_path) -> None:
    task = write_task(tmp_path, get_problem("Synthetic/L2/7"), CPU)
    assert_told_apart(rewards(task, tmp_path / "graded"), task)


@pytest.mark.slow
def test_scripts_of_tasks_tell_solution_start_and_exploit_apart(tmp_path) -> None:
    count = 50 if os.environ.get("KERNELGYM_NIGHTLY") == "1" else 6  # ten seconds each
    serve = [*KERNELGYM, "serve", "--state", str(tmp_path / "state"), "--port", "0"]
    service = subprocess.Popen([*serve, "--workers", "2"], stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        url = service.stderr.readline().split()[-1]
        tasks = exported(tmp_path / "tasks", count)
        assert len(tasks) == count
        with ThreadPoolExecutor(2) as pool:
            found = pool.map(lambda task: rewards(task, tmp_path / task.name, url), tasks)
            for task, each in zip(tasks, found, strict=True):
                assert_told_apart(each, task)
    finally:
        service.terminate()
        service.communicate()


def test_solution_of_every_exported_problem_is_the_suites_own() -> None:
    for problem in suite("Synthetic").problems(2, "1-20"):
        assert "class ModelNew" in task_files(problem, CPU)["solution/kernel.py"]
