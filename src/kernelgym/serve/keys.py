"""Keys of the service's tenants: a YAML file with digests, roles and limits.

The file never holds a key, only its SHA-256. A key has 256 random bits, so its digest needs no salt
and no slow hash. The server reads the file again when it changes, so revoking takes effect at once.
"""

from __future__ import annotations

import dataclasses
import datetime
import fcntl
import hashlib
import logging
import os
import secrets
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernelgym.errors import UnknownName, UsageError
from kernelgym.file_lock import locked
from kernelgym.rate_limit import RateLimit
from kernelgym.reading import read
from kernelgym.serve.refusal import Refusal

Role = Literal["judge", "problems", "admin"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One key of the file: its holder, what it allows, and its limits."""

    name: str
    """Name of the tenant, which metrics show."""
    sha256: str = ""
    """SHA-256 of the key, in hexadecimal digits."""
    roles: tuple[Role, ...] = ("judge",)
    """``judge``: have kernels judged. ``problems``: send problems of one's own, which the server
    executes outside the sandbox. ``admin``: read ``/metrics``."""
    per_minute: int = 6000
    """Largest number of requests in a minute."""
    queued: int = 10_000
    """Largest number of jobs that wait at the same time."""
    running: int = 0
    """Largest number of jobs that are judged at the same time; 0 for no limit."""
    priority: int = 0
    """Priority of the jobs: those of a higher one go first; equal ones take turns."""
    languages: tuple[str, ...] = ()
    """Languages that kernels may have; empty for all."""
    expires: str = ""
    """Last day on which the key is taken, such as ``2027-01-31`` (UTC); empty for no end."""

    def __post_init__(self) -> None:
        if self.expires:
            try:
                datetime.date.fromisoformat(self.expires)
            except ValueError:
                raise UsageError(
                    f"key {self.name!r}: expires is a date such as 2027-01-31, got {self.expires!r}"
                ) from None
        if min(self.per_minute, self.queued) < 1 or self.running < 0:
            raise UsageError(
                f"key {self.name!r}: per_minute and queued are at least 1, running at least 0"
            )

    def is_expired(self) -> bool:
        """Return True if the last day has passed."""
        today = datetime.datetime.now(datetime.UTC).date()
        return bool(self.expires) and datetime.date.fromisoformat(self.expires) < today


ANONYMOUS = Tenant(name="anonymous", roles=("judge", "admin"), per_minute=1_000_000)
"""Tenant of every request to a server without keys. It may not send problems of its own: any
account of the machine reaches a server on loopback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeysFile:
    keys: tuple[Tenant, ...] = ()


def read_keys(path: Path) -> tuple[Tenant, ...]:
    """Return the tenants of a file.

    Raises:
        UsageError: If the file cannot be read, or two keys have one name.
    """
    import yaml

    try:
        data = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"the keys file {str(path)!r} cannot be read: {error}") from None
    tenants = read(_KeysFile, _dated(data or {}), str(path)).keys
    names = [each.name for each in tenants]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: two keys have the name {name!r}; names are unique")
    return tenants


