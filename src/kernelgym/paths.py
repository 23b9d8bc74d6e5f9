"""Folders in which kernelgym keeps files on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Folder for built extensions: ``$KERNELGYM_CACHE``, or one under the XDG cache folder."""
    if own := os.environ.get("KERNELGYM_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kernelgym"


def hygiene_folder() -> Path:
    """Folder in which results of `kernelgym lint` are kept."""
    return cache_folder() / "hygiene"
