"""How a process says what its kernel's output is, without running any more of the kernel's code."""

import json

import pytest
import torch

from kernelgym.judge.untrusted import outputs


class _Late(Exception):
    pass


def _computes(*_):
    raise _Late


@pytest.mark.parametrize(
    "output",
    [
        type("L", (list,), {"__iter__": _computes, "__len__": _computes})([torch.zeros(2), 1]),
        type("T", (tuple,), {"__iter__": _computes})((torch.zeros(2), 1)),
        type("D", (dict,), {"items": _computes, "__iter__": _computes})({0: torch.zeros(2), 1: 1}),
        {type("K", (), {"__str__": _computes})(): torch.zeros(2)},
        [type("F", (float,), {"__float__": _computes, "__repr__": _computes})(1.5)],
        [type("P", (), {"__class__": property(_computes)})()],
    ],
    ids=["list", "tuple", "dict", "key", "number", "class"],
)
def test_nothing_of_a_kernels_own_runs_while_its_output_is_looked_at(output):
    json.dumps(outputs.describe(output, lambda _: {}))
    outputs.copied(output)


def test_what_a_class_holds_is_seen_and_not_what_it_says():
    lazy = type("L", (list,), {"__iter__": lambda self: iter([torch.zeros(3)])})([1, 2])
    assert outputs.describe(lazy, lambda _: {}) == {
        "sequence": [{"scalar": 1}, {"scalar": 2}],
    }
    pair = torch.max(torch.zeros(2, 3), dim=1)  # of a class of torch's own
    kinds = [["float32", [2]], ["int64", [2]]]
    assert outputs.describe(pair, lambda _: {}) == {"sequence": [{"tensor": k} for k in kinds]}
