from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.errors import UsageError
from kernelgym.retrieval import folder as folders
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.folder import check_index, read_index, read_manifest, write_index
from kernelgym.retrieval.idioms import IDIOMS
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.prompt_part import load_index, ready_retrieval
from kernelgym.retrieval.synthetic import synthetic_entries
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator

PROBLEMS = SyntheticSuite().problems(2, ids="1-12")


def some(language: str, count: int = 40) -> list[IndexEntry]:
    made = synthetic_entries(language)
    return [next(made) for _ in range(count)]


TRITON, CPP = some("triton"), some("cpp", 12)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("indexes") / "index"
    timed = dataclasses.replace(TRITON[0], name="\u00e9", speed=(2.0, 1.5, 2.5))
    Index.from_entries([timed, *TRITON[1:], *CPP]).save(out)
    return out


@pytest.fixture
def mine(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "index"))


def test_folder_gives_the_same_index_back(built) -> None:
    for language, entries in (("triton", TRITON), ("cpp", CPP)):
        index = read_index(built, language)
        here = Index.from_entries(entries)
        assert [entry.id for entry in index.entries] == sorted(entry.id for entry in entries)
        assert isinstance(index.vectors, np.memmap) and not index.vectors.flags.writeable
        for problem in PROBLEMS:
            found = [index.search(problem, 5).neighbours, here.search(problem, 5).neighbours]
            one, other = ([(n.entry.id, n.score) for n in each] for each in found)
            assert one == other
        assert index.digest == read_manifest(built)["languages"][language]["digest"]
    timed = next(e for e in read_index(built, "triton").entries if e.speed)
    assert timed.name == "\u00e9" and timed.speed == (2.0, 1.5, 2.5)


def test_nothing_in_a_folder_is_pickled(built) -> None:
    names = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    parts = {
        f"{name}/{file}"
        for name in ("triton", "cpp")
        for file in ("vectors.npy", "entries.parquet")
    }
    assert names == {"manifest.json", *parts}
    for name in names:
        with pytest.raises(Exception):  # noqa: B017
            pickle.loads((built / name).read_bytes())
    assert len(list(check_index(built))) == 2


def test_written_folder_takes_an_old_one_s_place(mine) -> None:
    Index.from_entries(TRITON[:5]).save(mine)
    assert len(read_index(mine, "triton").entries) == 5
    assert read_manifest(mine)["languages"].keys() == {"triton"}
    assert [path.name for path in mine.parent.iterdir()] == ["index"]


def test_full_disk_leaves_the_old_index(mine, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "_write", full)
    with pytest.raises(UsageError, match=r"No space left on device; what was there stays"):
        Index.from_entries(TRITON[:5]).save(mine)
    assert len(read_index(mine, "cpp").entries) == len(CPP)
    assert [path.name for path in mine.parent.iterdir()] == ["index"]


def test_other_folder_is_not_replaced(tmp_path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match=r"exists and is not an index"):
        Index.from_entries(TRITON[:5]).save(tmp_path)
    with pytest.raises(UsageError, match=r"no entry to write"):
        Index.from_entries([]).save(tmp_path / "empty")


def damaged(folder: Path, how: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    vectors, entries = folder / "triton/vectors.npy", folder / "triton/entries.parquet"

    match how:
        case "no manifest":
            (folder / "manifest.json").unlink()
            return
        case "format":
            manifest["format"] = 99
        case "no json":
            (folder / "manifest.json").write_text("{")
            return
        case "a list":
            (folder / "manifest.json").write_text("[]")
            return
        case "short":
            vectors.write_bytes(vectors.read_bytes()[:-100])
        case "swapped":
            shutil.copy(folder / "cpp/entries.parquet", entries)
        case "gone":
            entries.unlink()
        case "nan":
            rows = np.load(vectors)
            rows[3, 7] = np.nan
            np.save(vectors, rows)
        case "narrow":
            np.save(vectors, np.load(vectors)[:, :100])
        case "shuffled":
            np.save(vectors, np.load(vectors)[::-1])
        case "pickled":
            np.save(vectors, np.array([print, "x"], dtype=object), allow_pickle=True)
        case "no table":
            entries.write_bytes(b"PAR1 nonsense PAR1")
        case "other embedder":
            manifest["embedder"]["model"] = "/no/such/model"
        case "digest":
            manifest["languages"]["triton"]["digest"] = "0" * 16
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("no manifest", "is not an index: its manifest.json cannot be read"),
        ("format", "index of format 99, and this version of kernelgym reads format 1"),
        ("no json", "manifest.json cannot be read"),
        ("a list", "format None"),
        ("short", "missing or damaged"),
        ("swapped", r"vectors of shape \(40, 512\) for 12 entries"),
        ("gone", "missing or damaged .FileNotFoundError"),
        ("nan", "some that are not finite"),
        ("narrow", r"vectors of shape \(40, 100\)"),
        ("shuffled", "gives other vectors now"),
        ("pickled", "missing or damaged"),
        ("no table", "missing or damaged .ArrowInvalid"),
        ("other embedder", "folder '/no/such/model' is not there"),
        ("digest", "says it has digest 0000"),
    ],
)
def test_damaged_index_is_refused_at_make(mine, how, error) -> None:
    damaged(mine, how)
    with pytest.raises(UsageError, match=error):
        KernelEnv(problems=[SAMPLE_PROBLEM], evaluator=ScriptedEvaluator(), retrieval=mine)


