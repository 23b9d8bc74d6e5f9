"""Embedders by name: ``operators``, and models of text by sentence-transformers.

Contract: a model is a folder, or a name on the Hugging Face hub with a revision. Code that comes
with a model is never run. What a model cannot read of a long reference is cut off, as
sentence-transformers does.

It does not cover models that need code of their own; they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgym.errors import UsageError
from kernelgym.hub import snapshot
from kernelgym.retrieval.embedding import Embedder, OperatorEmbedder, Vectors


class TextModel:
    """Embedder that reads references as text, with a model of sentence-transformers.

    Args:
        model: Folder, or name on the hub.
        revision: Commit, tag or branch on the hub; the newest if empty.
        device: Device on which it computes.
        name: Name by which an index knows it; made of folder, or model and commit, if empty.

    Raises:
        UsageError: If the package is not installed, or the model cannot be had or read.
    """

    def __init__(
        self, model: str, revision: str = "", *, device: str = "cpu", name: str = ""
    ) -> None:
        if model.startswith((".", "/", "~")) and not Path(model).is_dir():
            raise UsageError(f"the model's folder {model!r} is not there; name another one")
        try:
            import sentence_transformers
        except ImportError:
            raise UsageError(
                f"embedder {model!r} is a model of text, and models need sentence-transformers; "
                "`pip install kernelgym[rag]`, or use embedder 'operators'"
            ) from None
        local = Path(model).is_dir()
        folder = Path(model).resolve() if local else snapshot(model, revision)
        try:
            self._model: Any = sentence_transformers.SentenceTransformer(
                str(folder), device=device, trust_remote_code=False, local_files_only=True
            )
        except Exception as error:  # a folder may hold anything
            raise UsageError(
                f"model {model!r} cannot be read by sentence-transformers: "
                f"{type(error).__name__}: {str(error)[:300]}"
            ) from None
        self.dimension = int(self._model.get_embedding_dimension() or 0)
        self.name = name or (folder.name if local else f"{model}@{folder.name}")
        self.record: Mapping[str, str] = (
            {"model": str(folder)} if local else {"model": model, "revision": folder.name}
        )

    def embed(self, references: Sequence[str], *, query: bool = False) -> Vectors:
        """Return one row of length 1 for each reference."""
        encode = self._model.encode_query if query else self._model.encode_document
        rows = encode(list(references), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(rows, dtype=np.float32).reshape(len(references), self.dimension)


def find_embedder(
    model: str = "operators", revision: str = "", *, device: str = "cpu", name: str = ""
) -> Embedder:
    """Return an embedder.

    Args:
        model: ``operators``, folder of a model, or name of a model on the hub.
        revision: Commit, tag or branch on the hub; the newest if empty.
        device: Device on which a model computes.
        name: Name by which an index knows a model; see `TextModel`.

    Raises:
        UsageError: If there is no such model, the hub does not answer, or sentence-transformers is
            not installed.
    """
    if model == "operators":
        return OperatorEmbedder()
    return TextModel(model, revision, device=device, name=name)
