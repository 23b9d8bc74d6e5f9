"""Warming up leaves the interpreter as it was, and runs everything that it means to."""

import os
import subprocess
import sys

PROGRAM = """
import contextlib
import os
from types import SimpleNamespace
import torch
import triton
import triton.language as tl
from kernelgym.judge.untrusted.triton import warm_up
from kernelgym.judge.untrusted.watch import fingerprint, host_memory, host_transfers
from kernelgym.judge.untrusted.watch import launch_times, launches, operator_work
from kernelgym.judge.untrusted.watch import device_kernels, records, tracer

# Nothing that fails goes unnoticed here.
failing = {Exception: contextlib.nullcontext()}
warm_up.contextlib = SimpleNamespace(
    suppress=lambda kind: failing.get(kind) or contextlib.suppress(kind)
)
counts = launches.Launches()
parts = host_transfers, operator_work, host_memory, fingerprint, launch_times, records
parts += (device_kernels,)
tracer = tracer.Tracer(counts, *parts)
threads = len(os.listdir("/proc/self/task"))
warm_up.warm_up(tracer, fingerprint.fingerprint)
print(len(os.listdir("/proc/self/task")) - threads)
try:
    tl.arange(0, 4)
except ValueError as error:
    print(error)
seen = {name: value for name, value in tracer.begin().mode("record").items() if value}
print(seen, counts.count, tracer._host_transfers._shared, repr(tracer._host_transfers._everywhere))
x = torch.linspace(-1, 1, 40).view(4, 10)
out = warm_up._Model()(x)
centred = out - out.mean(1, keepdim=True)
print(float(out.sum(1).abs().max()) < 1e-3, float((out.square().mean(1) - 1).abs().max()) < 0.1)
"""


def test_what_it_launches_runs_and_the_language_is_as_it_was():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "4"},
    )
    assert done.returncode == 0, done.stderr
    threads, said, seen, rows = done.stdout.splitlines()
    assert threads == "0"  # children forked after several threads had worked would hang
    assert seen == "{} 0 {} ''"  # what a kernel did not do is not held against it
    assert "triton.jit" in said and rows == "True True"
