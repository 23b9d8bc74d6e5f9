"""Triton's interpreter computes with bf16 values, not with their bits."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.untrusted.triton.bf16 import _rounded, _widened

PROGRAM = """
import json
import torch
import triton
import triton.language as tl
from kernelgym.judge.untrusted.triton.bf16 import compute_in_bf16

compute_in_bf16()


@triton.jit
def kernel(x, y, out, work, CASE: tl.constexpr):
    line = tl.arange(0, 16)
    at = line[:, None] * 16 + line[None, :]
    u, v = tl.load(x + at), tl.load(y + at)
    if CASE == "add":
        r = u + v
    elif CASE == "scale":
        r = u * 0.3
    elif CASE == "less":
        r = tl.where(u < v, u, -v)
    elif CASE == "dot":
        r = tl.dot(u, v)
    elif CASE == "sum":
        r = tl.sum(u, axis=1)[:, None] + v * 0
    elif CASE == "scan":
        r = tl.cumsum(tl.abs(u), axis=1)
    elif CASE == "whole":
        r = (u * 10).to(tl.int32)
    elif CASE == "from_whole":
        r = (line[:, None] * 33 + line[None, :]).to(tl.bfloat16)
    elif CASE == "double":
        r = u.to(tl.float64).to(tl.bfloat16)
    elif CASE == "sum_to_scalar":
        r = tl.sum(u) + v * 0
    elif CASE == "sort":
        r = tl.sort(u)
    elif CASE == "atomic":  # 16 lanes of a row add to one place
        r = tl.atomic_add(work + line[:, None] + 0 * line[None, :], v, mask=u < v)
        r = tl.load(work + line)[:, None] + v * 0
    tl.store(out + at, r)


def sum_of_rounded(row, kept):
    total = torch.zeros((), dtype=torch.bfloat16)
    for value in row[kept]:
        total += value
    return total


torch.manual_seed(0)
x, y = (torch.randn(16, 16).bfloat16() for _ in range(2))
line = torch.arange(16)
wanted = {
    "add": x + y,
    "scale": x * 0.3,
    "less": torch.where(x < y, x, -y),
    "dot": x.float() @ y.float(),
    "sum": x.float().sum(1, keepdim=True).bfloat16().expand(16, 16),
    "scan": x.float().abs().cumsum(1).bfloat16(),
    "whole": (x * 10).int(),
    "from_whole": (line[:, None] * 33 + line[None, :]).bfloat16(),
    "double": x,
    "sum_to_scalar": x.float().sum().bfloat16().expand(16, 16),
    "sort": x.sort(dim=1).values,
    "atomic": torch.stack([sum_of_rounded(b, a < b) for a, b in zip(x, y)])[:, None].expand(16, 16),
}
found = {}
for case, right in wanted.items():
    out = torch.empty(16, 16)
    kernel[(1,)](x, y, out, torch.zeros(16, dtype=torch.bfloat16), CASE=case)
    found[case] = float(((out - right.float()).abs() / right.float().abs().clamp(min=1)).max())
print(json.dumps(found))
"""
CASES = "add scale less dot sum scan whole from_whole double sum_to_scalar sort atomic".split()


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    program = tmp_path_factory.mktemp("bf16") / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_an_operation_on_bf16_is_torchs(errors, case):
    # Torch rounds the factor to bf16 first, and may add up a scan in another order.
    assert errors[case] <= {"dot": 1e-6, "scale": 2.0**-8, "scan": 2.0**-8}.get(case, 0.0)


@given(st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_values_are_rounded_as_torch_rounds(values):
    array = np.array(values, dtype=np.float32)
    right = torch.from_numpy(array).bfloat16()
    found = torch.from_numpy(_widened(_rounded(array)))
    assert torch.equal(found.nan_to_num(7.0), right.float().nan_to_num(7.0))
    assert torch.equal(found.isnan(), right.isnan())
