"""Every example runs as its first lines say, and comes to its end."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LAST_LINES = {
    "01_one_kernel.py": "wrong kernel: wrong, ",
    "02_scripted_agent.py": "ended solved; returns [0.64, 0.86, 1.4]",
    "03_record_and_export.py": "3 preference pairs",
    "04_credit_for_a_policy.py": "2 groups to learn from; without a signal: []",
    "05_search.py": "softmax: ",
    "06_examples_in_the_prompt.py": "ended solved; returns [",
}
"""How the last line of each begins."""


def test_none_is_left_out():
    assert {path.name for path in EXAMPLES.glob("*.py")} == LAST_LINES.keys()


FIRST = "01_one_kernel.py"


@pytest.mark.parametrize(
    "name",
    [FIRST, *(pytest.param(n, marks=pytest.mark.slow) for n in LAST_LINES if n != FIRST)],
)
def test_it_runs(name, tmp_path):
    command = [sys.executable, str(EXAMPLES / name)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith(LAST_LINES[name]), ran.stdout
