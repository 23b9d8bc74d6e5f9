"""Time readings of hostile sources, and of ones twice as long.

Run ``python -m benchmarks.judge.hostile_text [--characters 200000] [--out FILE]``.

Screening runs in the caller's process and the choice of headers in the trusted worker, so a source
that takes quadratic time holds up either. A ratio of about 2 is linear, one of about 4 quadratic.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import machine
from kernelgym.answers.screening import screen
from kernelgym.judge.compiling.missing_headers import missing_from_thin
from kernelgym.judge.compiling.thin_headers import thin_headers
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel

SHAPES: dict[str, Callable[[int], str]] = {
    "blank lines": lambda n: "\n" * n,
    "blanks": lambda n: " " * n,
    "blanks after a guard": lambda n: "ExcludeDispatchKeyGuard" + " " * n + ";",
    "many guards": lambda n: "ExcludeDispatchKeyGuard a " * (n // 26),
    "blank lines before an include": lambda n: "\n \t" * (n // 3) + "#",
    "includes without an end": lambda n: "#include <" * (n // 10),
    "one long word": lambda n: "a" * n,
    "dots": lambda n: ". " * (n // 2),
}
REPEATS = 5


def fastest_s(read: Callable[[str], object], make: Callable[[int], str], length: int) -> float:
    """Return the shortest wall time of several readings, each text unseen."""
    times = []
    for number in range(REPEATS):
        text = f"// {number}\n{make(length)}"
        started = time.perf_counter()
        read(text)
        times.append(time.perf_counter() - started)
    return min(times)


def measured(characters: int) -> list[dict[str, Any]]:
    """Return one row for each reader and shape."""
    include = Path(torch.__file__).parent / "include"
    strict = RULESETS["strict"]
    readers: dict[str, Callable[[str], object]] = {
        "screening": lambda text: screen(Kernel(f"SOURCE = {text!r}\n", "cpp"), strict),
        "headers": lambda text: thin_headers((text,), include),
        "compiler's log": lambda text: missing_from_thin(f"k.cpp:1:1: error: {text}"),
    }
    rows = []
    for reader, read in readers.items():
        read("warm")
        for shape, make in SHAPES.items():
            once = fastest_s(read, make, characters)
            twice = fastest_s(read, make, 2 * characters)
            row = {"reader": reader, "shape": shape, "ms": once * 1e3, "ratio": twice / once}
            rows.append({**row, "ms": round(row["ms"], 3), "ratio": round(row["ratio"], 2)})
    return rows


def main() -> None:
    """Print the rows; write them to a file if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=200_000)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    rows = measured(options.characters)
    for row in rows:
        print(f"{row['reader']:16}{row['shape']:32}{row['ms']:10.3f} ms  x {row['ratio']:.2f}")
    if options.out:
        result = {"machine": machine(), "characters": options.characters, "rows": rows}
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
