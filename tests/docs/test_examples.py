"""Every example runs as its first lines say, and comes to its end."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym_train.demo.folders import write_problems
from support import tiny
from support.fake_tinker import Store, served_by

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LAST_LINES = {
    "01_one_kernel.py": "wrong kernel: wrong, ",
    "02_scripted_agent.py": "ended solved; returns [0.64, 0.86, 1.4]",
    "03_record_and_export.py": "3 preference pairs",
    "04_credit_for_a_policy.py": "2 groups to learn from; without a signal: []",
    "07_search.py": "softmax: ",
    "06_examples_in_the_prompt.py": "ended solved; returns [",
    "09_report.py": "wrote report.html",
    "08_benchmark.py": "solved: 9 of 12 episodes",
    "10_remote_judge.py": "verdict of the server: ",
    "11_model_search.py": "softmax: ",
    "20_agent_with_tools.py": "Synthetic/L1/2: correct",
    "12_ray_judge.py": "verdict of an actor: ",
    "21_pretrained_model.py": "wrong: ",
}
"""How the last line of each begins."""


TINKER = "05_tinker.py"
"""Needs a server, so it has tests of its own."""


OF_A_SPEC = "triton_softmax.py"
"""Source of a kernel spec, which is no program."""


OF_FRAMEWORKS = {
    *("13_inspect.py", "14_openenv.py", "15_verifiers.py", "16_trl_environment.py"),
    *("17_gem.py", "18_skyrl.py", "19_nemo_gym.py"),
}
"""Need a framework, so that the tests of its adapter run them."""


def test_none_is_left_out():
    known = {*LAST_LINES, *OF_FRAMEWORKS, TINKER, OF_A_SPEC}
    assert {path.name for path in EXAMPLES.glob("*.py")} == known


FIRST = "01_one_kernel.py"


@pytest.mark.parametrize(
    "name",
    [FIRST, *(pytest.param(n, marks=pytest.mark.slow) for n in LAST_LINES if n != FIRST)],
)
def test_it_runs(name, tmp_path):
    if name == "12_ray_judge.py":
        pytest.importorskip("ray")
    command = [sys.executable, str(EXAMPLES / name)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith(LAST_LINES[name]), ran.stdout


def test_tinker_without_a_server_says_so(prepared):
    command = [sys.executable, str(EXAMPLES / TINKER), "http://127.0.0.1:9"]
    ran = subprocess.run(command, cwd=prepared, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2, ran.stderr
    (line,) = ran.stdout.splitlines()
    assert line.startswith("nothing was made: ") and "http://127.0.0.1:9" in line
    assert not (prepared / "runs" / "example").exists()


def test_tinker_trains_on_a_service(prepared, monkeypatch, capsys):
    monkeypatch.chdir(prepared)
    store = Store()
    served_by(monkeypatch, store, prepared / "runs" / "demo" / "start")
    spec = importlib.util.spec_from_file_location("example_tinker", EXAMPLES / TINKER)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.SETTINGS += (
        *("optimiser.steps=2", "sampling.problems_per_step=2", "sampling.group_size=4"),
        *("sampling.max_new_tokens=6", "reward.preset=stage2", "env.ruleset=kernelbench"),
        "judge.stop_at_first_failure=false",
    )
    assert example.main("http://127.0.0.1:9") == 0
    *steps, weights = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in steps] == ["step 0", "step 1"]
    assert len(store.updates) == 2 and weights.startswith("weights: tinker://")


@pytest.fixture
def prepared(tmp_path):
    """Return a folder with what the demonstration prepares, the model being the tiny one."""
    words, demo = tiny.tokenizer(), tmp_path / "runs" / "demo"
    tiny.model(len(words)).save_pretrained(demo / "start")
    words.save_pretrained(demo / "start")
    found = SyntheticSuite().problems(level=1)
    folders = {"practice": found[:8], "compositions": found[8:10]}
    write_problems(demo / "problems", folders)
    return tmp_path
