"""Translates sources and torch's headers from CUDA to HIP, then compiles; runs in the sandbox.

``python hip_stages.py TORCH STAND_INS SOURCES CLANG ARGUMENT...`` does in the current folder what
PyTorch's ROCm build of `load_inline` does, and runs clang:

- torch's headers for CUDA become those for HIP (``ATen/cuda/CUDAContext.h`` becomes
  ``ATen/hip/HIPContext.h``), which torch's other builds lack. They go to the folder ``torch_hip``,
  those from the folder STAND_INS to ``thin_hip``;
- if SOURCES is ``translated``, CUDA's names in the sources become HIP's. Lines stay where they are.

Contract:

- names are translated by the tables of ``torch.utils.hipify``, read from TORCH;
- this file imports nothing of this package, since it is started by its path.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

_FOLDERS = ("c10/cuda", "ATen/cuda")
_INCLUDE = re.compile(r'(#\s*include\s*[<"])((?:ATen|c10)/cuda/[^>"\n]+)')


def translated(text: str, hipify: Any) -> str:
    """Return a text with HIP's names in place of CUDA's.

    Args:
        text: A source or a header.
        hipify: The module ``hipify_python`` of torch.
    """
    text = hipify.RE_PYTORCH_PREPROCESSOR.sub(lambda found: hipify.PYTORCH_MAP[found[0]], text)
    return _INCLUDE.sub(lambda found: found[1] + hipify.get_hip_file_path(found[2], True), text)


def _translate_headers(root: Path, target: Path, hipify: Any) -> None:
    """Write a folder's CUDA headers as headers for HIP."""
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file():
                name = hipify.get_hip_file_path(str(path.relative_to(root)), True)
                made = target / name
                made.parent.mkdir(parents=True, exist_ok=True)
                made.write_text(translated(path.read_text(errors="replace"), hipify))


def main(arguments: list[str]) -> None:
    """Translate headers and sources to HIP, then run clang in place of this process."""
    torch, stand_ins, sources, *command = arguments
    sys.path.insert(0, f"{torch}/utils")  # the package is found there without importing torch
    from hipify import hipify_python as hipify  # type: ignore[import-not-found]

    include = Path(torch, "include")
    if not (include / "c10/hip").is_dir():  # torch's ROCm builds have them
        _translate_headers(include, Path("torch_hip"), hipify)
    _translate_headers(Path(stand_ins), Path("thin_hip"), hipify)
    if sources == "translated":
        for path in [*Path().glob("*.cu"), *Path().glob("*.cpp")]:
            text = translated(path.read_text(errors="replace"), hipify)
            if path.suffix == ".cu":
                text = hipify.replace_math_functions(text)
            path.write_text(text)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
