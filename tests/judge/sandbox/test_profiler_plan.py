"""The sandbox of the profiler: its processes name threads, use sockets, and reach nothing else."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgym.judge.profiling.profiler import _plan
from kernelgym.judge.sandbox import paths
from kernelgym.judge.sandbox.paths import compiler_paths, readable_paths
from kernelgym.judge.untrusted.sandbox import sandbox
from kernelgym.judge.untrusted.sandbox.sandbox import OWN_FAILURE, TIERS, SandboxPlan

PLAN = SandboxPlan(
    tier=TIERS[0],
    scratch="",
    readable=(),
    listable=(),
    memory_bytes=0,
    file_bytes=1 << 20,
    open_files=1024,
    processes=256,
    exec_allowed=True,
    gpu=True,
    sockets=True,
)
PROGRAM = """
import json, os, socket, subprocess, sys

def writes(name):
    if os.path.isdir(name) or os.path.islink(name):
        return False
    try:
        open(name, "r+").close()
        return True
    except OSError:
        return False

told = {}
named = "import os; open(f'/proc/self/task/{os.getpid()}/comm', 'w').write('x')"
told["child names itself"] = subprocess.run([sys.executable, "-c", named]).returncode == 0
names = ["/proc/" + name for name in os.listdir("/proc") if not name.isdigit()]
names += ["/proc/sys/kernel/domainname", "/proc/sys/vm/swappiness", "/proc/pressure/cpu"]
told["files of the machine"] = [name for name in names if writes(name)]
told["sockets of programs"] = [sys.argv[1]] if os.path.exists(sys.argv[1]) else []
for family in (2, 10, 17, 38, 40):  # internet, packet, crypto, hypervisor
    try:
        socket.socket(family)
        told["families"] = family
    except OSError as error:
        assert error.errno == 1, error
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
    told["network"] = True
except OSError:
    told["network"] = False
left, right = socket.socketpair()
left.send(b"x")
told["sockets"] = right.recv(1) == b"x"
print(json.dumps(told))
"""


def test_profiler_reads_this_package_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path("/usr/lib/python3")
    if not installed.is_dir():
        pytest.skip("no folder /usr/lib/python3 stands for the package here")
    monkeypatch.setattr(paths, "_PACKAGE", installed)
    plan = _plan(str(tmp_path), str(tmp_path), "/usr/bin/ncu")
    around = [each for each in plan.readable if installed.is_relative_to(each)]
    assert not around and any(Path(each).parent == Path("/usr") for each in plan.readable)


def test_profiler_starts_an_interpreter_that_is_named_through_links(tmp_path: Path) -> None:
    scratch, link = tmp_path / "scratch", tmp_path / "links" / "env"
    scratch.mkdir()
    link.parent.mkdir()
    link.symlink_to(sys.prefix)
    readable = (*readable_paths(), *compiler_paths())
    plan = dataclasses.replace(PLAN, scratch=str(scratch), readable=readable)
    python = str(link / "bin" / Path(sys.executable).name)
    given = [python, "-I", "-S", "-B", sandbox.__file__, json.dumps(dataclasses.asdict(plan))]
    made = subprocess.run(
        [*given, python, "-c", "print(6 * 7)"],
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == OWN_FAILURE and "Operation not permitted" in made.stderr:
        pytest.skip(f"the host does not allow the strongest tier: {made.stderr[-200:]}")
    assert made.stdout == "42\n", made.stderr


def test_profiler_may_name_threads_and_reaches_no_other_program(tmp_path: Path) -> None:
    outside, scratch = tmp_path / "service.sock", tmp_path / "scratch"
    scratch.mkdir()
    readable = (*readable_paths(), *compiler_paths(), "/usr")
    plan = dataclasses.replace(PLAN, scratch=str(scratch), readable=readable)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(outside))
        made = subprocess.run(
            [
                *(sys.executable, "-I", "-S", "-B", sandbox.__file__),
                *(
                    json.dumps(dataclasses.asdict(plan)),
                    sys.executable,
                    "-c",
                    PROGRAM,
                    str(outside),
                ),
            ],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
        )
    if made.returncode == OWN_FAILURE:
        pytest.skip(f"the host does not allow the strongest tier: {made.stderr[-200:]}")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == {
        "child names itself": True,
        "files of the machine": [],
        "sockets of programs": [],
        "network": False,
        "sockets": True,
    }
