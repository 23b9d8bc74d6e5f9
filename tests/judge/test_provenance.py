"""What a kept verdict depends on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kernelgym
from kernelgym.judge.provenance import code_digest, provenance

DECIDING = (
    "types.py",
    "verdict.py",
    "rulesets.py",
    "languages/__init__.py",
    "answers/screening/rules.py",
    "evaluators/cached.py",
    "judge/local.py",
    "judge/compare/error_bound.py",
    "judge/untrusted/candidate.py",
    "judge/untrusted/watch/tracer.py",
    "judge/compiling/thin/kernelgym_bind.h",
    "judge/compiling/thin/binding.cpp",
    "judge/inputs/kernelbench_bits/mersenne_draw.cu",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package") / "kernelgym"
    return Path(shutil.copytree(Path(kernelgym.__file__).parent, folder))


def digest(package: Path) -> str:
    code_digest.cache_clear()
    return code_digest(package)


@pytest.mark.parametrize("name", DECIDING)
def test_digest_of_changed_code_differs(package: Path, name: str) -> None:
    before, file = digest(package), package / name
    text = file.read_text()
    file.write_text(text + "\n")
    assert digest(package) != before
    file.write_text(text)
    assert digest(package) == before


@pytest.mark.parametrize("name", ["cli/ls.py", "envs/vector.py", "prompts/context.py"])
def test_digest_ignores_code_that_decides_nothing(package: Path, name: str) -> None:
    before = digest(package)
    (package / name).write_text("")
    assert digest(package) == before


def test_provenance_names_the_code() -> None:
    own = code_digest(Path(kernelgym.__file__).parent)
    assert f"judge {own}" in provenance("cpu")
