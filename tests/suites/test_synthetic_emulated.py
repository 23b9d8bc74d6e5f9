"""Synthetic's TileLang and CuTe DSL kernels compute what the reference does, by small stand-ins.

The stand-ins run a kernel's blocks one after the other in Python: TileLang's parallel loops as
loops, the threads of a CuTe DSL block as threads of Python with a barrier. Accesses beyond the end
of a tensor fail. They know what the suite's kernels use and nothing more.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kernelgym.suites.synthetic import SyntheticSuite, Target, broken_variants, reaches, solve
from kernelgym.suites.synthetic.source import spec_of
from kernelgym.suites.synthetic.spec import DotStage
from kernelgym.types import Problem, Status

SUITE = SyntheticSuite(per_level=120)
_THREAD = threading.local()


class Elements:
    """A tensor whose elements are read and written one at a time, within its bounds."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, place: Any) -> Any:
        assert not isinstance(place, int) or 0 <= place < len(self.tensor), place
        return self.tensor[place].item()

    def __setitem__(self, place: Any, value: Any) -> None:
        assert not isinstance(place, int) or 0 <= place < len(self.tensor), place
        self.tensor[place] = value


def total(function: Callable[[float], float]) -> Callable[[float], float]:
    """Return a function of C's kind: infinite on overflow, NaN outside of its domain."""

    def call(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return call


MATH = {name: total(getattr(math, name)) for name in ("exp", "log", "sqrt", "sin", "erf")}


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    return made


def fake_tilelang() -> dict[str, ModuleType]:
    def reduced(function: Any) -> Any:
        return lambda source, target, dim: target.tensor.copy_(function(source.tensor, dim))

    def jit(out_idx: list[int]) -> Any:
        def decorated(build: Any) -> Any:
            def built(*sizes: Any) -> Any:
                main = build(*sizes)

                def run(*tensors: torch.Tensor) -> torch.Tensor:
                    out = torch.full(main.__annotations__["out"], math.nan)
                    main(*map(Elements, tensors), Elements(out))
                    return out

                return run

            return built

        return decorated

    language = module(
        "tilelang.language",
        **MATH,
        prim_func=lambda function: function,
        Tensor=lambda shape, dtype: shape,
        ceildiv=lambda a, b: -(-a // b),
        Parallel=lambda *n: range(*n) if len(n) == 1 else itertools.product(*map(range, n)),
        alloc_fragment=lambda shape, dtype: Elements(torch.full(shape, math.nan)),
        cast=lambda value, dtype: int(value) if dtype == "int32" else float(value),
        if_then_else=lambda condition, yes, no: yes if condition else no,
        infinity=lambda dtype: math.inf,
        max=max,
        min=min,
        abs=abs,
        reduce_sum=reduced(torch.sum),
        reduce_max=reduced(torch.amax),
        reduce_min=reduced(torch.amin),
    )
    return {
        "tilelang": module("tilelang", jit=jit, language=language),
        "tilelang.language": language,
    }


class Block:
    """A block of threads, with its barrier and its shared memory."""

    def __init__(self, threads: int) -> None:
        self.barrier, self.values = threading.Barrier(threads), [0.0] * threads
        self.memory: dict[int, Elements] = {}

    def over_warp(self, value: float, combine: Any) -> float:
        thread = _THREAD.number
        self.values[thread] = value
        self.barrier.wait()
        first, *others = self.values[thread // 32 * 32 :][:32]
        for other in others:
            first = combine(first, other)
        self.barrier.wait()
        return first


class SharedMemory:
    """Stand-in for `cutlass.utils.SmemAllocator`."""

    def allocate_tensor(self, kind: Any, count: int) -> Elements:
        place, _THREAD.allocated = _THREAD.allocated, _THREAD.allocated + 1
        memory: dict[int, Elements] = _THREAD.block.memory
        return memory.setdefault(place, Elements(torch.zeros(count)))


def launched(kernel: Any, given: tuple[Any, ...], grid: Any, block: Any) -> None:
    for number in range(grid[0]):
        shared, errors = Block(block[0]), list[BaseException]()

        def run(
            thread: int, number: int = number, shared: Block = shared, errors: Any = errors
        ) -> None:
            _THREAD.block, _THREAD.number, _THREAD.allocated = shared, thread, 0
            _THREAD.place = number
            try:
                with contextlib.suppress(threading.BrokenBarrierError):
                    kernel(*given)
            except BaseException as error:
                errors.append(error)
                shared.barrier.abort()

        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(block[0])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def fake_cutlass() -> dict[str, ModuleType]:
    def kernel(function: Any) -> Any:
        return lambda *given: SimpleNamespace(
            launch=lambda grid, block, stream: launched(function, given, grid, block)
        )

    class Float32(float):
        inf = math.inf

    class Flat(Elements):
        def mark_layout_dynamic(self) -> Any:
            return self

    arch = SimpleNamespace(
        thread_idx=lambda: (_THREAD.number, 0, 0),
        block_idx=lambda: (_THREAD.place, 0, 0),
        sync_threads=lambda: _THREAD.block.barrier.wait(),
        warp_reduction=lambda value, combine: _THREAD.block.over_warp(value, combine),
        fmax=max,
        fmin=min,
    )
    cute = module(
        "cutlass.cute",
        kernel=kernel,
        jit=lambda function: function,
        compile=lambda function, *given: function,
        Tensor=Elements,
        arch=arch,
        math=SimpleNamespace(**MATH),
        size=lambda tensor: len(tensor.tensor),
        make_layout=lambda count: count,
    )
    numbers = {"Float32": Float32, "Int32": int, "Constexpr": object, "range_constexpr": range}
    utils = SimpleNamespace(SmemAllocator=SharedMemory)
    driver = module("cuda.bindings.driver", CUstream=lambda handle: handle)
    return {
        "cutlass": module("cutlass", cute=cute, utils=utils, **numbers),
        "cutlass.cute": cute,
        "cutlass.cute.runtime": module("cutlass.cute.runtime", from_dlpack=Flat),
        "cuda": module("cuda"),
        "cuda.bindings": module("cuda.bindings", driver=driver),
        "cuda.bindings.driver": driver,
    }


def spoilt(allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that allocates a tensor and fills it with NaN, where its type has one."""

    def call(*sizes: Any, **options: Any) -> torch.Tensor:
        made = allocate(*sizes, **options)
        return made.fill_(math.nan) if made.is_floating_point() else made

    return call


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    # Memory that is given out anew may hold the right result of an earlier kernel.
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, spoilt(getattr(torch, name)))
    for name, made in (fake_tilelang() | fake_cutlass()).items():
        monkeypatch.setitem(sys.modules, name, made)
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)


def defined(source: str) -> dict[str, Any]:
    blocks = r"for bx in range(\1):"
    text = re.sub(r"with T\.Kernel\((.*), threads=\d+\) as bx:", blocks, source)
    names: dict[str, Any] = {}
    exec(compile(text, "kernel.py", "exec", dont_inherit=True), names)
    return names


def agrees(problem: Problem, source: str) -> bool:
    """Return True if a kernel's output is the reference's."""
    reference, kernel = defined(problem.source), defined(source)
    torch.manual_seed(0)
    model, inputs = reference["Model"](*reference["get_init_inputs"]()), reference["get_inputs"]()
    torch.manual_seed(0)
    own = kernel["ModelNew"](*reference["get_init_inputs"]())
    with torch.no_grad():
        wanted, found = model(*inputs), own(*inputs)
    return bool(wanted.shape == found.shape and torch.allclose(wanted, found, 1e-4, 1e-4))


def check_labels(problem: Problem, language: Target, styles: int) -> None:
    """Check that right kernels agree with the reference, and wrong ones, which run, do not."""
    for seed in range(styles):
        assert agrees(problem, solve(problem, language, seed).source)
    for each in broken_variants(problem, language):
        if each.expected is Status.WRONG:
            assert not agrees(problem, each.kernel.source), each.defect


def of_every_kind(language: Target, most: int) -> list[Problem]:
    """Return a small problem of each operation that a language's templates reach."""
    found: dict[str, Problem] = {}
    for problem in SUITE.problems(level=1):
        spec = spec_of(problem)
        stage = spec.stages[0]
        if isinstance(stage, DotStage):
            continue
        if reaches(language, problem) and spec.elements(stage.shape) <= most:
            kind = getattr(stage, "tail", "") or getattr(stage, "kind", "")
            found.setdefault(f"{kind} {spec.params != ()}", problem)
    return list(found.values())


@pytest.mark.parametrize("problem", of_every_kind("tilelang", 3000), ids=lambda each: each.name)
def test_tilelang_kernels_are_right_or_wrong_as_labelled(problem: Problem, emulated: None) -> None:
    check_labels(problem, "tilelang", 1)


@pytest.mark.slow
@pytest.mark.parametrize("problem", of_every_kind("cute", 3200), ids=lambda each: each.name)
def test_cute_kernels_are_right_or_wrong_as_labelled(problem: Problem, emulated: None) -> None:
    check_labels(problem, "cute", 2)
