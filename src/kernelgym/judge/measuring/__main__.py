"""Program of one measurement's process: ``python -m kernelgym.judge.measuring``.

It reads one job from standard input, as JSON, and writes one result to where its standard output
was; what the problem's code prints goes to standard error. The process has no network.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from kernelgym.judge.out_of_memory import bound_own_memory
from kernelgym.judge.sandbox.network import deny_network


def main() -> None:
    """Do the one measuring job that standard input holds."""
    deny_network()
    job = json.load(sys.stdin)
    answer = os.dup(1)
    os.dup2(2, 1)
    if job["device"] == "cpu":
        # On the CPU only: CUDA maps far more addresses than it uses, and would hit the limit.
        bound_own_memory()
    try:
        result = _do(job)
    except MemoryError:
        result = {"message": "memory ran out"}
    except Exception as error:  # the problem's own code, or a compiler
        result = {"message": f"{type(error).__name__}: {error}"[:2000]}
    with os.fdopen(answer, "w") as file:
        json.dump(result, file)


def _do(job: dict[str, Any]) -> dict[str, Any]:
    if "prepared" in job:
        return _prepared(job["device"], **job["prepared"])
    if "problem" not in job:
        from kernelgym.judge.measuring.rates import device_rates

        return device_rates(job["device"])
    from kernelgym.judge.measuring.references import time_reference
    from kernelgym.reference_time import TimeSetting
    from kernelgym.types import Problem

    problem, setting = Problem(**job["problem"]), TimeSetting(**job["setting"])
    return time_reference(problem, setting, job["device"], job["trials"], job["seconds"])


def _prepared(device: str, digests: list[str], rules: dict[str, Any]) -> dict[str, Any]:
    """Return the digests of problems whose compiled baseline is stored."""
    import torch

    from kernelgym.judge.timing.baseline_store import BaselineStore, device_name
    from kernelgym.paths import cache_folder
    from kernelgym.rulesets import Ruleset

    name = device_name(torch.device(device))
    kept = BaselineStore(cache_folder() / "baselines", Ruleset.from_dict(rules), name)
    return {"digests": [digest for digest in digests if kept.has(digest)]}


if __name__ == "__main__":
    main()
    # Threads of a compiler's pool would keep the process; the answer is written.
    os._exit(0)
