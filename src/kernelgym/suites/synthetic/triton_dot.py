"""Triton kernels for matrix and matrix-vector products, with element-wise steps on the result.

A product is a grid of tiles, in two dimensions (`tile`) or one (`flat`), each a masked loop along
k with an fp32 accumulator. A matrix-vector product keeps a tile of partial sums (`loop`) or one
row (`row`).
"""

from __future__ import annotations

from kernelgym.suites.synthetic.spec import DotStage, Spec, Spread
from kernelgym.suites.synthetic.style import Defect, Style
from kernelgym.suites.synthetic.triton_parts import Place, StageText, TritonWriter, argument

_STEPS_OF_K = "0, k, BLOCK_K"


def write_dot(spec: Spec, stage: DotStage, style: Style) -> StageText:
    """Return the Triton kernel of a matrix product."""
    w, n = TritonWriter(stage, style), style.names
    if stage.n == "1":
        return _write_matvec(w, stage)
    a, b, flat = w.x, argument(stage.right), style.skeleton == "flat"
    right_t = stage.right_t != (style.defect is Defect.WRONG_AXIS)
    left = "kk[None, :] * m + rm[:, None]" if stage.left_t else "rm[:, None] * k + kk[None, :]"
    right = "rn[None, :] * k + kk[:, None]" if right_t else "kk[:, None] * n + rn[None, :]"
    lead_left, lead_right, lead_out = (
        f"plane * {sides} + " if stage.batch else "" for sides in ("m * k", "k * n", "m * n")
    )
    body = ["pid_m = tl.program_id(0)", "pid_n = tl.program_id(1)"]
    down, across = w.blocks("m", style.lanes), f"triton.cdiv(n, {style.lanes})"
    if style.defect is Defect.NO_BOUNDS_CHECK:
        down = f"({down})"
    grid = [down, across]
    if flat:
        body = [
            "across = tl.cdiv(n, BLOCK_N)",
            "pid_m = tl.program_id(0) // across",
            "pid_n = tl.program_id(0) % across",
        ]
        grid = [f"{down} * {across}"]
    sizes = ["m", "n"]
    if stage.batch:
        body.append(f"plane = tl.program_id({len(grid)})")
        grid.append(f"{a}.shape[0]")
        sizes.insert(0, f"{a}.shape[0]")
    work = [
        "kk = start + tl.arange(0, BLOCK_K)",
        f"left_at = {lead_left}{left}",
        f"right_at = {lead_right}{right}",
        f"left = {w.load(stage.left, ('left_at', '(rm[:, None] < m) & (kk[None, :] < k)'))}",
        f"right = {w.load(stage.right, ('right_at', '(kk[:, None] < k) & (rn[None, :] < n)'))}",
        'acc += tl.dot(left, right, input_precision="ieee")',
    ]
    places: dict[Spread, Place] = {
        "full": (n.offs, n.mask),
        "row": ("rn[None, :]", "rn[None, :] < n"),
        "col": ("rm[:, None]", "rm[:, None] < m"),
    }
    body += [
        "rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)",
        "rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)",
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        *w.loop("start", _STEPS_OF_K, work),
        f"{n.offs} = {lead_out}rm[:, None] * n + rn[None, :]",
        f"{n.mask} = (rm[:, None] < m) & (rn[None, :] < n)",
        f"{w.value} = acc",
        *w.chain(stage.after, places),
        w.store(places["full"]),
    ]
    scalars = {
        "m": f"{a}.shape[{-1 if stage.left_t else -2}]",
        "n": f"{b}.shape[{-2 if stage.right_t else -1}]",
        "k": f"{a}.shape[{-2 if stage.left_t else -1}]",
    }
    constants = {"BLOCK_M": style.lanes, "BLOCK_N": style.lanes, "BLOCK_K": style.block}
    return w.finish(body, scalars, constants, grid, w.empty(*sizes), out_last=True)


def _write_matvec(w: TritonWriter, stage: DotStage) -> StageText:
    constants = {"BLOCK_K": w.style.block}
    if w.style.skeleton == "row":
        rows, shape, axis, grid = "tl.program_id(0)", "(BLOCK_K,)", 0, "m"
        at, mask, right, live = "rm * k + kk", "kk < k", "right", ""
    else:
        rows = "tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)"
        shape, axis, grid = "(BLOCK_M, BLOCK_K)", 1, w.blocks("m", w.style.lanes)
        at, mask = "rm[:, None] * k + kk[None, :]", "(rm[:, None] < m) & (kk[None, :] < k)"
        right, live = "right[None, :]", "rm < m"
        constants["BLOCK_M"] = w.style.lanes
    work = [
        "kk = start + tl.arange(0, BLOCK_K)",
        f"left_at = {at}",
        f"left = {w.load(stage.left, ('left_at', mask))}",
        f"right = {w.load(stage.right, ('kk', 'kk < k'))}",
        f"acc += left * {right}",
    ]
    body = [
        f"rm = {rows}",
        f"acc = tl.zeros({shape}, dtype=tl.float32)",
        *w.loop("start", _STEPS_OF_K, work),
        f"{w.value} = tl.sum(acc, axis={axis})",
        w.store(("rm", live)),
    ]
    scalars = {"m": f"{w.x}.shape[0]", "k": f"{w.x}.shape[1]"}
    return w.finish(body, scalars, constants, [grid], w.empty("m"), out_last=True)
