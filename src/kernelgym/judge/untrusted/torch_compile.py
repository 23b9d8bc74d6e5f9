"""`torch.compile` in a process of the reference's: its caches handed in, used and handed out.

Nothing of it is imported before `begin`, which the trusted side asks for in processes that hold a
problem's own model, and in no kernel's. What was compiled is a folder: Inductor's and Triton's
caches, whose libraries `torch.compiler.save_cache_artifacts` leaves out, and its artifacts beside
them. `misses` says whether everything was found there.

Loaded by path: standard library and torch only.
"""

from __future__ import annotations

import os
import tarfile

import torch

__all__ = ["FOLDER", "begin", "misses", "save"]

FOLDER = "baseline"
_ARTIFACTS = "artifacts"
_SETTINGS = {
    # A pool of processes, and 150 MB of precompiled headers, are not worth it for one model.
    "compile_threads": 1,
    "cpp_cache_precompile_headers": False,
    # Layers that draw must draw what the reference draws, or nobody could compare the two.
    "fallback_random": True,
}


def begin(scratch: str, fds: list[int]) -> None:
    """Set `torch.compile` up, with caches from a tar file if there is one.

    Args:
        scratch: The process's folder.
        fds: At most one descriptor, of a tar file.
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
    """Return how many graphs had to be compiled, or cannot be kept, in this process."""
    from torch._dynamo.utils import counters

    found = counters["inductor"]
    return int(found["fxgraph_cache_miss"] + found["fxgraph_cache_bypass"])


def save(scratch: str) -> None:
    """Put what `torch.compile` would hand to another process beside its caches."""
    made = torch.compiler.save_cache_artifacts()
    if made is not None:  # a model of which nothing can be compiled
        with open(os.path.join(scratch, FOLDER, _ARTIFACTS), "wb") as file:
            file.write(made[0])
