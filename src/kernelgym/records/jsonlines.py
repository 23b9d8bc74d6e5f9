"""Files of one JSON object per line: appended to in one piece, read up to a cut, written whole.

Contract: `append_lines` writes lines in one piece under a lock, so several processes can write to
one file; if a writer was killed in the middle of a line, the next append removes that beginning.
`read_lines` leaves a cut last line out and refuses every other line that is not an object, with
file, line and reason. Lines are plain ASCII; lone surrogates are escapes like any other.

`index_lines` remembers where lines begin, `line_at` reads one, and `reorder_lines` copies lines in
another order, so that a file can be larger than memory.

What the objects mean is not known here.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kernelgym.errors import UsageError

Key = TypeVar("Key", bound=Hashable)
_REMEDY = "repair or remove the line"


def append_line(path: str | Path, data: Mapping[str, Any]) -> None:
    """Append one object to a file, which is made if it is not there.

    Raises:
        UsageError: If the file cannot be written.
        ValueError: If the object is not plain JSON data (NaN and infinities are not).
    """
    append_lines(path, (data,))


def append_lines(
    path: str | Path, rows: Iterable[Mapping[str, Any]], *, sync: bool = False
) -> None:
    """Append objects to a file in one piece, and make it if missing.

    Args:
        path: The file.
        rows: The objects.
        sync: Return only once the disk has the lines.

    Raises:
        UsageError: If the file cannot be written, or its last line begins no JSON object.
        ValueError: If an object is not plain JSON data (NaN and infinities are not).
    """
    rest = memoryview(b"".join(map(_line, rows)))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        end = _mend(descriptor, path)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, end)  # a full disk leaves no half line behind
            raise
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)  # frees the lock


def write_lines(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a file of objects, in the place of what was there once all are written.

    Returns:
        The number of lines.

    Raises:
        UsageError: If the file cannot be written.
    """
    return _replace(Path(path), map(_line, rows))


def reorder_lines(path: str | Path, offsets: Iterable[int]) -> int:
    """Rewrite a file with the lines that begin at given bytes, in the given order.

    Args:
        path: The file.
        offsets: Bytes at which the lines begin, as `index_lines` returns it.

    Returns:
        The number of lines.

    Raises:
        UsageError: If the file cannot be read or written.
    """
    try:
        file = open(path, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None

    def lines() -> Iterator[bytes]:
        for offset in offsets:
            file.seek(offset)
            line = file.readline()
            yield line if line.endswith(b"\n") else line + b"\n"

    with file:
        return _replace(Path(path), lines())


def index_lines(path: str | Path, key: Callable[[dict[str, Any]], Key]) -> dict[Key, int]:
    """Return where each key's last line begins; empty without a file.

    Args:
        path: The file.
        key: Function that returns an object's key.

    Raises:
        UsageError: As `read_lines` does, or if `key` raises one, or KeyError or TypeError.
    """
    if not Path(path).exists():
        return {}
    found: dict[Key, int] = {}
    for number, offset, data in _read(path):
        try:
            found[key(data)] = offset
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path}, line {number}: not a line of its kind: {error}") from None
    return found


def line_at(path: str | Path, offset: int) -> dict[str, Any]:
    """Return the object whose line begins at a byte.

    Raises:
        UsageError: If the file cannot be read, or no object begins there.
    """
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = json.loads(file.readline())
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: no line begins at byte {offset} ({error})") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: the line at byte {offset} is not a JSON object")
    return data


def read_lines(
    path: str | Path,
    *,
    on_cut: Callable[[int], None] | None = None,
    on_damaged: Callable[[str], None] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a file of objects; yields (1-based number of the line, object). Empty lines are skipped.

    Args:
        path: The file.
        on_cut: Function that is called with the line's number if the last line is cut off (its
            writer was killed, or is still at it) and so left out.
        on_damaged: Function that is called with a message on each other line that is not an object,
            which is then left out; None to refuse the file.

    Raises:
        UsageError: If the file cannot be read, or a line is not an object, except a cut last one.
    """
    return ((number, data) for number, _, data in _read(path, on_cut, on_damaged))


def _read(
    path: str | Path,
    on_cut: Callable[[int], None] | None = None,
    on_damaged: Callable[[str], None] | None = None,
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield (1-based number of the line, byte at which it begins, object) of a file."""
    try:
        file = open(path, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    end = 0
    with file:
        for number, line in enumerate(file, 1):
            start, end = end, end + len(line)
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:  # JSON's and Unicode's
                if not line.endswith(b"\n"):
                    if on_cut is not None:
                        on_cut(number)
                    return
                why = f"not JSON ({error})"
            else:
                why = "" if isinstance(data, dict) else "not a JSON object"
            if not why:
                yield number, start, data
                continue
            message = f"{path}, line {number}: {why}; {_REMEDY}"
            if on_damaged is None:
                raise UsageError(message)
            on_damaged(message)


def _replace(path: Path, lines: Iterable[bytes]) -> int:
    """Write lines to a new file, put it in the place of `path`, and return their number."""
    # In the same folder, so that it can take the other's place in one step.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        file = open(draft, "xb")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None
    count = 0
    try:
        with file:
            for line in lines:
                file.write(line)
                count += 1
        if path.exists():
            shutil.copymode(path, draft)
        draft.replace(path)
    except BaseException:
        draft.unlink()
        raise
    return count


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, allow_nan=False).encode("ascii") + b"\n"


def _mend(descriptor: int, path: str | Path) -> int:
    """Remove an incomplete last line of a file, and return the file's size."""
    size = os.fstat(descriptor).st_size
    end, tail = size, b""
    while end > 0 and b"\n" not in tail:
        start = max(0, end - 65_536)
        tail = os.pread(descriptor, end - start, start) + tail
        end = start
    tail = tail[tail.rfind(b"\n") + 1 :]
    if not tail:
        return size
    if not tail.startswith(b"{"):  # another program's file: nothing of it may be removed
        raise UsageError(
            f"cannot append to {str(path)!r}: its last line is not a JSON object; name another file"
        )
    try:
        json.loads(tail)
    except (ValueError, RecursionError):
        os.ftruncate(descriptor, size - len(tail))
        return size - len(tail)
    os.write(descriptor, b"\n")  # whole, and only its end was lost
    return size + 1
