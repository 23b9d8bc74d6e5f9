"""The trusted worker's program: takes jobs from a socket, one at a time, and answers verdicts.

`worker_handle.py` starts it as ``python -m kernelgym.judge.worker``. The worker is a process of
its own so that the caller imports no torch and survives whatever the problem's code does.
Candidates run in further processes, which a zygote forks. The zygote imports torch as well, so
this program starts the zygote before it imports the modules that do the work (`jobs`, `worker`):
both processes then import torch at the same time.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

from kernelgym.judge.processes.scratch import claim, sweep
from kernelgym.judge.processes.zygote_handle import start_zygote
from kernelgym.judge.sandbox.network import deny_network
from kernelgym.judge.untrusted import protocol
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.rulesets import Ruleset


def _exit_with_parent(lifeline: int) -> None:
    """End this process and its zygotes when the parent is gone."""

    def watch() -> None:
        os.read(lifeline, 1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main(job_fd: int, lifeline_fd: int) -> None:
    """Serve jobs until the socket closes."""
    deny_network()  # this process runs problems' own code
    _exit_with_parent(lifeline_fd)
    jobs = socket.socket(fileno=job_fd)
    decoder = protocol.Decoder(1 << 30)
    setup, _ = protocol.receive(jobs, decoder)
    ruleset, tier, device = Ruleset.from_dict(setup["ruleset"]), setup["tier"], setup["device"]
    folder, scratch = Path(setup["folder"]), Path(setup["scratch"])
    claim(scratch)
    sweep(scratch.parent)
    protocol.send(jobs, {"ready": True})
    try:
        job, _ = protocol.receive(jobs, decoder)  # its language decides which zygote is needed
    except EOFError:
        return
    alone = filter(None, [job.get("build"), job.get("compile"), job.get("profile")])
    kernels = [*job.get("kernels", ()), *alone]
    language = kernels[0]["language"] if kernels else REFERENCE_LANGUAGE
    starting = start_zygote(language, ruleset.limits, folder, scratch, tier, device)
    from kernelgym.judge.worker.jobs import serve
    from kernelgym.judge.worker.worker import Worker

    worker = Worker(
        ruleset,
        setup["timing"],
        folder,
        scratch,
        tier,
        device,
        setup["caller_device"],
        setup["standby"],
        setup["workers_on_device"],
        starting,
        setup["memory_bytes"],
    )
    serve(worker, jobs, decoder, job)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
