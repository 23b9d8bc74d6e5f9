"""Gluon: Triton's lower language, in which a kernel chooses layouts, shared memory and barriers."""

from __future__ import annotations

from kernelgym.languages.definition import Language, OwnKernel, Package
from kernelgym.languages.examples import kernel_text, worked_examples

GLUON = Language(
    name="gluon",
    title="Gluon (Triton's lower language)",
    noun="Gluon kernel",
    devices=("cuda",),
    timed_on=("cuda",),
    task="Write the computation as Gluon kernels: functions decorated with @gluon.jit "
    "(`from triton.experimental import gluon`, `from triton.experimental.gluon import language as "
    "gl`), launched from `forward` like Triton's. Every tensor needs a layout, such as "
    "`gl.BlockedLayout`, passed as a `gl.constexpr`; its threads per warp and its warps must match "
    "the launch's `num_warps`.",
    examples=worked_examples("gluon"),
    sample=kernel_text("gluon", "sample"),
    own_kernel=OwnKernel(
        decorator="triton.experimental.gluon.jit", decorator_aliases=r".*gluon\._runtime\.jit"
    ),
    packages=(Package("triton", "'triton>=3.6'", (3, 6)),),
    least_capability=(8, 0),
    assembled_on=("cuda",),
    half="gluon",
    compiled_for=("cuda",),
    watched_between_calls=True,
)
"""The language ``gluon``."""
