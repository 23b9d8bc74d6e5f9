"""Which compiler builds extensions, and with what flags."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.extension_source import THIN_HEADERS

__all__ = ["Toolchain", "find_compiler", "toolchain"]


def find_compiler() -> str:
    """Return the path of the C++ compiler ($CXX, c++, g++ or clang++).

    Raises:
        UnsupportedLanguage: If there is none.
    """
    wanted = [name for name in (os.environ.get("CXX"), "g++", "c++", "clang++") if name]
    for name in wanted:
        if path := shutil.which(name):
            return path
    raise UnsupportedLanguage(
        f"no C++ compiler found (looked for {', '.join(wanted)}); "
        "language 'cpp' needs one: install g++ or set CXX, or use language 'triton'"
    )


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler and the torch it builds for; part of every library's key."""

    compiler: str
    version: str
    torch_version: str
    python_version: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    torch_include: str
    headers_digest: str

    def includes(self, thin: bool) -> list[str]:
        """Include folders of torch, and of Python unless the thin headers stand in."""
        folders = [self.torch_include, f"{self.torch_include}/torch/csrc/api/include"]
        if not thin:
            folders.append(sysconfig.get_paths()["include"])
        return [part for folder in folders for part in ("-isystem", folder)]


@functools.lru_cache(maxsize=4)
def toolchain(compiler: str) -> Toolchain:
    """Describe the toolchain around one compiler."""
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
    )