def test_index_of_other_tables_is_refused(built, monkeypatch) -> None:
    monkeypatch.setitem(IDIOMS, ("log", "exp"), "identity")  # no entry that is tried has it
    with pytest.raises(UsageError, match=r"tables that name operators, are others"):
        read_index(built, "triton")


def test_language_that_is_not_there_is_refused(built) -> None:
    with pytest.raises(UsageError, match=r"unknown language of the index 'cuda'; known: .*cpp"):
        read_index(built, "cuda")


def test_environment_shows_entries_of_a_folder(built) -> None:
    env = KernelEnv("Synthetic", 2, evaluator=ScriptedEvaluator(), retrieval=built)
    observation, info = env.reset(seed=3)
    assert len(info["retrieved"]) == 3 and "# Solved problems" in observation
    again = KernelEnv(
        "Synthetic", 2, evaluator=ScriptedEvaluator(), retrieval={"index": str(built)}
    )
    assert again.reset(seed=3) == (observation, info)


def test_vanished_index_is_not_missed(mine) -> None:
    env = KernelEnv("Synthetic", 2, evaluator=ScriptedEvaluator(), retrieval=mine)
    shutil.rmtree(mine)
    assert len(env.reset(seed=3)[1]["retrieved"]) == 3
    with pytest.raises(UsageError, match=r"is not an index"):
        KernelEnv("Synthetic", 2, evaluator=ScriptedEvaluator(), retrieval=mine)


def test_rebuilt_index_is_another_one(mine) -> None:
    part = ready_retrieval({"index": str(mine)}, "triton", "cpu")
    Index.from_entries(TRITON[:20]).save(mine)
    assert len(load_index(part, "triton", "cpu").entries) == 40  # as it was when it was taken
    other = dataclasses.replace(part, digest="f" * 16)
    with pytest.raises(UsageError, match=r"has digest .* here, and examples of digest ffff"):
        load_index(other, "triton", "cpu")
    fresh = ready_retrieval({"index": str(mine)}, "triton", "cpu")
    assert len(load_index(fresh, "triton", "cpu").entries) == 20


def test_check_finds_a_vector_that_is_another(mine) -> None:
    vectors = np.load(mine / "triton/vectors.npy")
    vectors[3] = -vectors[3]
    np.save(mine / "triton/vectors.npy", vectors)
    read_index(mine, "triton")  # which embeds some entries only
    with pytest.raises(UsageError, match="gives other vectors now"):
        list(check_index(mine))


def test_entries_that_passed_are_the_only_ones_shown(tmp_path) -> None:
    index = Index.from_entries(TRITON)
    asked = PROBLEMS[0]
    allowed = tuple(n.entry.id for n in index.search(asked, 9).neighbours[4:6])
    tested = dataclasses.replace(index, passed={asked.digest: allowed}, engine=None)
    write_index(tmp_path / "i", {"triton": tested})
    again = read_index(tmp_path / "i", "triton")
    assert again.digest == tested.digest != index.digest
    assert {n.entry.id for n in again.search(asked, 9).neighbours} == set(allowed)
    assert again.search(PROBLEMS[1], 9) == index.search(PROBLEMS[1], 9)
