"""The one table of frameworks' versions, and what is said of a version outside it."""

from __future__ import annotations

import re
from importlib import metadata

import pytest

from adapters.environments import DOCS, FRAMEWORKS, ROOT, pinned
from kernelgym import UsageError
from kernelgym.adapters.frameworks import check_framework

WANTED = ["numpy>=1", "other; python_version >= '3'", 'some-framework~=0.3.285; extra == "some"']


@pytest.mark.parametrize("version", ["0.3.285", "0.3.300"])
def test_version_that_the_extra_names_passes(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: WANTED)
    monkeypatch.setattr(metadata, "version", lambda _: version)
    check_framework("some")


@pytest.mark.parametrize("version", ["0.3.284", "0.4.0", ""])
def test_version_outside_the_table_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    def installed(name: str) -> str:
        if not version:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "requires", lambda _: WANTED)
    monkeypatch.setattr(metadata, "version", installed)
    with pytest.raises(UsageError) as refused:
        check_framework("some")
    said = str(refused.value)
    assert "\n" not in said and "some-framework" in said and "0.3.285" in said
    assert (version or "none") in said and "pip install 'kernelgym[some]'" in said


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_framework_has_its_version_in_the_docs_and_its_files(extra: str) -> None:
    name, version = pinned(extra)
    row = re.search(rf"^\|.*`{re.escape(name)}` {re.escape(version)} ", DOCS.read_text(), re.M)
    assert row, f"docs/adapters.md has no row for {name} {version}"
    for path in FRAMEWORKS[extra].tests:
        assert f'framework("{extra}")' in (ROOT / path).read_text()


def test_adapter_of_a_framework_has_at_most_150_lines() -> None:
    folder = ROOT / "src/kernelgym/adapters"
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    adapters = {name: text for name, text in texts.items() if "\ncheck_framework(" in text}
    assert adapters and not [n for n, text in adapters.items() if len(text.splitlines()) > 150]
