"""`torch.compile` for a process that holds the reference: load, use and save its caches.

No module of the compiler is imported before `begin`. The trusted side requests `begin` only in
processes that hold a problem's own model, never in a kernel's. The compiled code is one folder: the
caches of Inductor and Triton, whose libraries `torch.compiler.save_cache_artifacts` leaves out, and
that function's artifacts beside them. `misses` counts the graphs that the folder lacked, and
`frames` the Python frames that the compiler has processed.

Loaded by path: standard library and torch only.
"""

from __future__ import annotations

import os
import tarfile

import torch

FOLDER = "baseline"
_ARTIFACTS = "artifacts"
_SETTINGS = {
    # One model does not repay a pool of processes and 150 MB of precompiled headers.
    "compile_threads": 1,
    "cpp_cache_precompile_headers": False,
    # A choice of launch settings is kept beside the code, under the path of the process that
    # compiled it, where another process may not write.
    "autotune_local_cache": False,
    # Random layers must draw the same numbers as in eager mode, or their outputs would differ.
    "fallback_random": True,
}


def begin(scratch: str, fds: list[int]) -> None:
    """Set up `torch.compile`, with caches from a tar file if given.

    Args:
        scratch: The process's scratch folder.
        fds: At most one descriptor, which is open on a tar file.
    """
    folder = os.path.join(scratch, FOLDER)
    os.makedirs(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    for fd in fds:
        with os.fdopen(fd, "rb") as file, tarfile.open(fileobj=file) as archive:
            archive.extractall(folder, filter="data")
    import torch._dynamo
    from torch._inductor import config

    for name, value in _SETTINGS.items():
        if hasattr(config, name):  # not every version has them all
            setattr(config, name, value)
    artifacts = os.path.join(folder, _ARTIFACTS)
    if os.path.exists(artifacts):
        with open(artifacts, "rb") as file:
            torch.compiler.load_cache_artifacts(file.read())


def misses() -> int:
    """Return the number of graphs that this process compiled or cannot cache."""
    from torch._dynamo.utils import counters

    found = counters["inductor"]
    return int(found["fxgraph_cache_miss"] + found["fxgraph_cache_bypass"])


def frames() -> int:
    """Return the number of Python frames that torch's compiler has processed."""
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


def save(scratch: str) -> None:
    """Write the cache artifacts of `torch.compile` beside its caches."""
    made = torch.compiler.save_cache_artifacts()
    if made is not None:  # None if nothing of the model compiles
        with open(os.path.join(scratch, FOLDER, _ARTIFACTS), "wb") as file:
            file.write(made[0])
