"""The Hugging Face hub, asked once and quickly; local copies go first.

Contract: `snapshot` returns a folder of a model; `ask_hub` returns whether the hub answers within
`PROBE_S`; `asked_once` lets other libraries load from it only if it does. The hub's own client
tries again for more than a minute where there is no network, unless it is told to be `offline`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from pathlib import Path

from kernelgym.errors import UsageError

PROBE_S = 6.0
"""Seconds that the hub is given to answer."""


def ask_hub(name: str, kind: str) -> str:
    """Return why the hub cannot be used; empty if it can.

    Args:
        name: Name of the repository.
        kind: ``model`` or ``dataset``.
    """
    said: list[str] = []

    def ask() -> None:
        from huggingface_hub import HfApi

        try:
            HfApi().repo_info(name, repo_type=kind, timeout=PROBE_S)
        except Exception as error:  # the client raises errors of a dozen unrelated classes
            said.append(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        else:
            said.append("")

    # In a thread, since the client tries again beyond its own limit of time.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PROBE_S + 2.0)
    return said[0] if said else f"no answer within {PROBE_S + 2.0:g} s"


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Make the hub's client use its local copies for a block."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def asked_once(name: str) -> Iterator[str]:
    """Load from the hub if it answers, else from local copies.

    For a block in which another library loads it. A name is asked for once in a process. Yields
    why the hub is not used; empty if it is, or if the name is a folder.
    """
    why = "" if Path(name).is_dir() else _asked(name)
    with offline() if why else contextlib.nullcontext():
        yield why


@functools.cache
def _asked(name: str) -> str:
    return ask_hub(name, "model")


def snapshot(name: str, revision: str = "") -> Path:
    """Return the folder of a model: a local copy, or a download.

    Raises:
        UsageError: If there is no copy and the hub does not answer or has no such model.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision or None, local_files_only=True))
    except Exception:  # no copy; what is wrong with the name, the hub says better
        pass
    if why := ask_hub(name, "model"):
        raise UsageError(
            f"model {name!r} is neither a folder nor in the hub's local cache, and the hub does "
            f"not give it ({why}); name a folder, or download it where there is a network"
        )
    try:
        return Path(snapshot_download(name, revision=revision or None))
    except Exception as error:
        raise UsageError(
            f"model {name!r} cannot be downloaded: {type(error).__name__}: {error}"
        ) from None
