"""Sizes of a problem's tensors, computed without allocating them.

Contract: references are run on torch's ``meta`` device, which has shapes and no data, in a process
of their own. A reference that looks at its values does not run there: its sizes are None.

A problem's source is its suite's, and trusted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from kernelgym import KernelgymError, Problem
from kernelgym.judge.environment import TRUSTED, kept_variables
from kernelgym.judging_memory import judging_bytes, kernel_bytes

_CHILD = """
import json, sys
from kernelgym.judge.sandbox.network import deny_network
deny_network()
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


def size(found):
    return sum(t.numel() * t.element_size() for t in tree_leaves(found) if torch.is_tensor(t))


class Largest(TorchFunctionMode):
    bytes = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if torch.is_tensor(leaf):
                self.bytes = max(self.bytes, leaf.numel() * leaf.element_size())
        return found


def sizes(source):
    scope = {"__name__": "problem"}
    exec(compile(source, "problem", "exec"), scope)
    with torch.device("meta"), torch.no_grad():
        inputs = scope["get_inputs"]()
        model = scope["Model"](*scope["get_init_inputs"]())
        held = size([*model.parameters(), *model.buffers()])
        with Largest() as largest:
            out = model(*inputs)
    return size(inputs), size(out), held, largest.bytes


for line in sys.stdin:
    try:
        print(json.dumps(sizes(json.loads(line))), flush=True)
    except Exception:
        print("null", flush=True)
"""


@dataclass(frozen=True, slots=True)
class ReferenceSizes:
    """Sizes of a problem's tensors, in bytes."""

    inputs: int
    outputs: int
    parameters: int
    """Bytes of the weights and buffers."""
    largest: int
    """Bytes of the largest tensor that the computation creates."""

    @property
    def on_gpu(self) -> int:
        """GPU memory that a kernel and its reference take at most.

        What a worker reserves for a kernel, the weights, and two intermediate results.
        """
        return kernel_bytes(self.inputs, self.outputs) + self.parameters + 2 * self.largest

    @property
    def judging(self) -> int:
        """Memory that judging a kernel of the problem takes, to compare with the memory budget."""
        return judging_bytes(self.inputs, self.outputs, self.parameters)


def reference_sizes(problems: Sequence[Problem]) -> list[ReferenceSizes | None]:
    """Return the sizes of each problem's tensors; None where they cannot be found.

    What was asked before in this process is remembered.

    Raises:
        KernelgymError: If the process fails altogether.
    """
    new = list(dict.fromkeys(p.source for p in problems if p.source not in _known))
    if new:
        _known.update(zip(new, _sizes(new), strict=True))
    return [_known[problem.source] for problem in problems]


_known: dict[str, ReferenceSizes | None] = {}


def _sizes(sources: Sequence[str]) -> list[ReferenceSizes | None]:
    asked = "".join(json.dumps(source) + "\n" for source in sources)
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD],
        input=asked,
        env=kept_variables(TRUSTED),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(sources):
        why = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise KernelgymError(f"the sizes of the references' tensors could not be found: {why[0]}")
    found = map(json.loads, lines)
    return [None if sizes is None else ReferenceSizes(*sizes) for sizes in found]
