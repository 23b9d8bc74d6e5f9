"""CuTe DSL: functions of Python that NVIDIA's CUTLASS compiles for a GPU at their first launch."""

from __future__ import annotations

from kernelgym.languages.definition import Language, OwnKernel, Package
from kernelgym.languages.examples import kernel_text, worked_examples

_INSTALL = "'nvidia-cutlass-dsl[cu13]'"

CUTE = Language(
    name="cute",
    title="CuTe DSL (CUTLASS in Python)",
    noun="CuTe DSL kernel",
    devices=("cuda",),
    timed_on=("cuda",),
    task="Write the computation in CuTe DSL: kernels decorated with @cute.kernel, launched from a "
    "function decorated with @cute.jit. Compile that function once with `cute.compile` and keep "
    "the result; call it from `forward`. Turn torch's tensors into CuTe's with `from_dlpack`. Give "
    "the jitted function a `stream: cuda.CUstream` and launch on torch's current stream.",
    examples=worked_examples("cute"),
    sample=kernel_text("cute", "sample"),
    own_kernel=OwnKernel(decorator="cutlass.cute.kernel", takes_plain_functions=True),
    packages=(
        Package("nvidia-cutlass-dsl-libs-base", _INSTALL, (4, 8)),
        # Without it the DSL uses libraries for CUDA 12, which the plain package brings.
        Package("nvidia-cutlass-dsl-libs-cu13", _INSTALL, (4, 8)),
    ),
    least_capability=(8, 0),
    least_driver=(13, 0),
    half="cute",
    compiled_for=("cuda",),
    watched_between_calls=True,
)
"""The language ``cute``."""
