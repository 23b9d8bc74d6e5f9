"""Triton kernels for matrix and matrix-vector products, with element-wise steps on the result.

A product is a grid of tiles, in two dimensions (`tile`) or one (`flat`), each a masked loop along
k with an fp32 accumulator. A matrix-vector product keeps a tile of partial sums (`loop`) or one
row (`row`).
"""

from __future__ import annotations

from kernelgym.suites.synthetic.spec import DotStage, Spec, Spread
from kernelgym.suites.synthetic.style import Defect, Style
from kernelgym.suites.synthetic.triton_parts import (
    OperandPlace,
    Part,
    argument,
    chain_lines,
    indent,
    load,
    part,
    store,
)

__all__ = ["write_dot"]


def write_dot(spec: Spec, stage: DotStage, style: Style, slip: int = -1) -> Part:
    """Write a product."""
    if stage.n == "1":
        return _write_matvec(stage, style)
    v = style.names.value
    left_t, right_t = stage.left_t, stage.right_t
    if style.defect is Defect.WRONG_AXIS:
        right_t = not right_t
    flat = style.skeleton == "flat"
    lead = "plane * m * k + " if stage.batch else ""
    left = "kk[None, :] * m + rm[:, None]" if left_t else "rm[:, None] * k + kk[None, :]"
    lead_right = "plane * k * n + " if stage.batch else ""
    right = "rn[None, :] * k + kk[:, None]" if right_t else "kk[:, None] * n + rn[None, :]"
    body = (
        ["across = tl.cdiv(n, BLOCK_N)", "pid_m = tl.program_id(0) // across",
         "pid_n = tl.program_id(0) % across"]
        if flat
        else ["pid_m = tl.program_id(0)", "pid_n = tl.program_id(1)"]
    )  # fmt: skip
    if stage.batch:
        body.append(f"plane = tl.program_id({1 if flat else 2})")
    body += [
        "rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)",
        "rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)",
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
    ]
    left_mask = OperandPlace("left_at", "(rm[:, None] < m) & (kk[None, :] < k)")
    right_mask = OperandPlace("right_at", "(kk[:, None] < k) & (rn[None, :] < n)")
    inner = [
        "kk = start + tl.arange(0, BLOCK_K)",
        f"left_at = {lead}{left}",
        f"right_at = {lead_right}{right}",
        f"left = {load(style, stage.left, left_mask)}",
        f"right = {load(style, stage.right, right_mask)}",
        'acc += tl.dot(left, right, input_precision="ieee")',
    ]
    body += _loop(style, inner)
    places: dict[Spread, OperandPlace] = {
        "full": OperandPlace(style.names.offs, style.names.mask),
        "row": OperandPlace("rn[None, :]", "rn[None, :] < n"),
        "col": OperandPlace("rm[:, None]", "rm[:, None] < m"),
    }
    lead_out = "plane * m * n + " if stage.batch else ""
    body += [
        f"{style.names.offs} = {lead_out}rm[:, None] * n + rn[None, :]",
        f"{style.names.mask} = (rm[:, None] < m) & (rn[None, :] < n)",
        f"{v} = acc",
        *chain_lines(style, stage.after, places, slip),
        store(style, "out", places["full"], v),
    ]
    a, b = argument(stage.left), argument(stage.right)
    scalars = {
        "m": f"{a}.shape[{-1 if left_t else -2}]",
        "n": f"{b}.shape[{-2 if stage.right_t else -1}]",
        "k": f"{a}.shape[{-2 if left_t else -1}]",
    }
    constants = {"BLOCK_M": style.lanes, "BLOCK_N": style.lanes, "BLOCK_K": style.block}
    down = f"triton.cdiv(m, {style.lanes})"
    if style.defect is Defect.NO_BOUNDS_CHECK:
        down = f"(m // {style.lanes})"
    right_edge = f"triton.cdiv(n, {style.lanes})"
    grid = f"{down} * {right_edge}," if flat else f"{down}, {right_edge}"
    if stage.batch:
        grid = f"{grid.rstrip(',')}, {a}.shape[0]"
    shape = f"{a}.shape[0], m, n" if stage.batch else "m, n"
    out = f"torch.empty(({shape}), device={a}.device, dtype={a}.dtype)"
    return _with_out_last(part(stage, style, body, scalars, constants, f"({grid})", out))


def _loop(style: Style, inner: list[str]) -> list[str]:
    if style.defect is Defect.MISSING_LOOP:
        return ["start = 0", *inner]
    return ["for start in range(0, k, BLOCK_K):", *indent(inner)]


def _write_matvec(stage: DotStage, style: Style) -> Part:
    v = style.names.value
    single = style.skeleton == "row"
    rows = [
        "rm = tl.program_id(0)"
        if single
        else "rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)",
        f"acc = tl.zeros({'(BLOCK_K,)' if single else '(BLOCK_M, BLOCK_K)'}, dtype=tl.float32)",
    ]
    at = "rm * k + kk" if single else "rm[:, None] * k + kk[None, :]"
    mask = "kk < k" if single else "(rm[:, None] < m) & (kk[None, :] < k)"
    inner = [
        "kk = start + tl.arange(0, BLOCK_K)",
        f"left_at = {at}",
        f"left = {load(style, stage.left, OperandPlace('left_at', mask))}",
        f"right = {load(style, stage.right, OperandPlace('kk', 'kk < k'))}",
        f"acc += left * right{'' if single else '[None, :]'}",
    ]
    body = [
        *rows,
        *_loop(style, inner),
        f"{v} = tl.sum(acc, axis={0 if single else 1})",
        store(style, "out", OperandPlace("rm", "" if single else "rm < m"), v),
    ]
    a = argument(stage.left)
    scalars = {"m": f"{a}.shape[0]", "k": f"{a}.shape[1]"}
    constants = {"BLOCK_K": style.block}
    grid = "(m,)"
    if not single:
        constants["BLOCK_M"] = style.lanes
        grid = f"(triton.cdiv(m, {style.lanes}),)"
        if style.defect is Defect.NO_BOUNDS_CHECK:
            grid = f"(m // {style.lanes},)"
    out = f"torch.empty((m,), device={a}.device, dtype={a}.dtype)"
    return _with_out_last(part(stage, style, body, scalars, constants, grid, out))


def _with_out_last(text: Part) -> Part:
    """Return the part with the result allocated after the sizes its shape is made of."""
    head, out, *rest = text.host
    launch = next(place for place, line in enumerate(rest) if "_kernel[" in line)
    return Part(text.kernel, (head, *rest[:launch], out, *rest[launch:]))
