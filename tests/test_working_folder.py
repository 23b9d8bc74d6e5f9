"""What commands take from the working folder: settings of .env, keys, a KernelBench checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.working_folder import key, read_env_file, sendable_key, take_working_folder

NAMES = ("OPENAI_API_KEY", "KERNELBENCH_ROOT", "KERNELGYM_CACHE", "TINKER_BASE_URL", "OTHER")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder; the variables are as before after the test."""
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that monkeypatch takes it back
        monkeypatch.delenv(name)
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("text", ["kg_a b", "kg_é", "kg_a\r\nX: y", "\x00"])
def test_key_that_no_header_can_hold_is_refused_without_being_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    with pytest.raises(UsageError, match="the key in OPENAI_API_KEY") as told:
        sendable_key(text, "OPENAI_API_KEY")
    assert "kg_" not in str(told.value)
    (folder / ".env").write_text("OPENAI_API_KEY=a b\n")
    with pytest.raises(UsageError, match="copy the key again"):
        key("OPENAI_API_KEY")
    assert sendable_key(" kg_a-_b\n", "") == "kg_a-_b" and sendable_key("", "") == ""


def test_settings_are_set_and_said_and_others_left_alone(folder: Path) -> None:
    (folder / ".env").write_text("KERNELBENCH_ROOT=/kb\nexport KERNELGYM_CACHE='/c'\nOTHER=1\n")
    (line,) = take_working_folder()
    assert line == "from .env in the working folder: KERNELBENCH_ROOT, KERNELGYM_CACHE"
    assert (os.environ["KERNELBENCH_ROOT"], os.environ["KERNELGYM_CACHE"]) == ("/kb", "/c")
    assert "OTHER" not in os.environ
    assert take_working_folder() == [], "said once"


def test_environment_is_never_overridden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", "/mine")
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    (folder / ".env").write_text("KERNELBENCH_ROOT=/kb\nOPENAI_API_KEY=theirs\n")
    assert take_working_folder() == []
    assert os.environ["KERNELBENCH_ROOT"] == "/mine" and key("OPENAI_API_KEY") == "mine"


def test_key_is_named_and_found_but_no_variable_and_not_shown(folder: Path) -> None:
    text = "OPENAI_API_KEY=sk-secret # mine\nKERNELGYM_API_KEY=kg_secret\n"
    (folder / ".env").write_text(text)
    (line,) = take_working_folder()
    assert "OPENAI_API_KEY" in line and "sk-secret" not in line
    assert "OPENAI_API_KEY" not in os.environ and key("OPENAI_API_KEY") == "sk-secret"
    assert "KERNELGYM_API_KEY" not in os.environ and key("KERNELGYM_API_KEY") == "kg_secret"
    assert key("OTHER") == ""


@pytest.mark.parametrize("place", ["KernelBench", "../KernelBench"])
@pytest.mark.parametrize("inner", ["level1", "KernelBench/level1"])
def test_checkout_in_or_beside_the_folder_is_found(place: str, inner: str, folder: Path) -> None:
    (folder / place / inner).mkdir(parents=True)
    (line,) = take_working_folder()
    found = str((folder / place).resolve())
    assert os.environ["KERNELBENCH_ROOT"] == found and found in line
    assert take_working_folder() == []


def test_checkout_that_a_variable_names_wins(folder: Path) -> None:
    (folder / "KernelBench" / "level1").mkdir(parents=True)
    (folder / ".env").write_text("KERNELBENCH_ROOT=/kb\n")
    assert len(take_working_folder()) == 1 and os.environ["KERNELBENCH_ROOT"] == "/kb"


def test_folder_of_that_name_without_problems_is_no_checkout(folder: Path) -> None:
    (folder / "KernelBench").mkdir()
    assert take_working_folder() == [] and "KERNELBENCH_ROOT" not in os.environ


def test_unreadable_file_is_said_and_left_out(folder: Path) -> None:
    (folder / ".env").write_bytes(b"\xff\xfe")
    (line,) = take_working_folder()
    assert "cannot be read and is left out" in line and key("OPENAI_API_KEY") == ""


@given(st.text())
def test_any_text_is_read_without_failing(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("env") / ".env"
    path.write_text(text, "utf-8", errors="replace", newline="")
    assert all(name.isidentifier() for name in read_env_file(path))


def test_command_says_what_it_takes_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernelgym.cli import main as kernelgym
    from kernelgym_train.cli import main as kernelgym_train

    for main in (kernelgym, kernelgym_train):
        (folder / ".env").write_text("OPENAI_API_KEY=sk-secret\n")
        assert main(["--version"]) == 0
        assert capsys.readouterr().err.count("OPENAI_API_KEY") == 1
