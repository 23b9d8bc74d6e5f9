"""What an extension may be handed: data, and nothing that could compute in its place."""

import collections
import dataclasses
import enum
import functools
import types

import numpy as np
import pytest
import torch

from kernelgym.judge.untrusted.watch.host_transfers import computing


@dataclasses.dataclass
class Settings:
    rows: object = 1


@dataclasses.dataclass(slots=True)
class Slots:
    rows: object = 1


class Computes:
    def product(self, x, y):
        return x


class Holds:
    library = np


class Liar:
    """Says that it is a number, and has a method."""

    __class__ = property(lambda self: int)

    def product(self, x, y):
        return x


class Text(str):
    """A text that holds a function."""

    def __init__(self, text):
        self.product = np.matmul


class Mode(enum.Enum):
    FAST = 1


CAPSULE = torch.utils.dlpack.to_dlpack(torch.ones(1))
Pair = collections.namedtuple("Pair", "x y")
ENDLESS: list = []
ENDLESS.append(ENDLESS)

DATA = (
    *(None, 1, 2.0, True, "text", b"bytes", [], [1, (2, [3])], {"a": 1}, range(3), slice(1)),
    *(torch.ones(2), torch.float32, torch.device("cpu"), torch.Size([1]), torch.nn.Linear(1, 1)),
    *(Settings(), Slots(), Mode.FAST, Pair(1, torch.ones(1)), np.float32(1)),
    types.SimpleNamespace(rows=1),
    *(np.bool_(True), collections.deque([1]), {"a": 1}.values(), ENDLESS),
)
COMPUTING = (
    *((np.ones(1), "ndarray"), (np, "numpy"), (np.matmul, "matmul"), (np.ndarray, "ndarray")),
    *((types.SimpleNamespace(f=np.matmul), "matmul"), (Settings(np.dot), "dot")),
    *((Slots(np.dot), "dot"), (Computes(), "Computes"), (Holds(), "numpy"), (torch.mm, "mm")),
    *((functools.partial(max), "partial"), (memoryview(b"a"), "memoryview"), (Liar(), "Liar")),
    (Text("a"), "matmul"),
    (CAPSULE, "PyCapsule"),
    *(([1, {"f": print}], "print"), (eval, "eval")),
)


@pytest.mark.parametrize("value", DATA, ids=lambda value: type(value).__name__)
def test_data_may_be_handed_over(value):
    assert [*computing(value)] == []


@pytest.mark.parametrize(("value", "name"), COMPUTING, ids=[name for _, name in COMPUTING])
def test_what_computes_is_named(value, name):
    assert [*computing(((value,), {}))] == [name]
