"""`check_devices`: checks that the given devices can judge, time and profile a task's kernels.

Contract: everything is checked before anything is judged, and each refusal is one line. A GPU
counts as busy if NVIDIA's `nvidia-smi` says in each of three samples that other programs keep it at
work. That several GPUs are of one kind is checked by the evaluator.

Not covered: a GPU whose use `nvidia-smi` does not tell; the judge notices other programs later, and
a search then says so or, with ``require_quiet``, ends.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kernelgym import UsageError
from kernelgym.counters import find_ncu
from kernelgym.devices import CudaDevice, cuda_devices, find_device, physical_number
from kernelgym.judging_memory import memory_budget
from kernelgym.languages import check_language
from kernelgym.suites.spec import KernelSpec
from kernelgym.suites.spec_checks import check_memory
from kernelgym_train.mcgs.task import SearchTask

_BUSY = 20  # percent
_SAMPLES, _APART_S = 3, 0.3
_PARAMETERS = Path("/proc/driver/nvidia/params")
_ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*1\s*$", re.MULTILINE)
_BINARY = re.compile(r"\bsm_(\d+)[af]?")
_PORTABLE = re.compile(r"\bcompute_(\d+)(?![af\d])")


def check_devices(task: SearchTask, devices: Sequence[str], ncu_every: int) -> None:
    """Check that a task's devices exist and support what a search needs.

    Args:
        task: The task.
        devices: Names of the devices, at least one.
        ncu_every: Setting of the search; 0 reads no counters.

    Raises:
        UsageError: If a device is missing or busy, a shape does not fit, the spec is built for
            other GPUs, or counters cannot be read.
        UnsupportedLanguage: If the device does not run the kernel's language.
    """
    device = find_device(devices[0])
    language = check_language(task.start.language, device)
    if not language.is_timed(device):
        raise UsageError(
            f"{task.name}: kernels in {language.title} are not timed on the {device}; give "
            "gpus=0, or device=cuda:0"
        )
    if ncu_every:
        why = _why_no_counters(device)
        if why:
            raise UsageError(f"ncu_every={ncu_every}: {why}; give 0")
    if device != "cpu":
        if task.spec is not None:
            _check_architecture(task.spec, cuda_devices()[int(device.partition(":")[2])])
        for name in devices:
            check_idle(name)
    if task.spec is not None:
        check_memory(task.spec, memory_budget(None, device), device)


def _why_no_counters(device: str) -> str:
    """Return why hardware counters cannot be read; empty if they can be."""
    if device == "cpu":
        return "only a GPU is profiled"
    if not find_ncu():
        return "ncu is not on the PATH"
    try:
        only_admins = _ADMIN_ONLY.search(_PARAMETERS.read_text(encoding="utf-8"))
    except OSError:
        return ""
    # Candidates are profiled without the rights of an administrator.
    told = "the driver lets only administrators read counters (NVreg_RestrictProfilingToAdminUsers)"
    return told if only_admins else ""


def _check_architecture(spec: KernelSpec, gpu: CudaDevice) -> None:
    """Refuse compiler flags that name other GPUs only."""
    flags, own = " ".join(spec.launch.flags), 10 * gpu.capability[0] + gpu.capability[1]
    built = {int(number) for number in _BINARY.findall(flags)}
    portable = {int(number) for number in _PORTABLE.findall(flags)}
    runs = any(each // 10 == own // 10 and each <= own for each in built)
    if (built or portable) and not runs and not any(each <= own for each in portable):
        named = ", ".join(f"sm_{number}" for number in sorted(built | portable))
        raise UsageError(
            f"{spec.name}: launch.flags build for {named}, and {gpu.name} is sm_{own}; leave the "
            "architecture out"
        )


def check_idle(
    device: str,
    used: Callable[[str], int | None] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Check that no other program keeps a GPU busy.

    Args:
        device: The GPU's name.
        used: Function that returns the percentage of the last moment in which the GPU was at
            work; None if it is not known. By `nvidia-smi` if not given.
        pause: Function that waits some seconds.

    Raises:
        UsageError: If the GPU is busy.
    """
    ask, least = used or _used, 100
    for number in range(_SAMPLES):
        if number:
            pause(_APART_S)
        share = ask(device)
        if share is None or share < _BUSY:
            return
        least = min(least, share)
    raise UsageError(
        f"{device} is busy: other programs keep it at work {least} % of the time; wait until they "
        "end, or give another by gpus="
    )


def _used(device: str) -> int | None:
    number = physical_number(device)
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-i", number]
    try:
        asked = subprocess.run(
            ["nvidia-smi", *query], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = asked.stdout.strip()
    return int(text) if asked.returncode == 0 and text.isdecimal() else None
