"""Serve a worker's jobs one after the other: judge each job and send its answer."""

from __future__ import annotations

import contextlib
import dataclasses
import select
import socket
from typing import Any

from kernelgym.errors import JudgeError, UsageError
from kernelgym.judge.device.accelerator import DeviceLost
from kernelgym.judge.untrusted import protocol
from kernelgym.judge.worker.worker import Worker
from kernelgym.types import Kernel, Problem

_PAUSE_S = 0.02  # the next job often arrives within this time; preparing would delay it


def serve(
    worker: Worker, jobs: socket.socket, decoder: protocol.Decoder, job: dict[str, Any] | None
) -> None:
    """Do jobs until the socket closes.

    Args:
        worker: Does the jobs.
        jobs: The socket that jobs come from and answers go to.
        decoder: Holds bytes already received from the socket.
        job: The first job; None ends at once. Further jobs are received from the socket.
    """
    while job is not None:
        protocol.send(jobs, {"job": job["job"], **_answer(worker, job)})
        prepare_ahead(worker, jobs)
        try:
            job, _ = protocol.receive(jobs, decoder)
        except EOFError:
            job = None
    worker.close()


def prepare_ahead(worker: Worker, jobs: socket.socket) -> None:
    """Prepare processes until a job arrives or nothing more can be prepared."""
    poll = select.poll()
    poll.register(jobs, select.POLLIN)
    # A failure shows again, and is reported, when a kernel needs a process.
    with contextlib.suppress(JudgeError, OSError):
        while not poll.poll(_PAUSE_S * 1e3) and worker.prepare_ahead():
            pass


def _answer(worker: Worker, job: dict[str, Any]) -> dict[str, Any]:
    """Do one job; return the answer's fields."""
    problem = Problem(**job["problem"])
    if "baseline" in job:
        return _prepare(worker, problem, **job["baseline"])
    try:
        if "build" in job:
            built = worker.build(Kernel(**job["build"]))
            return {"build": None if built is None else dataclasses.asdict(built)}
        if "compile" in job:
            return {
                "compile": dataclasses.asdict(
                    worker.compile_only(problem, Kernel(**job["compile"]))
                )
            }
        if "profile" in job:
            kernel = Kernel(**job["profile"])
            counters = worker.profile(problem, kernel, job["metrics"], job["timeout_s"])
            return {"profile": dataclasses.asdict(counters)}
        kernels = [Kernel(**fields) for fields in job["kernels"]]
        verdicts = worker.judge(problem, kernels, job["seed"])
    except UsageError as error:
        return {"refused": str(error)}
    except DeviceLost as error:
        worker.reset()
        return {"failed": str(error), "code": "device_lost"}
    except Exception as error:  # the boundary: an error raised up to here is the judge's failure
        worker.reset()
        return {"failed": f"{type(error).__name__}: {error}", "code": "judge_failed"}
    return {"verdicts": None if verdicts is None else [each.to_dict() for each in verdicts]}


def _prepare(worker: Worker, problem: Problem, refresh: bool) -> dict[str, Any]:
    """Prepare a compiled baseline; return the answer's fields."""
    try:
        return {"baseline": worker.prepare_baseline(problem, refresh).to_dict()}
    except UsageError as error:
        return {"refused": str(error)}
    except Exception as error:  # the boundary, as in `_answer`
        worker.reset()
        return {"failed": str(error) if isinstance(error, JudgeError) else repr(error)}
