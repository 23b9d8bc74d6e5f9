"""KernelBench's inputs drawn on a GPU have the bits that torch's CPU generator gives."""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgym.judge.inputs.kernelbench_bits import draw, mersenne_cuda
from kernelgym.judge.inputs.kernelbench_bits.draw import draw_as_on_cpu
from kernelgym.judge.inputs.kernelbench_bits.mersenne import WORDS, GeneratorPlace, bit_chunks
from kernelgym.judge.inputs.kernelbench_bits.mersenne_cuda import read_place, write_place
from kernelgym.judge.tensors import same_bytes, tensors_of
from support.input_sources import SOURCES, function
from support.kernel_on_cpu import build

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def started(seed: int, drawn: int) -> torch.Generator:
    generator = torch.Generator().manual_seed(seed)
    torch.rand(drawn, generator=generator)
    return generator


# --------------------------------------------------------------------------- places


@settings(deadline=None)
@given(st.integers(0, 1300), st.integers(1, 3000))
@example(0, 624)
@example(1, 1247)
def test_where_a_generator_will_be_is_known(drawn: int, count: int) -> None:
    place = read_place(started(1, drawn))
    behind, given_out = place.after(count)
    end = read_place(started(1, drawn + count))
    assert end.given == given_out
    # The stream's words from here, before tempering, by the places that torch itself comes by.
    passed = [started(1, drawn + step) for step in range(0, count + 1)]
    starts = [read_place(each) for each in passed]
    changes = sum(not (a.words == b.words).all() for a, b in itertools.pairwise(starts))
    assert behind == changes * WORDS


def test_a_state_survives_being_read_and_written() -> None:
    generator = started(9, 700)
    torch.randn(3, generator=generator)  # leaves half a pair behind, which is part of the state
    before = generator.get_state()
    write_place(generator, read_place(generator))
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("state", [b"", bytes(5056), bytes(16)])
def test_what_is_no_state_is_refused(state: bytes) -> None:
    with pytest.raises(ValueError):
        GeneratorPlace.of(state)


# --------------------------------------------------------------------------- the device's kernels


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("kernels")
    sources = {"jump": mersenne_cuda.JUMP_SOURCE, "draw": mersenne_cuda.DRAW_SOURCE}
    return {name: build(source, name, folder) for name, source in sources.items()}


@pytest.fixture
def emulated(kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The CUDA kernels' own sources, run on the CPU, on short segments."""
    monkeypatch.setattr(mersenne_cuda, "_kernel", lambda name, device: kernels[name])
    monkeypatch.setattr(mersenne_cuda, "SEGMENT_POWER", 11)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())


@pytest.mark.parametrize(
    ("drawn", "count"), [(0, 1), (0, 7000), (1, 623), (1, 624), (623, 2049), (5000, 4097)]
)
def test_the_kernels_draw_what_torch_draws(emulated: None, drawn: int, count: int) -> None:
    generator = started(11, drawn)
    out, place = mersenne_cuda.draw_uniform(count, read_place(generator), CPU)
    assert torch.equal(out, torch.rand(count, generator=generator))
    end = read_place(generator)
    assert end.given == place.given and (end.words[1:] == place.words[1:]).all()
    write_place(generator, place)
    later = started(11, drawn + count)
    assert torch.equal(torch.rand(2000, generator=generator), torch.rand(2000, generator=later))


def test_a_device_that_draws_otherwise_is_found_out(
    emulated: None, kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mersenne_cuda, "_TRIED_ELEMENTS", 6000)
    mersenne_cuda.agrees.cache_clear()
    assert mersenne_cuda.agrees(CPU)

    def slips(grid: Any, block: Any, args: list[Any]) -> None:
        kernels["draw"](grid, block, args)
        args[0][5123] += 2.0**-24

    wrong = {"jump": kernels["jump"], "draw": slips}
    monkeypatch.setattr(mersenne_cuda, "_kernel", lambda name, device: wrong[name])
    mersenne_cuda.agrees.cache_clear()
    assert not mersenne_cuda.agrees(CPU)
    mersenne_cuda.agrees.cache_clear()


