"""Kernels that hang, crash, flood or reach out: a verdict in time, and the next job unharmed."""

import os
import time
from pathlib import Path

import pytest

from kernelgym.types import Kernel, Status
from support.programs import AFFINE, TIGHT, TRITON, doing

RUNTIME, TIMEOUT, CORRECT = Status.RUNTIME_ERROR, Status.TIMEOUT, Status.CORRECT

DEEDS = {
    "ignores every signal": (
        "import signal, time\n"
        "for s in range(1, 65):\n"
        "    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: time.sleep(0.1)",
        TIMEOUT,
    ),
    "sleeps": ("import time; time.sleep(1000)", TIMEOUT),
    "forks": ("import os\nif os.fork() == 0:\n    while True: pass", RUNTIME),
    "starts a program": ("import subprocess; subprocess.run(['true'])", RUNTIME),
    "starts threads without end": (
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(99,)).start()",
        RUNTIME,
    ),
    "floods stdout": ("while True: print('x' * 9999)", RUNTIME),
    "floods stderr": ("import sys\nwhile True: sys.stderr.write('x' * 9999)", RUNTIME),
    "eats memory in torch": ("a = []\nwhile True: a.append(torch.ones(1 << 23))", RUNTIME),
    "eats memory in Python": ("a = []\nwhile True: a.append(bytearray(1 << 22))", RUNTIME),
    "writes a large file": (
        "with open('f', 'wb') as f:\n    while True: f.write(b'x' * 9999999)",
        RUNTIME,
    ),
    "exits 0": ("import os; os._exit(0)", RUNTIME),
    "raises SystemExit": ("raise SystemExit(0)", RUNTIME),
    "raises KeyboardInterrupt": ("raise KeyboardInterrupt", RUNTIME),
    "raises what cannot be printed": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E()",
        RUNTIME,
    ),
    "recurses": ("def f(): return f()\nf()", RUNTIME),
    "reads address 0": ("import ctypes; ctypes.string_at(0)", RUNTIME),
    "aborts": ("import os; os.abort()", RUNTIME),
    "opens a socket": ("import socket; socket.socket()", RUNTIME),
    "closes its channel": ("import os, time; os.close(3); time.sleep(99)", RUNTIME),
    "forges an answer": (
        "import json, os, struct\n"
        "m = json.dumps({'nonce': '', 'results': [{'tensor': ['float32', [37, 131]]}]}).encode()\n"
        "os.write(3, struct.pack('!I', len(m)) + m)",
        RUNTIME,
    ),
    "announces a huge message": (
        "import os, struct; os.write(3, struct.pack('!I', 1 << 31))",
        RUNTIME,
    ),
    "sends nested brackets": (
        "import os, struct\nm = b'[' * 999999\nos.write(3, struct.pack('!I', len(m)) + m)",
        RUNTIME,
    ),
    "dribbles half a message": (
        "import os, struct, time\n"
        "os.write(3, struct.pack('!I', 1 << 20))\n"
        "while True:\n    os.write(3, b'x')\n    time.sleep(0.0001)",
        TIMEOUT,
    ),
    "signals everybody": (
        "import os\n"
        "for p in (*range(1, 4000), -1):\n"
        "    try: os.kill(p, 9)\n"
        "    except OSError: pass",
        CORRECT,
    ),
    "shrinks the shared memory": (
        "import os\n"
        "for fd in range(3, 64):\n"
        "    try: os.ftruncate(fd, 0)\n"
        "    except OSError: pass",
        CORRECT,
    ),
}


# Waits as long as the one that ignores signals does, with fewer precautions.
SLOW = {"sleeps"}


@pytest.mark.parametrize(
    "deed", [pytest.param(deed, marks=[pytest.mark.slow] * (deed in SLOW)) for deed in DEEDS]
)
def test_a_verdict_in_time_and_the_next_job_unaffected(strict, deed):
    body, status = DEEDS[deed]
    started = time.monotonic()
    verdict = strict.evaluate(AFFINE, doing(body))
    # A generous multiple of "deadline plus 2 s": this checks for hanging, not for speed.
    assert time.monotonic() - started < 4 * (TIGHT.run_s + 2)
    assert verdict.status is status, verdict
    assert strict.evaluate(AFFINE, TRITON).correct


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["hangs on import", "exits on import"])
def test_at_import(strict, deed):
    source, status = {
        "hangs on import": ("while True: pass", TIMEOUT),
        "exits on import": ("import os; os._exit(0)", RUNTIME),
    }[deed]
    verdict = strict.evaluate(AFFINE, Kernel(source, "triton"))
    assert verdict.status is status and not verdict.compiled


