"""Embedding many texts, kept in a folder so that builds can resume.

Contract: `embed_texts` returns one row per text, as `kernelgym.retrieval.index.embedded` does. Each
chunk is written whole or not at all, under the digests of its texts and the embedder's name; a file
that is damaged is embedded again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kernelgym.retrieval.embedding import Embedder, Vectors
from kernelgym.retrieval.index import embedded

__all__ = ["CHUNK", "embed_texts"]

CHUNK = 512
"""Texts that are embedded between two writes."""


def embed_texts(
    texts: Sequence[str],
    embedder: Embedder,
    folder: Path,
    advance: Callable[[], None] = lambda: None,
) -> Vectors:
    """Return an embedder's vectors, taking from a folder those that are there.

    Args:
        texts: What is embedded; equal texts are embedded once.
        embedder: Makes the vectors.
        folder: Where they are kept; made if it is not there.
        advance: Called once per text.

    Raises:
        UsageError: If the embedder does not give one finite row of its dimension per text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mine = hashlib.sha256(embedder.name.encode()).hexdigest()[:12]
    known: dict[str, Vectors] = {}
    for path in sorted(folder.glob(f"{mine}-*.npz")):
        with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as kept:
                rows = kept["rows"]
                if rows.shape == (len(kept["keys"]), embedder.dimension):
                    known.update(zip(kept["keys"].tolist(), rows, strict=True))
    keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts]
    todo = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    for _ in range(len(texts) - len(todo)):
        advance()
    for start in range(0, len(todo), CHUNK):
        some = list(todo)[start : start + CHUNK]
        rows = embedded([todo[key] for key in some], embedder)
        draft = folder / f".{secrets.token_hex(6)}.npz"
        np.savez(draft, keys=np.array(some), rows=rows)
        os.replace(draft, folder / f"{mine}-{secrets.token_hex(6)}.npz")
        known.update(zip(some, rows, strict=True))
        for _ in some:
            advance()
    vectors = np.zeros((len(texts), embedder.dimension), dtype=np.float32)
    for row, key in zip(vectors, keys, strict=True):
        row[:] = known[key]
    vectors.flags.writeable = False
    return vectors
