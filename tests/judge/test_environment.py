"""The allow-list of environment variables, and that a running judge's processes keep to it."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import Kernel
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.environment import COMPILER, TRUSTED, ZYGOTE, kept_variables
from kernelgym.judge.lint.process import HygieneProcess
from kernelgym.judge.sandbox.network import deny_network
from kernelgym.judge.untrusted import zygote
from kernelgym.judge.worker_handle import _environment
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.testing.samples import SAMPLE_KERNELS
from kernelgym.types import Problem
from support.process_tree import descendants

KEYS = (
    *("WANDB_API_KEY", "TINKER_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "SSH_AUTH_SOCK"),
    *("KERNELGYM_SECRET", "CUDA_LICENSE_KEY", "TORCH_HUB_TOKEN", "PYTHON_KEYRING_PASSWORD"),
    *("HTTPS_PROXY", "DATABASE_URL", "MY_OWN_INVENTION", "LD_PRELOAD"),
)
NEEDED = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CC", "CXX"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "CUDA_CACHE_PATH"),
    "ROCM_PATH",
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "PYTORCH_CUDA_ALLOC_CONF"),
    *("TORCH_CUDA_ARCH_LIST", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH", "KERNELGYM_CACHE"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "PYTHONPATH"),
    "XDG_CACHE_HOME",
)
LISTS = (TRUSTED, ZYGOTE, COMPILER)
MARK = "planted-9f2c"


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("allowed", LISTS, ids=["trusted", "zygote", "compiler"])
def test_callers_key_is_dropped(allowed, name):
    assert kept_variables(allowed, {name: MARK, "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize("name", NEEDED)
def test_variable_a_worker_needs_is_kept(name):
    assert kept_variables(TRUSTED, {name: "1"}) == {name: "1"}


@given(st.dictionaries(st.sampled_from(KEYS + NEEDED) | st.text(max_size=12), st.text()))
def test_zygote_never_gains_a_variable_over_a_worker(given_variables):
    worker = kept_variables(TRUSTED, given_variables)
    assert kept_variables(ZYGOTE, given_variables).items() <= worker.items()
    assert worker.items() <= given_variables.items()


def test_candidate_keeps_only_what_the_zygote_has(monkeypatch, tmp_path):
    for name in KEYS:
        monkeypatch.setenv(name, MARK)
    assert MARK not in zygote._private_environment(str(tmp_path)).values()
    assert MARK not in _environment(tmp_path, {}).values()


def test_denied_network_leaves_unix_sockets_only():
    def probe():
        import errno

        in_place = deny_network()
        socket.socketpair()[0].close()
        socket.socket(socket.AF_UNIX).close()
        found = [in_place]
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            try:
                socket.socket(family, socket.SOCK_DGRAM).close()
            except OSError as error:
                found.append(error.errno == errno.EPERM)
        return found

    reader, writer = os.pipe()
    if (child := os.fork()) == 0:  # the filter cannot be taken off again
        os.write(writer, str(probe()).encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 1 << 10).decode()
    os.close(reader)
    os.waitpid(child, 0)
    assert said in (str([True] * 4), "[False]")  # False: this host allows no filter


def test_denied_network_reaches_started_programs():
    code = (
        "from kernelgym.judge.sandbox.network import deny_network\n"
        "import subprocess, sys\n"
        "if deny_network():\n"
        "    code = 'import socket; socket.socket()'\n"
        "    done = subprocess.run([sys.executable, '-I', '-S', '-c', code], capture_output=True)\n"
        "    sys.exit(b'PermissionError' not in done.stderr)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


NOSY = """\
import os, socket
from pathlib import Path
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    found = dict(os.environ)
    try:
        socket.socket()
        found["network"] = "open"
    except PermissionError:
        found["network"] = "closed"
    Path({path!r}).write_text(repr(found))
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_running_judge_shows_no_key_to_any_process(monkeypatch, tmp_path):
    for name in KEYS:
        monkeypatch.setenv(name, MARK)
    monkeypatch.delenv("LD_PRELOAD")  # the loader would complain
    told = tmp_path / "told"
    nosy = Problem("own/nosy", "own", 0, "nosy", NOSY.format(path=str(told)))
    confess = "import os\nraise RuntimeError(sorted(os.environ.items()))\n"
    seen: dict[str, str] = {}

    def look():
        for pid in descendants(os.getpid()):
            try:
                with (
                    open(f"/proc/{pid}/cmdline", "rb") as command,
                    open(f"/proc/{pid}/environ", "rb") as variables,
                ):
                    seen[command.read().decode(errors="replace")] = variables.read().decode()
            except OSError:  # it has ended, or is a candidate that may not be looked into
                continue

    def judge():
        options = {"cache_dir": tmp_path / "cache", "timing": False}
        with LocalEvaluator(ruleset=RULESETS["strict"], **options) as evaluator:
            built = evaluator.evaluate(SAMPLE_PROBLEM, SAMPLE_KERNELS["cpp"])
            confessed = evaluator.evaluate(nosy, Kernel(confess, "triton"))
        return built, confessed

    def lint():
        process = HygieneProcess(RULESETS["strict"], "cpu")
        try:
            return process.examine(nosy, 120.0)
        finally:
            process.close()

    with ThreadPoolExecutor(1) as thread:
        for work in (judge, lint):
            told.unlink(missing_ok=True)
            running = thread.submit(work)
            while not running.done():
                look()
                try:
                    found = running.result(0.01)
                except NotYet:
                    continue
            shown = told.read_text()
            assert MARK not in shown
            assert "'network': 'closed'" in shown or not deny_network_works()
            if work is judge:
                built, confessed = found
                assert built.correct, built.message
                assert "PATH" in confessed.message
                assert MARK not in confessed.message + confessed.log
    for program in ("judge.worker", "zygote.py", "judge.lint", "sandbox.py", "cc1plus"):
        assert any(program in command for command in seen), (program, list(seen))
    assert not [command for command, variables in seen.items() if MARK in variables]


def deny_network_works():
    code = "import sys, kernelgym.judge.sandbox.network as n; sys.exit(not n.deny_network())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
