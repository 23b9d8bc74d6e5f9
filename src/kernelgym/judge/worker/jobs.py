"""A worker's jobs, one after the other: each is judged, and answered."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Any

from kernelgym.errors import JudgeError, UsageError
from kernelgym.judge.device.accelerator import DeviceLost
from kernelgym.judge.untrusted import protocol
from kernelgym.judge.worker.worker import Worker
from kernelgym.types import Kernel, Problem

__all__ = ["prepare_ahead", "serve"]

_PAUSE_S = 0.02  # the next job is often on its way


def serve(
    worker: Worker, jobs: socket.socket, decoder: protocol.Decoder, job: dict[str, Any] | None
) -> None:
    """Do jobs until the socket closes.

    Args:
        worker: Does them.
        jobs: Where they come from, and their answers go to.
        decoder: What has come there.
        job: The first; the next are received.
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
    """Have processes stand ready until there is a job, or nothing left that can be done."""
    poll = select.poll()
    poll.register(jobs, select.POLLIN)
    with contextlib.suppress(JudgeError, OSError):  # met again, where a kernel needs one
        while not poll.poll(_PAUSE_S * 1e3) and worker.prepare_ahead():
            pass


def _answer(worker: Worker, job: dict[str, Any]) -> dict[str, Any]:
    """Do one job; return the answer's fields."""
    problem = Problem(**job["problem"])
    if "baseline" in job:
        return _prepare(worker, problem, **job["baseline"])
    try:
        verdict = worker.judge(problem, Kernel(**job["kernel"]), job["seed"])
    except UsageError as error:
        return {"refused": str(error)}
    except DeviceLost as error:
        worker.reset()
        return {"failed": str(error), "code": "device_lost"}
    except Exception as error:  # the boundary: whatever it is, it is not the kernel's fault
        worker.reset()
        return {"failed": f"{type(error).__name__}: {error}", "code": "judge_failed"}
    return {"verdict": verdict.to_dict()}


def _prepare(worker: Worker, problem: Problem, refresh: bool) -> dict[str, Any]:
    """Prepare a compiled baseline; return the answer's fields."""
    try:
        return {"baseline": worker.prepare_baseline(problem, refresh).to_dict()}
    except UsageError as error:
        return {"refused": str(error)}
    except Exception as error:  # the boundary, as for verdicts
        worker.reset()
        return {"failed": str(error) if isinstance(error, JudgeError) else repr(error)}
