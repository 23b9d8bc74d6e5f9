"""An embedder that is a model of text, by sentence-transformers.

Contract: `TextModel` reads a folder, or a name on the hub with a revision; code that comes with a
model is never run. Texts longer than the model reads are embedded in pieces, whose mean is taken,
and nothing is cut off. The record names the model, its revision and a digest of its weights.

It does not cover models that need code of their own; they are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgym.errors import UnknownName, UsageError
from kernelgym.hub import snapshot
from kernelgym.retrieval.embedding import Vectors
from kernelgym.retrieval.models import is_folder

__all__ = ["DTYPES", "TextModel", "pieces_of"]

DTYPES = ("float32", "float16", "bfloat16")
"""What a model can compute in."""
_DECIDING = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
"""Files that decide a model's vectors: weights, configuration and tokenizer."""
_CHUNK = 1 << 20


class TextModel:
    """Embeds texts with a model that sentence-transformers reads.

    Args:
        model: Folder, or name on the hub.
        revision: Commit, tag or branch on the hub; the newest if empty.
        device: Where it computes.
        dtype: One of `DTYPES`.
        batch: Texts that it takes at once.

    Raises:
        UsageError: If the package is not installed, or the model cannot be had or read.
    """

    def __init__(
        self,
        model: str,
        revision: str = "",
        *,
        device: str = "cpu",
        dtype: str = "float32",
        batch: int = 32,
    ) -> None:
        if dtype not in DTYPES:
            raise UnknownName("dtype", dtype, DTYPES)
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise UsageError(f"a model takes at least 1 text at once, got batch={batch!r}")
        folder: Path | None
        if is_folder(model):
            folder = Path(model)
        elif model.startswith((".", "/", "~")):
            raise UsageError(f"the model's folder {model!r} is not there; name another one")
        else:
            folder = None
        try:
            import sentence_transformers
            import torch
        except ImportError:
            raise UsageError(
                f"embedder {model!r} is none of kernelgym's or of an installed package, and models "
                "need sentence-transformers; `pip install kernelgym[rag]`"
            ) from None
        folder = snapshot(model, revision) if folder is None else folder
        try:
            self._model: Any = sentence_transformers.SentenceTransformer(
                str(folder),
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, dtype)},
            )
        except Exception as error:  # a folder may hold anything
            raise UsageError(
                f"model {model!r} cannot be read by sentence-transformers: "
                f"{type(error).__name__}: {str(error)[:300]}"
            ) from None
        self._batch = batch
        found = self._model.get_embedding_dimension()
        self.dimension = int(found) if found else 0
        weights = _weights_digest(folder)
        self.name = f"model@{weights[:12]}"  # wherever it lies
        self.record = {
            "model": str(folder.resolve()) if is_folder(model) else model,
            "revision": "" if is_folder(model) else folder.name,
            "weights": weights,
            "dtype": dtype,
        }

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Return one row per text, of length 1; zeros for empty texts."""
        encode = self._model.encode_query if query else self._model.encode_document
        room = self._room(query)
        pieces = [pieces_of(text, room, self._tokens) if text.strip() else [] for text in texts]
        flat = [piece for each in pieces for piece in each]
        rows = np.zeros((len(texts), self.dimension), dtype=np.float64)
        if flat:
            found = encode(
                flat,
                batch_size=self._batch,
                convert_to_numpy=True,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
            start = 0
            for row, each in zip(rows, pieces, strict=True):
                if each:
                    row[:] = np.asarray(found[start : start + len(each)], np.float64).mean(axis=0)
                start += len(each)
        lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows.astype(np.float32)

    def _tokens(self, text: str) -> int:
        """Return the tokens of a text, without special ones."""
        return len(
            self._model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        )

    def _room(self, query: bool) -> int:
        """Return how many tokens a piece may have."""
        most = self._model.max_seq_length
        if not most:
            return 1 << 30
        prompts = getattr(self._model, "prompts", None) or {}
        prompt = prompts.get("query" if query else "document") or ""
        return max(1, int(most) - self._tokens(prompt) - 2)


def pieces_of(text: str, room: int, count: Callable[[str], int]) -> list[str]:
    """Return a text in pieces that fit.

    Args:
        text: Any text.
        room: Most tokens of a piece.
        count: Counts tokens.
    """
    if len(text) < 2 or count(text) <= room:
        return [text]
    middle = len(text) // 2
    for mark in ("\n", " "):
        places = [text.rfind(mark, 1, middle), text.find(mark, middle, len(text) - 1)]
        near = [place for place in places if len(text) // 4 <= place <= 3 * len(text) // 4]
        if near:
            middle = min(near, key=lambda place: abs(place - len(text) // 2))
            break
    return [*pieces_of(text[:middle], room, count), *pieces_of(text[middle:], room, count)]


def _weights_digest(folder: Path) -> str:
    """Return the SHA-256 over names and contents of the files that decide."""
    total = hashlib.sha256()
    paths = sorted({path for pattern in _DECIDING for path in folder.rglob(pattern)})
    for path in paths:
        total.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        with open(path, "rb") as file:
            while block := file.read(_CHUNK):
                total.update(block)
    return total.hexdigest()
