"""Files that a kernel spec names.

Contract: they lie in the spec's folder, links followed, and have a largest size; anything else is a
`UsageError` in one line. A file is looked at before it is opened, so that a pipe blocks nothing.

Does not guard against a folder that somebody else changes in between.
"""

from __future__ import annotations

import stat
from pathlib import Path

from kernelgym.errors import UsageError
from kernelgym.paths import cache_folder

__all__ = ["MOST_TENSOR_BYTES", "MOST_TEXT_BYTES", "check_file", "file_in", "text_in"]

MOST_TEXT_BYTES = 16 << 20
"""The largest file with a source or a part of a spec."""
MOST_TENSOR_BYTES = 4 << 30
"""The largest safetensors file, and the largest spec with inline data."""


def file_in(folder: Path, given: str, most_bytes: int) -> Path:
    """Return the whole path of a file that a spec names.

    Args:
        folder: The spec's folder.
        given: The file, relative to it.
        most_bytes: The largest size.

    Raises:
        UsageError: If it is no file, does not lie in the folder, or is larger.
    """
    try:
        root = folder.resolve()
        path = (root / given).resolve()
        # Inline data was written there by this package.
        places = (root, (cache_folder() / "spec_tensors").resolve())
        if not any(path.is_relative_to(place) for place in places):
            raise UsageError(
                f"{given!r} does not lie in the spec's folder; copy the file there, and name it "
                "relative to the spec"
            )
        check_file(path, most_bytes)
    except UsageError as error:
        raise UsageError(f"cannot read {given!r:.200}: {error}") from None
    except (OSError, ValueError, RuntimeError) as error:  # a NUL; links that lead in a circle
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {given!r:.200}: {why}") from None
    return path


def text_in(folder: Path, given: str) -> str:
    """Return the text of a file that a spec names.

    Raises:
        UsageError: As `file_in`, or if it is no UTF-8 text.
    """
    path = file_in(folder, given, MOST_TEXT_BYTES)
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {given!r:.200}: {error}") from None


def check_file(path: Path, most_bytes: int) -> None:
    """Make sure that a path names a file of some size at most.

    Raises:
        OSError: If there is none.
        UsageError: If it is no regular file, or larger.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise UsageError("it is no file")
    if state.st_size > most_bytes:
        raise UsageError(f"it has {state.st_size} bytes, and {most_bytes} are the most")
