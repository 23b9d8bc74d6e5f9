"""Serves a worker's jobs one after the other: judges each job and sends its answer."""

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
        worker: Worker that does the jobs.
        jobs: The socket that jobs come from and answers go to.
        decoder: Decoder that holds bytes already received from the socket.
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
    try:
        return {"done": _do(worker, job)}
    except UsageError as error:
        return {"refused": str(error)}
    except DeviceLost as error:
        worker.reset()
        return {"failed": str(error), "code": "device_lost"}
    except Exception as error:  # the boundary: an error raised up to here is the judge's failure
        worker.reset()
        text = str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}"
        return {"failed": text, "code": "judge_failed"}


def _do(worker: Worker, job: dict[str, Any]) -> Any:
    problem = Problem(**job["problem"])
    kernels = [Kernel(**fields) for fields in job["kernels"]]
    match job["what"]:
        case "baseline":
            return worker.prepare_baseline(problem, job["refresh"]).to_dict()
        case "build":
            built = worker.build(*kernels)
            return None if built is None else dataclasses.asdict(built)
        case "compile":
            return dataclasses.asdict(worker.compile_only(problem, *kernels))
        case "profile":
            counters = worker.profile(problem, kernels[0], job["metrics"], job["timeout_s"])
            return dataclasses.asdict(counters)
        case _:
            verdicts = worker.judge(problem, kernels, job["seed"])
            return None if verdicts is None else [each.to_dict() for each in verdicts]
