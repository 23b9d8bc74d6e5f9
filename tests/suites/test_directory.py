"""A user's own folder or file of problems, and what is said of files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym.errors import ProblemError, UnknownName
from kernelgym.suites.base import Suite
from kernelgym.suites.directory import DirectorySuite, problem_from_file

SOURCE = """\
from torch import nn
class Model(nn.Module): ...
def get_inputs(): return []
def get_init_inputs(): return []
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "mine"
    for name in ("10_ten", "2_two", "plain", "level1/7", "level3/deep", "level1/_private"):
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE + f"# {name}\n")
    (root / "notes.txt").write_text("not a problem")
    (root / "other").mkdir()
    (root / "other" / "ignored.py").write_text("not even Python(")
    return root


def test_ids_levels_and_order(folder: Path) -> None:
    suite = DirectorySuite(folder)
    assert isinstance(suite, Suite)
    assert [p.id for p in suite.problems()] == [
        "mine/plain",
        "mine/2_two",
        "mine/10_ten",
        "mine/L1/7",
        "mine/L3/deep",
    ]
    assert suite.levels == (0, 1, 3)
    assert [p.level for p in suite.problems(level=3)] == [3]
    assert suite.get("mine/L1/7").source.endswith("# level1/7\n")


def test_own_name_and_choice(folder: Path) -> None:
    suite = DirectorySuite(str(folder), name="ops")
    assert suite.problems(ids=["plain", 7])[1].id == "ops/L1/7"
    with pytest.raises(UnknownName, match="did you mean ops/plain"):
        suite.get("ops/plane")
    with pytest.raises(UnknownName, match=r"known: 0, 1, 3\. level=None takes all"):
        suite.problems(level=2)
    with pytest.raises(UnknownName):
        suite.problems(split="train")


def test_empty_folder_and_no_folder(tmp_path: Path) -> None:
    for options in ({}, {"ids": "1-3"}, {"level": 1}):
        with pytest.raises(ProblemError, match=r"holds no problem file \(\*.py"):
            DirectorySuite(tmp_path).problems(**options)
    with pytest.raises(ProblemError, match="not a folder"):
        DirectorySuite(tmp_path / "absent")


def test_one_file(folder: Path) -> None:
    problem = problem_from_file(folder / "plain.py")
    assert (problem.id, problem.name, problem.level) == ("file/plain", "plain", 0)
    assert problem.source == SOURCE + "# plain\n"


BAD_FILES = {
    "latin1": ("# é\n".encode("latin-1"), "not UTF-8 text"),
    "syntax": (b"class Model(:\n", "not valid Python"),
    "nul": (b"x = '\0'\n", "not valid Python"),
    "nested": (b"x = " + b"(" * 100_000, "not valid Python"),
    "empty": (b"", "does not define Model, get_inputs, get_init_inputs"),
    "partial": (b"class Model: ...\ndef get_inputs(): ...\n", "does not define get_init_inputs;"),
    "inner": (
        b"class A:\n class Model: ...\n def get_inputs(): ...\n def get_init_inputs(): ...\n",
        "does not define Model, get_inputs, get_init_inputs",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_files_that_are_no_problem(tmp_path: Path, kind: str) -> None:
    content, message = BAD_FILES[kind]
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    with pytest.raises(ProblemError, match=message) as caught:
        problem_from_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["absent.py", ".", "nul\0byte.py"])
def test_unreadable_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProblemError, match="cannot read"):
        problem_from_file(tmp_path / name)


def test_names_may_be_bound_in_other_ways(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(
        "from other import Net as Model\n"
        "try:\n    import fast\n    get_inputs = fast.inputs\n"
        "except ImportError:\n    def get_inputs(): return []\n"
        "get_init_inputs: object = list\n"
    )
    assert problem_from_file(path).name == "odd"


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "bom.py"
    path.write_bytes(b"\xef\xbb\xbf" + SOURCE.encode())
    assert problem_from_file(path).source == SOURCE


def test_sources_are_never_run(tmp_path: Path) -> None:
    path = tmp_path / "trap.py"
    path.write_text(SOURCE + f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    problem_from_file(path)
    assert not (tmp_path / "ran").exists()