def test_chunks_hold_the_polynomials_bits() -> None:
    bits = np.unpackbits(bit_chunks(3).view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == [8]  # t^8, of too low a degree to be reduced


# --------------------------------------------------------------------------- whole inputs


def flattened(value: Any) -> list[Any]:
    return [x for v in value for x in flattened(v)] if isinstance(value, (list, tuple)) else [value]


def assert_same(found: Any, wanted: Any) -> None:
    found, wanted = flattened(found), flattened(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert type(a) is type(b)
        if isinstance(b, torch.Tensor):
            assert same_bytes(a.cpu(), b) and a.stride() == b.stride()
        else:
            assert a == b


def serially(get_inputs: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    random.seed(seed)
    return get_inputs()


class DrawsElsewhere(draw._DrawsElsewhere):
    """A stand-in for a GPU on the CPU: it knows by their memory which tensors lie on the "GPU"."""

    def __init__(self, device: torch.device, draw: object) -> None:
        super().__init__(device, self.draw)
        self.kept: dict[int, torch.Tensor] = {}

    def draw(
        self, count: int, place: GeneratorPlace, device: Any
    ) -> tuple[torch.Tensor, GeneratorPlace]:
        generator = torch.Generator()
        write_place(generator, place)
        self.keep(drawn := torch.rand(count, generator=generator))
        return drawn, read_place(generator)

    def keep(self, result: Any) -> None:
        for tensor in tensors_of(result):
            self.kept[tensor.untyped_storage().data_ptr()] = tensor

    def _is_there(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if any(self._is_there(tensor) for tensor in tensors_of((args, kwargs or {}))):
            self.keep(result)
        return result


STAY = (
    *("rand", "rand twice", "rand among small ones", "rand shaped", "scaled", "scaled by a draw"),
    *("shapes", "permuted", "expanded", "triangular", "symmetric", "randint", "own generator"),
    *("labels", "randn", "tuple", "other generators", "nothing", "seeded inside"),
)
"""Sources that are drawn once; the others are drawn again, as KernelBench draws them."""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements are many, and a stand-in draws them."""
    monkeypatch.setattr(draw, "_DEVICE_ELEMENTS", 1500)
    monkeypatch.setattr(draw, "_DrawsElsewhere", DrawsElsewhere)


@pytest.mark.parametrize("name", SOURCES)
def test_inputs_drawn_on_a_gpu_equal_those_of_the_cpu(name: str, stand_in: None) -> None:
    runs = []
    get_inputs = function(name, 1999)
    wanted = serially(get_inputs, 5)
    later = torch.randn(3), torch.rand(700), random.random()
    found = draw_as_on_cpu(lambda: runs.append(0) or get_inputs(), 5, GPU)  # type: ignore[func-returns-value]
    assert_same(found, wanted)
    assert_same((torch.randn(3), torch.rand(700), random.random()), later)
    if name in STAY:
        assert len(runs) == 1


@pytest.mark.parametrize("name", SOURCES)
def test_inputs_for_the_cpu_are_what_the_problem_draws(name: str) -> None:
    get_inputs = function(name, 1999)
    wanted = serially(get_inputs, 734796314)
    assert_same(draw_as_on_cpu(get_inputs, 734796314, CPU), wanted)


@pytest.mark.parametrize(("fails", "asked"), [(1, 2), (2, 3)])
def test_full_gpu_is_tried_twice_before_the_cpu(fails: int, asked: int, stand_in: None) -> None:
    runs: list[int] = []

    def get_inputs() -> list[torch.Tensor]:
        runs.append(1)
        if len(runs) <= fails:
            raise torch.OutOfMemoryError("full")
        return [torch.rand(2000)]

    (found,) = draw_as_on_cpu(get_inputs, 5, GPU)
    assert len(runs) == asked
    torch.manual_seed(5)
    assert torch.equal(found, torch.rand(2000))


@pytest.mark.parametrize("device", [CPU, GPU])
def test_error_of_the_problem_is_raised(device: torch.device, stand_in: None) -> None:
    def get_inputs() -> list[torch.Tensor]:
        torch.rand(2000)
        raise LookupError("no inputs")

    with pytest.raises(LookupError, match="no inputs"):
        draw_as_on_cpu(get_inputs, 3, device)


# --------------------------------------------------------------------------- operators


class Seen(TorchDispatchMode):
    """Notes for each operator whether it counts as exact."""

    def __init__(self) -> None:
        super().__init__()
        self.exact: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.exact.append(draw._is_view(func) or draw._is_exact(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("expression", "exact"),
    [
        *((text, True) for text in ("x * 2 - 1", "3 - x", "x + y", "x - y", "-x", "x > 0.5")),
        *((text, True) for text in ("x.T", "x[1:]", "x.T.contiguous()", "x.t().clone()")),
        *((text, True) for text in ("(x > y).float()", "torch.triu(x)", "torch.tril(x, 1)")),
        *((text, False) for text in ("x / 3", "x / y", "x.exp()", "x.sum()", "x.softmax(0)")),
        *((text, False) for text in ("x @ y", "x.cumsum(0)", "x ** 2", "x.half() * 2", "x.int()")),
        *((text, False) for text in ("torch.add(x, y, alpha=0.3)", "torch.sub(x, 1, alpha=3)")),
        *((text, False) for text in ("x.sub_(y, alpha=2)", "x.mul_(2)", "x.fill_(1)", "x.sqrt()")),
        *((text, False) for text in ("x.sort()", "x.cpu().tan()", "torch.lerp(x, y, 0.3)")),
        *((text, False) for text in ("torch.addcmul(x, x, y)", "x.mean()", "x.half()")),
    ],
)
def test_only_what_has_one_right_answer_counts_as_exact(expression: str, exact: bool) -> None:
    seen = Seen()
    names = {"torch": torch, "x": torch.rand(4, 4), "y": torch.rand(4, 4)}
    with seen:
        eval(expression, names)
    assert seen.exact and all(seen.exact) == exact


@pytest.mark.slow
def test_drawing_does_not_import_torchs_compiler() -> None:
    program = (
        "import sys, torch\n"
        "from kernelgym.judge.inputs.kernelbench_bits import draw\n"
        "with draw._DrawsElsewhere(torch.device('cuda'), None):\n"
        "    drawn = torch.rand(100)\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout == "False\n", said.stderr
