"""`.ci/needs-tinker`: which changes wait for the tests on a Tinker server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ".ci/needs-tinker"
SERVED = "src/kernelgym_train/rollout/play.py"
OTHER = "src/kernelgym/verdict.py"


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    command = ["git", "-C", str(folder), *named, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, name: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{path.read_text() if path.exists() else ''}changed\n")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "--message", f"Change {name}")
    return git(folder, "rev-parse", "HEAD")


def is_needed(folder: Path, **variables: str) -> tuple[bool, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KERNELGYM_")}
    done = subprocess.run(
        [str(folder / SCRIPT)], env=clean | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return done.returncode == 0, done.stdout


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    (folder / ".ci").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    shutil.copy(ROOT / SCRIPT, folder / SCRIPT)
    for name in (SERVED, OTHER):
        commit(folder, name)
    return folder


def branched(origin: Path, *names: str) -> Path:
    """Return a clone of a branch of `origin` that changes these files, while main goes on."""
    git(origin, "switch", "--quiet", "--create", "change")
    for name in names:
        commit(origin, name)
    git(origin, "switch", "--quiet", "main")
    commit(origin, SERVED)  # main's own changes are not the branch's
    clone = origin.parent / "clone"
    git(origin.parent, "clone", "--quiet", "--branch=change", str(origin), str(clone))
    return clone


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((OTHER, "docs/judge.md"), False),
        ((OTHER, SERVED), True),
        (("src/kernelgym_train/backends/trl/loss.py",), True),
        (("src/kernelgym_train/run/steps.py",), True),
        (("tests/train/backends/tinker/test_server.py",), True),
        (("constraints.txt",), True),
        (("src/kernelgym_train/runs.py",), False),
    ],
)
def test_tinker_tests_of_a_branch_follow_what_it_touches(
    origin: Path, names: tuple[str, ...], expected: bool
) -> None:
    assert is_needed(branched(origin, *names))[0] is expected


def test_tinker_tests_at_night_always_run(origin: Path) -> None:
    needed, why = is_needed(branched(origin, OTHER), KERNELGYM_NIGHTLY="1")
    assert needed and "nightly" in why


def test_tinker_tests_on_the_main_branch_run(origin: Path) -> None:
    needed, why = is_needed(origin)
    assert needed and "nothing differs" in why


def test_tinker_tests_with_a_named_base_follow_the_change_since_then(origin: Path) -> None:
    before = git(origin, "rev-parse", "HEAD")
    after = commit(origin, OTHER)
    assert not is_needed(origin, KERNELGYM_BASE=before)[0]
    commit(origin, SERVED)
    assert is_needed(origin, KERNELGYM_BASE=after)[0]


def test_tinker_tests_with_an_uncommitted_change_run(origin: Path) -> None:
    clone = branched(origin, OTHER)
    (clone / "src/kernelgym_train/backends").mkdir()
    (clone / "src/kernelgym_train/backends/new.py").write_text("")
    assert is_needed(clone)[0]


def test_tinker_tests_in_a_shallow_clone_without_main_run(origin: Path) -> None:
    branched(origin, OTHER)
    clone = origin.parent / "shallow"
    address = origin.as_uri()
    git(origin.parent, "clone", "--quiet", "--depth=1", "--branch=change", address, str(clone))
    needed, why = is_needed(clone)
    assert needed and "no main branch" in why


def test_tinker_tests_in_a_shallow_clone_without_a_merge_base_run(origin: Path) -> None:
    branched(origin, OTHER)
    clone = origin.parent / "shallow"
    options = ("--quiet", "--depth=1", "--no-single-branch", "--branch=change")
    git(origin.parent, "clone", *options, origin.as_uri(), str(clone))
    needed, why = is_needed(clone)
    assert needed and "no merge base" in why


def test_tinker_tests_without_a_repository_run(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)
    assert is_needed(tmp_path)[0]


def test_watched_paths_are_there() -> None:
    (block,) = re.findall(r"^watched=\((.*?)^\)", (ROOT / SCRIPT).read_text(), re.M | re.S)
    assert block.split() and all((ROOT / name).exists() for name in block.split())
