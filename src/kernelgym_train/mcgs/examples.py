"""`EXAMPLES`: problems to search on, each with a plain C++ kernel.

The files in ``example_kernels`` hold their texts. The kernels are written as in a textbook: loops
in the order of the formula, one thread, ``-O2``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from kernelgym import Kernel, Problem


def _example(name: str) -> tuple[Problem, Kernel]:
    file = files("kernelgym_train.mcgs") / "example_kernels" / f"{name}.toml"
    texts = tomllib.loads(file.read_text("utf-8"))
    problem = Problem(f"example/{name}", "example", 0, name, texts["problem"], name)
    return problem, Kernel(texts["kernel"], "cpp")


EXAMPLES: Mapping[str, tuple[Problem, Kernel]] = MappingProxyType(
    {name: _example(name) for name in ("matmul", "softmax", "layernorm")}
)
"""Example searches by name, as (problem, start kernel): a product of 512 x 512 matrices, and two on
1,024 rows of 2,048 elements."""
