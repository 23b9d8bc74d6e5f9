"""torch's CPU generator entered at any place, on all cores and in kernels: the same bits always."""

from __future__ import annotations

import contextlib
import dataclasses
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

from kernelgym.judge.inputs.kernelbench_bits import draw, mersenne_cpu, mersenne_cuda
from kernelgym.judge.inputs.kernelbench_bits.draw import draw_as_on_cpu
from kernelgym.judge.inputs.kernelbench_bits.exact_operators import is_exact, is_view
from kernelgym.judge.inputs.kernelbench_bits.mersenne import (
    WORDS,
    Place,
    bit_chunks,
    jump,
    spread,
)
from kernelgym.judge.inputs.kernelbench_bits.mersenne_cpu import fill, read_place, write_place
from kernelgym.judge.reference.reference import Reference, Seeds
from kernelgym.judge.tensors import same_bytes
from kernelgym.rulesets import RULESETS
from kernelgym.types import Problem
from support.input_sources import SOURCES, function
from support.kernel_on_cpu import build

CPU = torch.device("cpu")


def started(seed: int, drawn: int) -> torch.Generator:
    generator = torch.Generator().manual_seed(seed)
    torch.rand(drawn, generator=generator)
    return generator


# --------------------------------------------------------------------------- places


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 1300), st.integers(0, 16))
def test_a_jump_leads_where_drawing_leads(seed: int, drawn: int, power: int) -> None:
    one, other = started(seed, drawn), started(seed, drawn)
    place = read_place(one)
    write_place(one, Place(jump(place.words, power), place.given))
    torch.rand(1 << power, generator=other)
    assert torch.equal(torch.rand(2000, generator=one), torch.rand(2000, generator=other))


def test_far_jumps_add_up() -> None:
    words = read_place(started(5, 1000)).words
    assert (jump(words, 41) == jump(jump(words, 40), 40)).all()


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
        Place.of(state)


def test_spread_places_are_a_jump_apart() -> None:
    words = read_place(started(3, 10)).words
    places = spread(words, 9, 11)
    assert len(places) == 11 and (places[0] == words).all()
    assert all((jump(a, 9)[1:] == b[1:]).all() for a, b in itertools.pairwise(places))


# --------------------------------------------------------------------------- all cores

