"""Disassembly of built libraries, by programs in a sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelgym.judge.compiling import disassembly
from kernelgym.judge.compiling.disassembly import own_functions, with_assembly
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS

TIER = TIERS[0]


def test_listing_of_a_library_is_read_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "objdump"
    program.write_text("#!/bin/sh\necho '0 <mine>:'\nyes '  0: nop'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(disassembly, "_MOST_READ", 1000)
    assert len(with_assembly({"extension.so": b"x"}, TIER)["kernel.s"]) in range(900, 1100)


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
    found = with_assembly(
        {"extension.so": library.read_bytes(), "extension_2.so": b"no library"}, TIER
    )
    assert set(found) == {"extension.so", "extension_2.so", "kernel.s"}
    assert b"<add>:" in found["kernel.s"]


def test_library_with_device_code_is_read_by_cuobjdump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cuobjdump"
    program.write_text("#!/bin/sh\necho asked $1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = with_assembly({"extension_2.so": b"\x7fELF .nv_fatbin", "kernel.cubin": b"x"}, TIER)
    assert found["kernel_2.sass"] == b"asked -sass\n" == found["kernel.sass"]


def test_program_that_a_library_subverts_reaches_no_file_and_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "secret"
    outside.write_text("a key")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "objdump"
    program.write_text(
        f"#!/bin/sh\necho '0 <mine>:'\ncat {outside} 2>&1\necho taken > {outside}\n"
        "echo >/dev/tcp/127.0.0.1/9\ntrue\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    listing = with_assembly({"extension.so": b"x"}, TIER)["kernel.s"]
    assert b"a key" not in listing and b"cat: " in listing
    assert outside.read_text() == "a key"
