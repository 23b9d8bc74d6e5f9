"""Kernel specs for tests: a softmax in C++ and variations of it."""

from __future__ import annotations

import base64
import copy
import json
import zlib
from pathlib import Path
from typing import Any

import torch

from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.kernel_file import read_kernel_file

CPP = """
#include <torch/extension.h>

torch::Tensor scaled(torch::Tensor x_in, double factor) {
  auto x_c = x_in.contiguous();
  const int64_t count = x_c.numel();
  auto out = torch::empty_like(x_c);
  const float* x = x_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    y[i] = x[i] * static_cast<float>(factor);
  }
  return out;
}
"""
TRITON = """
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, y, count, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    at = y + offsets
    tl.store(at, tl.load(x + offsets, mask=inside) * factor, mask=inside)
"""
GLOBAL = """
extern "C" __global__ void __launch_bounds__(256)
scale_kernel(const float* __restrict__ x, float* __restrict__ y, int count, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * factor;
}
"""
SPEC: dict[str, Any] = {
    "name": "scaled",
    "kind": "cpp",
    "source": CPP,
    "entry": "scaled",
    "reference": {"run": "def run(x, factor):\n    return x * factor\n"},
    "contract": {
        "axes": {
            "rows": "var",
            "columns": {"type": "const", "value": 8},
            "count": {"type": "expr", "expression": "rows * columns"},
        },
        "tensors": [
            {"name": "x", "shape": ["rows", "columns"]},
            {"name": "y", "shape": ["rows", "columns"], "role": "output"},
        ],
        "scalars": [{"name": "factor", "value": 1.5}],
        "shapes": [
            {"axes": {"rows": 4}, "weight": 2.0},
            {"axes": {"rows": 31}, "role": "both"},
            {"axes": {"rows": 1237}, "role": "hidden"},
        ],
    },
}
TRITON_SPEC: dict[str, Any] = {
    **copy.deepcopy(SPEC),
    "kind": "triton",
    "source": TRITON,
    "entry": "scale_kernel",
    "returns": "arguments",
    "arguments": ["x", "y", "count", "factor"],
    "launch": {"grid": ["ceil_div(count, BLOCK)"], "meta": {"BLOCK": [64, 128], "num_warps": [4]}},
}
GLOBAL_SPEC: dict[str, Any] = {
    **copy.deepcopy(TRITON_SPEC),
    "kind": "cuda",
    "source": GLOBAL,
    "launch": {
        "grid": ["ceil_div(count, BLOCK)"],
        "block": ["BLOCK"],
        "meta": {"BLOCK": [256, 128]},
    },
}

MATMUL = read_kernel_file(EXAMPLES["matmul"][1].source).cpp
PRODUCT: dict[str, Any] = {
    "name": "product",
    "kind": "cpp",
    "source": MATMUL,
    "entry": "matrix_product",
    "launch": {"flags": ["-O2"]},
    "reference": {"run": "def run(a, b):\n    return a @ b\n"},
    "contract": {
        "axes": {"n": "var"},
        "tensors": [
            {"name": "a", "shape": ["n", "n"]},
            {"name": "b", "shape": ["n", "n"]},
            {"name": "y", "shape": ["n", "n"], "role": "output"},
        ],
        "shapes": [
            {"axes": {"n": 48}, "weight": 3},
            {"axes": {"n": 96}, "weight": 1, "role": "both"},
            {"axes": {"n": 1237}, "role": "hidden"},
        ],
    },
}


DEFINITION = {
    "name": "scaled_d8",
    "op_type": "scale",
    "axes": {"rows": {"type": "var"}, "d": {"type": "const", "value": 8, "description": None}},
    "inputs": {
        "x": {"shape": ["rows", "d"], "dtype": "float32"},
        "ids": {"shape": ["rows"], "dtype": "int32"},
        "factor": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "d"], "dtype": "float32"}},
    "reference": "import torch\n\n@torch.no_grad()\ndef run(x, ids, factor):\n"
    "    return x * factor\n",
    "tags": ["status:verified"],
    "constraints": [],
}
SOLUTION = {
    "name": "plain",
    "definition": "scaled_d8",
    "author": "us",
    "spec": {
        "language": "cpp",
        "target_hardware": ["cpu"],
        "entry_point": "main.cpp::scaled",
        "destination_passing_style": False,
        "binding": "torch",
    },
    "sources": [{"path": "main.cpp", "content": CPP}],
}
RANDOM = {"type": "random"}
WORKLOADS = [
    {
        "definition": "scaled_d8",
        "workload": {
            "uuid": f"w{rows}",
            "axes": {"rows": rows},
            "inputs": {"x": RANDOM, "ids": RANDOM, "factor": {"type": "scalar", "value": rows / 2}},
        },
        "solution": None,
        "evaluation": None,
    }
    for rows in (2, 5)
]
WHOLE: dict[str, Any] = {
    "definition": DEFINITION,
    "solution": SOLUTION,
    "workloads": WORKLOADS,
    "hidden": ["w5"],
}
VALUES = torch.arange(64, dtype=torch.float32)
PACKED = base64.b64encode(zlib.compress(VALUES.numpy().tobytes())).decode()
DATA = {"data_b64": PACKED, "dtype": "float32", "shape": [64], "compress": "zlib"}
INLINE: dict[str, Any] = {
    "name": "scaled",
    "kernel_type": "triton",
    "entry": "scale_kernel",
    "source_code": TRITON,
    "io": {
        "args": [
            {"name": "x", "type": "tensor", "tensor_spec": {"data": DATA}},
            {
                "name": "y",
                "type": "tensor",
                "role": "output",
                "tensor_spec": {"shape": [64], "dtype": "float32"},
            },
            {"name": "count", "type": "int", "value": 64},
            {"name": "factor", "type": "float", "value": 2.0},
            {"name": "BLOCK", "type": "int", "value": 32, "is_meta": True},
        ],
        "launch": {"grid": {"x": 2, "y": 1, "z": 1}, "num_warps": 4},
    },
    "reference": {"run": "def run(x, factor):\n    return x * factor\n"},
}


def changed(spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a copy with other values; ``a__b`` names b in a, and None takes it out."""
    made = copy.deepcopy(spec)
    for path, value in changes.items():
        *outer, last = path.split("__")
        place = made
        for name in outer:
            place = place[int(name)] if isinstance(place, list) else place[name]
        if value is None:
            del place[last]
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return made


def written(folder: Path, spec: dict[str, Any], name: str = "spec.json") -> Path:
    """Write a spec's file, and return its path."""
    path = folder / name
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path
