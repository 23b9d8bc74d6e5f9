"""Finds the clang and the HIP headers that compile kernels for AMD's GPUs, and their flags.

A kernel is compiled as far as assembly, for the device alone: no library of AMD's is needed.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kernelgym.errors import UnsupportedLanguage

_USUAL_ROOT = "/opt/rocm"
_NEWEST_CLANG = 40
_HEADER = "hip/hip_runtime.h"
_HINT = (
    "language 'hip' needs one: install ROCm or set ROCM_PATH, or install clang 17 or later and "
    "HIP's headers (on Debian: apt-get install clang-19 libamdhip64-dev)"
)
# The flags of torch's own builds for ROCm, so that a source means the same in both.
_FLAGS = (
    "-D__HIP_PLATFORM_AMD__=1",
    "-DUSE_ROCM=1",
    "-DHIPBLAS_V2",
    "-DCUDA_HAS_FP16=1",
    "-D__HIP_NO_HALF_OPERATORS__=1",
    "-D__HIP_NO_HALF_CONVERSIONS__=1",
    "-DHIP_ENABLE_WARP_SYNC_BUILTINS=1",
    # torch's builds for other devices lack a header that its ROCm builds generate.
    "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE",
)


def _root() -> str:
    """Return the folder of ROCm: $ROCM_PATH if set, otherwise the usual one."""
    return os.environ.get("ROCM_PATH") or _USUAL_ROOT


def find_hip_clang() -> str:
    """Return the path of a clang that has HIP's headers.

    ROCm's own comes first, then the newest one on the PATH.

    Raises:
        UnsupportedLanguage: If there is no clang, or HIP's headers are missing.
    """
    names = [f"{_root()}/llvm/bin/clang++"]
    names += [*(f"clang++-{number}" for number in range(_NEWEST_CLANG, 16, -1)), "clang++"]
    clang = next(filter(None, map(shutil.which, names)), None)
    if clang is None:
        raise UnsupportedLanguage(
            f"no clang for HIP found (looked in {_root()}/llvm/bin and for it on the PATH); {_HINT}"
        )
    if _headers() is None:
        raise UnsupportedLanguage(
            f"no {_HEADER} found in {_root()}/include and /usr/include; {_HINT}"
        )
    return clang


def _headers() -> str | None:
    """Return the folder that has HIP's headers, or None."""
    folders = (f"{_root()}/include", "/usr/include")
    return next((each for each in folders if os.path.isfile(f"{each}/{_HEADER}")), None)


@dataclass(frozen=True, slots=True)
class HipCompiler:
    """HIP's headers and the GPU that clang compiles for; part of every result's cache key."""

    headers: str
    """Folder that has HIP's headers."""
    version: str
    """Version of HIP's headers, such as ``5.2.21153``."""
    architecture: str
    """Name of the GPU, such as ``gfx942``."""
    has_thrust: bool
    """Whether rocThrust is there, by which torch's headers compute with complex numbers."""

    def flags(self) -> list[str]:
        """Return the flags of every run of clang."""
        folder = ["-isystem", self.headers] if self.headers != "/usr/include" else []
        device = ["--offload-device-only", f"--offload-arch={self.architecture}", "-nogpulib"]
        return ["-x", "hip", "-O3", *device, *_FLAGS, *folder]


@functools.lru_cache(maxsize=8)
def hip_compiler(architecture: str) -> HipCompiler:
    """Return the compiler of HIP for a GPU such as ``gfx942``.

    Raises:
        UnsupportedLanguage: If there is no clang, HIP's headers are missing, or clang does not know
            the GPU.
    """
    clang = find_hip_clang()
    asked = [clang, "--target=amdgcn-amd-amdhsa", f"-mcpu={architecture}", "-nogpulib"]
    asked += ["-x", "c", "-fsyntax-only", os.devnull]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        raise UnsupportedLanguage(
            f"{clang} does not compile for {architecture!r}: name another GPU, or install a newer "
            "clang or ROCm"
        )
    headers = _headers()
    assert headers is not None  # the line before raises without them
    text = Path(headers, "hip/hip_version.h").read_text(errors="replace")
    found = (re.search(rf"HIP_VERSION_{part} +(\d+)", text) for part in _VERSION_PARTS)
    version = ".".join(match[1] for match in found if match)
    thrust = os.path.isfile(f"{headers}/thrust/complex.h")
    return HipCompiler(headers, version, architecture, thrust)


_VERSION_PARTS = ("MAJOR", "MINOR", "PATCH")
