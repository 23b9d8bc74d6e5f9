"""Triton: functions that Triton compiles at their first launch, or interprets on the CPU."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from kernelgym.languages.definition import Language, OwnKernel
from kernelgym.languages.examples import kernel_text, worked_examples


def _interpreter_trouble() -> str:
    """Return a known fault of the installed Triton's interpreter; empty if none is known."""
    found = []
    for package in ("triton", "numpy"):
        try:
            found.append(tuple(map(int, version(package).split(".")[:2])))
        except (PackageNotFoundError, ValueError):
            return ""
    if found[0] >= (3, 7) or found[1] < (2, 4):
        return ""
    return (
        f"Triton {version('triton')}'s interpreter fails on loops with a bound known only at "
        f"run time under NumPy {version('numpy')}: honest kernels will be runtime errors; "
        "install triton>=3.7 or numpy<2.4"
    )


TRITON = Language(
    name="triton",
    title="Triton",
    noun="Triton kernel",
    devices=("cpu", "cuda"),
    timed_on=("cuda",),
    task="Write the computation as Triton kernels: functions decorated with @triton.jit, "
    "launched from `forward`.",
    examples=worked_examples("triton"),
    sample=kernel_text("triton", "sample"),
    own_kernel=OwnKernel(
        decorator="triton.jit", decorator_aliases=r"triton\.runtime\.jit\.jit|.*gluon\.jit"
    ),
    interpreted_on=("cpu",),
    interpreter_note="Triton runs in its interpreter here: tensors are on the CPU, and every "
    "out-of-bounds access must be masked.",
    as_gpu_note="Every launch must also compile for a GPU, as far as Triton's front end goes: no "
    "NumPy, dictionaries or `try` in a kernel, and no globals but `tl.constexpr`. `tl.dot` of fp32 "
    'tensors rounds them to TF32 unless it is given `input_precision="ieee"`; a masked load '
    "without `other` gives NaN where the mask is off; programs of one launch must not depend on "
    "each other's order.",
    assembled_on=("cuda",),
    compiled_for=("cuda", "hip"),
    watched_between_calls=True,
    find_trouble=_interpreter_trouble,
)
"""The language ``triton``."""