def _dated(data: Any) -> Any:
    """Return YAML data with dates, which YAML reads by itself, as texts."""
    if isinstance(data, dict):
        return {name: _dated(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_dated(value) for value in data]
    return data.isoformat() if isinstance(data, datetime.date) else data


def add_key(path: Path, tenant: Tenant) -> str:
    """Add a tenant to a file, which is made if missing; return the new key.

    Raises:
        UsageError: If the name is taken or empty.
    """
    if not tenant.name or not tenant.name.isprintable():
        raise UsageError(f"a key needs a name of printable characters, got {tenant.name!r}")
    key = f"kg_{secrets.token_urlsafe(32)}"
    with locked(_lock_of(path), fcntl.LOCK_EX):
        tenants = read_keys(path) if path.exists() else ()
        if any(each.name == tenant.name for each in tenants):
            raise UsageError(f"{path} has a key {tenant.name!r}; revoke it, or take another name")
        _write(path, (*tenants, dataclasses.replace(tenant, sha256=_digest(key))))
    return key


def revoke_key(path: Path, name: str) -> None:
    """Remove a tenant from a file.

    Raises:
        UnknownName: If there is no key of that name.
    """
    with locked(_lock_of(path), fcntl.LOCK_EX):
        tenants = read_keys(path)
        left = tuple(each for each in tenants if each.name != name)
        if len(left) == len(tenants):
            raise UnknownName("key", name, [each.name for each in tenants])
        _write(path, left)


class KeyRing:
    """Tenants of a service by key, read again when the keys file changes.

    Args:
        path: The keys file; None for a server without keys, where every request is `ANONYMOUS`.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._by_digest: dict[str, Tenant] = {}
        self._by_name: dict[str, Tenant] = {ANONYMOUS.name: ANONYMOUS}
        self._limits: dict[str, tuple[int, RateLimit]] = {}
        if path is not None:
            self._load(path)

    def tenant(self, key: str) -> Tenant | None:
        """Return the tenant of a key; None if the key is unknown or expired."""
        if self.path is None:
            return ANONYMOUS
        with self._lock:
            self._refresh(self.path)
            found = self._by_digest.get(_digest(key))
        return None if found is None or found.is_expired() else found

    def holder(self, authorization: str, role: str) -> Tenant:
        """Return the tenant of a request by its header ``Authorization``, and count the request.

        Raises:
            Refusal: If the key is unknown or lacks the role, or comes too often.
        """
        kind, _, key = authorization.partition(" ")
        tenant = self.tenant(key.strip() if kind.lower() == "bearer" else "")
        if tenant is None:
            raise Refusal(
                401, "key", "the key is missing, unknown or expired; send Authorization: Bearer KEY"
            )
        if (wait_s := self.wait_s(tenant)) > 0.0:
            raise Refusal(
                429,
                "too_often",
                f"this key allows {tenant.per_minute} requests a minute; wait {wait_s:.1f} s",
                wait_s,
            )
        if role not in tenant.roles:
            raise Refusal(403, "role", f"this key lacks the role {role!r}")
        return tenant

    def named(self, name: str) -> Tenant:
        """Return a tenant by name; one with default limits if its key was revoked."""
        return self._by_name.get(name) or Tenant(name=name)

    def wait_s(self, tenant: Tenant) -> float:
        """Count a request of a tenant; return 0.0, or seconds until the limit allows another."""
        with self._lock:
            most, limit = self._limits.get(tenant.name, (0, None))
            if limit is None or most != tenant.per_minute:
                limit = RateLimit(tenant.per_minute)
                self._limits[tenant.name] = tenant.per_minute, limit
        return limit.wait_s()

    def _refresh(self, path: Path) -> None:
        try:
            if _stamp(path) != self._stamp:
                self._load(path)
        except (OSError, UsageError) as error:
            _LOG.warning("the keys stay as they were: %s", error)

    def _load(self, path: Path) -> None:
        try:
            stamp = _stamp(path)
        except OSError as error:
            raise UsageError(
                f"the keys file {str(path)!r} cannot be read: {error.strerror}; make one by "
                f"`kernelgym serve keys add NAME --keys {path}`"
            ) from None
        tenants = read_keys(path)
        self._stamp = stamp
        self._by_digest = {each.sha256: each for each in tenants if each.sha256}
        self._by_name = {each.name: each for each in tenants}


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _lock_of(path: Path) -> Path:
    if path.is_dir():
        raise UsageError(f"the keys file {str(path)!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {str(path.parent)!r} for the keys file")
    return path.with_name(f".{path.name}.lock")


def _write(path: Path, tenants: tuple[Tenant, ...]) -> None:
    """Write a keys file in one step, readable by its owner alone."""
    import yaml

    rows = [_set_fields(each) for each in tenants]
    text = yaml.safe_dump({"keys": rows}, sort_keys=False)
    fd, staging = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(staging, path)
    except BaseException:
        os.unlink(staging)
        raise


def _set_fields(tenant: Tenant) -> Mapping[str, Any]:
    plain = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(tenant).items()
    }
    return {name: value for name, value in plain.items() if value not in ("", [])}
