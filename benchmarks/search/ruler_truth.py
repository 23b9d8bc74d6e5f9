"""Time two kernels of one problem in turns in one process, without the judge.

Run ``python benchmarks/search/ruler_truth.py PROBLEM START START.so BEST BEST.so [--seconds 5]``.
Both modules are imported as they are, with the libraries that were built for them. Blocks of some
milliseconds of each kernel take turns. Prints JSON: the ratio of the lower quartiles and of the
medians of both kernels' blocks.

Each call gets the next of up to 64 sets of inputs, which one core's caches do not hold together:
the judge's calls read values that they have not read before. With inputs in the cache, a kernel of
0.02 ms was 7.6 times faster than its start, and 4 times otherwise.

Uses torch alone, so that it shares no code with what it checks.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension

_LEAST_SETS, _MOST_SETS = 8, 64
_BYTES = 64 << 20  # of all sets together
_BLOCK_S = 0.004


def _library(path: Path) -> Any:
    """Import a built extension; its function of initialisation tells its name.

    pybind11 returns the module that it made before for the same full name. The judge builds all
    libraries under one name, so the folder's name is put before it.
    """
    found = re.search(rb"PyInit_(\w+)", path.read_bytes())
    assert found is not None, f"{path} is no extension"
    name = f"{path.parent.name}.{found[1].decode()}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _module(path: Path, library: Path | None) -> dict[str, Any]:
    """Run a module; its `load_inline` returns a library."""
    names: dict[str, Any] = {"__name__": path.stem}
    real = torch.utils.cpp_extension.load_inline
    if library is not None:
        torch.utils.cpp_extension.load_inline = lambda *_, **__: _library(library)
    try:
        exec(compile(path.read_text(), str(path), "exec"), names)
    finally:
        torch.utils.cpp_extension.load_inline = real
    return names


def _block_s(model: Any, inputs: Iterator[list[Any]], calls: int) -> float:
    """Return the seconds of some calls, each on the next inputs."""
    began = time.perf_counter()
    for _ in range(calls):
        model(*next(inputs))
    return time.perf_counter() - began


def ratio_of(
    problem: Path, kernels: list[tuple[Path, Path]], seconds: float
) -> dict[str, float | int]:
    """Return the first kernel's time over the second's.

    Args:
        problem: Module of the problem.
        kernels: Module and library of each of the two kernels.
        seconds: Seconds to time them for.
    """
    drawn = _module(problem, None)["get_inputs"]
    inputs = [drawn()]
    size = sum(each.nbytes for each in inputs[0] if isinstance(each, torch.Tensor))
    count = max(_LEAST_SETS, min(_MOST_SETS, _BYTES // max(1, size)))
    inputs += [drawn() for _ in range(count - 1)]
    models = [_module(path, library)["ModelNew"]() for path, library in kernels]
    turns = itertools.cycle(inputs)
    counts = []
    with torch.inference_mode():
        for model in models:
            calls, took_s = 1, 0.0
            while took_s < _BLOCK_S:
                calls *= 2
                # The fastest of three: a block that waited would make the others too short.
                took_s = min(_block_s(model, turns, calls) for _ in range(3))
            counts.append(calls)
        times: list[list[float]] = [[], []]
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            for number, model in enumerate(models):
                took_s = _block_s(model, turns, counts[number])
                times[number].append(took_s / counts[number] * 1e3)
    quartiles = [statistics.quantiles(each, n=4) for each in times]
    return {
        "ratio": quartiles[0][0] / quartiles[1][0],
        "ratio_of_medians": quartiles[0][1] / quartiles[1][1],
        "start_ms": quartiles[0][0],
        "best_ms": quartiles[1][0],
        "blocks": len(times[0]),
    }


def main() -> None:
    """Print the ratio of two kernels' times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("kernels", type=Path, nargs=4)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    one, its, two, own = given.kernels
    print(json.dumps(ratio_of(given.problem, [(one, its), (two, own)], given.seconds)))


if __name__ == "__main__":
    main()
