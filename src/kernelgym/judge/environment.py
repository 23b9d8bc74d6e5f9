"""Allow-lists of the environment variables that the judge's processes keep.

A caller's environment holds keys and tokens, and the judge's processes run code that the caller did
not write: problems, and candidates. Each process therefore gets the variables named here and those
that its starter adds, and no others.

Contract: a variable whose name looks like a secret's is dropped even if its prefix is allowed.

Does not cover what the caller's own process shows in ``/proc``: code in a worker, which is the same
user, can read that. Candidates cannot, in every sandbox tier but ``limits``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kernelgym.languages import header_variables
from kernelgym.pretrained import HUB_VARIABLES, hub_variables

_SECRET = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH")


@dataclass(frozen=True, slots=True)
class AllowList:
    """Names of variables, and prefixes of names, that a process keeps."""

    names: tuple[str, ...]
    prefixes: tuple[str, ...] = ()

    def holds(self, name: str) -> bool:
        """Return True if a process keeps the environment variable of this name."""
        if any(word in name.upper() for word in _SECRET):
            return False
        return name in self.names or name.startswith(self.prefixes)


COMPILER = AllowList(("PATH",))
"""Variables that compilers, their stages and the assembler keep."""
ZYGOTE = AllowList(
    (
        *("PATH", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "KERNELGYM_PLAIN_INTERPRETER"),
        *HUB_VARIABLES,
    ),
    ("CUDA_",),
)
"""Variables that the zygote keeps; `judge/untrusted/zygote.py` names those that candidates keep."""
TRUSTED = AllowList(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ"),
        *("TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME"),
        *("LD_LIBRARY_PATH", "CC", "CXX", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *header_variables(),
    ),
    (
        *("KERNELGYM_", "PYTHON", "LC_", "MALLOC_"),
        *("TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "ATEN_", "C10_", "TRITON_"),
        *("CUDA_", "NVIDIA_", "NVCC_", "CUBLAS_", "CUBLASLT_", "CUDNN_", "ROCM_"),
        *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "NUMEXPR_"),
    ),
)
"""Variables kept in workers, in ``lint`` and in all other processes that run a problem's own
code."""


def kept_variables(allowed: AllowList, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables that a process keeps, by its allow-list.

    Args:
        allowed: The process's allow-list.
        given: The variables of the process that starts it; this process's if None.
    """
    given = os.environ if given is None else given
    return {name: value for name, value in given.items() if allowed.holds(name)}


def header_folders() -> dict[str, str]:
    """Return the variables that are set and name checkouts of languages' headers.

    Candidates get them, so that a kernel can name the folder that its build includes.
    """
    return {name: os.environ[name] for name in header_variables() if name in os.environ}


def of_trusted() -> dict[str, str]:
    """Return the variables of a process that runs a problem's own code.

    It reads pretrained models from kernelgym's folder, without network.
    """
    return kept_variables(TRUSTED) | hub_variables()
