"""Programs of languages' compilers: composed from a request, run once for each content."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym.judge.compiling import builder as builder_module
from kernelgym.judge.compiling import tilelang_tools
from kernelgym.judge.compiling.builder import Builder
from kernelgym.judge.compiling.programs import ProgramRun, text_of
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.rulesets import Limits


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    (tmp_path / "scratch").mkdir()

    def upper(arguments: object) -> ProgramRun:
        text = text_of(arguments, "source")  # type: ignore[arg-type]
        script = "tr a-z A-Z < in.txt > out.txt; echo ran"
        texts = {"in.txt": text}
        return ProgramRun(["/bin/sh", "-c", script], texts, "out.txt", "tiles", starts_others=True)

    known = {"upper": upper, "device_code": tilelang_tools.device_code}
    monkeypatch.setattr(builder_module, "_PROGRAMS", known)
    folders = tmp_path / "cache", tmp_path / "scratch"
    return Builder(*folders, "limits", Limits(), readable_paths())


def test_program_s_output_is_cached_by_its_texts(builder: Builder, tmp_path: Path) -> None:
    first = builder.build({"program": "upper", "source": "abc"})
    assert Path(first.path).read_text() == "ABC" and not first.cached and first.module == "tiles"
    assert builder.build({"program": "upper", "source": "abc"}).cached
    other = builder.build({"program": "upper", "source": "abd"})
    assert Path(other.path).read_text() == "ABD" and not other.cached
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"program": "rm", "source": "x"}, "no program 'rm' is run here"),
        ({"program": ["upper"]}, "no program"),
        ({"program": "upper"}, "the request's 'source' is no text"),
        ({"program": "upper", "source": 7}, "the request's 'source' is no text"),
        # Without nvcc the complaint names that; neither may end the worker.
        ({"program": "device_code", "format": "cubin", "options": ["-arch=sm_999"]}, "nvcc"),
    ],
)
def test_program_that_is_not_known_is_refused(
    builder: Builder, request_: dict[str, object], complaint: str
) -> None:
    built = builder.build(request_)
    assert not built.path and complaint in built.log
