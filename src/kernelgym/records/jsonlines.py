"""Files of one JSON object per line: appended to in one piece, read up to a cut, written whole.

Contract: `append_line` writes a line in one piece under a lock, so several processes can write to
one file; if a writer was killed in the middle of a line, the next append removes that beginning.
`read_lines` leaves a cut last line out and refuses every other line that is not an object, with
file, line and reason. Lines are plain ASCII; lone surrogates are escapes like any other.

What the objects mean is not known here.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError

__all__ = ["append_line", "read_lines", "write_lines"]


def append_line(path: str | Path, data: Mapping[str, Any]) -> None:
    """Append one object to a file, which is made if it is not there.

    Raises:
        UsageError: If the file cannot be written.
        ValueError: If the object is not plain JSON data (NaN and infinities are not).
    """
    rest = memoryview(_line(data))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        end = _mend(descriptor)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, end)  # a full disk leaves no half line behind
            raise
    finally:
        os.close(descriptor)  # frees the lock


def write_lines(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a file of objects, in the place of what was there once all are written.

    Returns:
        How many they were.

    Raises:
        UsageError: If the file cannot be written.
    """
    path = Path(path)
    # In the same folder, so that it can take the other's place in one step.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        file = open(draft, "xb")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None
    count = 0
    try:
        with file:
            for row in rows:
                file.write(_line(row))
                count += 1
        draft.replace(path)
    except BaseException:
        draft.unlink()
        raise
    return count


def read_lines(
    path: str | Path, *, on_cut: Callable[[int], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a file of objects; yields (1-based number of the line, object). Empty lines are skipped.

    Args:
        path: The file.
        on_cut: Called with the line's number if the last line is cut off (its writer was killed,
            or is still at it) and so left out.

    Raises:
        UsageError: If the file cannot be read, or a line that is not a cut last one is no object.
    """
    try:
        file = open(path, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:  # JSON's and Unicode's
                if not line.endswith(b"\n"):
                    if on_cut is not None:
                        on_cut(number)
                    return
                raise UsageError(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(data, dict):
                raise UsageError(f"{path}, line {number}: not a JSON object")
            yield number, data


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, allow_nan=False).encode("ascii") + b"\n"


def _mend(descriptor: int) -> int:
    """Make the file end with a whole line, and return its size."""
    size = os.fstat(descriptor).st_size
    end, tail = size, b""
    while end > 0 and b"\n" not in tail:
        start = max(0, end - 65_536)
        tail = os.pread(descriptor, end - start, start) + tail
        end = start
    tail = tail[tail.rfind(b"\n") + 1 :]
    if not tail:
        return size
    try:
        json.loads(tail)
    except ValueError:
        os.ftruncate(descriptor, size - len(tail))
        return size - len(tail)
    os.write(descriptor, b"\n")  # whole, and only its end was lost
    return size + 1
