"""The key of a Tinker service: places and form.

Contract: `tinker_key` looks at the variable TINKER_API_KEY, then at a ``.env`` file in the working
folder, then at what ``tinker auth login`` keeps, and takes the first that is there. It sets no
variable, so no process that is started later inherits a key from a file, and no text that it
returns or raises holds one. Whether a service accepts the key is not known before it is asked.
"""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from kernelgym import UsageError
from kernelgym.working_folder import read_env_file

_VARIABLE = "TINKER_API_KEY"
_FORMS = ("tml-", "eyJ")
"""Beginnings of keys, and of the short-lived tokens that the SDK takes in their place."""
_PLACEHOLDER = "tml-loopback"
"""Key for servers on this machine: they ask for none, but the SDK requires one."""


@dataclass(frozen=True, slots=True)
class TinkerKey:
    """A key of a Tinker service, and the place where it was found."""

    value: str = field(repr=False)
    source: str
    """Place where the key was found, in words; it does not contain the key."""


def tinker_key(base_url: str = "") -> TinkerKey:
    """Return the key to use with a service.

    Args:
        base_url: Address of the service; that of TINKER_BASE_URL, or the hosted one, if empty.

    Raises:
        UsageError: If there is none, a file with one cannot be read, or it has a wrong form.
    """
    base_url = base_url or os.environ.get("TINKER_BASE_URL", "")
    if value := os.environ.get(_VARIABLE, "").strip():
        return _formed(value, _VARIABLE)
    if value := _of_lines(Path(".env")):
        return _formed(value, f"{_VARIABLE} in .env")
    if value := _of_store(Path.home() / ".tinker" / "credentials.json"):
        return _formed(value, "`tinker auth login`")
    if is_loopback(base_url):
        return TinkerKey(_PLACEHOLDER, "none: the server is on this machine")
    raise UsageError(
        f"there is no key for a Tinker service: {_VARIABLE} is not set, .env in the working folder "
        "does not name it, and `tinker auth login` has kept none; set one of them"
    )


def is_loopback(url: str) -> bool:
    """Return True if an address is one of this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _formed(value: str, source: str) -> TinkerKey:
    if not value.startswith(_FORMS) or not all("!" <= sign <= "~" for sign in value):
        raise UsageError(
            f"the key from {source} has a wrong form ({len(value)} characters): keys of Tinker "
            "begin with tml- and have no spaces; copy it again from the service's console"
        )
    return TinkerKey(value, source)


def _of_lines(path: Path) -> str:
    """Return the last key in a file of NAME=value lines; '' if there is none."""
    try:
        return read_env_file(path).get(_VARIABLE, "")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(".env", error) from None


def _of_store(path: Path) -> str:
    """Return the default key that `tinker auth login` has kept; '' if there is none."""
    try:
        kept = json.loads(path.read_text("utf-8"))
        chosen = kept.get("default")
        return "" if chosen is None else str(kept["keys"][chosen]["key"]).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable("the file of `tinker auth login`", error) from None


def _unreadable(what: str, error: Exception) -> UsageError:
    why = error.strerror if isinstance(error, OSError) else "it is not in the form expected"
    return UsageError(
        f"{what}, where a key for the Tinker service may be, cannot be read: {why}; mend it, or "
        f"set {_VARIABLE}"
    )
