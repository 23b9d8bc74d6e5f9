"""No file of tests is passed over in silence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = {path for path in TESTS.rglob("test_*.py") if "adversarial" not in path.parts[:-1]}
FILES |= set((TESTS / "adversarial").glob("test_*.py"))


def test_every_test_file_asked_for_is_collected(
    collected_files: set[Path], pytestconfig: pytest.Config
) -> None:
    asked = [Path(argument.partition("::")[0]).resolve() for argument in pytestconfig.args]
    wanted = {file for file in FILES if any(file.is_relative_to(path) for path in asked)}
    assert Path(__file__) in wanted
    assert wanted <= collected_files


@pytest.mark.skipif(not (TESTS.parent / ".git").exists(), reason="a source distribution")
def test_no_test_file_is_ignored_by_git() -> None:
    asked = ["git", "-C", str(TESTS.parent), "check-ignore", "--no-index", "--stdin"]
    text = "\n".join(str(path) for path in sorted(TESTS.parent.glob("src/**/*.py")) + sorted(FILES))
    done = subprocess.run(asked, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout, "an ignored file is in nobody else's checkout"


def test_test_file_names_say_which_module_they_test() -> None:
    """A folder that git, ruff or pytest skips by its name holds no tests."""
    skipped = {"build", "dist", "node_modules", "venv", ".venv", "site-packages"}
    assert not [path for path in FILES if skipped & set(path.parts[len(TESTS.parts) :])]
