"""The site of `make docs`: a page for every module, a place in the navigation for every page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_pages", ROOT / "docs" / "api_pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_api_has_modules_of_both_packages_and_nothing_private(pages: ModuleType) -> None:
    found = pages.api_modules()
    named = {"kernelgym", "kernelgym.verdict", "kernelgym.judge.local", "kernelgym_train.mcgs"}
    assert named <= set(found) and len(found) == len(set(found))
    assert not [name for name in found if "._" in name]


def test_api_modules_are_in_the_navigation(pages: ModuleType) -> None:
    config = pages.on_config(SimpleNamespace(nav=[{"Start": []}]))
    assert config.nav[0] == {"Start": []}
    packages = config.nav[-1]["API"]
    shown = [
        module
        for package in packages
        for rooms in package.values()
        for room in rooms
        for entries in room.values()
        for entry in entries
        for module in entry
    ]
    assert sorted(shown) == pages.api_modules()


def test_link_out_of_docs_leads_to_the_repository(pages: ModuleType) -> None:
    config = SimpleNamespace(repo_url="https://example.org/repo")
    page = SimpleNamespace(file=SimpleNamespace(src_path="page.md"))
    text = pages.on_page_markdown("[a](../README.md) [b](judge.md#x)", page, config, None)
    assert text == "[a](https://example.org/repo/tree/main/README.md) [b](judge.md#x)"


def test_link_to_a_missing_file_is_warned_of(
    pages: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_path="page.md"))
    pages.on_page_markdown("[a](../gone.md)", page, SimpleNamespace(repo_url=""), None)
    assert "page.md links to gone.md" in caplog.text


def test_navigation_names_every_page_once() -> None:
    named = re.findall(r"- (?:\w+: )?([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    there = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert sorted(named) == sorted([*there, "index.md"])
