"""The quickened interpreter of Triton gives what Triton's own gives: values, types and errors."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import hashlib, json, sys
import numpy as np
import torch
import triton
import triton.language as tl
from kernelgym.judge.quick_interpreter import quicken
from kernelgym.suites.synthetic import SyntheticSuite, solve

found = {}
if sys.argv[1] == "quick":
    found["left"] = quicken()


@triton.jit
def helper(value, scale):
    return value * scale + 1


@triton.jit
def kernel(out, n, big, BLOCK: tl.constexpr, CASE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = at + big
    if CASE == "overflow":
        x = (x * x).to(tl.int32) + x
    elif CASE == "uint":
        x = (at.to(tl.uint8) * 200 + 100).to(tl.int32)
    elif CASE == "bool":
        x = ((at > 3) & (at < n)).to(tl.int32)
    elif CASE == "wide":
        x = (at[:, None] * at[None, :] + tl.zeros((1, BLOCK), tl.int32)).to(tl.float64)
        x = tl.sum(tl.sum(x, 1) * 0.1, 0).to(tl.int32) + at
    elif CASE == "helper":
        x = helper(helper(x, 2), at)
    elif CASE == "half":
        x = (helper(at.to(tl.float16), 0.3) / 7 + at.to(tl.bfloat16)).to(tl.float32).to(tl.int32)
    elif CASE == "shapes":
        x = at + tl.arange(0, 2 * BLOCK)
    elif CASE == "negative":
        x = at.to(tl.uint32) + -1
    elif CASE == "pointers":
        x = out + out
    elif CASE == "scalar":
        x = tl.full((BLOCK,), n, tl.int64) // 3 + x.shape[0] + x.numel
    tl.store(out + at, x.to(tl.int32), mask=at < n)


cases = "plain overflow uint bool wide helper half shapes negative pointers scalar".split()
for case in cases:
    out = torch.zeros(16, dtype=torch.int32)
    try:
        kernel[(2,)](out, 13, 2**30, BLOCK=16, CASE=case)
        found[case] = out.tolist()
    except Exception as error:
        found[case] = f"{type(error).__name__}: {error}: {error.__cause__!r}"
    if case == "plain":
        try:
            tl.arange(0, 4)  # the language is as it was once a launch is over
        except ValueError as error:
            found["outside"] = str(error)
tl.own = tl.core.builtin(lambda x, _semantic=None: x + 1)


@triton.jit
def with_own(out):
    tl.store(out, tl.own(tl.load(out)))


with_own[(1,)](out)
found["own"] = out.tolist()
for number, problem in enumerate(list(SyntheticSuite().problems(level=1))[::9]):
    names, space = {}, {"__name__": f"kernel{number}"}
    exec(problem.source, names)
    path = f"{sys.argv[2]}/kernel{number}.py"
    open(path, "w").write(solve(problem, "triton").source)
    exec(compile(open(path).read(), path, "exec"), space)
    torch.manual_seed(1)
    model = space["ModelNew"](*names["get_init_inputs"]())
    torch.manual_seed(2)
    with torch.no_grad():
        output = model(*names["get_inputs"]())
    found[problem.id] = hashlib.sha256(output.numpy().tobytes()).hexdigest()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    def run(which):
        folder = tmp_path_factory.mktemp(which)
        (folder / "program.py").write_text(PROGRAM)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(folder / "program.py"), which, str(folder)],
            capture_output=True,
            text=True,
            env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run("own"), run("quick")


def test_every_function_is_the_one_that_was_known(both):
    # Another version of Triton: read what has changed there before the texts are renewed.
    assert both[1]["left"] == []


def test_values_and_errors_are_those_of_tritons_own_interpreter(both):
    own, quick = both
    assert len(own) > 20
    assert {name: value for name, value in quick.items() if name != "left"} == own


def test_a_builtin_that_the_kernel_adds_is_found(both):
    assert both[1]["own"][0] == both[1]["scalar"][0] + 1


def test_the_cases_tell_apart_what_they_are_for(both):
    failing = {name for name, value in both[0].items() if "Error" in str(value)}
    assert failing == {"shapes", "negative", "pointers"}
    assert "triton.jit" in both[0]["outside"]
