"""The package's own files: extras, constraints, the make targets that the documents name."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import kernelgym

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", entry)[0].replace("_", "-") for entry in requirements}  # type: ignore[index]


def test_versions_agree() -> None:
    assert PROJECT["version"] == kernelgym.__version__
    assert (Path(kernelgym.__file__).parent / "py.typed").exists()


def test_extras() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {"rag", "trl", "tinker", "search", "serve", "report", "dev", "all"}
    assert set(re.split(r"[\[\],]", extras["all"][0])) == set(extras) - {"dev", "all"} | {
        "kernelgym",
        "",
    }


def test_constraints_cover_what_make_setup_installs() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = names([line for line in lines if line and not line.startswith("#")])
    extras = PROJECT["optional-dependencies"]
    own = re.match(r"kernelgym\[(.*)\]", extras["dev"][0])
    assert own, "the tests train with TRL, so it is part of what they need"
    parts = [PROJECT["dependencies"], extras["dev"][1:], *(extras[e] for e in own[1].split(","))]
    assert names([entry for part in parts for entry in part]) <= pinned
    assert "torch==2.13.0" in lines


def test_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {"setup", "demo", "test", "lint", "bench", "docs"} <= targets
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run", "docs/suites.md"):
        for line in re.findall(r"(?:^|`)make ((?:[a-z-]+ ?)+)", (ROOT / name).read_text(), re.M):
            assert set(line.split()) <= targets, (name, line)


def test_make_docs_shows_every_public_module() -> None:
    text = re.search(r"^DOCUMENTED := ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    assert text is not None
    shown = set(text.group(1).replace("\\\n", " ").split())
    for name in shown:
        importlib.import_module(f"kernelgym.{name}")
    top = {path.stem for path in Path(kernelgym.__file__).parent.glob("*.py")}
    assert top - shown == {"__init__"}