def _reading(path):
    return doing(f"print(open({str(path)!r}).read())")


def test_files_of_ours_cannot_be_read(strict, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("treasure")
    for path in (secret, Path(__file__), Path(f"/proc/{os.getpid()}/environ")):
        verdict = strict.evaluate(AFFINE, _reading(path))
        assert verdict.status is RUNTIME, path
        assert "treasure" not in verdict.log


def test_nothing_can_be_written_outside_scratch(strict, tmp_path):
    target = tmp_path / "planted"
    for path in (target, "/tmp/kernelgym-planted", "/dev/shm/kernelgym-planted"):
        verdict = strict.evaluate(AFFINE, doing(f"open({str(path)!r}, 'w')"))
        assert verdict.status is RUNTIME, path
    assert not target.exists()


def test_the_environment_of_the_caller_is_not_passed_on(strict, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "treasure")
    verdict = strict.evaluate(AFFINE, doing("import os; print(sorted(os.environ.items()))"))
    assert verdict.correct
    assert "treasure" not in verdict.log and "TRITON_INTERPRET" in verdict.log
    # Nor one that would slow torch's threads down: the reference is timed in such a process too.
    assert "OMP_WAIT_POLICY" not in verdict.log


def test_nothing_survives_from_one_kernel_to_the_next(strict):
    leave = "import os\nopen('left', 'w').write('x')\nopen(os.environ['HOME'] + '/left2', 'w')"
    assert strict.evaluate(AFFINE, doing(leave)).correct
    look = "import os\nassert not [f for f in os.listdir('.') if f.startswith('left')]"
    assert strict.evaluate(AFFINE, doing(look)).correct


def test_the_reference_is_not_in_the_process(strict):
    search = (
        "import gc\n"
        "print('found', [o for o in gc.get_objects()\n"
        "       if isinstance(o, str) and 'torch.relu(x) * 2 + b' in o or\n"
        "       isinstance(o, type) and o.__name__ == 'Model'])"
    )
    verdict = strict.evaluate(AFFINE, doing(search))
    assert verdict.correct and "found []" in verdict.log


# Takes the slot its output is copied to, hands the work to a thread, and answers at once.
LATE = """
import sys

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = '''
#include <chrono>
#include <thread>
static void affine(const float* x, const float* b, float* o, int64_t n, int64_t m) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) o[i * m + j] = std::max(x[i * m + j], 0.0f) * 2 + b[j];
}
void now(torch::Tensor x, torch::Tensor b, torch::Tensor o) {
  affine(x.data_ptr<float>(), b.data_ptr<float>(), o.data_ptr<float>(), x.size(0), x.size(1));
}
void late(torch::Tensor x, torch::Tensor b, torch::Tensor o) {
  auto *px = x.data_ptr<float>(), *pb = b.data_ptr<float>(), *po = o.data_ptr<float>();
  const int64_t n = x.size(0), m = x.size(1);
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    affine(px, pb, po, n, m);
  }).detach();
}
'''
extension = load_inline(name="late", cpp_sources=SOURCE, functions=["now", "late"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, b):
        frame = sys._getframe()
        while "places" not in frame.f_locals:
            frame = frame.f_back
        out, place = torch.empty_like(x), frame.f_locals["places"][0]
        self.calls += 1
        if self.calls <= 9:
            extension.now(x, b, out)
        else:
            extension.late(x, b, place)
        return out
"""


@pytest.mark.slow
def test_work_finished_after_the_clock_has_stopped_does_not_count(timing):
    verdict = timing.evaluate(AFFINE, Kernel(LATE, "cpp"))
    assert verdict.status is Status.WRONG and "while it was timed" in verdict.message, verdict
    assert verdict.mismatch is not None and verdict.mismatch.call == 0
