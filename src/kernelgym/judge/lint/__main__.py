"""Program of the degeneracy gate's process: ``python -m kernelgym.judge.lint``.

It imports torch once and forks a child per problem. The child runs the problem's own code (trusted,
as everywhere in the judge, but fallible) and sends each finding at once, so that a child that is
killed has not worked for nothing. It writes nothing to disk.

Not here:
- starting this process, deadlines and results: `kernelgym.judge.lint.process`;
- the tests: `kernelgym.judge.lint.checks`.
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
from kernelgym.judge.problem_code import input_bytes
from kernelgym.judge.sandbox.network import deny_network
from kernelgym.judge.untrusted import protocol
from kernelgym.judging_memory import judging_bytes
from kernelgym.rulesets import Ruleset
from kernelgym.suites.known_memory import too_large
from kernelgym.types import Problem


def _serve_one(caller: socket.socket, job: dict[str, Any]) -> None:
    """Test one problem in the forked child, and send each finding to the caller."""
    if job["device"] == "cpu":
        # On the CPU only: CUDA maps far more addresses than it uses, and would hit the limit.
        bound_own_memory()

    def found(reason: str, detail: str) -> None:
        protocol.send(caller, {"reason": reason, "detail": detail})

    deadline = time.monotonic() + job["seconds"]
    problem, rules = Problem(**job["problem"]), Ruleset.from_dict(job["ruleset"])
    budget = job["memory_bytes"]
    needed = judging_bytes(input_bytes(problem))
    if 0 < budget < needed:
        untested = too_large(problem.id, needed, budget, job["device"])
    else:
        untested = examine(problem, rules, job["device"], found, deadline)
    protocol.send(caller, {"untested": untested})


def _wait_for(child: int, caller: socket.socket) -> int:
    """Return the exit code of the child that tests a problem; kill all if the caller is gone."""
    handle = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([handle, caller.fileno()], [], [])
        if handle not in ready:
            # The caller sends nothing while it waits, so a readable socket means that it is gone.
            os.killpg(0, signal.SIGKILL)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(caller_fd: int) -> None:
    """Serve problems until the socket closes.

    Args:
        caller_fd: The socket.
    """
    deny_network()  # the children run problems' own code
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
            except Exception as error:  # the judge's own: `examine` handles the problem's errors
                protocol.send(caller, {"untested": f"{type(error).__name__}: {error}"[:500]})
            except BaseException as error:  # only the problem's code can raise SystemExit
                protocol.send(caller, {"failed": f"{type(error).__name__}: {error}"[:500]})
            finally:
                os._exit(code)
        protocol.send(caller, {"ended": _wait_for(child, caller)})


if __name__ == "__main__":
    main(int(sys.argv[1]))
