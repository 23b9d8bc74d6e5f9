"""The files of a workspace."""

from __future__ import annotations

import ast
import os
import stat

import pytest

from kernelgym.suites import suite
from kernelgym.workspace.folder import folder_files, stub, write_folder
from kernelgym.workspace.session import TOOLS
from kernelgym.workspace.tools_script import TOOLS as SCRIPT_TOOLS
from support.workspaces import session


def test_folder_holds_task_start_and_tools(tmp_path) -> None:
    write_folder(tmp_path / "a" / "w", session(tmp_path), "http://127.0.0.1:1", "kg_x")
    found = {path.name: path for path in (tmp_path / "a" / "w").iterdir()}
    assert set(found) == {
        *("problem.py", "kernel.py", "TASK.md", "SKILL.md", "kernelgym-tools", "workspace.json"),
    }
    assert os.access(found["kernelgym-tools"], os.X_OK)
    assert stat.S_IMODE(found["workspace.json"].stat().st_mode) == 0o600
    task = found["TASK.md"].read_text()
    assert "3 calls of check, time, profile" in task and "The contract of `ModelNew`" in task


def test_kernel_that_is_there_is_kept_and_the_rest_is_written_again(tmp_path) -> None:
    (tmp_path / "kernel.py").write_text("mine")
    (tmp_path / "problem.py").write_text("edited")
    found = session(tmp_path)
    write_folder(tmp_path, found, "http://127.0.0.1:1", "kg_x")
    assert (tmp_path / "kernel.py").read_text() == "mine"
    assert (tmp_path / "problem.py").read_text() == found.problem.source


def test_skill_names_the_tools_that_the_device_allows(tmp_path) -> None:
    files = folder_files(session(tmp_path, timed=None, language="triton"))
    assert "kernelgym-tools check" in files["SKILL.md"]
    assert "kernelgym-tools time" not in files["SKILL.md"]


def test_script_offers_every_tool() -> None:
    assert SCRIPT_TOOLS == tuple(TOOLS)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_stub_of_every_synthetic_problem_is_a_module_with_the_references_state(level) -> None:
    for problem in suite("Synthetic").problems(level)[:30]:
        tree = ast.parse(stub(problem, "triton"))
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert "ModelNew" in classes and "Model" not in classes
        assert "get_inputs" not in functions
        (reference,) = (
            node
            for node in ast.parse(problem.source).body
            if isinstance(node, ast.ClassDef) and node.name == "Model"
        )
        assert _init(reference) == _init(classes["ModelNew"])
        assert "NotImplementedError" in ast.unparse(classes["ModelNew"].body[-1])


def _init(model: ast.ClassDef) -> str:
    return "".join(
        ast.unparse(node)
        for node in model.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ).replace("ModelNew", "Model")
