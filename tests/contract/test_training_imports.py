"""What kernelgym_train imports: public names of kernelgym, and never a backend from another."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kernelgym
import kernelgym_train

ROOT = Path(kernelgym_train.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
HEAVY = {"torch", "triton", "transformers", "trl", "peft", "accelerate", "datasets", "tinker"}
HEAVY |= {"optuna"}
PURE = {
    *("types", "credit.estimators", "credit.credit", "rollout.sampling", "rollout.refill"),
    *(
        "metrics.guards",
        "metrics.filters",
        "config.settings",
        "config.sections",
        "config.config",
        "config.check",
    ),
    *(
        "config.unused",
        "config.flat_names",
        "backends.trl.settings",
        "backends.tinker.settings",
        "backends.tinker.prices",
    ),
}
APART = ("backends", "mcgs", "adapters")
"""Folders whose rooms know the shared modules, but not each other."""


def module_name(path: Path) -> str:
    parts = ("kernelgym_train", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def public_modules() -> set[str]:
    """Return the modules of kernelgym that its reference documents."""
    makefile = (Path(kernelgym.__file__).parents[2] / "Makefile").read_text()
    listed = re.search(r"^DOCUMENTED := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert listed is not None
    return {"kernelgym", *(f"kernelgym.{name}" for name in listed[1].replace("\\", " ").split())}


PUBLIC = public_modules()
MODULES = {module_name(path) for path in SOURCES}


def imports(path: Path) -> list[tuple[str, str, bool]]:
    """Return (module, name or "", is it at import time) of everything a file imports."""
    found: list[tuple[str, str, bool]] = []

    def visit(node: ast.AST, now: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                visit(other, now)
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, "", now) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                inner = full in MODULES
                found.append((full, "", now) if inner else (str(node.module), alias.name, now))
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, now and not inside)

    visit(ast.parse(path.read_text()), True)
    return found


def is_a(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def room(name: str) -> str:
    """Return the backend that a module belongs to: trl of backends.trl.loop; empty if none."""
    parts = name.split(".")
    if len(parts) < 2 or parts[1] not in APART:
        return ""
    if parts[1] == "backends":
        return ".".join(parts[1:3]) if (ROOT.joinpath(*parts[1:3])).is_dir() else ""
    return parts[1]


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_are_modules_to_look_at() -> None:
    assert {f"kernelgym_train.{name}" for name in PURE} <= MODULES
    assert {"kernelgym.types", "kernelgym.judge", "kernelgym.rewards"} <= PUBLIC
    found = imports(ROOT / "credit" / "credit.py")
    assert ("kernelgym.types", "GAMMA", True) in found
    assert room("kernelgym_train.backends.trl.loss") == room("kernelgym_train.backends.trl.train")
    assert room("kernelgym_train.backends.tinker") != room("kernelgym_train.backends.trl.train")
    assert room("kernelgym_train.backends.backend") == "", "what all backends have in common"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_only_public_names_of_kernelgym_are_used(path: Path) -> None:
    for module, name, _ in imports(path):
        if is_a(module, "kernelgym"):
            assert module in PUBLIC, f"{module} is not documented (DOCUMENTED in the Makefile)"
            public = importlib.import_module(module).__all__
            assert not name or name in public, f"{module} exports no {name}"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_backends_know_the_shared_modules_and_not_each_other(path: Path) -> None:
    here = room(module_name(path))
    for module, _, now in imports(path):
        there = room(module)
        if not there or there == here or there == "backends":
            continue
        assert not here, f"{module} is another backend's"
        assert not now, f"{module} is imported by a shared module before it is asked for"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_what_computes_numbers_needs_no_framework(path: Path) -> None:
    found = imports(path)
    at_import = {module.split(".")[0] for module, _, now in found if now}
    if room(module_name(path)):
        return
    assert not at_import & HEAVY, "frameworks are imported by backends, or inside functions"
    if module_name(path).partition(".")[2] in PURE:
        everything = {module.split(".")[0] for module, _, _ in found}
        known = sys.stdlib_module_names | {"kernelgym", "kernelgym_train", "numpy", "yaml"}
        assert everything <= known
        ours = {module for module, _, _ in found if is_a(module, "kernelgym_train")}
        assert {module.partition(".")[2] for module in ours} <= PURE
        assert not any(is_a(module, "kernelgym.judge") for module, _, _ in found)


SEARCH_PURE = (
    *("graph", "selection", "proposing", "variant", "kernel_file", "progress", "examples"),
    *(
        "knobs",
        "populations",
        "tuning",
        "algorithms",
        "state",
        "story",
        "drawing",
        "report",
        "hunks",
        "texts",
        "budget",
    ),
    *("cpp.loops", "cpp.proofs", "moves.definition", "moves.table", "moves.cpp.hoist"),
)
IO = {"asyncio", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "threading", "time"}


def test_search_rules_and_graph_do_no_io() -> None:
    folder = ROOT / "mcgs"
    paths = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in SOURCES
             if path.is_relative_to(folder)}  # fmt: skip
    rules = {name for name in paths if name.startswith(("cpp.", "moves."))}
    assert rules > {name for name in SEARCH_PURE if "." in name}
    for name in {*rules, *SEARCH_PURE}:
        assert not {module.split(".")[0] for module, _, _ in imports(paths[name])} & IO, name


def test_importing_what_is_pure_is_light() -> None:
    names = ", ".join(f"kernelgym_train.{name}" for name in sorted(PURE))
    code = (
        f"import sys, {names}\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_cycles_at_import_time() -> None:
    graph = {
        module_name(path): {name for name, _, now in imports(path) if now and name in MODULES}
        - {module_name(path)}
        for path in SOURCES
    }
    assert graph["kernelgym_train.credit.credit"], "imports of our own are found"
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_every_module_says_what_it_is_and_what_it_exports(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "a module needs a docstring"
    if path.name == "__main__.py" or (path.name == "__init__.py" and len(tree.body) == 1):
        return
    exported = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    ]
    assert len(exported) == 1, "a module needs one __all__"
    names = set(exported[0])
    assert len(names) == len(exported[0])
    bound = {
        name
        for node in tree.body
        for name in (
            [node.name]
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            else [target.id for target in ast.walk(node) if isinstance(target, ast.Name)]
            if isinstance(node, ast.Assign | ast.AnnAssign)
            else [alias.asname or alias.name for alias in node.names]
            if isinstance(node, ast.Import | ast.ImportFrom)
            else []
        )
    }
    assert names <= bound, f"not there: {names - bound}"
