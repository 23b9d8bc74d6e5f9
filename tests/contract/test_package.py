"""The package's own files: extras, constraints, the make targets that the documents name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import kernelgym
from adapters.environments import FRAMEWORKS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
READ_BY_TESTS = {
    *("tests", "benchmarks", "docs", "examples", "packages", ".ci", "Makefile", "constraints.txt"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml"),
}
"""What lies beside src and is read by tests; setuptools adds README, LICENSE and pyproject.toml."""


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", entry)[0].replace("_", "-") for entry in requirements}  # type: ignore[index]


def test_versions_of_package_and_project_agree() -> None:
    assert PROJECT["version"] == kernelgym.__version__
    assert (Path(kernelgym.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("path", sorted(ROOT.glob("packages/*/pyproject.toml")), ids=str)
def test_distribution_beside_has_the_version_of_the_project(path: Path) -> None:
    beside = tomllib.loads(path.read_text())["project"]
    assert beside["version"] == kernelgym.__version__
    assert beside["dependencies"][0].endswith(f"=={kernelgym.__version__}")


def test_extras_are_those_that_are_known() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {
        *("rag", "trl", "tinker", "search", "eval", "serve", "ray", "report"),
        *("agents", "languages"),
        *FRAMEWORKS,
        *("dev", "docs", "all"),
    }
    # Frameworks exclude each other's versions.
    apart = {"languages", *FRAMEWORKS, "dev", "docs", "all"}
    assert set(re.split(r"[\[\],]", extras["all"][0])) == set(extras) - apart | {"kernelgym", ""}


def test_constraints_cover_what_setup_installs() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = names([line for line in lines if line and not line.startswith("#")])
    extras = PROJECT["optional-dependencies"]
    own = re.match(r"kernelgym\[(.*)\]", extras["dev"][0])
    assert own, "the tests train with TRL, so it is part of what they need"
    parts = [PROJECT["dependencies"], extras["dev"][1:], extras["docs"]]
    parts += [extras[name] for name in own[1].split(",")]
    assert names([entry for part in parts for entry in part]) <= pinned
    assert "torch==2.13.0" in lines


def test_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {"setup", "demo", "test", "lint", "bench", "docs"} <= targets
    pages = (
        "README.md",
        "CONTRIBUTING.md",
        "docs/suites.md",
        ".ci/run",
        ".github/workflows/ci.yml",
    )
    for name in pages:
        text = (ROOT / name).read_text()
        for line in re.findall(r"(?:^ *|`|: |, )make ((?:[a-z-]+ ?)+)", text, re.MULTILINE):
            assert set(line.split()) <= targets, (name, line)


def test_source_distribution_holds_what_tests_read() -> None:
    lines = (ROOT / "MANIFEST.in").read_text().splitlines()
    kept = [line.split() for line in lines if line.startswith(("graft", "include"))]
    assert {name for _, *names in kept for name in names} >= READ_BY_TESTS
    assert all((ROOT / name).exists() for name in READ_BY_TESTS)


def test_classifiers_name_every_python_from_the_least() -> None:
    named = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert named == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_project_urls_are_of_one_repository() -> None:
    urls = PROJECT["urls"]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} == set(urls)
    assert all(url.startswith(urls["Homepage"]) for url in urls.values())


def test_tinker_tests_are_where_make_looks() -> None:
    (where,) = re.findall(r"^TINKER_TESTS := (.+)$", MAKEFILE, re.MULTILINE)
    marked = {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^(pytestmark = |@)pytest\.mark\.tinker\b", path.read_text(), re.MULTILINE)
    }
    assert marked and all(path.is_relative_to(ROOT / where) for path in marked)


def test_results_name_no_folder_of_the_machine_that_made_them() -> None:
    """Paths in messages and logs tell a reader nothing, and say where the author works."""
    results = sorted((ROOT / "benchmarks" / "results").rglob("*.json"))
    assert results
    home = re.compile(r"/(root|home|Users)/")
    assert [file.name for file in results if home.search(file.read_text())] == []
