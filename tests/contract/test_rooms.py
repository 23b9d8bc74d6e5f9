"""Rooms: which may import which, what importing costs, and how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kernelgym
import kernelgym_train

ROOT = Path(kernelgym.__file__).parent
TRAIN = Path(kernelgym_train.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
UNTRUSTED = ROOT / "judge" / "untrusted"
LONGEST = 500

ROOMS = (
    "nouns",
    *("languages", "answers", "prompts", "feedback", "rewards", "suites", "testing", "redteam"),
    *("retrieval", "episodes", "records", "judge", "evaluators", "indexing", "envs", "benchmark"),
    *("adapters", "serve", "cli"),
)
"""From the ground up: a room imports only what stands before it. Files at the top are nouns."""
JUDGE = (
    *("file_lock", "disk_limit", "environment"),
    *("out_of_memory", "tensors", "stage_clock", "problem_code", "untrusted", "sandbox"),
    *("compiling", "provenance", "processes", "memory", "device", "inputs", "compare"),
    *("reference", "session", "retries", "evidence", "outcome", "timing", "worker", "lint"),
    "measuring",
    *("worker_handle", "device_health", "pool", "local", "shared", "__init__"),
)
"""The same inside the judge, whose files at the top are its ground floor and its roof."""
SIBLINGS = {"adapters", "serve"}
HEAVY = {
    *("torch", "triton", "datasets", "faiss", "transformers", "pandas", "pyarrow"),
    *("sentence_transformers", "sklearn", "scipy", "openai", "optuna"),
}
LIGHT_ROOMS = set(ROOMS[: ROOMS.index("judge")]) - {"judge"}


def module_name(path: Path) -> str:
    parts = ("kernelgym", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


MODULES = {module_name(path): path for path in SOURCES}


def room_of(module: str) -> str:
    """Return the room of a module of kernelgym; empty for the package itself."""
    first = module.split(".")[1:2]
    if not first:
        return ""
    if first == ["__main__"]:  # ``python -m kernelgym`` is the command
        return "cli"
    return first[0] if (ROOT / first[0]).is_dir() else "nouns"


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what a file imports, and when: ``now``, ``late`` (in a function) or ``typing``."""

    def visit(node: ast.AST, when: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            when = "typing"
        if isinstance(node, ast.Import):
            yield from ((alias.name, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in MODULES else str(node.module)), when
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and when == "now":
            when = "late"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, when)

    return visit(ast.parse(path.read_text()), "now")


IMPORTS = {path: tuple(imports(path)) for path in SOURCES}


@pytest.mark.parametrize("name", ["kernelgym", "kernelgym.evaluators.cached", "kernelgym.cli"])
def test_import_is_light(name: str) -> None:
    code = (
        f"import sys, {name}\n"
        f"heavy = set({HEAVY}) & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_playing_without_a_judge_is_light() -> None:
    """Making and playing an environment imports no torch: only a judge's processes do."""
    code = (
        "import sys, gymnasium as gym, kernelgym\n"
        "from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator\n"
        "env = gym.make('KernelBench-L1-MultiTurn-v0', problems=[SAMPLE_PROBLEM],\n"
        "               evaluator=ScriptedEvaluator())\n"
        "env.reset(seed=1)\n"
        "env.step('<KERNEL>class ModelNew: ...</KERNEL>')\n"
        f"heavy = set({HEAVY}) & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_env_without_retrieval_loads_no_synthetic() -> None:
    code = (
        "import sys, gymnasium as gym, kernelgym\n"
        "from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator\n"
        "env = gym.make('KernelBench-L1-MultiTurn-v0', problems=[SAMPLE_PROBLEM],\n"
        "               evaluator=ScriptedEvaluator())\n"
        "env.reset(seed=1)\n"
        "found = [name for name in sys.modules if 'synthetic' in name]\n"
        "sys.exit(f'imported: {found}' if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_folder_is_a_room() -> None:
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(ROOMS)
    judge = {path.name for path in (ROOT / "judge").iterdir() if (path / "__init__.py").exists()}
    assert judge | {path.stem for path in (ROOT / "judge").glob("*.py")} == set(JUDGE)


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_rooms_import_only_rooms_before_them(path: Path) -> None:
    own = module_name(path)
    if own == "kernelgym":
        assert {when for name, when in IMPORTS[path] if name.startswith("kernelgym")} == {"typing"}
        return
    here = ROOMS.index(room_of(own))
    for name, _ in IMPORTS[path]:
        if name.split(".")[0] == "kernelgym_train":
            pytest.fail(f"{own} imports {name}: kernelgym never imports kernelgym_train")
        if name.split(".")[0] != "kernelgym":
            continue
        there = room_of(name)
        if not there:
            assert ROOMS[here] == "cli", f"{own} imports the whole package"
            continue
        assert ROOMS.index(there) <= here, f"{own} imports {name}, a room above its own"
        assert {ROOMS[here], there} != SIBLINGS, f"{own} imports {name}, its sibling"


@pytest.mark.parametrize("path", sorted((ROOT / "judge").rglob("*.py")), ids=ids)
def test_judge_rooms_import_only_rooms_before_them(path: Path) -> None:
    def place(module: str) -> int:
        return JUDGE.index((module.split(".")[2:] or ["__init__"])[0])

    own = module_name(path)
    for name, _ in IMPORTS[path]:
        if name.startswith("kernelgym.judge"):
            assert place(name) <= place(own), f"{own} imports {name}, a room above its own"


@pytest.mark.parametrize("path", sorted(UNTRUSTED.rglob("*.py")), ids=ids)
def test_untrusted_code_imports_nothing_of_ours(path: Path) -> None:
    """It shares a process with candidate code, where it is loaded by path."""
    names = {name.split(".")[0] for name, when in IMPORTS[path] if when != "typing"}
    assert names <= sys.stdlib_module_names | {"torch", "triton", "numpy"}


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_heavy_packages_are_imported_when_needed(path: Path) -> None:
    at_import = {name.split(".")[0] for name, when in IMPORTS[path] if when == "now"}
    room = room_of(module_name(path))
    if room == "judge":
        return
    assert not at_import & HEAVY
    ours = {name for name, when in IMPORTS[path] if when == "now"}
    if room not in ("evaluators", "cli"):
        eager = {name for name in ours if name.startswith("kernelgym.judge")}
        assert not eager, "the judge is imported when first used"
    if room in LIGHT_ROOMS:
        outside = at_import - sys.stdlib_module_names - {"kernelgym", "numpy"}
        assert not outside, f"standard library and numpy only, not {outside}"


def test_no_package_cycles() -> None:
    """Modules form no cycle at import, and rooms none at all: no room is half of another."""
    graphs: list[dict[str, set[str]]] = [{}, {}]
    for path in SOURCES:
        own = module_name(path)
        found = {n for n, when in IMPORTS[path] if when == "now" and n in MODULES} - {own}
        graphs[0][own] = found
        parts = {name: name.rpartition(".")[0] for name in MODULES}
        here = own if path.name == "__init__.py" else parts[own]
        rooms = {parts[n] for n, when in IMPORTS[path] if when != "typing" and n in MODULES}
        graphs[1].setdefault(here, set()).update(
            room for room in rooms if room.count(".") > 1 and room != here
        )
    for graph in graphs:
        try:
            tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            pytest.fail(f"these import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("root", [ROOT, TRAIN], ids=["kernelgym", "kernelgym_train"])
def test_no_source_file_is_too_long(root: Path) -> None:
    long = {
        str(path.relative_to(root)): lines
        for path in root.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > LONGEST
    }
    assert not long, f"split by subject: {long}"
