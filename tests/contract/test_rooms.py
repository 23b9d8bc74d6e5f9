"""Rooms: which may import which, what importing costs, and how long a file may be."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.source_tree import MODULES, ROOT, SOURCES, TRAIN, imports, module_name

UNTRUSTED = ROOT / "judge" / "untrusted"
LONGEST = 500

ROOMS = (
    "nouns",
    *("languages", "evaluators", "answers", "prompts", "feedback", "rewards", "suites", "testing"),
    *("redteam", "retrieval", "episodes", "records", "judge", "indexing", "envs", "benchmark"),
    *("adapters", "serve", "workspace", "cli"),
)
"""From the ground up: a room imports only what stands before it. Files at the top are nouns."""
JUDGE = (
    *(
        "environment",
        "out_of_memory",
        "retries",
        "starvation",
        "tensors",
        "stage_clock",
        "problem_code",
        "untrusted",
        "sandbox",
    ),
    *("compiling", "provenance", "processes", "memory", "device", "inputs", "compare"),
    *("reference", "session", "evidence", "outcome", "timing", "profiling", "worker", "lint"),
    "measuring",
    *("worker_handle", "device_health", "pool", "local", "shared", "__init__"),
)
"""The same inside the judge, whose files at the top are its ground floor and its roof."""
SIBLINGS = ({"adapters", "serve"}, {"adapters", "workspace"})
HEAVY = {
    *("torch", "triton", "datasets", "faiss", "transformers", "pandas", "pyarrow"),
    *("sentence_transformers", "sklearn", "scipy", "openai", "optuna"),
}
READS_AT_IMPORT = {"kernelgym.suites.spec", "kernelgym.suites.spec_imports"}
"""Modules whose classes need pydantic when they are imported. `kernelgym.reading`, which all rooms
use, imports it when something is read."""
LIGHT_ROOMS = set(ROOMS[: ROOMS.index("judge")]) - {"judge"}


def room_of(module: str) -> str:
    """Return the room of a module of kernelgym; empty for the package itself."""
    first = module.split(".")[1:2]
    if not first:
        return ""
    if first == ["__main__"]:  # ``python -m kernelgym`` is the command
        return "cli"
    return first[0] if (ROOT / first[0]).is_dir() else "nouns"


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


def test_rooms_import_only_rooms_before_them() -> None:
    wrong = []
    for path in SOURCES:
        own = module_name(path)
        if own == "kernelgym":
            continue
        here = room_of(own)
        for found in imports(path):
            package = found.module.partition(".")[0]
            if package == "kernelgym_train":
                wrong.append(f"{own} imports {found.module}: kernelgym imports no kernelgym_train")
            if package != "kernelgym":
                continue
            there = room_of(found.module)
            if not there:
                if here != "cli":
                    wrong.append(f"{own} imports the whole package")
            elif ROOMS.index(there) > ROOMS.index(here):
                wrong.append(f"{own} imports {found.module}, a room above its own")
            elif {here, there} in SIBLINGS:
                wrong.append(f"{own} imports {found.module}, its sibling")
    assert not wrong, "\n".join(wrong)


def test_the_package_itself_imports_none_of_its_modules() -> None:
    found = imports(ROOT / "__init__.py")
    assert not [each for each in found if each.module.startswith("kernelgym")]


def test_judge_rooms_import_only_rooms_before_them() -> None:
    def place(module: str) -> int:
        return JUDGE.index((module.split(".")[2:] or ["__init__"])[0])

    wrong = [
        f"{module_name(path)} imports {found.module}, a room above its own"
        for path in sorted((ROOT / "judge").rglob("*.py"))
        for found in imports(path)
        if found.module.startswith("kernelgym.judge")
        and place(found.module) > place(module_name(path))
    ]
    assert not wrong, "\n".join(wrong)


def test_untrusted_code_imports_nothing_of_ours() -> None:
    """It shares a process with candidate code, where it is loaded by path."""
    known = sys.stdlib_module_names | {"torch", "triton", "numpy", "transformers"}
    of_language = {"cute": {"cutlass"}, "tilelang": {"tilelang"}}
    wrong = [
        f"{module_name(path)} imports {found.module}"
        for path in sorted(UNTRUSTED.rglob("*.py"))
        for found in imports(path)
        if found.when != "typing"
        and found.module.split(".")[0] not in known
        and not (
            path.parent.name == "languages"  # a language's own packages, when it is asked for
            and found.when == "late"
            and found.module.split(".")[0] in of_language.get(path.stem, ())
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_heavy_packages_are_imported_when_needed() -> None:
    wrong = []
    for path in SOURCES:
        own = module_name(path)
        room = room_of(own)
        if room == "judge":
            continue
        modules = {found.module for found in imports(path) if found.when == "now"}
        packages = {module.split(".")[0] for module in modules}
        forbidden = packages & HEAVY
        if room not in ("evaluators", "cli"):  # elsewhere the judge is imported when first used
            forbidden |= {name for name in modules if name.startswith("kernelgym.judge")}
        if room in LIGHT_ROOMS:
            forbidden |= packages - sys.stdlib_module_names - {"kernelgym", "numpy"}
            forbidden -= {"pydantic"} if own in READS_AT_IMPORT else set()
        wrong += [f"{own} imports {name} at its own import" for name in sorted(forbidden)]
    assert not wrong, "\n".join(wrong)


def test_no_package_cycles() -> None:
    """Modules form no cycle at import, and rooms none at all: no room is half of another."""
    graphs: list[dict[str, set[str]]] = [{}, {}]
    for path in SOURCES:
        own = module_name(path)
        inner = [found for found in imports(path) if found.module in MODULES]
        graphs[0][own] = {found.module for found in inner if found.when == "now"} - {own}
        parts = {name: name.rpartition(".")[0] for name in MODULES}
        here = own if path.name == "__init__.py" else parts[own]
        rooms = {parts[found.module] for found in inner if found.when != "typing"}
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
