"""The trusted worker's program: takes jobs over a socket, one at a time, and answers verdicts.

Started by `local.py` as ``python -m kernelgym.judge.worker``. It is a process of its own so that
the caller imports no torch and survives whatever the problem's code does; candidates run in
further processes, forked by a zygote.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError, UsageError
from kernelgym.judge import wire
from kernelgym.judge.accelerator import DeviceLost
from kernelgym.judge.judging import Worker
from kernelgym.judge.local import unavailable
from kernelgym.judge.scratch import claim, sweep
from kernelgym.rulesets import Limits, Ruleset, TimingProtocol
from kernelgym.types import Kernel, Problem

__all__ = ["main", "read_ruleset"]

_PAUSE_S = 0.02  # the next job is often on its way


def read_ruleset(data: dict[str, Any]) -> Ruleset:
    """Rebuild a ruleset from `dataclasses.asdict` after JSON."""
    values = dict(data)
    values["timing"] = TimingProtocol(**values["timing"])
    values["limits"] = Limits(**values["limits"])
    for name in ("hard_findings", "distributions"):
        values[name] = tuple(values[name])
    values["error_factors"] = tuple((name, factor) for name, factor in values["error_factors"])
    return Ruleset(**values)


def _exit_with_parent(lifeline: int) -> None:
    """End this process, and with it the zygotes, as soon as the parent is gone."""

    def watch() -> None:
        os.read(lifeline, 1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _prepare_ahead(worker: Worker, jobs: socket.socket) -> None:
    """Have processes stand ready until there is a job, or nothing left that can be done."""
    poll = select.poll()
    poll.register(jobs, select.POLLIN)
    with contextlib.suppress(JudgeError, OSError):  # met again, where a kernel needs one
        while not poll.poll(_PAUSE_S * 1e3) and worker.prepare_ahead():
            pass


def _prepare(worker: Worker, problem: Problem, refresh: bool) -> dict[str, Any]:
    """Prepare a compiled baseline; return the answer's fields."""
    try:
        return {"baseline": worker.prepare_baseline(problem, refresh).to_dict()}
    except UsageError as error:
        return {"refused": str(error)}
    except Exception as error:  # the boundary, as for verdicts
        worker.reset()
        return {"failed": str(error) if isinstance(error, JudgeError) else repr(error)}


def main(job_fd: int, lifeline_fd: int) -> None:
    """Serve jobs until the socket closes."""
    _exit_with_parent(lifeline_fd)
    jobs = socket.socket(fileno=job_fd)
    decoder = wire.Decoder(1 << 30)
    setup, _ = wire.receive(jobs, decoder)
    folder, scratch = Path(setup["folder"]), Path(setup["scratch"])
    claim(scratch)
    sweep(scratch.parent)
    worker = Worker(
        read_ruleset(setup["ruleset"]),
        setup["timing"],
        folder,
        scratch,
        setup["tier"],
        setup["device"],
        setup["called"],
        setup["ready"],
        setup["beside"],
    )
    wire.send(jobs, {"ready": True})
    while True:
        _prepare_ahead(worker, jobs)
        try:
            job, _ = wire.receive(jobs, decoder)
        except EOFError:
            break
        problem = Problem(**job["problem"])
        if "baseline" in job:
            wire.send(jobs, {"job": job["job"], **_prepare(worker, problem, **job["baseline"])})
            continue
        try:
            verdict = worker.judge(problem, Kernel(**job["kernel"]), job["seed"])
        except UsageError as error:
            wire.send(jobs, {"job": job["job"], "refused": str(error)})
            continue
        except DeviceLost as error:
            worker.reset()
            verdict = unavailable(str(error), "device_lost")
        except Exception as error:  # the boundary: whatever it is, it is not the kernel's fault
            worker.reset()
            verdict = unavailable(f"{type(error).__name__}: {error}")
        wire.send(jobs, {"job": job["job"], "verdict": verdict.to_dict()})
    worker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
