from __future__ import annotations

import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import hub
from kernelgym.errors import UsageError
from kernelgym.retrieval import models
from kernelgym.retrieval.embedding import EMBEDDERS, OperatorEmbedder, view_text
from kernelgym.retrieval.folder import read_index
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.models import embedder_record, find_embedder, recorded_embedder
from kernelgym.retrieval.part import Retrieval, load_index
from kernelgym.retrieval.search import FaissEngine, NumpyEngine, engine_of
from kernelgym.retrieval.synthetic import synthetic_index
from kernelgym.retrieval.text_model import pieces_of
from kernelgym.suites.synthetic import SyntheticSuite
from support.text_models import make_text_model

PROBLEMS = SyntheticSuite(per_level=40).problems(split="heldout")


def words(text: str) -> int:
    return len(text.split())


@given(st.text(alphabet="ab \n", max_size=200), st.integers(1, 9))
def test_pieces_are_the_whole_text_and_fit(text, room) -> None:
    pieces = pieces_of(text, room, words)
    assert "".join(pieces) == text
    assert all(words(piece) <= room for piece in pieces)


@pytest.mark.parametrize("seed", range(3))
def test_faiss_and_numpy_find_the_same_ids(seed) -> None:
    pytest.importorskip("faiss")
    draw = np.random.default_rng(seed)
    rows = draw.integers(-2, 3, (3000, 16)).astype(np.float32)  # many ties
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    engines = FaissEngine(rows), NumpyEngine(rows)
    for share in (1.0, 0.3):
        places = np.flatnonzero(draw.random(len(rows)) < share)
        for _ in range(20):
            query = rows[draw.integers(len(rows))]
            found = [set(engine.best(query, places, 40).tolist()) for engine in engines]
            top = places[np.argsort(-(rows[places].astype(float) @ query.astype(float)))[:8]]
            assert set(top.tolist()) <= found[0] & found[1]
            assert len(found[0] ^ found[1]) == 0


def test_index_gives_the_same_by_either_engine() -> None:
    pytest.importorskip("faiss")
    index = synthetic_index("triton", "cpu")
    by_faiss = Index(
        *(index.entries, index.vectors, index.embedder),
        keys=index.keys,
        engine=engine_of("faiss", index.vectors),
    )
    assert index.engine is not None and index.engine.name == "numpy"
    for problem in PROBLEMS:
        assert by_faiss.search(problem, 7) == index.search(problem, 7)


def test_missing_faiss_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    rows = np.ones((3, 4), np.float32)
    with pytest.raises(UsageError, match=r"FAISS is not installed; .pip install kernelgym\[rag\]"):
        engine_of("faiss", rows)
    with pytest.raises(UsageError, match=r"unknown engine of search 'fast'"):
        engine_of("fast", rows)


def test_retrieval_takes_its_engine(tmp_path, monkeypatch) -> None:
    pytest.importorskip("faiss")
    Index.from_entries(synthetic_index("triton", "cpu").entries[:60]).save(tmp_path / "i")
    one, other = (Retrieval(str(tmp_path / "i"), engine=name) for name in ("numpy", "faiss"))
    found = [load_index(part, "triton", "cpu") for part in (one, other)]
    assert [index.engine.name for index in found if index.engine] == ["numpy", "faiss"]
    assert found[0].search(PROBLEMS[0], 3) == found[1].search(PROBLEMS[0], 3)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match=r"pip install kernelgym\[rag\]"):
        read_index(tmp_path / "i", "triton", engine="faiss")
    with pytest.raises(UsageError, match="unknown engine"):
        Retrieval(engine="fast")


def test_missing_sentence_transformers_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UsageError, match=r"pip install kernelgym\[rag\]"):
        find_embedder("some/model")


def installed(monkeypatch: pytest.MonkeyPatch, made: object) -> None:
    module = ModuleType("somebodys_package")
    module.Mine = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somebodys_package", module)
    found = EntryPoint("mine", "somebodys_package:Mine", models.GROUP)
    monkeypatch.setattr(models, "entry_points", lambda group: (found,))


