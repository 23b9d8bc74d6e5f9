from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.retrieval.renaming import renamed, without_docstrings
from kernelgym.retrieval.embedding import OperatorEmbedder
from kernelgym.retrieval.exclusion import tree_key
from kernelgym.retrieval.names import family
from kernelgym.retrieval.operators import operators
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.testing import SAMPLE_PROBLEM
from support.strategies import any_text, shaped_text

SUITE = SyntheticSuite()
problems = st.builds(
    lambda level, number: SUITE.get(f"Synthetic/L{level}/{number}"),
    st.integers(1, 3),
    st.integers(1, 200),
)

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import nn as layers, relu as rectified
from torch.nn.functional import gelu as bent
N = 64
"""


def view_text(source: str) -> str:
    return " ".join(operators(source))


def model(forward: str, init: str = "pass", more: str = "") -> str:
    lines = [f"        {line}" for line in init.splitlines()]
    body = [f"        {line}" for line in forward.splitlines()]
    return "\n".join(
        [
            *(HEAD, more, "class Model(nn.Module):", "    def __init__(self, n=4):"),
            *("        super().__init__()", *lines, "    def forward(self, x, y=None):", *body),
        ]
    )


@given(problems, st.integers(0, 10**6))
def test_view_of_a_renamed_reference_is_the_same(problem, seed) -> None:
    written = renamed(problem.source, seed, sizes=True)
    assert written != problem.source
    assert operators(written) == operators(problem.source) != ()
    assert view_text(without_docstrings(problem.source)) == view_text(problem.source)
    assert tree_key(written) == tree_key(problem.source)


@given(problems)
def test_view_does_not_depend_on_formatting(problem) -> None:
    spaced = problem.source.replace("\n\n", "\n\n\n# a comment\n\n").replace(", ", ",   ")
    assert operators(spaced) == operators(problem.source)
    assert operators(ast.unparse(ast.parse(problem.source))) == operators(problem.source)


@pytest.mark.parametrize(
    ("forward", "found"),
    [
        ("return torch.relu(x)", "relu"),
        ("return F.relu_(x)", "relu"),
        ("return x.relu()", "relu"),
        ("return rectified(x)", "relu"),
        ("return torch.clamp(x, min=0.0)", "relu"),
        ("return x.clamp(0)", "relu"),
        ("return torch.clamp_min(x, 0)", "relu"),
        ("return x.clamp_min(min=0.0)", "relu"),
        ("return x.clamp_min(2)", "maximum"),
        ("return x.clamp(min=2)", "maximum"),
        ("return torch.clamp(x, max=6)", "minimum"),
        ("return x.clamp(None, 6)", "minimum"),
        ("return x.clamp_max(6)", "minimum"),
        ("return torch.clamp(x, 0, 6)", "clamp"),
        ("return F.hardtanh(x)", "clamp"),
        ("return F.hardtanh(x, -2.0, max_val=2.0)", "clamp"),
        ("return torch.maximum(x, x.sum())", "sum maximum"),
        ("return bent(x @ x.T)", "transpose matmul gelu"),
        ("return -x + 1.0 * x", "neg scale add"),
        ("x *= 2\nreturn x * x", "scale square"),
        ("return x ** 2 / x.pow(0.5)", "square sqrt div"),
        ("return torch.max(x, dim=1)[0]", "max"),
        ("return torch.max(x, x.sum())", "sum maximum"),
        ("return x * torch.sigmoid(x)", "silu"),
        ("return 1.0 / torch.sqrt(x)", "rsqrt"),
        ("n = x.shape[0] * 2 + N\nreturn x.view(n, -1).contiguous()", "view"),
        ("return [f(x) for f in (torch.sin, torch.cos)]", "sin cos"),
        ("f = lambda t: t.exp()\nreturn f(f(x))", "exp exp"),
        ("if N > 3:\n    x = x.sin()\nelse:\n    x = x.cos()\nreturn x", "sin cos"),
        ("for _ in range(N):\n    x = x.tanh()\nreturn x", "tanh"),
        ("return mystery.frobnicate(x)", "frobnicate"),
        ("return self.nothing.frobnicate(x)", "call"),
        ("return torch.flip(x.mean(-1, keepdim=True), [0])", "mean flip"),
    ],
)
def test_spelling_is_read_as_its_operator(forward, found) -> None:
    assert view_text(model(forward)) == found


@pytest.mark.parametrize(
    ("init", "forward", "found"),
    [
        ("self.a = nn.Linear(4, 4)", "return self.a(x)", "linear"),
        ("self.a = layers.Conv2d(n, 4, 3)", "return self.a(F.relu(x))", "relu conv2d"),
        ("self.a = nn.Conv2d(n, 2 * n, 3, groups=n)", "return self.a(x)", "depthwise_conv2d"),
        ("self.a = nn.Conv1d(n, n, 3, 1, 0, 1, n)", "return self.a(x)", "depthwise_conv1d"),
        ("self.a = nn.Conv2d(n, n, 3, groups=n // 2)", "return self.a(x)", "conv2d"),
        ("self.a = nn.Conv2d(1, 1, 3, groups=1)", "return self.a(x)", "conv2d"),
        ("self.a = nn.Sequential(nn.Linear(4, 4), nn.ReLU6())", "return self.a(x)", "linear relu6"),
        (
            "parts = []\nfor _ in range(n):\n    parts.append(nn.GELU())\n"
            "self.a = nn.ModuleList(parts)",
            "for each in self.a:\n    x = each(x)\nreturn x",
            "gelu",
        ),
        (
            "self.a = nn.ModuleDict({'one': nn.SiLU(), 'two': nn.ELU()})",
            "return self.a['two'](self.a.one(x))",
            "silu elu",
        ),
        ("self.w = nn.Parameter(torch.ones(4))", "return x * self.w", "mul"),
        ("self.k = 3", "return x * self.k", "scale"),
        ("self.register_buffer('b', torch.ones(4))", "return x + self.b", "add"),
        ("self.a = Block(nn.Tanh())", "return self.a(x)", "layer_norm tanh"),
    ],
)
def test_module_is_read_where_it_is_called(init, forward, found) -> None:
    block = (
        "class Base(nn.Module):\n    def forward(self, t):\n        return self.after(normed(t))\n"
        "class Block(Base):\n    def __init__(self, after):\n        super().__init__()\n"
        "        self.after = after\n"
        "def normed(t):\n    return F.layer_norm(t, (4,))\n"
    )
    assert view_text(model(forward, init, block)) == found


@pytest.mark.parametrize(
    ("layer", "function"),
    [
        ("nn.LogSigmoid()", "F.logsigmoid(x)"),
        ("nn.BatchNorm1d(4)", "F.batch_norm(x, None, None)"),
        ("nn.BatchNorm2d(4)", "F.batch_norm(x, None, None)"),
        ("nn.BatchNorm3d(4)", "F.batch_norm(x, None, None)"),
        ("nn.InstanceNorm2d(4)", "F.instance_norm(x)"),
        ("nn.Hardtanh()", "F.hardtanh(x)"),
        ("nn.Hardtanh(-2.0, 2.0)", "F.hardtanh(x, -2.0, 2.0)"),
    ],
)
def test_module_and_function_have_one_name(layer, function) -> None:
    named = operators(model("return self.a(x)", f"self.a = {layer}"))
    assert named == operators(model(f"return {function}"))
    assert len(named) == 1 and family(named[0]) != named[0]


@given(any_text | shaped_text)
def test_any_text_has_a_view(text) -> None:
    assert isinstance(view_text(text), str)
    assert tree_key(text) == tree_key(text)


@pytest.mark.parametrize(
    "source",
    ["", "def f(:", "x = 1\n" * 100_000, "class Model: ...", "(" * 5_000, "x" + "+x" * 50_000],
)
def test_source_without_a_model_has_no_operators(source) -> None:
    assert operators(source) == ()


def test_joined_lists_leave_both_as_they_are() -> None:
    init = "a = [nn.ReLU()]\nself.both = a + [nn.GELU()]\nself.a = nn.Sequential(*a)"
    assert view_text(model("return self.a(x)", init)) == "relu"
    assert view_text(model("for f in self.both:\n    x = f(x)\nreturn x", init)) == "relu gelu"
    copied = "a = [nn.ReLU()]\nb = list(a)\nb.append(nn.GELU())\nself.a = nn.Sequential(*a)"
    assert view_text(model("return self.a(x)", copied)) == "relu"
    grown = "a = [nn.ReLU()]\na += [nn.GELU()]\nself.a = nn.Sequential(*a)"
    assert view_text(model("return self.a(x)", grown)) == "relu gelu"


@pytest.mark.parametrize(
    "doubled", ["a = a + a", "a += a", "a.extend(a)", "a = [*a, *a]", "a = [a, a]", "a = (a, a)"]
)
@pytest.mark.parametrize("first", ["nn.ReLU()", "0", "torch.ones(3)"])
def test_lists_that_double_come_to_an_end(doubled: str, first: str) -> None:
    init = "\n".join([f"a = [{first}]", *[doubled] * 60, "self.a = nn.Sequential(*a)"])
    assert isinstance(view_text(model("return self.a(x)", init)), str)
    init = "\n".join([f"a = [{first}]", *[doubled] * 60, "self.a = a"])
    assert isinstance(view_text(model("return x * self.a", init)), str)


def test_unknown_escape_is_no_error_where_warnings_are() -> None:
    source = model("return torch.relu(x)", more=r"PATTERN = '\d'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert view_text(source) == "relu"


def test_recursion_of_a_reference_comes_to_an_end() -> None:
    twice = "def f(t):\n    return f(f(torch.sin(t)))\n"
    assert "sin" in operators(model("return f(x)", more=twice))


def test_vectors_are_of_length_one_and_alike() -> None:
    embedder = OperatorEmbedder()
    layers = "self.a, self.b = nn.Linear(4, 4), nn.Conv2d(4, 4, 3)"
    forwards = ("F.relu(self.a(x))", "F.gelu(self.a(x))", "F.max_pool2d(self.b(x), 2)")
    rows = embedder.embed([*(model(f"return {each}", layers) for each in forwards), ""])
    assert rows.shape == (4, embedder.dimension) == (4, 512)
    assert (rows[:3] ** 2).sum(axis=1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)
    assert not rows[3].any()
    assert rows[0] @ rows[1] > 0.3 > rows[0] @ rows[2]


def test_sample_reads_as_its_three_operators() -> None:
    assert operators(SAMPLE_PROBLEM.source) == ("relu", "scale", "shift")
