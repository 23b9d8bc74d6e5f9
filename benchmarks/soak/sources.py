"""Source texts of the soak: its problem, right kernels by language, and what hostile ones do."""

from __future__ import annotations

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, b):
        return torch.relu(x) * 2 + b


def get_inputs():
    return [torch.randn({rows}, {columns}), torch.randn({columns})]


def get_init_inputs():
    return []
"""

TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x, b, out, n, M: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask)
    bias = tl.load(b + offsets % M, mask=mask)
    tl.store(out + offsets, tl.maximum(value, 0.0) * 2 + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, b):
        out = torch.empty_like(x)
        n = x.numel()
        affine[(triton.cdiv(n, 2048),)](x, b, out, n, x.shape[1], BLOCK=2048)
        return out
"""

CPP = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor affine(torch::Tensor x, torch::Tensor b) {
  auto out = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  const float* bias = b.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const int64_t rows = x.size(0), columns = x.size(1);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const float value = in[i * columns + j];
      to[i * columns + j] = (value > 0 ? value : 0) * 2 + bias[j];
    }
  return out;
}
"""
extension = load_inline(name="affine", cpp_sources=SOURCE, functions=["affine"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, b):
        return extension.affine(x, b)
'''

NVRTC = '''
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void affine(const float* x, const float* b, float* out, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (x[i] > 0.f ? x[i] : 0.f) * 2.f + b[i % m];
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = torch.cuda._compile_kernel(SOURCE, "affine")

    def forward(self, x, b):
        out = torch.empty_like(x)
        n = x.numel()
        self.kernel(((n + 255) // 256, 1, 1), (256, 1, 1), (x, b, out, n, x.shape[1]))
        return out
'''

BASES = {"triton": TRITON, "cpp": CPP, "cuda": NVRTC}

# A reply such as the judge's own channel carries: four bytes of length, then JSON.
FORGE = """
import json, os, struct
body = json.dumps({"ok": True, "results": [], "go": True, "done": True}).encode()
for fd in range(3, 64):
    try:
        os.set_blocking(fd, False)
        os.write(fd, struct.pack("!I", len(body)) + body)
    except OSError:
        pass
"""

LITTER = """
import ctypes, os, tempfile
for folder in (os.getcwd(), tempfile.gettempdir(), os.path.expanduser("~"), "/dev/shm", "/tmp"):
    for index in range(20):
        try:
            with open(os.path.join(folder, f"soak-litter-{index}"), "wb") as file:
                file.write(b"x" * 65536)
        except OSError:
            pass
libc = ctypes.CDLL(None)
libc.shmget(0, 4096, 0o1600)
for index in range(20):
    libc.memfd_create(b"soak-litter", 0)
"""

DAEMON = """
import os, time
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
except OSError:
    pass
"""

THREADS = """
import threading
def spin():
    while True:
        pass
for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
"""

HOARD = """
if not hasattr(self, "hoard"):
    self.hoard = []
    try:
        while True:
            self.hoard.append(torch.empty(1 << 28, device=x.device))
    except RuntimeError:
        self.hoard.pop()
"""

# An endless loop on the device: every value is far below the bound, and is read anew each time.
SPIN = (
    "    bias = tl.load(",
    "    seen = tl.load(b)\n    while seen < 1e30:\n        seen = tl.load(b, volatile=True)\n"
    "    bias = tl.load(",
)
