from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from kernelgym import hub
from kernelgym.errors import UsageError
from kernelgym.retrieval.embedding_models import find_embedder
from kernelgym.retrieval.folder import read_index
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.nearest_rows import search_engine
from kernelgym.retrieval.prompt_part import Retrieval, load_index
from kernelgym.retrieval.synthetic import synthetic_index
from kernelgym.suites.synthetic import SyntheticSuite
from support.text_models import make_text_model

PROBLEMS = SyntheticSuite(per_level=40).problems(split="heldout")


@pytest.mark.parametrize("seed", range(3))
def test_faiss_and_numpy_find_equal_products(seed) -> None:
    pytest.importorskip("faiss")
    draw = np.random.default_rng(seed)
    rows = draw.integers(-2, 3, (3000, 16)).astype(np.float32)  # many ties
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    engines = search_engine("faiss", rows), search_engine("numpy", rows)
    for share in (1.0, 0.3):
        places = np.flatnonzero(draw.random(len(rows)) < share)
        for _ in range(20):
            query = rows[draw.integers(len(rows))]
            exact = rows[places].astype(float) @ query.astype(float)
            found = [np.sort(exact[np.isin(places, best(query, places, 40))]) for best in engines]
            top = np.sort(exact)[-40:]
            assert all(np.allclose(each[-40:], top, atol=1e-5) for each in found)


def test_index_gives_the_same_by_either_engine() -> None:
    pytest.importorskip("faiss")
    index = synthetic_index("triton", "cpu")
    by_faiss = Index(
        *(index.entries, index.vectors, index.embedder),
        keys=index.keys,
        engine=search_engine("faiss", index.vectors),
    )
    for problem in PROBLEMS:
        assert by_faiss.search(problem, 7) == index.search(problem, 7)


def test_missing_faiss_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    rows = np.ones((3, 4), np.float32)
    with pytest.raises(UsageError, match=r"FAISS is not installed; .pip install kernelgym\[rag\]"):
        search_engine("faiss", rows)
    with pytest.raises(UsageError, match=r"unknown engine of search 'fast'"):
        search_engine("fast", rows)


def test_retrieval_takes_its_engine(tmp_path, monkeypatch) -> None:
    pytest.importorskip("faiss")
    Index.from_entries(synthetic_index("triton", "cpu").entries[:60]).save(tmp_path / "i")
    one, other = (Retrieval(str(tmp_path / "i"), engine=name) for name in ("numpy", "faiss"))
    found = [load_index(part, "triton", "cpu") for part in (one, other)]
    assert found[0].search(PROBLEMS[0], 3) == found[1].search(PROBLEMS[0], 3)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match=r"pip install kernelgym\[rag\]"):
        read_index(tmp_path / "i", "triton", engine="faiss")


def test_missing_sentence_transformers_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UsageError, match=r"pip install kernelgym\[rag\]"):
        find_embedder("some/model")


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
    rows = embedder.embed(["relu", "relu " * 100, "gelu add"])
    assert rows.shape == (3, 32)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert embedder.record == {"model": str(model)}
    entries = synthetic_index("triton", "cpu").entries[:40]
    index = Index.from_entries(entries, embedder)
    assert index.vectors.shape == (40, 32)
    index.save(tmp_path / "index")
    again = read_index(tmp_path / "index", "triton")
    assert again.digest == index.digest
    assert again.search(PROBLEMS[0], 5) == index.search(PROBLEMS[0], 5)
    moved = model.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"is not there"):
        read_index(tmp_path / "index", "triton")
    assert read_index(tmp_path / "index", "triton", model=str(moved)).digest == index.digest
    other = make_text_model(tmp_path / "other", seed=1)
    with pytest.raises(UsageError, match=r"gives other vectors now .*give the model"):
        read_index(tmp_path / "index", "triton", model=str(other))
    wide = make_text_model(tmp_path / "wide", dimension=64)
    with pytest.raises(UsageError, match=r"vectors of shape .*makes 64 finite numbers"):
        read_index(tmp_path / "index", "triton", model=str(wide))
