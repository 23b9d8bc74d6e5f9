"""`kernelgym languages`: one row for each language and device, and what is missing."""

from __future__ import annotations

import dataclasses
import json
from types import MappingProxyType

import pytest

from kernelgym.cli import languages as command
from kernelgym.errors import UsageError
from kernelgym.languages import LANGUAGES


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a GPU seem to be there."""
    monkeypatch.setattr(command, "find_device", lambda device: device)


def rows(run, *argv: str) -> dict[tuple[str, str], dict[str, object]]:
    code, out, err = run("languages", "--json", *argv)
    assert (code, err) == (0, "")
    return {(row["language"], row["device"]): row for row in json.loads(out)}


def test_languages_without_a_device_lists_each_language_on_its_own_kinds(run, monkeypatch):
    def no_gpu(device: str) -> str:
        if device == "cpu":
            return device
        raise UsageError("no driver: install one")

    monkeypatch.setattr(command, "find_device", no_gpu)
    found = rows(run)
    assert found.keys() == {(e.name, kind) for e in LANGUAGES.values() for kind in e.devices}
    interpreted = found["triton", "cpu"]
    assert (
        interpreted["usable"] and not interpreted["timed"] and "interpreter" in interpreted["note"]
    )
    missing = found["triton", "cuda"]
    assert not missing["usable"] and missing["note"] == "no driver: install one"


def test_languages_without_a_device_tells_everything_that_is_missing(run, monkeypatch):
    package = dataclasses.replace(LANGUAGES["cute"].packages[0], name="no-such-package")
    entry = dataclasses.replace(LANGUAGES["cute"], packages=(package,))
    monkeypatch.setattr(command, "LANGUAGES", MappingProxyType({"cute": entry}))

    def no_gpu(device: str) -> str:
        raise UsageError("no driver: install one")

    monkeypatch.setattr(command, "find_device", no_gpu)
    note = rows(run)["cute", "cuda"]["note"]
    assert "no-such-package" in note and note.endswith("; no driver: install one")


def test_languages_on_the_cpu_tells_where_the_others_run(run):
    found = rows(run, "--device", "cpu")
    assert {name for name, _ in found} == set(LANGUAGES)
    assert found["cpp", "cpu"]["usable"] and found["cpp", "cpu"]["timed"]
    assert "it runs on: cuda" in found["cuda", "cpu"]["note"]
    for name in ("cute", "thunderkittens"):
        note = found[name, "cpu"]["note"]
        assert "it runs on: cuda" in note and "install" not in note and "clone" not in note


def test_languages_without_nvcc_says_what_to_install(run, gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    cuda = rows(run, "--device", "cuda:0")["cuda", "cuda:0"]
    assert not cuda["usable"] and "install the CUDA toolkit" in cuda["note"]


def test_languages_with_a_broken_interpreter_names_the_packages(run, monkeypatch):
    entry = dataclasses.replace(LANGUAGES["triton"], find_trouble=lambda: "install triton>=9")
    monkeypatch.setattr(command, "LANGUAGES", MappingProxyType({"triton": entry}))
    found = rows(run, "--device", "cpu")["triton", "cpu"]
    assert found["usable"] and found["note"] == "install triton>=9"


def test_languages_as_a_table_has_one_line_for_each_language(run):
    code, out, _ = run("languages", "--device", "cpu")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["language", *LANGUAGES]


def test_languages_on_an_unknown_device_is_a_usage_error(run):
    code, _, err = run("languages", "--device", "tpu")
    assert code == 2 and "'tpu'" in err and "cpu" in err
