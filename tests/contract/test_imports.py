"""What imports what: importing kernelgym is light, and its modules point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kernelgym

ROOT = Path(kernelgym.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))

NOUNS = {"types", "verdict", "stages", "returns", "devices", "errors", "rulesets", "languages"}
FACE = {"spaces", "envs", "vector", "wrappers", "choice", "gate", "recording", "asynchronous"}
TOPS = {"cli", "adapters"}
UNTRUSTED = {
    f"judge/{name}.py"
    for name in (
        *("candidate", "hooks", "sandbox", "wire", "zygote", "device_memory", "buffers", "outputs"),
        *(
            "tracing",
            "traffic",
            "fingerprint",
            "crossings",
            "laps",
            "launching",
            "inductor",
            "accesses",
            "huge_pages",
            "quick_interpreter",
            "quick_launches",
            "quick_types",
            "quick_values",
            "warm_up",
        ),
        *("syscalls", "triton_tools", "inbox", "ledger"),
    )
}
HEAVY = ("torch", "triton", "datasets", "faiss", "transformers", "pandas", "pyarrow")


def room(path: Path) -> str:
    """Return the first part of a module below kernelgym: the file or package it lives in."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def module_name(path: Path) -> str:
    parts = ("kernelgym", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


class Imports(ast.NodeVisitor):
    """Collects what a module imports: (name, is it at import time)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[tuple[str, bool]] = []
        self.depth = 0
        self.visit(ast.parse(path.read_text()))

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [(alias.name, not self.depth) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, f"{self.path}: relative imports hide where a name comes from"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self.found.append((full if full in MODULES else str(node.module), not self.depth))


IMPORTS = {path: Imports(path).found for path in SOURCES}


def ours(path: Path) -> set[tuple[str, bool]]:
    """Return the rooms of kernelgym that a file imports from."""
    found = set()
    for name, at_import in IMPORTS[path]:
        if name.split(".")[0] == "kernelgym":
            found.add((name.partition(".")[2].split(".")[0] or "kernelgym", at_import))
    return found


def test_importing_kernelgym_is_light() -> None:
    code = (
        "import sys, kernelgym\n"
        f"heavy = set({HEAVY}) & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_everything_but_judging_is_light() -> None:
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


def test_there_are_modules_to_look_at() -> None:
    assert {"kernelgym.types", "kernelgym.envs.kernel_env", "kernelgym.suites.base"} <= set(MODULES)
    envs = ROOT / "envs.py"
    assert ("judge", False) in ours(envs) and ("episode", True) in ours(envs)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    name = str(path.relative_to(ROOT))
    rooms = {target for target, _ in ours(path)} - {here}
    if name in UNTRUSTED:
        # Shares a process with candidate code, and is loaded by path: nothing of ours at all.
        assert ours(path) == set()
    elif here == "__init__":
        assert rooms == set(), "public names are imported lazily"
    elif here in NOUNS:
        assert rooms <= NOUNS
    elif here == "judge":
        assert not rooms & (FACE | TOPS | {"suites", "episode", "observer", "kernelgym"})
    elif here == "suites":
        assert not rooms & (FACE | TOPS | {"judge", "episode", "observer", "kernelgym"})
    elif here in FACE:
        assert not rooms & TOPS
        assert ("judge", True) not in ours(path), "the default evaluator is imported when needed"
    elif here not in TOPS:
        # The pure core: text in, values out.
        assert not rooms & (FACE | TOPS | {"judge", "suites", "kernelgym"})


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_judges_processes_import_heavy_packages_at_import_time(path: Path) -> None:
    at_import = {name.split(".")[0] for name, now in IMPORTS[path] if now}
    assert "kernelgym_train" not in {name.split(".")[0] for name, _ in IMPORTS[path]}
    if room(path) == "judge":
        return
    assert not at_import & set(HEAVY)
    if room(path) not in FACE | TOPS | {"__init__"}:
        outside = at_import - sys.stdlib_module_names - {"kernelgym", "numpy", "__future__"}
        assert not outside, f"stdlib and numpy only, not {outside}"


def test_no_cycles_at_import_time() -> None:
    graph = {
        module_name(path): {name for name, now in IMPORTS[path] if now and name in MODULES}
        - {module_name(path)}
        for path in SOURCES
    }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")
