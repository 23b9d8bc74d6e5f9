"""docs/rewards.md held against the code: its sessions run, its tables say what is."""

from __future__ import annotations

import dataclasses
import doctest
import re
from pathlib import Path

import pytest

from kernelgym.episodes.stopping import stop_rule
from kernelgym.rewards import PARTS, REWARDS, SHAPES
from kernelgym.types import RETURN_VARIANTS, discounted_returns

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text()
HEADS = ("format", "compile", "trials", "correct", "speed", "improvement", "custom")


def rows(title: str) -> dict[str, list[str]]:
    """Return the rows of the table in a section, by the name in their first column."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = {}
    for line in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE):
        name, *cells = (cell.strip() for cell in line.split(" | "))
        found[name.strip("`")] = cells
    return found


def test_the_sessions_run_as_they_stand(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path))
    sessions = "\n".join(re.findall(r"```python\n(>>>.*?)```", PAGE, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(sessions, {}, "rewards", "rewards.md", 0)
    assert len(test.examples) >= 20
    report: list[str] = []
    runner = doctest.DocTestRunner()
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_the_table_of_presets() -> None:
    table = rows("Presets")
    assert list(table) == list(REWARDS)
    for name, preset in REWARDS.items():
        *weights, shape, timing, no_kernel, rejected = table[name]
        given = [0.0 if cell == "-" else float(cell) for cell in weights]
        assert given == [getattr(preset.weights, head) for head in HEADS], name
        assert timing == preset.speed
        assert (float(no_kernel), float(rejected)) == (
            preset.format_penalty, preset.cheating_penalty,
        )  # fmt: skip
        written = f"{preset.shape}, cap {preset.cap:g}" if preset.speed != "none" else "-"
        assert shape == written, name
        shown = {head: getattr(preset.weights, head) for head in HEADS}
        others = dataclasses.asdict(preset.weights).keys() - shown.keys()
        assert not any(getattr(preset.weights, other) for other in others), name


def test_the_table_of_parts() -> None:
    assert tuple(rows("Parts")) == PARTS
    shapes = PAGE.partition("Shapes of `speed`")[2].split("```")[1]
    assert re.findall(r"^(\w+)  ", shapes, re.MULTILINE) == list(SHAPES)


def test_the_table_of_returns() -> None:
    assert tuple(rows("Returns")) == RETURN_VARIANTS
    for variant, (_, written) in rows("Returns").items():
        found = discounted_returns((0.3, 1.0, 0.5), 0.4, variant=variant)
        assert found == pytest.approx([float(number) for number in written.split(", ")])


def test_the_table_of_stop_rules() -> None:
    for text in rows("Stopping"):
        assert stop_rule(text.replace("<x>", "1.5").replace("<k>", "2"))
    assert len(rows("Stopping")) == 4
