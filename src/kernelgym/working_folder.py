"""Settings that a command takes from its working folder: ``.env``, and a KernelBench checkout.

Contract: a variable that the environment holds is never changed. Settings in ``.env``
(KERNELBENCH_ROOT, TINKER_BASE_URL, KERNELGYM_*) become variables of the process. Keys do not, so
that no process that is started later inherits one: `key` looks into ``.env`` when a key is needed.
Other names in ``.env`` are other programs' and stay untouched. Only commands call
`take_working_folder`; importing kernelgym reads nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from kernelgym.errors import UsageError

ENV_FILE = ".env"
_ROOT = "KERNELBENCH_ROOT"
_SETTING = re.compile(r"KERNELBENCH_ROOT|TINKER_BASE_URL|KERNELGYM_\w+")
_KEY = re.compile(r"\w+_API_KEY")


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file of NAME=value lines; none if there is no file.

    A line may begin with ``export``, and a value may stand in quotes; without quotes a comment may
    follow it after a space. Other lines are left out; of two with one name, the last counts.

    Raises:
        OSError: If the file cannot be read.
        UnicodeDecodeError: If it is not UTF-8.
    """
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, IsADirectoryError):
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.isidentifier():
            continue
        if value[:1] in ("'", '"'):
            found[name] = value[1:].partition(value[0])[0].strip()
        else:
            found[name] = value.partition(" #")[0].strip()
    return found


def key(name: str) -> str:
    """Return a key from the environment, or from ``.env`` in the working folder; else empty.

    Raises:
        UsageError: If the key has a character that an HTTP header cannot carry.
    """
    if not (value := os.environ.get(name, "").strip()):
        try:
            value = read_env_file(Path(ENV_FILE)).get(name, "")
        except (OSError, UnicodeDecodeError):
            return ""
    return sendable_key(value, name)


def sendable_key(key: str, name: str) -> str:
    """Return a key without surrounding whitespace that an HTTP header can carry.

    HTTP clients print a header that they refuse, and with it the key, in their error.

    Args:
        key: The key.
        name: What the error message calls the key, such as the variable that holds it.

    Raises:
        UsageError: If the key contains a space, a control character or a non-ASCII character.
    """
    key = key.strip()
    if key and not re.fullmatch("[!-~]+", key):
        place = re.search("[^!-~]", key)
        raise UsageError(
            f"the key in {name} has an invalid character at position "
            f"{place.start() + 1 if place else 1} (a space, a control character or one outside "
            "ASCII); copy the key again"
        )
    return key


def take_working_folder() -> list[str]:
    """Set environment variables that the working folder's files give; return lines about them."""
    said = []
    try:
        given = read_env_file(Path(ENV_FILE))
    except (OSError, UnicodeDecodeError) as error:
        given = {}
        said.append(f"{ENV_FILE} in the working folder cannot be read and is left out: {error}")
    new = {name: value for name, value in given.items() if value and not os.environ.get(name)}
    keys = {name for name in new if _KEY.fullmatch(name)}
    settings = {name: value for name, value in new.items() if _SETTING.fullmatch(name)}
    os.environ.update({name: value for name, value in settings.items() if name not in keys})
    if taken := sorted({*settings, *keys}):
        said.append(f"from {ENV_FILE} in the working folder: {', '.join(taken)}")
    if not os.environ.get(_ROOT) and (root := _checkout()) is not None:
        os.environ[_ROOT] = str(root)
        said.append(f"{_ROOT} is not set; KernelBench is read from the checkout in {root}")
    return said


def _checkout() -> Path | None:
    """Return a KernelBench checkout in the working folder or beside it; None if there is none."""
    with contextlib.suppress(OSError):  # a folder that is gone, or may not be read
        here = Path().resolve()
        for root in (here / "KernelBench", here.parent / "KernelBench"):
            if any((place / "level1").is_dir() for place in (root, root / "KernelBench")):
                return root
    return None
