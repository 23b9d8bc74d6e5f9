"""`profile_kernel`: profiles one call of a kernel in a sandboxed process under ``ncu``.

Contract: the process has no network, sees neither the reference nor the judged inputs, and has a
root folder of its own, whose scratch folder lies in memory. Its inputs are random numbers with the
shapes and types of the problem's. The device lock is shared meanwhile, so that no kernel is timed
beside it. What the process writes is read as text and never trusted: counters decide no verdict.

Extensions are those that were built when the kernel was judged; none is built here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelgym.counters import METRICS, Counters, find_ncu
from kernelgym.judge.compiling import compiler_process
from kernelgym.judge.compiling.compiler_process import BuildLimit, bounded
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.environment import ZYGOTE
from kernelgym.judge.inputs.seeds import seed_all
from kernelgym.judge.problem_code import names_of
from kernelgym.judge.profiling.ncu import (
    TIME,
    command,
    failure,
    read_output,
    unknown_metrics,
)
from kernelgym.judge.sandbox.paths import compiler_paths, driver_paths, readable_paths
from kernelgym.judge.untrusted import profiled_call
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS, SandboxPlan
from kernelgym.types import Kernel, Problem

_FILE_BYTES, _SCRATCH_BYTES = 1 << 28, 1 << 30
_MEMORY_BYTES = 32 << 30  # ncu keeps a copy of what a kernel writes while it repeats a launch
_OPEN_FILES, _PROCESSES = 4096, 4096


def profile_kernel(
    problem: Problem,
    kernel: Kernel,
    metrics: Sequence[str],
    timeout_s: float,
    accelerator: Accelerator,
    scratch: Path,
    tier: str,
    built: Mapping[str, bytes],
) -> Counters:
    """Return the hardware counters of one call of a kernel.

    Args:
        problem: The problem; its code is run for the shapes of its inputs.
        kernel: A kernel that was correct.
        metrics: Metrics of ``ncu``; `kernelgym.counters.METRICS` if empty.
        timeout_s: Seconds after which the process is killed.
        accelerator: The device.
        scratch: Folder for temporary files.
        tier: Sandbox tier of candidates on this host.
        built: The kernel's libraries, by name, in the order in which the kernel loads them.
    """
    began = time.monotonic()
    if not accelerator.on_cuda:
        return Counters("unavailable", message="only GPUs have counters that ncu reads")
    ncu = find_ncu()
    if not ncu:
        return Counters("unavailable", message="ncu is not installed, or not on the PATH")
    if tier != TIERS[0]:
        # The profiler needs sockets, which only a network namespace keeps apart from others.
        return Counters("unavailable", message=f"a profile needs the sandbox tier {TIERS[0]}")
    asked = tuple(metrics) or METRICS
    scratch.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="profiled-", dir=scratch) as given,
        tempfile.TemporaryDirectory(prefix="profile-", dir=scratch) as folder,
    ):
        job = {"source": kernel.source, **_described(problem, accelerator.device)}
        job["libraries"] = _written(built, Path(given))
        Path(given, "job.json").write_text(json.dumps(job), encoding="utf-8", errors="replace")
        # -P: the folder of the program has a package named triton of its own.
        program = [sys.executable, "-P", "-B", profiled_call.__file__, f"{given}/job.json", folder]
        for _ in range(2):
            running = compiler_process.start(
                command(ncu, asked, program), _plan(given, folder, ncu), ZYGOTE
            )
            left = timeout_s - (time.monotonic() - began)
            with accelerator.device_lock.shared():
                said = running.finish(BuildLimit(max(1.0, left)))
            found = read_output(said)
            if found is not None or not (unknown := unknown_metrics(said)):
                break
            asked = tuple(name for name in asked if name not in unknown)
    seconds = round(time.monotonic() - began, 3)
    if found is not None:
        # Asked for raw values, ncu adds some hundred attributes of the device.
        own = {name: value for name, value in found.values.items() if name in (*asked, TIME)}
        return dataclasses.replace(found, values=own, source="ncu", seconds=seconds)
    if seconds >= timeout_s:
        told = f"the profile took more than {timeout_s:g} s"
        return Counters("timeout", seconds=seconds, message=told)
    status, why = failure(bounded(said))
    return Counters(status, seconds=seconds, message=why)


def _written(built: Mapping[str, bytes], folder: Path) -> list[dict[str, str]]:
    """Write libraries into a folder; return their paths and the names of their modules.

    A library without a module, as `torch.ops.load_library` loads them, has an empty name.
    """
    found = []
    for name, data in built.items():
        if name.endswith(".so"):
            path = folder / name
            path.write_bytes(data)
            module = re.search(rb"\0PyInit_(\w+)\0", data)
            found.append({"path": str(path), "module": module[1].decode() if module else ""})
    return found


def _described(problem: Problem, device: torch.device) -> dict[str, Any]:
    """Return the shapes, types and ranges of a problem's inputs and constructor's arguments."""
    names = names_of(problem.source, problem.id)
    with torch.device(device):
        seed_all(0, device)
        inputs = [describe(value) for value in names["get_inputs"]()]
    return {"inputs": inputs, "arguments": [describe(v) for v in names["get_init_inputs"]()]}


def describe(value: Any) -> Any:
    """Return a value as JSON: a tensor by its shape, type and range, other values as they are.

    Raises:
        TypeError: If a value is neither a tensor, a number, a text nor a list of such values.
    """
    if isinstance(value, torch.Tensor):
        whole = not (value.is_floating_point() or value.is_complex())
        ends = (int(value.min()), int(value.max())) if whole and value.numel() else (0, 1)
        kind = str(value.dtype).removeprefix("torch.")
        return {"tensor": [list(value.shape), kind, *ends]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [describe(each) for each in value]
    raise TypeError(f"an input is a {type(value).__name__}, which a profile cannot make")


def _plan(given: str, folder: str, ncu: str) -> SandboxPlan:
    own = (os.path.dirname(profiled_call.__file__), os.path.dirname(ncu), given)
    return SandboxPlan(
        tier=TIERS[0],
        scratch=folder,
        # As extra paths /usr and /opt are read without this package, which may be installed there.
        readable=(*readable_paths("/usr", "/opt"), *driver_paths(), *compiler_paths(), *own),
        listable=(),
        memory_bytes=_MEMORY_BYTES,
        file_bytes=_FILE_BYTES,
        scratch_bytes=_SCRATCH_BYTES,
        open_files=_OPEN_FILES,
        processes=_PROCESSES,
        exec_allowed=True,
        gpu=True,
        sockets=True,
    )
