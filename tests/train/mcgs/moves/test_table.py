"""Moves of other packages: found by entry point, and refused where they do not fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.moves import table
from kernelgym_train.mcgs.moves.cpp.unroll import unroll
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.variant import read_variant

TWICE = dataclasses.replace(unroll, id="twice")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    table.known_moves.cache_clear()
    yield
    table.known_moves.cache_clear()


def offer(patch: pytest.MonkeyPatch, name: str, loaded: Any) -> None:
    class Offered(EntryPoint):
        def load(self) -> Any:
            if isinstance(loaded, Exception):
                raise loaded
            return loaded

    entries = [Offered(name, "package:MOVE", table.GROUP)]
    patch.setattr(table, "entry_points", lambda group: entries if group == table.GROUP else [])


def test_move_of_another_package_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "twice", TWICE)
    start = read_variant(EXAMPLES["matmul"][1])
    assert "twice" in dict(RuleProposer(start).priors(start))
    assert list(table.known_moves("cpp")) == [*table.OWN_MOVES["cpp"], "twice"]


@pytest.mark.parametrize(
    ("name", "loaded", "said"),
    [
        ("twice", ImportError("no module"), "cannot be loaded: no module"),
        ("twice", "text", "must be a SearchMove with the id 'twice'"),
        ("other", TWICE, "must be a SearchMove with the id 'other'"),
        ("unroll", unroll, "'unroll' exists already"),
    ],
)
def test_entry_point_that_does_not_fit_is_refused(
    name: str, loaded: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, name, loaded)
    with pytest.raises(UsageError, match=said):
        table.known_moves("cpp")


@pytest.mark.parametrize("language", table.OWN_MOVES)
def test_every_move_tells_its_recipe(language: str) -> None:
    recipes = [move.recipe for move in table.OWN_MOVES[language].values()]
    assert all(recipe.endswith(".") and len(recipe.split()) > 5 for recipe in recipes)
    assert len(set(recipes)) == len(recipes)
