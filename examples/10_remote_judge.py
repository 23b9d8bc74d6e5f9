"""Serve verdicts on loopback, and play an episode whose kernels the server judges.

    python examples/10_remote_judge.py

Starts a server on the CPU for the length of the program. Needs `pip install 'kernelgym[serve]'`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import gymnasium as gym

import kernelgym  # registers the environments
from kernelgym.languages import LANGUAGES
from kernelgym.testing import reply
from kernelgym.types import Kernel

with tempfile.TemporaryDirectory() as state:
    serve = [sys.executable, "-m", "kernelgym", "serve", "--state", state, "--port", "0"]
    server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
    try:
        told = server.stderr.readline() if server.stderr else ""
        address = told.split()[-1]  # the line ends with it
        if not address.startswith("http"):
            raise SystemExit(told.strip())  # why it does not serve
        with kernelgym.RemoteEvaluator(address) as judge:
            print(f"{judge.capabilities.ruleset.label} on {judge.capabilities.device}")
        env = gym.make("Synthetic-L1-SingleTurn", problems=2, evaluator=address)
        env.reset(seed=1)
        kernel = Kernel(LANGUAGES["triton"].sample, "triton")  # written for another problem
        _, reward, _, _, info = env.step(reply(kernel))
        print(f"verdict of the server: {info['status']}, reward {reward}")
    finally:
        server.terminate()
        server.communicate()
