"""docs/specs.md: its spec, program, fields and inits are those that there are."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from pathlib import Path

import pytest

from kernelgym.suites import spec
from kernelgym.suites.spec_files import read_spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "specs.md").read_text()


def test_page_shows_the_example() -> None:
    shown = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0]
    path = ROOT / "examples" / "row_softmax.json"
    assert json.loads(shown) == json.loads(path.read_text())
    assert len(read_spec(path).shapes) == 3


def test_page_program_runs_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "specs.md", "exec"), {})
    out = capsys.readouterr().out
    assert "row_softmax/rows=512-columns=1024" in out and "class ModelNew" in out


def test_page_names_every_field() -> None:
    for cls in (spec.KernelSpec, spec.Contract, spec.SpecLaunch, spec.SpecShape, spec.Tolerances):
        for field in dataclasses.fields(cls):
            assert re.search(rf"`(launch\.)?{field.name}[`.]", PAGE), field.name
    for init in typing.get_args(spec.Inits):
        (kind,) = typing.get_args(typing.get_type_hints(init)["kind"])
        assert f"`{kind}`" in PAGE
