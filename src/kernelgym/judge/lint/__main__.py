"""The process of the degeneracy gate: ``python -m kernelgym.judge.lint``.

It imports torch once and forks a child per problem, which runs the problem's own code (trusted, as
everywhere in the judge, but fallible) and sends what it finds at once, so that a test that has to
be killed has not been for nothing. `hygiene_process` starts it, keeps the deadline and reads the
answers; `degeneracy` holds the tests. It writes nothing to disk.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import Any

from kernelgym.judge.lint.checks import examine
from kernelgym.judge.out_of_memory import bound_own_memory
from kernelgym.judge.untrusted import protocol
from kernelgym.rulesets import Ruleset
from kernelgym.types import Problem

__all__ = ["main"]


def _serve_one(caller: socket.socket, job: dict[str, Any]) -> None:
    """In the child: test one problem and send what is found."""
    if job["device"] == "cpu":
        bound_own_memory()  # CUDA maps far more addresses than it uses memory

    def found(reason: str, detail: str) -> None:
        protocol.send(caller, {"reason": reason, "detail": detail})

    deadline = time.monotonic() + job["seconds"]
    problem, rules = Problem(**job["problem"]), Ruleset.from_dict(job["ruleset"])
    untested = examine(problem, rules, job["device"], found, deadline)
    protocol.send(caller, {"untested": untested})


def _wait_for(child: int, caller: socket.socket) -> int:
    """Return how the child ended; end everything if the caller is gone before that."""
    handle = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([handle, caller.fileno()], [], [])
        if handle not in ready:
            os.killpg(0, signal.SIGKILL)  # it sends nothing while it waits: it is gone
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(caller_fd: int, watching: bool) -> None:
    """Serve problems until the socket closes.

    Args:
        caller_fd: The socket.
        watching: Whether references will be watched under a dispatch mode, to choose their bound.
    """
    if watching:
        # Dispatch modes import it when first entered, which takes 4 s: better once than per child.
        import torch._dynamo  # noqa: F401

    caller = socket.socket(fileno=caller_fd)
    decoder = protocol.Decoder(1 << 30)
    protocol.send(caller, {"ready": True})
    while True:
        try:
            job, _ = protocol.receive(caller, decoder)
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _serve_one(caller, job)
                code = 0
            except Exception as error:  # ours: what the problem raises has been seen to
                protocol.send(caller, {"untested": f"{type(error).__name__}: {error}"[:500]})
            except BaseException as error:  # SystemExit and its like can only be the problem's
                protocol.send(caller, {"failed": f"{type(error).__name__}: {error}"[:500]})
            finally:
                os._exit(code)
        protocol.send(caller, {"ended": _wait_for(child, caller)})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1")
