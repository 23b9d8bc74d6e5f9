"""Exported tasks, read by Harbor's own loader and linter, and by hadolint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelgym.cli import main

pytestmark = pytest.mark.framework("harbor")
LOADER = """
import json, sys
from pathlib import Path
from harbor.models.task.task import Task

found = {}
for folder in map(Path, sys.argv[1:]):
    assert Task.is_valid_dir(folder), folder
    task = Task(folder)
    test = task.paths.discovered_test_path_for(task.config.environment.os)
    found[folder.name] = {
        "name": task.name,
        "instruction": task.instruction,
        "metadata": task.config.metadata,
        "verifier": task.config.verifier.environment_mode.value,
        "artifacts": task.config.artifacts,
        "test": str(test.relative_to(folder)),
        "solution": task.paths.solve_path.is_file(),
    }
print(json.dumps(found))
"""


def ran(program: str, *arguments: str | Path) -> str:
    """Return what a program of this environment prints."""
    command = [Path(sys.executable).with_name(program), *arguments]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module", params=["cpp", "cuda"])
def tasks(request: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp(request.param)
    device = "cpu" if request.param == "cpp" else "cuda:0"
    given = ["--level", "2", "--split", "heldout", "--language", request.param, "--device", device]
    assert main(["export-tasks", *given, "--limit", "50", "--out", str(out)]) == 0
    return sorted(out.iterdir())


def test_harbors_loader_reads_fifty_tasks(tasks) -> None:
    found = json.loads(ran("python", "-c", LOADER, *tasks))
    assert len(found) == 50
    for folder in tasks:
        read, about = found[folder.name], json.loads((folder / "tests/task.json").read_text())
        assert read["name"] == f"kernelgym/{folder.name}"
        assert (read["verifier"], read["test"]) == ("separate", "tests/test.sh")
        assert read["artifacts"] == ["/app/kernel.py"]
        assert read["instruction"] == (folder / "instruction.md").read_text()
        assert read["metadata"]["digest"] == about["digest"]
        assert read["solution"] == (about["language"] == "cpp")


def test_harbors_linter_finds_nothing(tasks) -> None:
    assert not ran("harbor", "lint", *tasks)


def test_hadolint_finds_nothing(tasks) -> None:
    assert not ran("hadolint", *(file for task in tasks for file in task.glob("*/Dockerfile")))
