from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from kernelgym import Retrieval
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.errors import UsageError
from kernelgym.prompts.parts import Room
from kernelgym.retrieval import folder as folders
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.folder import check_index, read_index, read_manifest, write_index
from kernelgym.retrieval.idioms import IDIOMS
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.part import load_index, ready_retrieval
from kernelgym.retrieval.synthetic import synthetic_entries
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.tokens import estimate_tokens

PROBLEMS = SyntheticSuite().problems(2, ids="1-12")


def some(language: str, count: int = 40) -> list[Entry]:
    made = synthetic_entries(language)
    return [next(made) for _ in range(count)]


TRITON, CPP = some("triton"), some("cpp", 12)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("indexes") / "index"
    repair = dataclasses.replace(
        TRITON[0],
        kind="repair",
        before=TRITON[1].kernel,
        feedback="# What became of it: \u00e9\n",
        category="numerics",
        speed=(2.0, 1.5, 2.5),
    )
    Index.from_entries([*TRITON, *CPP, repair]).save(out)
    return out


@pytest.fixture
def mine(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "index"))


def test_folder_gives_the_same_index_back(built) -> None:
    for language, entries in (("triton", TRITON), ("cpp", CPP)):
        index = read_index(built, language)
        here = Index.from_entries(entries)
        assert {entry for entry in index.entries if entry.kind == "solution"} == set(entries)
        assert isinstance(index.vectors, np.memmap) and not index.vectors.flags.writeable
        for problem in PROBLEMS:
            assert index.search(problem, 5) == here.search(problem, 5)
        assert index.digest == read_manifest(built)["languages"][language]["digest"]
    repair = next(e for e in read_index(built, "triton").entries if e.kind == "repair")
    assert repair.feedback.endswith("\u00e9\n") and repair.speed == (2.0, 1.5, 2.5)


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
    assert len(list(check_index(built))) == 3


def test_written_folder_takes_an_old_one_s_place(mine) -> None:
    before = read_manifest(mine)
    Index.from_entries(TRITON[:5]).save(mine)
    assert len(read_index(mine, "triton").entries) == 5
    assert read_manifest(mine)["files"].keys() < before["files"].keys()
    assert [path.name for path in mine.parent.iterdir()] == ["index"]


def test_full_disk_leaves_the_old_index(mine, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "_write_table", full)
    with pytest.raises(UsageError, match=r"No space left on device; what was there stays"):
        Index.from_entries(TRITON[:5]).save(mine)
    assert len(read_index(mine, "cpp").entries) == len(CPP)
    assert [path.name for path in mine.parent.iterdir()] == ["index"]


def test_other_folder_is_not_replaced(tmp_path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match=r"is there and is no index"):
        Index.from_entries(TRITON[:5]).save(tmp_path)
    with pytest.raises(UsageError, match=r"no entry to write"):
        Index.from_entries([]).save(tmp_path / "empty")


def damaged(folder: Path, how: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    vectors, entries = folder / "triton/vectors.npy", folder / "triton/entries.parquet"

    def signed(path: Path) -> None:
        name = path.relative_to(folder).as_posix()
        manifest["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()

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
        case "no files":
            del manifest["files"]
        case "short":
            vectors.write_bytes(vectors.read_bytes()[:-100])
        case "short, signed":
            vectors.write_bytes(vectors.read_bytes()[:-100])
            signed(vectors)
        case "flipped":
            data = bytearray(vectors.read_bytes())
            data[-1] ^= 64
            vectors.write_bytes(data)
        case "swapped":
            shutil.copy(folder / "cpp/entries.parquet", entries)
        case "swapped, signed":
            shutil.copy(folder / "cpp/entries.parquet", entries)
            signed(entries)
        case "gone":
            entries.unlink()
        case "nan":
            rows = np.load(vectors)
            rows[3, 7] = np.nan
            np.save(vectors, rows)
            signed(vectors)
        case "narrow":
            np.save(vectors, np.load(vectors)[:, :100])
            signed(vectors)
        case "shuffled":
            np.save(vectors, np.load(vectors)[::-1])
            signed(vectors)
        case "pickled":
            np.save(vectors, np.array([print, "x"], dtype=object), allow_pickle=True)
            signed(vectors)
        case "no table":
            entries.write_bytes(b"PAR1 nonsense PAR1")
            signed(entries)
        case "embedder":
            manifest["embedder"]["dimension"] = 384
        case "unknown embedder":
            manifest["embedder"]["name"] = "other"
        case "view":
            manifest["view"] = "smell"
        case "digest":
            manifest["languages"]["triton"]["digest"] = "0" * 16
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("no manifest", "is no index: its manifest.json cannot be read"),
        ("format", "index of format 99, and this version of kernelgym reads format 1"),
        ("no json", "is not JSON"),
        ("a list", "format None"),
        ("no files", "has no sound 'files'"),
        ("short", "not the file that manifest.json names"),
        ("short, signed", "vectors.npy is no array"),
        ("flipped", "not the file that manifest.json names"),
        ("swapped", "not the file that manifest.json names"),
        ("swapped, signed", "or of another language"),
        ("gone", "lacks triton/entries.parquet"),
        ("nan", "some that are not finite"),
        ("narrow", r"vectors of shape \(41, 100\)"),
        ("shuffled", "gives other vectors now"),
        ("pickled", "vectors.npy is no array"),
        ("no table", "is no table of entries"),
        ("embedder", "of dimension 384, and 'operators' has 512"),
        ("unknown embedder", "embedder 'other', which no installed package gives"),
        ("view", "unknown view of a reference 'smell'"),
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
    with pytest.raises(UsageError, match=r"unknown index"):
        KernelEnv("Synthetic", 2, evaluator=ScriptedEvaluator(), retrieval=mine)


def test_rebuilt_index_is_another_one(mine) -> None:
    part = ready_retrieval({"index": str(mine)}, "triton", "cpu")
    Index.from_entries(TRITON[:20]).save(mine)
    assert len(load_index(part, "triton", "cpu").entries) == 41  # as it was when it was taken
    other = dataclasses.replace(part, digest="f" * 16)
    with pytest.raises(UsageError, match=r"has digest .* here, and examples of digest ffff"):
        load_index(other, "triton", "cpu")
    fresh = ready_retrieval({"index": str(mine)}, "triton", "cpu")
    assert len(load_index(fresh, "triton", "cpu").entries) == 20


def test_failing_embedder_shows_fewer_and_warns(monkeypatch, built) -> None:
    part = Retrieval(str(built))
    index = load_index(part, "triton", "cpu")

    def broken(texts, *, query=False):
        raise RuntimeError("out of order")

    monkeypatch.setattr(type(index.embedder), "embed", lambda self, *a, **k: broken(*a, **k))
    room = Room("triton", "cpu", 10**6, estimate_tokens)
    with pytest.warns(RuntimeWarning, match=r"failed .RuntimeError: out of order"):
        assert part(PROBLEMS[5], (), room).entries == ()
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(part(PROBLEMS[5], (), room).entries) == 3


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
