"""Runs eval runs in processes that can be killed: one import, then a fork for each run.

Each line on standard input is a JSON object of arguments. A child plays that run against the
endpoint, judged by a scripted evaluator or the judge itself; its process id is printed, then its
exit status.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import openai  # noqa: F401  # so that no child imports it again

from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.openai_policy import EndpointSampling, OpenAIPolicy
from kernelgym.testing import ScriptedEvaluator
from support.evals import by_digest


def play(given: Mapping[str, Any]) -> None:
    policy = OpenAIPolicy(
        "kernel-writer",
        given["url"],
        sampling=EndpointSampling(seeded=True),
        timeout_s=given["timeout_s"],
    )
    evaluate(
        policy,
        out=given["out"],
        evaluator=None if given["judged"] else ScriptedEvaluator(by_digest),
        concurrency=given["concurrency"],
        **given["task"],
    )


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                play(json.loads(line))
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
