"""Honest evaluations in fp32 stay within the bound of `strict`; coarse or faked ones do not."""

import math

import pytest
import torch

from kernelgym.judge.compare.compare import byte_copy, compare
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.rulesets import RULESETS

STRICT = RULESETS["strict"]


def _compare(output, expected, rules, precise=None):
    return compare(
        describe_shape_of(output), [byte_copy(output)], expected, precise, rules, locate=True
    )


def _passes(output, expected, rules=STRICT, precise=None):
    return _compare(output, expected, rules, precise).passed


def _source(seed):
    return torch.Generator().manual_seed(seed)


def _jitter(values, seed, ulp=3):
    """Move every value by up to `ulp` units in its last place, as another exp() would."""
    steps = torch.randint(-ulp, ulp + 1, values.shape, generator=_source(seed))
    return values * (1 + steps.to(values.dtype) * 2**-23)


def _in_order(x):
    """Sum the last axis one element after the other, in fp32."""
    total = torch.zeros(x.shape[:-1])
    for column in x.unbind(-1):
        total = total + column
    return total


def _cumsum_in_order(x):
    sums = [x[:, 0]]
    for column in x.unbind(-1)[1:]:
        sums.append(sums[-1] + column)
    return torch.stack(sums, -1)


def _matmul_in_order(a, b):
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k]
    return total


def _softmax(x):
    powers = _jitter(torch.exp(x - x.amax(-1, keepdim=True)), 5)
    return powers / _in_order(powers)[..., None]


def _norm(x):
    centred = x - (_in_order(x) / x.shape[-1])[..., None]
    return centred * torch.rsqrt((_in_order(centred * centred) / x.shape[-1])[..., None] + 1e-5)


def _randn(*shapes):
    source = _source(7)
    return [torch.randn(shape, generator=source) for shape in shapes]


CASES = {  # reference, another evaluation in fp32, inputs
    "matmul 4": (torch.mm, _matmul_in_order, _randn((96, 4), (4, 96))),
    "matmul 64": (torch.mm, _matmul_in_order, _randn((96, 64), (64, 96))),
    "matmul 4096": (torch.mm, _matmul_in_order, _randn((48, 4096), (4096, 48))),
    "matmul and relu": (
        lambda a, b: (a @ b).relu(),
        lambda a, b: _matmul_in_order(a, b).relu(),
        _randn((96, 256), (256, 96)),
    ),
    "sum 10000": (lambda x: x.sum(-1), _in_order, _randn((64, 10_000))),
    "mean 10000": (lambda x: x.mean(-1), lambda x: _in_order(x) / 1e4, _randn((64, 10_000))),
    "softmax": (lambda x: x.softmax(-1), _softmax, _randn((64, 1000))),
    "sharp softmax": (
        lambda x: (20 * x).softmax(-1),
        lambda x: _softmax(20 * x),
        _randn((64, 999)),
    ),
    "layer norm": (
        lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
        _norm,
        _randn((64, 1024)),
    ),
    "gelu": (
        torch.nn.functional.gelu,
        lambda x: 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5))),
        _randn((64, 1024)),
    ),
    "elu of small values": (
        lambda x: torch.nn.functional.elu(0.02 * x),
        lambda x: torch.where(x > 0, 0.02 * x, torch.exp(0.02 * x) - 1),
        _randn((64, 1024)),
    ),
    "attention": (
        lambda q, k, v: (q @ k.T / 8).softmax(-1) @ v,
        lambda q, k, v: _matmul_in_order(_softmax(_matmul_in_order(q, k.T) / 8), v),
        _randn((64, 64), (64, 64), (64, 64)),
    ),
    "cumsum": (lambda x: x.cumsum(-1), _cumsum_in_order, _randn((32, 2048))),
    "heavy tail": (
        lambda x: torch.exp(4 * x),
        lambda x: torch.exp2(x * (4 / math.log(2))),
        _randn((10_000,)),
    ),
    "row scales": (
        lambda a, b, s: (a * torch.exp(2 * s)) @ b,
        lambda a, b, s: _matmul_in_order(a * torch.exp(2 * s), b),
        _randn((128, 256), (256, 128), (128, 1)),
    ),
}


def _ten_bits(x):
    """Round to TF32's ten bits of mantissa."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("name", CASES)
def test_honest_evaluations_pass_with_room_and_coarse_or_fake_ones_fail(name):
    model, other, inputs = CASES[name]
    reference, truth = model(*inputs), model(*[value.double() for value in inputs])
    kept = truth.clone()
    assert _passes(other(*inputs), reference, STRICT, truth)
    twice = truth + 1.4 * (other(*inputs).double() - truth)  # room of 40 %
    assert _passes(twice.float(), reference, STRICT, truth)
    coarse = {
        "half": model(*[value.half().float() for value in inputs]),
        "bfloat16": model(*[value.bfloat16().float() for value in inputs]),
        "ten bits": model(*[_ten_bits(value) for value in inputs]),
        "half output": reference.half().float(),
    }
    for what, fake in coarse.items():
        assert not _passes(fake, reference, STRICT, truth), what
    sizes = truth.abs()
    matter = sizes > 1e-3 * sizes[sizes > 0].median()
    turned = [torch.randn(x.shape, generator=_source(8)) for x in inputs]
    fakes = {
        "zeros": torch.zeros_like(reference),
        "a constant": torch.full_like(reference, float(reference.mean())),
        "other inputs": model(*turned),
    }
    if inputs[0].shape == reference.shape:
        fakes["its input"] = inputs[0]
    for what, fake in fakes.items():
        # Alone among right values, so that each element must be refused by itself.
        found = _compare(torch.where(matter, fake, reference), reference, STRICT, truth)
        refused = int(found.message.split("differ at ")[1].split()[0])
        assert refused >= 0.99 * int(matter.sum()), what
    assert torch.equal(truth, kept)
