"""The key of a Tinker service: its places and form, and that nothing tells it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym_train.backends.tinker.keys import TinkerKey, is_loopback, tinker_key

HOSTED = "https://service.example/api"
LOCAL = "http://127.0.0.1:8004"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder without any key."""
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keep(home: Path, key: str) -> None:
    """Keep a key as `tinker auth login` of SDK 0.38 does."""
    (home / ".tinker").mkdir()
    kept = {
        "version": 1,
        "default": "a",
        "keys": {"a": {"type": "manual", "key": key, "name": "n"}},
    }
    (home / ".tinker" / "credentials.json").write_text(json.dumps(kept))


def test_key_is_taken_from_the_first_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(home, "tml-stored")
    assert tinker_key(HOSTED) == TinkerKey("tml-stored", "`tinker auth login`")
    (home / ".env").write_text("OTHER=1\nTINKER_API_KEY=tml-file\n")
    assert tinker_key(HOSTED) == TinkerKey("tml-file", "TINKER_API_KEY in .env")
    monkeypatch.setenv("TINKER_API_KEY", " tml-variable ")
    assert tinker_key() == TinkerKey("tml-variable", "TINKER_API_KEY")
    monkeypatch.setenv("TINKER_API_KEY", "")
    assert tinker_key(HOSTED).value == "tml-file"


@pytest.mark.parametrize(
    "line",
    [
        "TINKER_API_KEY=tml-1",
        "export TINKER_API_KEY = tml-1",
        "TINKER_API_KEY='tml-1'  # mine",
        'TINKER_API_KEY="tml-1"',
        "TINKER_API_KEY=tml-1 # mine",
        "TINKER_API_KEY=tml-0\n# TINKER_API_KEY=tml-2\nTINKER_API_KEY=tml-1",
    ],
)
def test_line_of_an_env_file_is_read(line: str, home: Path) -> None:
    (home / ".env").write_text(f"{line}\nTINKER_API_KEY_2=tml-3\n")
    assert tinker_key(HOSTED).value == "tml-1"


def test_store_of_the_sdk_is_read(home: Path) -> None:
    credentials = pytest.importorskip("tinker.lib.credentials")
    store = credentials.JsonCredentialStore(credentials.default_credentials_path())
    store.add_key("old", credentials.ManualKey(key="tml-old", name="old"))
    with pytest.raises(UsageError, match="has kept none"):
        tinker_key(HOSTED)
    store.add_key("new", credentials.ManualKey(key="tml-new", name="new"))
    store.set_default("new")
    assert tinker_key(HOSTED).value == "tml-new"


def test_no_key_is_refused_but_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("", HOSTED, "http://10.0.0.3:8004"):
        with pytest.raises(UsageError, match="there is no key for a Tinker service"):
            tinker_key(url)
    assert tinker_key(LOCAL).value.startswith("tml-")
    monkeypatch.setenv("TINKER_BASE_URL", LOCAL)
    assert "this machine" in tinker_key().source


@pytest.mark.parametrize(
    "url",
    [LOCAL, "http://localhost:1", "http://[::1]:2/x", "http://127.9.9.9", "http://a.localhost"],
)
def test_address_of_this_machine_is_known(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize("url", ["", HOSTED, "http://localhost.example", "127.0.0.1:8004", "tml"])
def test_address_elsewhere_is_not_this_machine(url: str) -> None:
    assert not is_loopback(url)


@given(st.text(min_size=6, max_size=40).filter(str.strip))
@example("tml-with a space")
@example("sk-of-another-service")
@example("tml-with\nline")
def test_key_of_wrong_form_is_refused_untold(key: str) -> None:
    from unittest import mock

    if "\0" in key or any("\ud800" <= sign <= "\udfff" for sign in key):
        return
    with mock.patch.dict("os.environ", {"TINKER_API_KEY": key}):
        try:
            found = tinker_key(LOCAL)
        except UsageError as refused:
            assert "wrong form" in str(refused) and key.strip() not in str(refused)
        else:
            assert found.value == key.strip() and found.value.isascii()
            assert found.value.startswith(("tml-", "eyJ")) and " " not in found.value
            assert found.value not in repr(found)


@pytest.mark.parametrize("text", ["{", "[]", '{"default": "a", "keys": {}}', '{"default": "a"}'])
def test_store_that_cannot_be_read_is_told(text: str, home: Path) -> None:
    (home / ".tinker").mkdir()
    (home / ".tinker" / "credentials.json").write_text(text)
    with pytest.raises(UsageError, match="cannot be read: it is not in the form expected"):
        tinker_key(HOSTED)
    (home / ".env").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"^\.env, where a key"):
        tinker_key(HOSTED)


def test_key_of_a_file_sets_no_variable(home: Path) -> None:
    import os

    (home / ".env").write_text("TINKER_API_KEY=tml-file\nOTHER=1\n")
    before = dict(os.environ)
    tinker_key(HOSTED)
    assert dict(os.environ) == before
