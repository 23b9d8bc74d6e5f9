"""Writing of files that other processes may read meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes | str, *, sync: bool = False) -> None:
    """Write a file so that it is there whole or not at all; folders above it are made.

    Args:
        path: Path of the file; a file that is there is replaced.
        data: Content of the file; a text is written as UTF-8.
        sync: Whether to wait until the content is on the disk.

    Raises:
        OSError: If the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(draft, "xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
