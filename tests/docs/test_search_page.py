"""docs/search.md: its commands, moves and fields are those that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kernelgym_train.mcgs.moves.table import OWN_MOVES
from kernelgym_train.mcgs.settings import (
    SearchSettings,
    read_search_settings,
    spelt_as_settings,
)
from support import searches

PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text()


def names(head: str) -> list[str]:
    """Return the names in the first column of the table with this head."""
    table = PAGE.partition(f"| {head}")[2].partition("\n\n")[0]
    return [
        name
        for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([\w./]+)`", cell)
    ]


def test_page_lists_every_move_with_its_risk() -> None:
    assert names("move | what it does | risk |") == list(OWN_MOVES["cpp"])
    assert names("move on Triton kernels | what it does | risk |") == list(OWN_MOVES["triton"])
    assert names("move on CUDA kernels | what it does | risk |") == list(OWN_MOVES["cuda"])
    for move in (move for moves in OWN_MOVES.values() for move in moves.values()):
        assert re.search(rf"^\| `{move.id}` \| .* \| {move.risk} \|$", PAGE, re.MULTILINE)


def test_page_commands_have_settings_that_there_are() -> None:
    commands = re.findall(r"^kernelgym-train --backend mcgs (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 9
    for command in commands:
        read_search_settings(spelt_as_settings(shlex.split(command)))
    for name in re.findall(r"`(\w+)=\w*`", PAGE):
        assert name in SearchSettings.model_fields


def test_page_lists_every_field_of_a_result(tmp_path: Path) -> None:
    result = searches.run(tmp_path, searches.evaluator(), 2)
    assert names("field of `result.json` |") == list(result)


@pytest.mark.slow
def test_page_program_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "search.md", "exec"), {"__name__": "__main__"})
    low, path = capsys.readouterr().out.split()
    assert float(low) >= 1.0 and (tmp_path / "out" / path).is_file()
