"""Finds the CUDA toolkit that builds extensions for a device, and its flags and libraries."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.sandbox.paths import driver_libraries

_HINT = (
    "language 'cuda' needs one: install the CUDA toolkit or set CUDA_HOME, or use language 'triton'"
)
_USUAL_HOME = "/usr/local/cuda"
# The flags of torch's own extension builds, so that a source means the same in both.
_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    # Not a flag of torch's builds. CUB and Thrust mark ranges for profilers and load the profiler's
    # library themselves.
    "-DNVTX_DISABLE",
    "--expt-relaxed-constexpr",
    "--compiler-options=-fPIC",
)


def find_nvcc() -> str:
    """Return the path of nvcc.

    Looks in $CUDA_HOME or $CUDA_PATH if one is set; otherwise on the PATH, in /usr/local/cuda and
    in pip's packages.

    Raises:
        UnsupportedLanguage: If nvcc is not found.
    """
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            if path := shutil.which(f"{home}/bin/nvcc"):
                return path
            raise UnsupportedLanguage(f"no nvcc found in {variable} ({home}/bin); {_HINT}")
    pip = sorted(_site_packages().glob("nvidia/*/bin/nvcc"), reverse=True)
    for name in ("nvcc", f"{_USUAL_HOME}/bin/nvcc", *map(str, pip)):
        if path := shutil.which(name):
            return path
    raise UnsupportedLanguage(
        f"no nvcc found (looked for it on the PATH and in {_USUAL_HOME}/bin); {_HINT}"
    )


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """nvcc, its target device and torch's CUDA libraries; part of every library's cache key."""

    nvcc: str
    root: str
    """The toolkit's folder, which a sandboxed nvcc must be able to read."""
    version: str
    capability: tuple[int, int]
    torch_cuda: str
    """CUDA version that torch was built for; empty for a torch without CUDA."""
    defines: tuple[str, ...]
    libraries: tuple[str, ...]
    """Paths of torch's CUDA libraries and of the CUDA runtime that torch has loaded."""
    library_folders: tuple[str, ...]
    suffix: str = ""
    """Letter of an architecture whose features other devices lack, such as ``a`` in sm_90a."""

    def flags(self, architecture: bool) -> list[str]:
        """Return the flags of every nvcc run.

        Args:
            architecture: Whether to choose the device's architecture; False if the candidate's
                flags choose one.
        """
        major, minor = self.capability
        number = f"{major}{minor}{self.suffix}"
        own = [f"-gencode=arch=compute_{number},code=sm_{number}"] if architecture else []
        return [*_FLAGS, *self.defines, *own]

    def includes(self) -> list[str]:
        """Return the include flags for a C++ unit; nvcc needs none."""
        folder = f"{self.root}/include"
        return ["-isystem", folder] if os.path.isdir(folder) and folder != "/usr/include" else []

    def link_flag(self, flag: str) -> str | None:
        """Return a linker flag with the library's full path; None if the flag can be dropped."""
        if flag.startswith("-L") or flag == "-lcudart":
            return None
        found = _library(flag[2:], self.library_folders) if flag.startswith("-l") else None
        if flag == "-lcuda" and found is None:  # pip's toolkits have no stub of it
            return next(iter(driver_libraries()), None)
        return found or flag


@functools.lru_cache(maxsize=8)
def check_builds_for(nvcc: str, capability: tuple[int, int]) -> None:
    """Check that an nvcc can compile for a GPU's compute capability.

    Raises:
        UnsupportedLanguage: If it cannot; the message lists what it can compile for.
    """
    name = "sm_{}{}".format(*capability)
    if name not in (known := _ask(nvcc, "--list-gpu-code").split()):
        version = re.search(r"release [\d.]+, V([\d.]+)", _ask(nvcc, "--version"))
        raise UnsupportedLanguage(
            f"{nvcc} (CUDA {version[1] if version else 'unknown'}) cannot build for {name}, only "
            f"for {', '.join(known)}; set CUDA_HOME to a toolkit that can"
        )


@functools.lru_cache(maxsize=8)
def cuda_toolkit(nvcc: str, capability: tuple[int, int], suffix: str = "") -> CudaToolkit:
    """Return the toolkit of one nvcc, for one compute capability and an architecture's letter.

    Raises:
        UnsupportedLanguage: If its version does not fit torch's, or it cannot build for the device.
    """
    import torch

    answer = _ask(nvcc, "--version")
    match = re.search(r"release (\d+)\.\d+, V([\d.]+)", answer)
    if match is None:
        raise UnsupportedLanguage(f"{nvcc} --version does not say a version: {answer[:200]!r}")
    major, version = match.groups()
    torch_cuda = str(torch.version.cuda or "")
    if torch_cuda and torch_cuda.partition(".")[0] != major:
        raise UnsupportedLanguage(
            f"{nvcc} is CUDA {version} and torch was built for CUDA {torch_cuda}: extensions "
            f"need a toolkit of the same major version; set CUDA_HOME to one"
        )
    check_builds_for(nvcc, capability)
    # The file may be a script that starts an nvcc in another folder.
    top = re.search(r"TOP=(.+)", _ask(nvcc, "--dryrun", "-c", "unit.cu"))
    root = os.path.realpath(top[1].strip() if top else Path(nvcc).resolve().parent.parent)
    own = shutil.which(f"{root}/bin/nvcc")
    folder = Path(torch.__file__).parent
    # Only torch builds with CUDA contain this generated header of macros.
    generated = folder / "include/c10/cuda/impl/cuda_cmake_macros.h"
    folders = (
        *map(str, sorted(_site_packages().glob("nvidia/*/lib"))),
        *(f"{root}/{name}" for name in ("lib64", "lib", "lib64/stubs", "lib/stubs")),
    )
    runtime = _loaded_runtime() or _library("cudart", folders)
    linked = (f"-l{name}" for name in ("c10_cuda", "torch_cuda") if _library(name, (_lib(folder),)))
    return CudaToolkit(
        nvcc=own or nvcc,
        root=root,
        version=version,
        capability=capability,
        torch_cuda=torch_cuda,
        defines=() if generated.exists() else ("-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE",),
        libraries=(
            *linked,
            *((runtime, f"-Wl,-rpath,{os.path.dirname(runtime)}") if runtime else ("-lcudart",)),
        ),
        library_folders=folders,
        suffix=suffix,
    )


def _lib(torch_folder: Path) -> str:
    return str(torch_folder / "lib")


def _ask(*command: str) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout + answer.stderr


def _loaded_runtime() -> str | None:
    """Return the path of the CUDA runtime that torch has loaded."""
    with open("/proc/self/maps") as file:
        paths = (line.split(maxsplit=5)[-1].strip() for line in file if "/libcudart" in line)
        return next(paths, None)


def _library(name: str, folders: tuple[str, ...]) -> str | None:
    """Return the path of a shared library of the CUDA toolkit, or None.

    The linker's `-l` does not find libraries in pip's packages: they lack the unversioned links.
    """
    for folder in folders:
        for pattern in (f"lib{name}.so", f"lib{name}.so.*"):
            if found := sorted(Path(folder).glob(pattern)):
                return str(found[0])
    return None


def _site_packages() -> Path:
    return Path(sysconfig.get_paths()["purelib"])
