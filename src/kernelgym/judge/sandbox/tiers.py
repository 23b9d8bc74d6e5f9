"""Remembers the strongest sandbox tier that a host allows, since finding it takes several trials.

Contract: an entry holds for one boot of the machine, one user, one set of namespaces and one set
of capabilities. Another container may share the cache folder and allow less. A tier weaker than
the strongest is forgotten after an hour.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from kernelgym.judge.untrusted.sandbox.sandbox import TIERS

_TRIED_AGAIN_S = 3600.0


def suffices(tier: str, wanted: str) -> bool:
    """Return True if a tier satisfies a request.

    Args:
        tier: Name of the tier.
        wanted: The request: a tier's name, ``auto``, or ``require:NAME`` for that tier or a
            stronger one.
    """
    if wanted == "auto":
        return True
    if wanted.startswith("require:"):
        return TIERS.index(tier) <= TIERS.index(wanted.removeprefix("require:"))
    return tier == wanted


def recall(folder: Path, device: str, wanted: str) -> str:
    """Return the remembered sandbox tier if it satisfies the request; otherwise ''."""
    path = _file(folder, device)
    try:
        tier, age_s = path.read_text(), time.time() - path.stat().st_mtime
    except OSError:
        return ""
    if tier != TIERS[0] and age_s > _TRIED_AGAIN_S:
        return ""  # the host may allow a stronger tier by now
    return tier if tier in TIERS and suffices(tier, wanted) else ""


def tier_for(folder: Path, device: str, wanted: str) -> str:
    """Return a sandbox tier that this host allows: the remembered one, or else the weakest wanted.

    Args:
        folder: Cache folder.
        device: Device whose tier is remembered.
        wanted: The request, as in `suffices`.
    """
    named = wanted.removeprefix("require:")
    return recall(folder, device, wanted) or (named if named in TIERS else TIERS[-1])


def remember(folder: Path, device: str, tier: str) -> None:
    """Store the strongest sandbox tier that trials on this host found."""
    path = _file(folder, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f"{path.name}.{os.getpid()}")
    staging.write_text(tier)
    staging.replace(path)


def forget(folder: Path, device: str) -> None:
    """Remove the remembered sandbox tier, so that the next start tries all tiers again."""
    _file(folder, device).unlink(missing_ok=True)


def _file(folder: Path, device: str) -> Path:
    parts = [device.partition(":")[0], str(os.getuid()), _text("/proc/sys/kernel/random/boot_id")]
    for name in ("user", "pid", "mnt", "net"):
        try:
            parts.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            parts.append("?")
    status = _text("/proc/self/status").splitlines()
    parts += [line for line in status if line.startswith(("Cap", "Seccomp", "NoNewPrivs"))]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return folder / "tiers" / digest


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
