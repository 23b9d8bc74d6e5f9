"""Fixtures of the trainer's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread of torch's: small models are faster so, and the same on any machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sizes_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the sizes of references' tensors unknown; the process that finds them takes 4 s."""
    from kernelgym_train.launch import assembly

    monkeypatch.setattr(assembly, "reference_sizes", lambda problems: [None] * len(problems))


@pytest.fixture
def words() -> Any:
    """The tiny model's tokenizer."""
    from support import tiny

    return tiny.tokenizer()
