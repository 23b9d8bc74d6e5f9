"""What a search takes: exact, by NumPy and by FAISS, and a prompt whose entries are remembered.

Vectors are random, of length 1; what they mean does not change what multiplying them takes. Times
are of one thread where the libraries can be told so, as CPU time and as wall time, and memory is
that of the vectors.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from kernelgym.prompts.observer import Observer
from kernelgym.retrieval.embedding import Vectors
from kernelgym.retrieval.part import Retrieval, ready_retrieval
from kernelgym.retrieval.search import Engine, Places, engine_of
from kernelgym.suites import get_problem

_DIMENSION = 512
_SIZES = (2_000, 50_000)
_WANTED = 67
_WARM = 5
"""Calls that do not count."""

__all__ = ["remembered", "searches"]


def searches(repeats: int = 200) -> list[dict[str, Any]]:
    """Return a row per number of entries and engine."""
    rows = []
    draw = np.random.default_rng(0)
    for size in _SIZES:
        vectors = draw.standard_normal((size, _DIMENSION)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        places = np.arange(size)
        for name in ("numpy", "faiss"):
            with _one_thread(name):
                engine = engine_of(name, vectors)
                queries = iter(vectors[draw.integers(size, size=repeats + _WARM)])
                wall, cpu = _times(partial(_ask, engine, queries, places), repeats)
            rows.append(
                {
                    "entries": size,
                    "dim": _DIMENSION,
                    "index": name,
                    "p50_ms": round(float(np.percentile(cpu, 50)), 3),
                    "p99_ms": round(float(np.percentile(cpu, 99)), 3),
                    "wall_p50_ms": round(float(np.percentile(wall, 50)), 3),
                    "wall_p99_ms": round(float(np.percentile(wall, 99)), 3),
                    "mb": round(vectors.nbytes * (2 if name == "faiss" else 1) / 1e6, 1),
                }
            )
    return rows


def _ask(engine: Engine, queries: Iterator[Vectors], places: Places) -> None:
    engine.best(next(queries), places, _WANTED)


def remembered(repeats: int = 200) -> dict[str, float]:
    """Return what entries add to a prompt that was asked for before, in ms of CPU time."""
    problem = get_problem("Synthetic/L2/4")
    part = ready_retrieval(Retrieval(), "triton", "cpu")
    plain = Observer("triton", "cpu")
    shown = Observer("triton", "cpu", parts=(part,))
    shown.observe(problem)
    without = float(np.median(_times(lambda: plain.observe(problem), repeats)[1]))
    with_entries = float(np.median(_times(lambda: shown.observe(problem), repeats)[1]))
    return {
        "without_ms": round(without, 4),
        "with_ms": round(with_entries, 4),
        "added_ms": round(with_entries - without, 4),
    }


def _times(ask: Callable[[], object], repeats: int) -> tuple[list[float], list[float]]:
    """Return wall and CPU times in milliseconds, after some calls that do not count."""
    wall, cpu = [], []
    for _ in range(_WARM):
        ask()
    for _ in range(repeats):
        began, began_cpu = time.perf_counter(), time.process_time()
        ask()
        cpu.append(1e3 * (time.process_time() - began_cpu))
        wall.append(1e3 * (time.perf_counter() - began))
    return wall, cpu


@contextlib.contextmanager
def _one_thread(name: str) -> Iterator[None]:
    """Let a library use one thread, where it is installed."""
    if name == "faiss":
        import faiss

        faiss.omp_set_num_threads(1)
        yield
        return
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(limits=1):
        yield
