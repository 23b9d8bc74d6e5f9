"""docs/design.md: a paragraph for every room."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kernelgym
import kernelgym_train
from contract.test_rooms import JUDGE, ROOMS

SOURCE = Path(kernelgym.__file__).parent
TRAIN = Path(kernelgym_train.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "design.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def described(title: str) -> list[str]:
    return re.findall(r"^\*\*`(\w+)/`\*\*", section(title), re.MULTILINE)


def folders(path: Path) -> set[str]:
    return {entry.parent.name for entry in path.glob("*/__init__.py")}


@pytest.mark.parametrize(
    ("title", "folder", "order"),
    [
        ("Rooms of kernelgym", SOURCE, ROOMS),
        ("Rooms of the judge", SOURCE / "judge", JUDGE),
        ("Rooms of kernelgym_train", TRAIN, None),
    ],
)
def test_rooms_stand_in_the_order_of_the_contract(
    title: str, folder: Path, order: tuple[str, ...] | None
) -> None:
    there = folders(folder)
    assert set(described(title)) == there
    if order:
        assert described(title) == [room for room in order if room in there]


def test_file_and_folder_that_is_named_is_there() -> None:
    places = (SOURCE, SOURCE / "judge", TRAIN, SOURCE.parent, SOURCE.parents[1])
    named = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE) + re.findall(r"`(\w+/\w+)`", PAGE)
    assert len(named) > 40
    for name in named:
        assert any((place / name).exists() for place in places), name
