"""Starts a process for each measurement, and ends it at its deadline.

Contract: this module imports no torch. A measurement's process gets the environment of the judge's
other trusted processes and compilers' caches of its own, which are deleted afterwards: what another
measurement compiled makes none of its times. A process that overruns is killed with all that it
started.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.judge.environment import of_trusted
from kernelgym.judge.processes.trusted_process import fields_of
from kernelgym.pretrained import what_is_missing
from kernelgym.reference_time import ReferenceTime, TimeSetting
from kernelgym.rulesets import Ruleset
from kernelgym.suites.known_memory import needed_bytes, too_large
from kernelgym.types import Problem

_DEVICE_S = 300.0
_TRIALS_SHARE = 0.3
"""Share of a measurement's time limit that trials may take; the rest is for compiling."""


def measure_reference(
    problem: Problem,
    setting: TimeSetting,
    device: str,
    *,
    trials: int = 100,
    timeout_s: float = 300.0,
    memory_bytes: int = 0,
    threads: int = 0,
) -> ReferenceTime:
    """Time a problem's reference in a fresh process.

    Args:
        problem: The problem; its code is run.
        setting: Mode, precision and TF32.
        device: ``cpu`` or a GPU's name.
        trials: Calls to time; fewer where they take more than three tenths of `timeout_s`.
        timeout_s: Seconds after which the process is killed, compiling included.
        memory_bytes: The memory budget; a problem that needs more is not run. 0 sets no limit.
        threads: Processes that compile at the same time; 0 for one a core.

    Returns:
        The times; without any and with a message if the reference fails or takes too long.
    """
    needed = needed_bytes(problem) or 0
    if missing := what_is_missing(problem):
        result: dict[str, Any] = {"message": missing}
    elif 0 < memory_bytes < needed:
        result = {"message": too_large(problem.id, needed, memory_bytes, device)}
    else:
        job = {
            "problem": fields_of(problem),
            "setting": dataclasses.asdict(setting),
            "device": device,
            "trials": trials,
            "seconds": _TRIALS_SHARE * timeout_s,
        }
        more = {"TORCHINDUCTOR_COMPILE_THREADS": str(threads)} if threads else {}
        result = _run(job, timeout_s, more)
    return ReferenceTime(problem.id, problem.digest, setting, device, **result)


def compile_threads(workers: int) -> int:
    """Return how many processes each measurement compiles with.

    That is 0, which leaves it to torch, for one measurement at a time. A core stays idle for
    each, or timed programs would wait for their host.
    """
    return 0 if workers == 1 else max(1, (os.cpu_count() or 1) // workers - 1)


def prepared_baselines(problems: Sequence[Problem], rules: Ruleset, device: str) -> frozenset[str]:
    """Return the ids of problems whose compiled baseline is prepared.

    Args:
        problems: The problems; their code is not run.
        rules: Ruleset by which kernels will be judged.
        device: Device on which they will be judged.

    Raises:
        JudgeError: If the process that looks for them fails, for example for want of the device.
    """
    digests = {"digests": [problem.digest for problem in problems]}
    job = {"device": device, "prepared": digests | {"rules": dataclasses.asdict(rules)}}
    result = _run(job, _DEVICE_S)
    if "message" in result:
        raise JudgeError(str(result["message"]))
    there = set(result["digests"])
    return frozenset(problem.id for problem in problems if problem.digest in there)


def measure_device(device: str) -> dict[str, Any]:
    """Measure a device's rates in a fresh process; see `kernelgym.judge.measuring.rates`.

    Raises:
        JudgeError: If they cannot be measured.
    """
    result = _run({"device": device}, _DEVICE_S)
    if "message" in result:
        raise JudgeError(f"the rates of {device} cannot be measured: {result['message']}")
    return result


def _run(
    job: dict[str, Any], timeout_s: float, variables: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the result of a measuring job, or how its process ended."""
    with tempfile.TemporaryDirectory(prefix="kernelgym-measuring-") as folder:
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
            "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        }
        # -P: otherwise a file in the current folder could replace a library that it imports.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelgym.judge.measuring"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**of_trusted(), **caches, **variables},
            start_new_session=True,
            text=True,
        )
        try:
            said, complaint = process.communicate(json.dumps(job), timeout_s)
        except subprocess.TimeoutExpired:
            return {"message": f"not done after {timeout_s:g} s"}
        finally:
            _end(process)
        if process.returncode == 0 and said:
            return dict(json.loads(said))
        lines = complaint.strip().splitlines()
        last = f": {lines[-1][:500]}" if lines else ""
        return {"message": f"its process ended with code {process.returncode}{last}"}


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a measuring process and its children, if any are left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()
