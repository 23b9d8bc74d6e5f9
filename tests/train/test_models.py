"""What is read of a model without loading a weight."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelgym import UsageError
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.models import answer_ends, known_context
from support import tiny


@pytest.mark.parametrize(
    ("own", "declared", "found"),
    [(1, [7, 1], (1, 7)), (None, 7, (7,)), (1, None, (1,))],
)
def test_ends_are_the_tokenizers_and_declared(
    own: int | None, declared: object, found: tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": declared}))
    config = ModelConfig(id=str(tmp_path))
    assert answer_ends(config, SimpleNamespace(eos_token_id=own)) == found


def test_model_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which token ends an answer; take a model that does"):
        answer_ends(ModelConfig(id=str(tmp_path)), SimpleNamespace(eos_token_id=None))


def test_context_is_none_without_a_configuration(tmp_path: Path) -> None:
    assert known_context(ModelConfig(id=str(tmp_path))) is None
    tiny.model(12).config.save_pretrained(tmp_path)
    assert known_context(ModelConfig(id=str(tmp_path))) == 4096
