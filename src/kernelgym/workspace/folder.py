"""The folder of a workspace, in which an agent works: the task, a start, the tools.

Contract: nothing in the folder decides anything but ``kernel.py``, whose text the tools send. The
other files are for reading: an agent may change them, and misleads only itself.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from kernelgym.answers.python_source import python_lines
from kernelgym.errors import UsageError
from kernelgym.languages import language as find_language
from kernelgym.prompts.first_message import CONTRACT, problem_prompt
from kernelgym.rulesets import Ruleset
from kernelgym.text_templates import filled
from kernelgym.types import Problem
from kernelgym.workspace.session import TOOLS, ToolSession

KERNEL_FILE = "kernel.py"
"""Name of the kernel's file, the only one whose content counts."""
TOOLS_FILE = "kernelgym-tools"
"""Name of the program that calls the tools."""
_PACKAGE = "kernelgym.workspace"
_HARNESS = ("get_inputs", "get_init_inputs")
_MODEL = re.compile(r"\bModel\b")


def write_folder(folder: Path, session: ToolSession, url: str, key: str) -> None:
    """Write a workspace's files; a kernel that is there already is kept.

    Args:
        folder: The folder, which is made if it is missing.
        session: The session that the tools call.
        url: Address of the session's server.
        key: Key of the server.

    Raises:
        UsageError: If the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in folder_files(session).items():
            if name != KERNEL_FILE or not (folder / name).exists():
                (folder / name).write_text(text, "utf-8")
        (folder / TOOLS_FILE).chmod(0o755)
        place = json.dumps({"url": url, "key": key}, indent=2)
        # The key lets other accounts of the machine use up the budget, so they may not read it.
        fd = os.open(folder / "workspace.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(place + "\n")
    except OSError as error:
        raise UsageError(
            f"the workspace cannot be written to {str(folder)!r}: {error.strerror}; give another "
            "--out"
        ) from None


def folder_files(session: ToolSession) -> dict[str, str]:
    """Return the texts of a workspace's files by name.

    The file that holds the judge's address and key is not among them.
    """
    script = Path(__file__).with_name("tools_script.py").read_text("utf-8")
    return {
        "problem.py": session.problem.source,
        KERNEL_FILE: stub(session.problem, session.env.language),
        "TASK.md": task_text(session),
        "SKILL.md": skill_text(session),
        TOOLS_FILE: script,
    }


def task_text(session: ToolSession) -> str:
    """Return the text of an agent's task: problem, contract, rules, and what is counted."""
    env = session.env
    asked = problem_text(session.problem, env.language, env.device, env.ruleset, env.max_turns)
    counted = [tool for tool in session.tools if tool != "submit"]
    return filled(_PACKAGE, "TASK.md.j2", problem=asked, counted=counted, budget=session.budget)


def problem_text(
    problem: Problem, language: str, device: str, rules: Ruleset, max_turns: int = 1
) -> str:
    """Return the text that asks an agent for a kernel for a problem.

    Args:
        problem: The problem.
        language: Language of the kernel.
        device: Device that it runs on.
        rules: Rules of the verdict.
        max_turns: Number of times that it is judged.
    """
    asked = problem_prompt(
        problem, language, device, examples=0, ruleset=rules, max_turns=max_turns
    )
    entry = find_language(language)
    return filled(_PACKAGE, "problem.md.j2", language=entry, contract=CONTRACT, asked=asked)


def skill_text(session: ToolSession) -> str:
    """Return the text that explains the tools to an agent."""
    return filled(
        _PACKAGE,
        "SKILL.md.j2",
        kernel_file=KERNEL_FILE,
        tools_file=TOOLS_FILE,
        tools={tool: TOOLS[tool] for tool in session.tools},
        budget=session.budget,
    )


def stub(problem: Problem, language: str) -> str:
    """Return a module to start from: the reference's, whose `forward` is yet to be written."""
    source = problem.source
    lines = python_lines(source)
    kept: list[str] = []
    position = 0
    for node, text in _changes(ast.parse(source), language):
        first = min([node.lineno, *(each.lineno for each in _decorators(node))]) - 1
        kept += [*lines[position:first], text]
        position = node.end_lineno or node.lineno
    return "".join([*kept, *lines[position:]]).rstrip() + "\n"


def _changes(tree: ast.Module, language: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the statements of a reference that a stub replaces, with their texts."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in _HARNESS:
            yield node, ""
        elif isinstance(node, ast.ClassDef) and node.name == "Model":
            yield node, _renamed(node, language)


def _renamed(model: ast.ClassDef, language: str) -> str:
    """Return the class `Model` as `ModelNew`, with an empty `forward`."""
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            told = f"write the {find_language(language).title} kernel"
            node.body = [*ast.parse(f"raise NotImplementedError({told!r})").body]
    return _MODEL.sub("ModelNew", ast.unparse(model)) + "\n"


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
