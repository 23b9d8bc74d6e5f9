"""A language is added as docs/languages.md says: one `Language` and one module beside the kernel.

The toy's kernels are C expressions, which a C compiler builds on request. The judge's room beside
the candidate is copied, and the toy's module put into it.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym.answers.screening import screen
from kernelgym.judge.processes import zygote_handle
from kernelgym.judge.untrusted import protocol
from kernelgym.judge.worker import worker as worker_module
from kernelgym.judge.worker.worker import Worker
from kernelgym.languages import LANGUAGES, Language, OwnKernel
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Kernel, Status, Verdict

TOYLANG = """
import ctypes
import os
import subprocess

TEMPLATE = "void run(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) { %s } }"


def build(source, library):
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=source, check=True)


class ToyKernel:
    def __init__(self, body):
        library = os.path.join(os.environ["TOY_CACHE"], f"{abs(hash(body))}.so")
        build(TEMPLATE % body, library)
        self.run = ctypes.CDLL(library).run

    def __call__(self, x, y):
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        self.run(*pointers, ctypes.c_long(x.numel()))


def kernel(body):
    return ToyKernel(body)
"""
HALF = '''
import importlib.util
import os
import sys


def import_packages():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "toylang.py")
    spec = importlib.util.spec_from_file_location("toylang", path)
    sys.modules["toylang"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["toylang"])


def environment(scratch):
    return {"TOY_CACHE": scratch}


def count_launches(launches):
    kernel = sys.modules["toylang"].ToyKernel
    call = kernel.__call__

    def counted(self, x, y):
        launches.count += 1
        if launches.watcher is None:
            return call(self, x, y)
        return launches.watcher.launch(lambda *given: call(self, *given), (x, y), {})

    kernel.__call__ = counted


class ToyRefused(Exception):
    """The C compiler's complaint."""


def begin(request, target):
    def build(source, library):
        reply = request({"program": "launcher", "source": source})
        if "module" not in reply:
            raise ToyRefused(reply["failed"])
        with os.fdopen(reply["fds"][0], "rb") as made, open(library, "wb") as copy:
            made.seek(0)
            copy.write(made.read())

    sys.modules["toylang"].build = build
    return lambda: 0


def describe_error(error, source_file):
    return {"compile": True} if isinstance(error, ToyRefused) else {}
'''
KERNEL = """
import torch
import toylang

affine = toylang.kernel("y[i] = (x[i] > 0 ? x[i] : 0) * 2 + 1;")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        affine(x.contiguous(), y)
        return y
"""
DECOY = KERNEL.replace("        return y\n", "        return torch.relu(x) * 2 + 1\n")


def toy() -> Language:
    return Language(
        name="toy",
        title="Toy",
        noun="toy kernel",
        devices=("cpu",),
        timed_on=(),
        task="Write the computation as a C expression.",
        examples=(),
        sample=KERNEL,
        own_kernel=OwnKernel(builders=("kernel",)),
        half="toy",
        watched_between_calls=True,
    )


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("toy")
    untrusted = folder / "untrusted"
    shutil.copytree(Path(protocol.__file__).parent, untrusted)
    (untrusted / "languages" / "toylang.py").write_text(TOYLANG)
    (untrusted / "languages" / "toy.py").write_text(HALF)
    (folder / "scratch").mkdir()
    (table,) = (each for each in gc.get_referents(LANGUAGES) if isinstance(each, dict))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(table, "toy", toy())
        patch.setattr(zygote_handle, "_PROGRAM", untrusted / "zygote.py")
        patch.setattr(worker_module, "bound_own_memory", lambda: None)  # which is the tests', too
        worker = Worker(RULESETS["strict"], False, folder / "cache", folder / "scratch")
        yield worker
        worker.close()


def judged(worker: Worker, source: str) -> Verdict:
    verdicts = worker.judge(SAMPLE_PROBLEM, [Kernel(source, "toy")])
    assert verdicts is not None
    return verdicts[0]


@pytest.mark.slow
def test_toy_kernel_is_built_by_request_judged_and_its_launch_seen(worker: Worker) -> None:
    assert not screen(Kernel(KERNEL, "toy"), RULESETS["strict"])
    verdict = judged(worker, KERNEL)
    assert verdict.status is Status.CORRECT, verdict.message
    assert not verdict.findings


@pytest.mark.slow
def test_toy_kernel_that_is_wrong_is_wrong(worker: Worker) -> None:
    assert judged(worker, KERNEL.replace("* 2", "* 3")).status is Status.WRONG


@pytest.mark.slow
def test_toy_kernel_whose_result_is_not_used_is_refused(worker: Worker) -> None:
    verdict = judged(worker, DECOY)
    assert verdict.status is Status.REJECTED
    assert {f.code for f in verdict.findings} & {"decoy_kernel", "work_not_replaced"}


@pytest.mark.slow
def test_toy_kernel_that_its_compiler_refuses_is_a_compile_error(worker: Worker) -> None:
    verdict = judged(worker, KERNEL.replace("x[i] > 0", "lost > 0"))
    assert verdict.status is Status.COMPILE_ERROR
    assert "lost" in verdict.log and "undeclared" in verdict.log
