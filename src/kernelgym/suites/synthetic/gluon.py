"""Gluon kernels: Triton's text with a layout for every block.

Gluon shares Triton's operations and launches. What differs is that the author says how a block lies
in registers: here one layout for each kernel, and its slices for the rows and columns of a tile.
"""

from __future__ import annotations

import re

from kernelgym.suites.synthetic.triton_parts import StageText, write_triton

_ADD = ("@gluon.jit", "def add(a, b):", "    return a + b", "", "")
"""Lines of the function by which Gluon combines two values in a running sum: it has no `cumsum`."""
_RANGE = re.compile(r"tl\.arange\(0, (\w+)\)")
_FILLED = re.compile(r"tl\.(zeros|full)\(\((\w+),(?: (\w+))?\)(, .*)?, dtype=tl\.float32\)")
_SCAN = re.compile(r"tl\.cumsum\((.*), axis=(\d)\)")
_ROWS = ("ROWS", "LANES")
"""Names of block sizes that number the rows of a tile."""


def write_gluon(text: StageText) -> list[str]:
    """Return a stage's kernel and host function in Gluon."""
    tiled = text.style.skeleton in ("tile", "tile_loop")

    def layout(size: str) -> str:
        return f"gl.SliceLayout({int(size in _ROWS)}, layout)" if tiled else "layout"

    def filled(found: re.Match[str]) -> str:
        function, rows, columns, value = found.groups(default="")
        shape, placed = (f"[{rows}, {columns}]", "layout") if columns else (f"[{rows}]", "")
        return f"gl.{function}({shape}{value}, gl.float32, layout={placed or layout(rows)})"

    lines = []
    made = "[1, 1], [1, 32], [4, 1], [1, 0]" if tiled else "[1], [32], [4], [0]"
    for line in write_triton(text):
        line = _RANGE.sub(lambda m: f"gl.arange(0, {m[1]}, layout={layout(m[1])})", line)
        line = _SCAN.sub(r"gl.associative_scan(\1, \2, add)", _FILLED.sub(filled, line))
        if line.endswith(": tl.constexpr):"):
            line = line.replace("):", ", layout: gl.constexpr):")
        elif f"{text.style.function}_kernel[" in line:
            line = f"{line[:-1]}, layout=gl.BlockedLayout({made}), num_warps=4)"
        lines.append(line.replace("tl.", "gl.").replace("@triton.jit", "@gluon.jit"))
    return [*(_ADD if any(", add)" in line for line in lines) else ()), *lines]
