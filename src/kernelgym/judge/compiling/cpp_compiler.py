"""Finds the C++ compiler that builds extensions, and its flags."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling.thin_headers import THIN_HEADERS


def find_compiler() -> str:
    """Return the path of $CXX if set, else of g++, c++ or clang++.

    Raises:
        UnsupportedLanguage: If it is not found.
    """
    own = os.environ.get("CXX")
    wanted = [own] if own else ["g++", "c++", "clang++"]
    for name in wanted:
        if path := shutil.which(name):
            return path
    raise UnsupportedLanguage(
        f"no C++ compiler found (looked for {', '.join(wanted)}); "
        "language 'cpp' needs one: install g++ or set CXX, or use language 'triton'"
    )


@functools.lru_cache(maxsize=4)
def compiler_folders(compiler: str) -> tuple[str, ...]:
    """Return the folders of a compiler's programs and libraries, links resolved.

    A compiler may be installed outside ``/usr``. The sandbox opens only these folders and not the
    whole prefix, which may be a user's home folder.
    """
    asked = [compiler, "-print-search-dirs"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    listed = [line.partition("=")[2] or line.partition(": ")[2] for line in answer.splitlines()]
    folders = [os.path.dirname(compiler), os.path.dirname(os.path.realpath(compiler))]
    folders += [folder for row in listed for folder in row.split(":") if folder.startswith("/")]
    real = dict.fromkeys(os.path.realpath(folder) for folder in folders if os.path.isdir(folder))
    return tuple(folder for folder in real if folder != "/")


@functools.lru_cache(maxsize=4)
def searched_folders(compiler: str) -> frozenset[str]:
    """Return the folders in which builds search for headers and libraries in any case.

    Each as the compiler names it and as its links resolve: the compiler's own, torch's, Python's.
    """
    import torch

    asked = [compiler, "-E", "-v", "-x", "c++", os.devnull]
    environment = {**os.environ, "LC_ALL": "C"}
    answer = subprocess.run(
        asked, capture_output=True, text=True, errors="replace", check=False, env=environment
    ).stderr
    listed = answer.partition("search starts here:")[2].partition("End of search list")[0]
    folders = [line.strip() for line in listed.splitlines() if line.startswith(" ")]
    root = Path(torch.__file__).parent
    folders += [str(root / name) for name in ("include", "include/torch/csrc/api/include", "lib")]
    folders += ["/usr/include", "/usr/local/include", "/usr/lib", "/usr/local/lib", "/lib"]
    folders += [sysconfig.get_paths()["include"], *compiler_folders(compiler)]
    return frozenset(name(folder) for folder in folders for name in _NAMES_OF_A_FOLDER)


_NAMES_OF_A_FOLDER = (os.path.normpath, os.path.realpath)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C++ compiler and the torch that it builds for; part of every library's cache key."""

    compiler: str
    version: str
    torch_version: str
    python_version: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    torch_include: str
    headers_digest: str
    cpu: str
    """Model and features of this machine's CPU; ``-march=native`` depends on them."""

    @property
    def defines(self) -> list[str]:
        """The macros that torch's headers need, for any compiler."""
        return [flag for flag in self.flags if flag.startswith("-D")]

    def includes(self, python: bool) -> list[str]:
        """Return the include flags for torch's headers and, if `python`, for Python's."""
        folders = [self.torch_include, f"{self.torch_include}/torch/csrc/api/include"]
        if python:
            folders.append(sysconfig.get_paths()["include"])
        return [part for folder in folders for part in ("-isystem", folder)]


@functools.lru_cache(maxsize=4)
def toolchain(compiler: str) -> Toolchain:
    """Return the toolchain of one compiler."""
    import torch

    answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    root = Path(torch.__file__).parent
    headers = sorted(p for p in THIN_HEADERS.rglob("*") if p.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in headers)).hexdigest()
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    flags = ("-std=c++20", "-fPIC", "-DTORCH_API_INCLUDE_EXTENSION_H")
    return Toolchain(
        compiler=compiler,
        version=answer.stdout.partition("\n")[0],
        torch_version=str(torch.__version__),
        python_version=sys.version.partition(" ")[0],
        flags=(*flags, f"-D_GLIBCXX_USE_CXX11_ABI={abi}"),
        libraries=(f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
        torch_include=str(root / "include"),
        headers_digest=digest,
        cpu=this_cpu(),
    )


@functools.cache
def this_cpu() -> str:
    """Return this host's first CPU, as `describe_cpu` describes it."""
    with open("/proc/cpuinfo", errors="replace") as file:
        return describe_cpu(file.read())


def describe_cpu(cpuinfo: str) -> str:
    """Return the first CPU's model and a digest of its features.

    Args:
        cpuinfo: The text of ``/proc/cpuinfo``.
    """
    lines = [line.partition(":") for line in cpuinfo.partition("\n\n")[0].splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    known = [f"{name}={fields[name]}" for name in _CPU_FIELDS if name in fields]
    digest = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    return f"{fields.get('model name', platform.machine())} {digest}"


# The fields of x86, then those of ARM. Others are left out: frequencies, for one, change all the
# time.
_CPU_FIELDS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
