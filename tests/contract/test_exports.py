"""The public names: sorted, complete, and there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import kernelgym

SOURCES = sorted(Path(kernelgym.__file__).parent.rglob("*.py"))


def test_all_is_sorted_and_unique() -> None:
    # ruff's order: constants, then classes, then the rest, each by name.
    def kind(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert kernelgym.__all__ == sorted(set(kernelgym.__all__), key=kind)


@pytest.mark.parametrize("name", kernelgym.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(kernelgym, name) is not None
    assert name in dir(kernelgym)


def test_lazy_names_are_what_the_checker_sees() -> None:
    """The imports under TYPE_CHECKING and the table of lazy names agree."""
    tree = ast.parse(Path(kernelgym.__file__).read_text())
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazy = {name: f"kernelgym.{module}" for name, module in kernelgym._MODULE_OF.items()}
    assert typed == lazy
    assert set(kernelgym.__all__) == set(lazy) | {"ENV_IDS", "__version__"}


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'kernel_env'"):
        kernelgym.kernel_env  # noqa: B018


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from kernelgym import *", names)
    assert set(kernelgym.__all__) <= set(names)


def module_name(path: Path) -> str:
    parts = path.relative_to(Path(kernelgym.__file__).parent.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_every_module_says_what_it_is_and_what_it_exports(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "a module needs a docstring"
    if path.name == "__init__.py" and len(tree.body) == 1:
        return  # a room that is only entered by its modules
    exported = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    ]
    if path.name == "__main__.py":
        return
    assert exported, "a module needs an __all__"
    names = ast.literal_eval(exported[0])
    assert len(names) == len(set(names))
    if len(path.relative_to(Path(kernelgym.__file__).parent).parts) == 1:
        module = importlib.import_module(module_name(path))
        assert all(hasattr(module, name) for name in names)