SAMPLERS = {
    "uniform": lambda t, g: t.uniform_(generator=g),
    "uniform within": lambda t, g: t.uniform_(-3, 0.7, generator=g),
    "normal": lambda t, g: t.normal_(generator=g),
    "normal of": lambda t, g: t.normal_(1.5, 0.1, generator=g),
}
INTEGERS = {
    "below ten": lambda t, g: t.random_(0, 10, generator=g),
    "of 2^30": lambda t, g: t.random_(-5, 2**30, generator=g),
    "of 2^40": lambda t, g: t.random_(0, 2**40, generator=g),
    "any": lambda t, g: t.random_(generator=g),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
CASES = [(name, dtype) for name in SAMPLERS for dtype in DTYPES]
CASES += [(name, torch.int64) for name in INTEGERS]


@settings(max_examples=8, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_tensor_filled_in_parts_is_as_torch_fills_it(
    name: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    sampler = (SAMPLERS | INTEGERS)[name]
    size, drawn = data.draw(st.integers(512, 6000)), data.draw(st.integers(0, 1300))
    one, other = started(4, drawn), started(4, drawn)
    found, wanted = torch.empty(size, dtype=dtype), torch.empty(size, dtype=dtype)
    done = fill(found, sampler, one, threads=3, segment_elements=256)
    assert done
    sampler(wanted, other)
    assert same_bytes(found, wanted)
    assert torch.equal(torch.rand(700, generator=one), torch.rand(700, generator=other))


@pytest.mark.parametrize(
    "sampler",
    [
        lambda t, g: t.log_normal_(generator=g),
        lambda t, g: t.exponential_(generator=g),
        lambda t, g: t.geometric_(0.3, generator=g),
        lambda t, g: t.cauchy_(generator=g),
        lambda t, g: t.copy_(torch.randperm(t.numel(), generator=g)),
        lambda t, g: t.copy_(torch.poisson(torch.full_like(t, 3), generator=g)),
    ],
)
def test_whatever_the_sampler_what_is_done_is_right(sampler: mersenne_cpu.Sampler) -> None:
    one, other = started(4, 3), started(4, 3)
    found, wanted = torch.empty(5000), torch.empty(5000)
    if not fill(found, sampler, one, threads=2, segment_elements=512):
        assert torch.equal(one.get_state(), other.get_state())
        return
    sampler(wanted, other)
    assert same_bytes(found, wanted)


def test_little_and_scattered_tensors_are_left_alone() -> None:
    generator = started(1, 0)
    before = generator.get_state()
    for tensor in (torch.zeros(100), torch.zeros(64, 64).t(), torch.zeros(64, 128)[:, ::2]):
        assert not fill(tensor, SAMPLERS["uniform"], generator, threads=2, segment_elements=512)
        assert not tensor.any()
    assert not fill(torch.zeros(9999), SAMPLERS["uniform"], generator, threads=1)
    assert torch.equal(generator.get_state(), before)


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


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Few elements are many; returns the numbers of elements that were drawn in parts."""
    filled: list[int] = []

    def counting(tensor: torch.Tensor, sampler: Any, generator: torch.Generator) -> bool:
        done = fill(tensor, sampler, generator, threads=2, segment_elements=512)
        filled.extend([tensor.numel()] * done)
        return done

    monkeypatch.setattr(mersenne_cpu, "PARALLEL_ELEMENTS", 1500)
    monkeypatch.setattr(mersenne_cpu, "fill", counting)
    return filled


@pytest.mark.parametrize("name", SOURCES)
def test_inputs_are_what_they_would_be(name: str, in_parts: list[int]) -> None:
    get_inputs = function(name, 1999)
    for seed in (734796314, 2):
        wanted = serially(get_inputs, seed)
        later = torch.randn(3), torch.rand(700), random.random()
        found = draw_as_on_cpu(get_inputs, seed, CPU)
        assert_same(found, wanted)
        assert_same((torch.randn(3), torch.rand(700), random.random()), later)
    assert in_parts or name in ("nothing", "symmetric", "out")


class Elsewhere(draw._Elsewhere):
    """Another device as far as the drawing knows: tensors on it are told by their memory."""

    def __init__(self, device: torch.device, draw: object) -> None:
        super().__init__(device, self.draw)
        self.kept: dict[int, torch.Tensor] = {}
        self.brought = 0

    def draw(self, count: int, place: Place, device: Any) -> tuple[torch.Tensor, Place]:
        generator = torch.Generator()
        write_place(generator, place)
        self.keep(drawn := torch.rand(count, generator=generator))
        return drawn, read_place(generator)

    def keep(self, result: Any) -> None:
        for tensor in flattened(result):
            if isinstance(tensor, torch.Tensor):
                self.kept[tensor.untyped_storage().data_ptr()] = tensor

    def _is_there(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.kept

    def _run_there(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = super()._run_there(func, args, kwargs)
        self.keep(result)
        return result

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._is_there(tensor) or not tensor.dim() else tensor.clone()

    def _to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        self.brought += self._is_there(tensor)
        return tensor.clone() if self._is_there(tensor) else tensor


SERIAL = (
    "summed in place",
    "product",
    "bernoulli",
)  # what is drawn again from the start
STAY = (
    *("rand", "rand twice", "rand shaped", "scaled", "scaled by a draw", "scaled by a row"),
    *("shapes", "permuted", "expanded", "triangular", "symmetric", "masked", "changed in place"),
    *("changed through a view", "joined", "randint", "own generator", "labels", "nested", "tuple"),
)


@pytest.mark.parametrize("name", SOURCES)
def test_inputs_drawn_on_another_device_are_what_they_would_be(
    name: str, in_parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Elsewhere] = []

    def make(*args: Any) -> Elsewhere:
        made.append(Elsewhere(*args))
        return made[-1]

    runs = []
    monkeypatch.setattr(draw, "_DEVICE_ELEMENTS", 1500)
    monkeypatch.setattr(draw, "_Elsewhere", make)
    get_inputs = function(name, 1999)
    wanted = serially(get_inputs, 5)
    later = torch.rand(700), random.random()
    found = draw_as_on_cpu(lambda: runs.append(0) or get_inputs(), 5, CPU)  # type: ignore[func-returns-value]
    assert_same(found, wanted)
    assert_same((torch.rand(700), random.random()), later)
    assert len(runs) == (2 if name in SERIAL else 1)
    if name in STAY:
        assert made[0].kept and not made[0].brought


@pytest.mark.parametrize(("fails", "asked"), [(1, 2), (2, 3)])
def test_a_full_device_is_asked_twice_before_the_cpu(fails: int, asked: int) -> None:
    runs: list[int] = []

    def get_inputs() -> list[torch.Tensor]:
        runs.append(1)
        if len(runs) <= fails:
            raise torch.OutOfMemoryError("full")
        return [torch.rand(1 << 19)]

    (found,) = draw_as_on_cpu(get_inputs, 5, CPU)
    assert len(runs) == asked
    torch.manual_seed(5)
    assert torch.equal(found, torch.rand(1 << 19))


def test_what_fails_fails_as_it_would(in_parts: list[int]) -> None:
    def get_inputs() -> list[torch.Tensor]:
        torch.rand(2000)
        raise LookupError("no inputs")

    with pytest.raises(LookupError, match="no inputs"):
        draw_as_on_cpu(get_inputs, 3, CPU)


def test_the_kernelbench_rulesets_inputs_are_drawn_so(in_parts: list[int]) -> None:
    source = (
        "import torch\nModel = torch.nn.Identity\n"
        "def get_inputs(): return [torch.rand(40, 60) * 2, torch.randint(0, 9, (2000,))]\n"
        "def get_init_inputs(): return []\n"
    )
    problem = Problem("Test/1", "Test", 1, "drawn", source)
    seeds = Seeds("")
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        rules = dataclasses.replace(RULESETS["kernelbench"], precision=precision)
        reference = Reference(problem, rules, seeds)
        torch.manual_seed(seeds.trial(1))
        wanted = [(torch.rand(40, 60) * 2).to(dtype), torch.randint(0, 9, (2000,))]
        in_parts.clear()
        assert_same(reference.inputs(seeds.trial(1)), wanted)
        assert in_parts == [2400, 2000]


# --------------------------------------------------------------------------- operators


class Seen(TorchDispatchMode):
    """Notes for each operator whether it counts as exact."""

    def __init__(self) -> None:
        super().__init__()
        self.exact: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.exact.append(is_view(func) or is_exact(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("expression", "exact"),
    [
        *((text, True) for text in ("x * 2 - 1", "3 - x", "x + y", "x - y", "-x", "x.abs()")),
        *((text, True) for text in ("x / 4", "x.T", "x[1:]", "x.T.contiguous()", "x.t().clone()")),
        *((text, True) for text in ("x.half()", "x.double()", "x.long()", "(x > y).float()")),
        *((text, True) for text in ("torch.where(x > y, x, y)", "x.clamp(0, 1)", "x.mul_(2)")),
        *((text, True) for text in ("torch.triu(x)", "torch.cat([x, y])", "x.relu()")),
        *((text, False) for text in ("x / 3", "x / y", "x.exp()", "x.sum()", "x.softmax(0)")),
        *((text, False) for text in ("x @ y", "x.cumsum(0)", "x ** 2", "x.half() * 2", "x.int()")),
        *((text, False) for text in ("torch.add(x, y, alpha=0.3)", "torch.sub(x, 1, alpha=3)")),
        *(
            (text, False)
            for text in ("x.sub_(y, alpha=2)", "x.sqrt()", "x.sort()", "x.cpu().tan()")
        ),
        *(
            (text, False)
            for text in ("torch.lerp(x, y, 0.3)", "torch.addcmul(x, x, y)", "x.mean()")
        ),
    ],
)
def test_only_what_has_one_right_answer_counts_as_exact(expression: str, exact: bool) -> None:
    seen = Seen()
    names = {"torch": torch, "x": torch.rand(4, 4), "y": torch.rand(4, 4)}
    with seen:
        eval(expression, names)
    assert seen.exact and all(seen.exact) == exact


@pytest.mark.slow
def test_to_draw_nobody_waits_for_torchs_compiler() -> None:
    program = (
        "import sys, torch\n"
        "from kernelgym.judge.inputs.kernelbench_bits.draw import draw_as_on_cpu\n"
        "drawn = draw_as_on_cpu(lambda: [torch.rand(1 << 16)], 3, torch.device('cpu'))\n"
        "torch.manual_seed(3)\n"
        "assert torch.equal(drawn[0], torch.rand(1 << 16))\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout == "False\n", said.stderr
