"""The sandbox of the profiler: its processes name threads, use sockets, and reach nothing else."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgym.judge.sandbox.paths import compiler_paths, readable_paths
from kernelgym.judge.untrusted.sandbox import sandbox
from kernelgym.judge.untrusted.sandbox.sandbox import OWN_FAILURE, TIERS, SandboxPlan

PROGRAM = """
import json, socket, subprocess, sys
told = {}
named = "import os; open(f'/proc/self/task/{os.getpid()}/comm', 'w').write('x')"
told["child names itself"] = subprocess.run([sys.executable, "-c", named]).returncode == 0
for name in ("/proc/sys/kernel/domainname", "/proc/sys/vm/swappiness"):
    try:
        open(name, "r+").close()
        told[name] = True
    except OSError:
        told[name] = False
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


def test_profiler_may_name_threads_and_reaches_no_network(tmp_path: Path) -> None:
    plan = SandboxPlan(
        tier=TIERS[0],
        scratch=str(tmp_path),
        readable=(*readable_paths(), *compiler_paths(), "/usr"),
        listable=(),
        memory_bytes=0,
        file_bytes=1 << 20,
        open_files=1024,
        processes=256,
        exec_allowed=True,
        gpu=True,
        sockets=True,
    )
    made = subprocess.run(
        [
            *(sys.executable, "-I", "-S", "-B", sandbox.__file__),
            *(json.dumps(dataclasses.asdict(plan)), sys.executable, "-c", PROGRAM),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == OWN_FAILURE:
        pytest.skip(f"the host does not allow the strongest tier: {made.stderr[-200:]}")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == {
        "child names itself": True,
        "/proc/sys/kernel/domainname": False,
        "/proc/sys/vm/swappiness": False,
        "network": False,
        "sockets": True,
    }
