"""How much memory a problem's reference takes, without taking it.

Contract: references are run on torch's ``meta`` device, which has shapes and no data, in a process
of their own. Counted are inputs, parameters, outputs and twice the largest tensor that comes up on
the way: what a call holds at once, within a factor of two. A reference that does not run there, as
one that looks at its values does not, has no footprint, and None stands for it.

A problem's source is its suite's, and trusted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from kernelgym import KernelgymError, Problem
from kernelgym.judge.environment import TRUSTED, kept_variables

__all__ = ["reference_bytes"]

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


def footprint(source):
    scope = {"__name__": "problem"}
    exec(compile(source, "problem", "exec"), scope)
    with torch.device("meta"), torch.no_grad():
        inputs = scope["get_inputs"]()
        model = scope["Model"](*scope["get_init_inputs"]())
        held = size(inputs) + size([*model.parameters(), *model.buffers()])
        with Largest() as largest:
            out = model(*inputs)
    return held + size(out) + 2 * largest.bytes


for line in sys.stdin:
    try:
        print(json.dumps(footprint(json.loads(line))), flush=True)
    except Exception:
        print("null", flush=True)
"""


def reference_bytes(problems: Sequence[Problem]) -> list[int | None]:
    """Return each problem's footprint in bytes; None where it cannot be told.

    What was asked before in this process is remembered.

    Raises:
        KernelgymError: If the process fails altogether.
    """
    new = list(dict.fromkeys(p.source for p in problems if p.source not in _known))
    if new:
        _known.update(zip(new, _footprints(new), strict=True))
    return [_known[problem.source] for problem in problems]


_known: dict[str, int | None] = {}


def _footprints(sources: Sequence[str]) -> list[int | None]:
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
        raise KernelgymError(f"the footprint of references could not be told: {why[0]}")
    return [json.loads(line) for line in lines]