def test_embedder_of_an_installed_package_is_found(monkeypatch, tmp_path) -> None:
    class Mine(OperatorEmbedder):
        name = "mine"

        def __init__(self) -> None:
            super().__init__(64)

    installed(monkeypatch, Mine)
    assert "mine" in models.embedder_names()
    entries = synthetic_index("triton", "cpu").entries[:30]
    Index.from_entries(entries, find_embedder("mine")).save(tmp_path / "index")
    assert read_index(tmp_path / "index", "triton").vectors.shape == (30, 64)
    monkeypatch.setattr(models, "entry_points", lambda group: ())
    with pytest.raises(UsageError, match=r"which no installed package gives; known: operators"):
        read_index(tmp_path / "index", "triton")


@pytest.mark.parametrize(
    ("made", "error"),
    [(lambda: 1 / 0, "cannot be made: ZeroDivisionError"), (lambda: 3, "gives 3, which has no")],
)
def test_bad_embedder_of_a_package_is_refused(monkeypatch, made, error) -> None:
    installed(monkeypatch, made)
    with pytest.raises(UsageError, match=error):
        find_embedder("mine")


def test_record_gives_the_same_embedder_back() -> None:
    said = embedder_record(EMBEDDERS["operators"])
    assert said == {"name": "operators", "dimension": 512}
    assert recorded_embedder(said) is EMBEDDERS["operators"]


def test_hub_that_hangs_is_given_up(monkeypatch) -> None:
    import huggingface_hub

    class Hangs:
        def repo_info(self, *_: object, **__: object) -> None:
            time.sleep(30)

    monkeypatch.setattr(hub, "PROBE_S", -1.9)
    monkeypatch.setattr(huggingface_hub, "HfApi", Hangs)
    with pytest.raises(UsageError, match=r"hub does not give it \(no answer within"):
        hub.snapshot("somebody/no-such-model")


@pytest.mark.slow
def test_folder_without_a_model_is_refused(tmp_path) -> None:
    pytest.importorskip("sentence_transformers")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"cannot be read by sentence-transformers"):
        find_embedder(str(tmp_path))


@pytest.mark.slow
def test_model_of_text_builds_and_searches(tmp_path) -> None:
    pytest.importorskip("sentence_transformers")
    model = make_text_model(tmp_path / "model")
    embedder = find_embedder(str(model))
    long = "relu " * 100
    rows = embedder.embed(["relu", long, "", "gelu add"])
    assert rows.shape == (4, 32) and not rows[2].any()
    assert np.allclose(np.linalg.norm(rows[[0, 1, 3]], axis=1), 1.0)
    assert embedder.record["weights"] and Path(embedder.record["model"]) == model  # type: ignore[attr-defined]
    entries = synthetic_index("triton", "cpu").entries[:40]
    index = Index.from_entries(entries, embedder, view="source")
    assert index.vectors.shape == (40, 32)
    index.save(tmp_path / "index")
    again = read_index(tmp_path / "index", "triton")
    assert again.view == "source" and again.digest == index.digest
    assert again.search(PROBLEMS[0], 5) == index.search(PROBLEMS[0], 5)
    moved = model.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"is not there"):
        read_index(tmp_path / "index", "triton")
    assert read_index(tmp_path / "index", "triton", model=str(moved)).digest == index.digest
    other = make_text_model(tmp_path / "other", seed=1)
    with pytest.raises(UsageError, match=r"of weights .*give the model it was made with"):
        read_index(tmp_path / "index", "triton", model=str(other))
    wide = make_text_model(tmp_path / "wide", dimension=64)
    with pytest.raises(UsageError, match=r"index was made with embedder"):
        read_index(tmp_path / "index", "triton", model=str(wide))


def test_source_view_drops_what_is_not_computed() -> None:
    source = view_text(PROBLEMS[0].source, "source")
    assert "class Model" in source and "get_inputs" not in source
    assert '"""' not in source and "#" not in source
    assert view_text("def f(:", "source") == ""
