"""kernelgym: Gymnasium environments in which models learn to write GPU kernels.

Importing this package registers the environment ids, and nothing more: public names are imported
when they are first used, and torch, Triton, datasets and FAISS only by what needs them. The public
names are listed in `__init__.pyi`.

Ids are ``{KernelBench-L1..L4, Synthetic-L1..L3}-{SingleTurn, MultiTurn}-v0``; see `ENV_IDS`.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import register, registry

__version__ = "0.2.0"

_MODULE_OF = {
    name.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module
    for name in node.names
}
"""Modules of the public names, by name."""
__all__ = ["ENV_IDS", "__version__", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    try:
        module = _MODULE_OF[name]
    except KeyError:
        raise AttributeError(f"module 'kernelgym' has no attribute {name!r}") from None
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register_envs() -> tuple[str, ...]:
    """Register every id, with string entry points, and return the ids."""
    ids = []
    for suite_name, levels in (("KernelBench", 4), ("Synthetic", 3)):
        for level in range(1, levels + 1):
            for mode, max_turns in (("SingleTurn", 1), ("MultiTurn", 4)):
                env_id = f"{suite_name}-L{level}-{mode}-v0"
                ids.append(env_id)
                if env_id in registry:  # the package was imported anew
                    continue
                register(
                    env_id,
                    entry_point="kernelgym.envs.kernel_env:KernelEnv",
                    vector_entry_point="kernelgym.envs.vector:KernelVectorEnv",
                    nondeterministic=True,
                    # Gymnasium's checker loses the first step's result where the first reset
                    # was refused; tests run its checks instead.
                    disable_env_checker=True,
                    kwargs={"suite": suite_name, "level": level, "max_turns": max_turns},
                )
    return tuple(ids)


ENV_IDS = _register_envs()
"""Every registered id."""
