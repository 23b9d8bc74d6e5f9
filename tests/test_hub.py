"""When the hub is asked, and when it is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym import UsageError, hub
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.models import load_tokenizer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the hub says of each name; names asked for are added to ``asked``."""
    said = {"asked": ""}

    def ask_hub(name: str, kind: str) -> str:
        said["asked"] += f"{kind}:{name} "
        return said.get(name, "")

    monkeypatch.setattr(hub, "ask_hub", ask_hub)
    hub._asked.cache_clear()
    yield said
    hub._asked.cache_clear()


def is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def test_a_name_is_asked_for_once(answers: dict[str, str]) -> None:
    for _ in range(2):
        with hub.asked_once("owner/there") as why:
            assert why == "" and not is_offline()
    assert answers["asked"] == "model:owner/there "


def test_local_copies_alone_without_the_hub(answers: dict[str, str]) -> None:
    answers["owner/gone"] = "no answer"
    with hub.asked_once("owner/gone") as why:
        assert why == "no answer" and is_offline()
    assert not is_offline()


def test_a_folder_is_not_asked_for(answers: dict[str, str], tmp_path: Path) -> None:
    with hub.asked_once(str(tmp_path)) as why:
        assert why == "" and not is_offline()
    assert answers["asked"] == ""


def test_what_the_hub_says_is_told(answers: dict[str, str]) -> None:
    answers["owner/gone"] = "404, no such repository"
    with pytest.raises(UsageError, match=r"'owner/gone' cannot be loaded.*404, no such repository"):
        load_tokenizer(ModelConfig(id="owner/gone"))
