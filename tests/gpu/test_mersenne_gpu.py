"""`torch.rand` of the CPU, drawn on the GPU: the same bits, whatever is asked for."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Any

import pytest
import torch

from kernelgym.judge.inputs.kernelbench_bits import mersenne_cuda
from kernelgym.judge.inputs.kernelbench_bits.draw import draw_as_on_cpu
from kernelgym.judge.inputs.kernelbench_bits.mersenne_cuda import read_place
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.tensors import same_bytes
from kernelgym.rulesets import RULESETS
from kernelgym.types import Problem
from support.input_sources import SOURCES, function

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda:0")
SEGMENT = 1 << mersenne_cuda.SEGMENT_POWER
SEEDS = (734796314, 576165995, 2197670066, 839703249, 2584932063, 0, 2**32 - 1)


def flattened(value: Any) -> list[Any]:
    return [x for v in value for x in flattened(v)] if isinstance(value, (list, tuple)) else [value]


def assert_same(found: Any, wanted: Any) -> None:
    found, wanted = flattened(found), flattened(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert type(a) is type(b)
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        moved = b.to(GPU)
        assert a.dtype == b.dtype and same_bytes(a.cpu(), b)
        assert a.to(GPU).stride() == moved.stride()


def test_this_device_and_this_torch_agree() -> None:
    mersenne_cuda.agrees.cache_clear()
    assert mersenne_cuda.agrees(GPU)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "count", [1, 623, 624, 625, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 17, 39 * SEGMENT]
)
def test_bits_and_end(seed: int, count: int) -> None:
    for drawn in (0, 1, 623, 624, 625, 12345):
        generator = torch.Generator().manual_seed(seed)
        torch.rand(drawn, generator=generator)
        found, place = mersenne_cuda.draw_uniform(count, read_place(generator), GPU)
        assert torch.equal(found.cpu(), torch.rand(count, generator=generator))
        end = read_place(generator)
        assert end.given == place.given and (end.words[1:] == place.words[1:]).all()


def test_consecutive_draws_of_many_shapes() -> None:
    def get_inputs() -> list[torch.Tensor]:
        return [
            torch.rand(*shape)
            for shape in ((1024, 1024), (3,), (7, 300, 401), (1,), (2, 3), (64, 64, 32, 33))
        ]

    for seed in SEEDS:
        torch.manual_seed(seed)
        wanted = get_inputs()
        found = draw_as_on_cpu(get_inputs, seed, GPU)
        assert_same(found, wanted)
        assert [tensor.is_cuda for tensor in found] == [True, False, True, False, False, True]


@pytest.mark.parametrize("elements", [(1 << 18) + 3, (1 << 20) + 511])
@pytest.mark.parametrize("name", SOURCES)
def test_inputs_are_what_the_cpu_draws(name: str, elements: int) -> None:
    get_inputs = function(name, elements)
    torch.manual_seed(42)
    random.seed(42)
    wanted = get_inputs()
    later = torch.rand(700), torch.randn(3), random.random()
    found = draw_as_on_cpu(get_inputs, 42, GPU)
    assert_same(found, wanted)
    assert_same((torch.rand(700), torch.randn(3), random.random()), later)
    there = [x for x in flattened(found) if isinstance(x, torch.Tensor) and x.is_cuda]
    memories = [tensor.untyped_storage().data_ptr() for tensor in there]
    assert len(set(memories)) == len(memories), "inputs that share memory would change together"


def test_inputs_with_a_list_are_drawn_on_the_cpu() -> None:
    nested, plain = draw_as_on_cpu(function("nested", 1 << 20), 1, GPU)
    assert [tensor.device.type for tensor in (*nested, plain)] == ["cpu"] * 3


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_kernelbench_ruleset_judges_on_them(precision: str) -> None:
    source = (
        "import torch\nModel = torch.nn.Identity\n"
        "def get_inputs(): return [torch.rand(2048, 4096) * 2 - 1, torch.rand(5)]\n"
        "def get_init_inputs(): return []\n"
    )
    rules = dataclasses.replace(RULESETS["kernelbench"], precision=precision)
    reference = Reference(Problem("Test/1", "Test", 1, "drawn", source), rules, Seeds(""), "cuda:0")
    for trial in range(2):
        seed = Seeds("").trial(trial)
        torch.manual_seed(seed)
        wanted = [torch.rand(2048, 4096) * 2 - 1, torch.rand(5)]
        found = reference.inputs(seed)
        assert all(tensor.is_cuda and tensor.dtype == reference.dtype for tensor in found)
        assert_same(found, [tensor.to(reference.dtype) for tensor in wanted])


def test_gigabytes(capsys: pytest.CaptureFixture[str]) -> None:
    """The shape that KernelBench's normalisations draw; says what it took."""
    rows, columns = 4096, 393216
    generator = torch.Generator().manual_seed(SEEDS[0])
    place = read_place(generator)
    mersenne_cuda.agrees(GPU)
    torch.cuda.synchronize()
    started = time.perf_counter()
    found, _ = mersenne_cuda.draw_uniform(rows * columns, place, GPU)
    torch.cuda.synchronize()
    on_device_s = time.perf_counter() - started
    started = time.perf_counter()
    wanted = torch.rand(rows, columns, generator=generator)
    on_cpu_s = time.perf_counter() - started
    assert same_bytes(found.view(rows, columns).cpu(), wanted)
    with capsys.disabled():
        print(f"\n6.4 GB: {on_device_s:.4f} s on the device, {on_cpu_s:.2f} s on the CPU")
