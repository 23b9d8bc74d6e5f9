"""The fused comparisons agree with the slow ones; the cases are in `fused_cases.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelgym.judge.compare.fused import fused_for
from support import fused_cases

CASES = Path(fused_cases.__file__)


@pytest.mark.slow
def test_what_the_kernels_call_right_is_right():
    done = subprocess.run(
        [sys.executable, str(CASES)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_are_left_alone_where_there_is_no_device():
    assert fused_for(torch.zeros(1 << 20)) is None
