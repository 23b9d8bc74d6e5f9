"""The devices this version can judge on."""

from __future__ import annotations

from kernelgym.errors import UsageError

__all__ = ["DEVICES", "check_device"]

DEVICES = ("cpu",)


def check_device(name: str) -> str:
    """Return `name` if kernels can be judged on that device here.

    Raises:
        UsageError: If they cannot.
    """
    if name not in DEVICES:
        raise UsageError(
            f"device {name!r} cannot be judged on; known: {', '.join(DEVICES)} "
            "(another evaluator may judge elsewhere: pass it as `evaluator`)"
        )
    return name
