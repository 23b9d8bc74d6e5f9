"""Pages that `mkdocs` adds to docs/: one for each module, and the README as the front page.

Contract: the package tree is the list of modules, so that no list can miss one. Private modules,
and modules that define no public name, get no page. Nothing of the packages is imported:
mkdocstrings reads the sources. Links of the docs to files outside docs/ become links to the
repository; a link to a file that is not there ends a strict build.
"""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import Any

__all__ = ["api_modules", "on_config", "on_files", "on_page_markdown"]

ROOT = Path(__file__).parents[1]
PACKAGES = ("kernelgym", "kernelgym_train")
log = logging.getLogger("mkdocs.hooks.api_pages")


def exports(path: Path) -> bool:
    """Return True if the module has an `__all__` that names anything, or defines a public name."""
    found = False
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                return ast.unparse(node.value) not in ("[]", "()")
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found = found or not name.startswith("_")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found = found or not name.startswith("_")
    return found


def api_modules() -> list[str]:
    """Return the dotted names of all modules that get a page, sorted."""
    found = []
    for package in PACKAGES:
        for path in (ROOT / "src" / package).rglob("*.py"):
            parts = path.relative_to(ROOT / "src").with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not any(part.startswith("_") for part in name.split(".")) and exports(path):
                found.append(name)
    return sorted(found)


def page_of(module: str) -> str:
    """Return the path of a module's page below docs/."""
    return f"api/{module}.md"


def on_config(config: Any) -> Any:
    """Add every module to the navigation of the site, by package and room."""
    tree: dict[str, dict[str, list[dict[str, str]]]] = {package: {} for package in PACKAGES}
    for module in api_modules():
        package, *inner = module.split(".")
        pages = tree[package].setdefault(".".join([package, *inner[:1]]), [])
        pages.append({module: page_of(module)})
    rooms = [
        {package: [{room: pages} for room, pages in tree[package].items()]} for package in tree
    ]
    config.nav = [*config.nav, {"API": rooms}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the modules' pages, and the README with its links to docs/ made relative."""
    from mkdocs.structure.files import File

    for module in api_modules():
        text = f"# {module}\n\n::: {module}\n"
        files.append(File.generated(config, page_of(module), content=text))
    readme = (ROOT / "README.md").read_text()
    readme = readme.replace(f"]({config.repo_url}/blob/main/docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the page's text with links to files outside docs/ led to the repository."""

    def led(match: re.Match[str]) -> str:
        if not (ROOT / match[1]).exists():
            log.warning("%s links to %s, which is not there", page.file.src_path, match[1])
        return f"]({config.repo_url}/tree/main/{match[1]})"

    return re.sub(r"\]\(\.\./([^)]+)\)", led, markdown)
