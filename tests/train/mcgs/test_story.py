"""``trace.md`` and ``pull_request.md``: the way to the best in words, without keys of states."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Verdict
from kernelgym_train.mcgs import disassembly
from kernelgym_train.mcgs.disassembly import own_functions, with_assembly
from support import searches
from support.searches import InTurns, timed

HASH = re.compile(r"\b[0-9a-f]{16,}\b")
EVIL = "</code>``` | <b>\nnext"


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    if "-march=native" in kernel.source:
        return verdict("wrong", message=EVIL)
    return searches.judged(problem, kernel)


def in_turns(problem: Problem, kernel: Kernel) -> Verdict:
    found = judged(problem, kernel)
    return timed(kernel) if found.correct else found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outdir = tmp_path_factory.mktemp("story")
    judge = InTurns(judged, in_turns)
    searches.run(outdir, judge, 14, algo="mcgs", command="kernelgym-train budget_builds=14")
    return outdir / "kernels" / "matmul"


def test_listing_of_a_library_is_read_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "objdump"
    program.write_text("#!/bin/sh\necho '0 <mine>:'\nyes '  0: nop'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(disassembly, "_MOST_READ", 1000)
    assert len(with_assembly({"extension.so": b"x"})["kernel.s"]) in range(900, 1100)


def test_trace_tells_each_step_with_its_move_and_times(folder: Path) -> None:
    text = (folder / "trace.md").read_text()
    way = text.partition("## The way to the best")[2].partition("## Evaluations")[0]
    steps = re.findall(r"^### Step \d+: (.+)$", way, re.MULTILINE)
    assert steps and all("(" in words for words in steps)
    assert way.count("| before, ms |") == len(steps)
    assert "Made from the start, as evaluation" in way
    assert way.count("times as fast as the start.") == len(steps)
    for line in way.splitlines():
        if line.startswith("| matmul"):
            before, after = (float(cell.split()[0]) for cell in line.split("|")[2:4])
            assert after < before, "each step of the way is a gain in this table"


def test_trace_tells_what_was_tried_beside_and_why_it_lost(folder: Path) -> None:
    text = (folder / "trace.md").read_text()
    assert "Tried beside it:" in text
    assert "slower" in text and "wrong: " in text


@pytest.mark.parametrize("name", ["trace.md", "pull_request.md"])
def test_story_holds_no_keys_and_no_markup_of_others(name: str, folder: Path) -> None:
    text = (folder / name).read_text()
    prose = text.partition("## Machine")[0] if name == "pull_request.md" else text
    assert not HASH.search(prose)
    assert "<b>" not in prose.replace("\\<b\\>", "")


def test_pull_request_tells_the_change_its_times_and_how_to_repeat_it(folder: Path) -> None:
    text = (folder / "pull_request.md").read_text()
    for heading in ("What changed", "Times", "Machine", "Repeat it", "Change"):
        assert f"\n## {heading}\n" in text
    assert "kernelgym-train budget_builds=14" in text and "--worker" in text
    assert "Host busy: no" in text and "| matmul | tune |" in text
    diff = text.partition("```diff\n")[2].rpartition("```")[0]
    assert diff == (folder / "best" / "candidate.diff").read_text()


def test_pull_request_is_missing_where_the_start_is_the_best(tmp_path: Path) -> None:
    judge = ScriptedEvaluator(lambda *_: verdict("correct", speedup=0.5), workers=3)
    searches.run(tmp_path, judge, 3)
    folder = tmp_path / "kernels" / "matmul"
    assert not (folder / "pull_request.md").exists()
    assert "No kernel was confirmed" in (folder / "trace.md").read_text()
    assert "no faster than the start" in (folder / "trace.md").read_text()


def test_listing_keeps_functions_of_the_kernel_alone() -> None:
    listing = (
        "x: file format elf\n\n\n0000 <_Z4tinyN2at6TensorE>:\n  1:\tret\n\n"
        "0010 <_ZN8pybind116detailE>:\n  2:\tret\n\n"
        "0020 <_Z4tinyN2at6TensorE._omp_fn.0>:\n  3:\tret\n"
    )
    kept = own_functions(listing)
    assert kept.count("ret") == 2 and "pybind11" not in kept and "omp_fn" in kept


@pytest.mark.skipif(not shutil.which("objdump"), reason="needs objdump of binutils")
def test_assembly_stands_beside_the_library(tmp_path: Path) -> None:
    source, library = tmp_path / "k.c", tmp_path / "k.so"
    source.write_text("int add(int a, int b) { return a + b; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    found = with_assembly({"extension.so": library.read_bytes(), "extension_2.so": b"no library"})
    assert set(found) == {"extension.so", "extension_2.so", "kernel.s"}
    assert b"<add>:" in found["kernel.s"]


def test_library_with_device_code_is_read_by_cuobjdump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cuobjdump"
    program.write_text("#!/bin/sh\necho asked $1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = with_assembly({"extension_2.so": b"\x7fELF .nv_fatbin", "kernel.cubin": b"x"})
    assert found["kernel_2.sass"] == b"asked -sass\n" == found["kernel.sass"]
