"""Launches interpreted Triton kernels in a zygote, so that its children start warm.

The first launch in a process takes many times as long as later ones: Python imports modules, Triton
rewrites its own functions and looks types up, and Python specialises its code, which copies memory
that the fork had shared. This file uses what kernels commonly use, a few times, on tensors too
small for torch to start threads.

It runs none of the judged kernels and leaves only caches behind. Loaded by path in the zygote:
standard library, torch and triton only; importing it needs ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

_ROUNDS = 12  # Python 3.11 specialises code after eight runs
_MOST_WORDS = 1 << 14  # of weights: one thread draws up to so many numbers


@triton.jit
def _half(value, scale):  # type: ignore[no-untyped-def]
    return value * scale / 2.0 + 1


@triton.jit  # type: ignore[untyped-decorator]
def _elementwise(x_ptr, y_ptr, n, alpha, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.where(x > 0, x, alpha * (tl.exp(x) - 1.0)) + tl.sqrt(tl.abs(x)) * alpha
    y = tl.maximum(tl.minimum(y, 6.0), -6.0) - 1 / (1 + tl.exp(-x))
    y = _half(y, alpha) + (offsets // 4 % 3).to(tl.float32)
    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _rows(x_ptr, y_ptr, rows, columns, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    columns_at = tl.arange(0, BLOCK)
    inside = columns_at < columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        part = inside & (columns_at + start < columns)
        total += tl.load(x_ptr + row * stride + start + columns_at, mask=part, other=0.0)
    top = tl.max(tl.where(inside, total, -float("inf")), axis=0)
    shares = tl.where(inside, tl.exp(total - top), 0.0)
    shares = shares / tl.sum(shares, axis=0)
    tl.store(y_ptr + row * stride + columns_at, shares, mask=inside & (row < rows))


@triton.jit  # type: ignore[untyped-decorator]
def _tiles(x_ptr, y_ptr, rows, columns, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    at_row = tl.program_id(0) * M + tl.arange(0, M)
    at_column = tl.program_id(1) * N + tl.arange(0, N)
    mask = (at_row[:, None] < rows) & (at_column[None, :] < columns)
    places = at_row[:, None] * columns + at_column[None, :]
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    mean = tl.sum(x, axis=1) / columns
    off = tl.where(mask, x - mean[:, None], 0.0)
    spread = tl.rsqrt(tl.sum(off * off, axis=1) / columns + 1e-5)
    tl.store(y_ptr + places, off * spread[:, None], mask=mask)


class _Model(torch.nn.Module):  # type: ignore[misc]
    """A model of the form that kernels take."""

    def forward(self, x: Any) -> Any:
        """Launch the commonest kind of kernel, then others; return an output."""
        rows, columns = x.shape
        flat, y = torch.empty_like(x), torch.empty_like(x)
        _elementwise[(triton.cdiv(x.numel(), 32),)](x, flat, x.numel(), 0.5, BLOCK=32)
        with contextlib.suppress(Exception):  # some Triton versions lack some of it
            self.more(flat, y)
        return flat.view(rows, columns)

    def more(self, flat: Any, y: Any) -> None:
        """Launch kernels with less common operations than those of `forward`."""
        rows, columns = flat.shape
        _rows[(rows,)](flat, y, rows, columns, columns, BLOCK=triton.next_power_of_2(columns))
        _tiles[(triton.cdiv(rows, 4), 1)](y, flat, rows, columns, M=4, N=16)


def warm_up(tracer: Any, fingerprint: Callable[[torch.Tensor], Any]) -> None:
    """Launch kernels with and without the tracer, then reset the tracer.

    Args:
        tracer: A `Tracer` from `tracer.py`.
        fingerprint: The function of `fingerprint.py`.
    """
    for function in list(vars(tl.standard).values()):
        rewrite: Callable[[], Any] | None = getattr(function, "rewrite", None)
        if rewrite is not None:
            with contextlib.suppress(ValueError):  # Triton cannot rewrite every one
                rewrite()
    core, kept = tl.core, dict(vars(tl.core))
    words = 1
    while words < _MOST_WORDS:
        fingerprint(torch.zeros(words, dtype=torch.int64))
        words *= 2
    # The tracer fingerprints all existing tensors that the collector knows. Freeze those of the
    # zygote, which may be large.
    gc.collect()
    gc.freeze()
    # Small, so that torch starts no threads: a child forked after that hangs.
    model, x = _Model(), torch.linspace(-2.0, 2.0, 40).view(4, 10).contiguous()
    with torch.no_grad():
        for _ in range(_ROUNDS):
            model(x)
        tracer.begin(records=False)
        for mode in ("off", "record", "ablate"):
            tracer.mode(mode)
            for _ in range(_ROUNDS):
                tracer.call(model, [x])
        tracer.rest()
    for name, value in kept.items():  # nested kernel calls leave it patched
        if getattr(core, name) is not value:
            setattr(core, name, value)
