"""What kernelgym_train imports: public names of kernelgym, and never a backend from another."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

import kernelgym
from support.source_tree import (
    MODULES,
    TRAIN,
    TRAIN_SOURCES,
    Import,
    imports,
    is_exported,
    module_name,
    parsed,
)

HEAVY = {"torch", "triton", "transformers", "trl", "peft", "accelerate", "datasets", "tinker"}
HEAVY |= {"optuna"}
PURE = {
    *("types", "credit.estimators", "credit.credit", "rollout.sampling", "rollout.refill"),
    *(
        "metrics.guards",
        "metrics.filter_counts",
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


OPEN = {"kernelgym.judge", "kernelgym.judge.environment", "kernelgym.judge.provenance"}
"""The judge's face: what of it other packages may use."""
CLOSED = ("kernelgym.judge", "kernelgym.cli")
"""Rooms whose modules are for kernelgym alone, but for `OPEN`."""


def is_open(module: str) -> bool:
    """Return True if kernelgym_train may import this module of kernelgym."""
    return module in OPEN or not any(is_a(module, room) for room in CLOSED)


def is_a(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def room(name: str) -> str:
    """Return the backend that a module belongs to: trl of backends.trl.loop; empty if none."""
    parts = name.split(".")
    if len(parts) < 2 or parts[1] not in APART:
        return ""
    if parts[1] == "backends":
        return ".".join(parts[1:3]) if (TRAIN.joinpath(*parts[1:3])).is_dir() else ""
    return parts[1]


def test_there_are_modules_to_look_at() -> None:
    assert {f"kernelgym_train.{name}" for name in PURE} <= MODULES.keys()
    assert is_open("kernelgym.rewards") and is_open("kernelgym.judge")
    assert not is_open("kernelgym.judge.worker.worker")
    found = imports(TRAIN / "credit" / "credit.py")
    assert Import("kernelgym.types", "GAMMA", "now") in found
    assert room("kernelgym_train.backends.trl.loss") == room("kernelgym_train.backends.trl.train")
    assert room("kernelgym_train.backends.tinker") != room("kernelgym_train.backends.trl.train")
    assert room("kernelgym_train.backends.backend") == "", "what all backends have in common"


def test_only_public_names_of_kernelgym_are_used() -> None:
    def is_public(module: str, name: str) -> bool:
        if module == "kernelgym":
            return not name or name in kernelgym.__all__
        if is_open(module):
            return not name or is_exported(name, parsed(MODULES[module]))
        package, _, last = module.rpartition(".")
        return not name and is_open(package) and is_public(package, last)

    wrong = [
        f"{module_name(path)} imports {found.module} {found.name}"
        for path in TRAIN_SOURCES
        for found in imports(path)
        if found.when != "typing" and is_a(found.module, "kernelgym")
        if not is_public(found.module, found.name)
    ]
    assert not wrong, "private, or of a room that is kernelgym's own:\n" + "\n".join(wrong)


def test_backends_know_the_shared_modules_and_not_each_other() -> None:
    wrong = []
    for path in TRAIN_SOURCES:
        own = module_name(path)
        here = room(own)
        for found in imports(path):
            there = room(found.module)
            if found.when == "typing" or there in ("", here, "backends"):
                continue
            if here:
                wrong.append(f"{own} imports {found.module}, which is another backend's")
            elif found.when == "now":
                wrong.append(f"{own}, a shared module, imports {found.module} unasked")
    assert not wrong, "\n".join(wrong)


def test_what_computes_numbers_needs_no_framework() -> None:
    known = sys.stdlib_module_names | {"kernelgym", "kernelgym_train", "numpy", "pydantic", "yaml"}
    wrong = []
    for path in TRAIN_SOURCES:
        own = module_name(path)
        if room(own):
            continue
        found = [each for each in imports(path) if each.when != "typing"]
        at_import = {each.module.split(".")[0] for each in found if each.when == "now"}
        wrong += [f"{own} imports {name}, and in no function" for name in at_import & HEAVY]
        if own.partition(".")[2] not in PURE:
            continue
        for each in found:
            package, _, rest = each.module.partition(".")
            impure = package not in known or is_a(each.module, "kernelgym.judge")
            if impure or (package == "kernelgym_train" and rest not in PURE):
                wrong.append(f"{own}, which is pure, imports {each.module}")
    assert not wrong, "\n".join(wrong)


SEARCH_PURE = (
    *(
        "graph",
        "selection",
        "proposing",
        "variant",
        "kernel_file",
        "source_forms",
        "examples",
        "knobs",
    ),
    *("tuning", "algorithms", "state", "drawing", "report", "budget"),
    *("cpp.loops", "cpp.proofs", "moves.definition", "moves.table", "moves.cpp.hoist"),
)
IO = {"asyncio", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "threading", "time"}


def test_search_rules_and_graph_do_no_io() -> None:
    folder = TRAIN / "mcgs"
    paths = {".".join(path.relative_to(folder).with_suffix("").parts): path
             for path in TRAIN_SOURCES if path.is_relative_to(folder)}  # fmt: skip
    rules = {name for name in paths if name.startswith(("cpp.", "moves."))}
    assert rules > {name for name in SEARCH_PURE if "." in name}
    for name in {*rules, *SEARCH_PURE}:
        assert not {found.module.split(".")[0] for found in imports(paths[name])} & IO, name


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
        module_name(path): {found.module for found in imports(path) if found.when == "now"}
        & MODULES.keys() - {module_name(path)}
        for path in TRAIN_SOURCES
    }
    assert graph["kernelgym_train.credit.credit"], "imports of our own are found"
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")
