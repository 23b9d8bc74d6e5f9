"""Which kernels count as ones that a search can change."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.search import reading
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.variant import read_variant


def test_kernel_with_a_move_for_its_deepest_loop_counts() -> None:
    start = read_variant(EXAMPLES["matmul"][1])
    assert reading.is_changed(start)
    closed = file_of(start).cpp.replace("total += ", "total += next() * ")
    assert closed != file_of(start).cpp
    changed = dataclasses.replace(start, source=file_of(start).with_cpp(closed).source)
    assert not reading.is_changed(changed)


def test_report_names_kernels_and_reasons(
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "own_kernels", lambda: iter([("a", "x = 1\n")]))
    folder = tmp_path_factory.mktemp("kernels")
    good = EXAMPLES["matmul"][1].source
    (folder / "good.py").write_text(good)
    (folder / "closed.py").write_text(good.replace("total += ", "total += next() * "))
    reading.main([str(folder)])
    said = capsys.readouterr().out
    assert "of the project: 0 of 0" in said and "1 of 2 kernels" in said
    assert "  closed.py: line " in said and "is not understood" in said
