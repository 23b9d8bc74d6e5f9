"""Versions of other projects that the adapters were tested with.

The one table of versions is the list of extras in pyproject.toml, of which the installed
distribution keeps a copy: ``inspect = ["inspect-ai~=0.3.285"]`` says that the adapter was tested
with 0.3.285, and takes later releases of the 0.3 series.
"""

from __future__ import annotations

from importlib import metadata

from kernelgym.errors import UsageError


def check_framework(extra: str) -> None:
    """Refuse a framework that is not installed, or in a version that its adapter does not take.

    Args:
        extra: The adapter's extra, whose first requirement is the framework.

    Raises:
        UsageError: If the installed version is none, or not one that the extra names.
    """
    from packaging.requirements import Requirement

    framework = next(
        wanted
        for wanted in map(Requirement, metadata.requires("kernelgym") or ())
        if wanted.marker is not None
        and wanted.marker.evaluate({"extra": extra})
        and not wanted.marker.evaluate({"extra": ""})  # kernelgym's own, such as Triton on Linux
    )
    try:
        installed = metadata.version(framework.name)
    except metadata.PackageNotFoundError:
        installed = ""
    if installed and framework.specifier.contains(installed, prereleases=True):
        return
    found = f"{installed} is installed" if installed else "none is installed"
    raise UsageError(
        f"kernelgym's adapter needs {framework.name} {framework.specifier}, and {found}: "
        f"pip install 'kernelgym[{extra}]'"
    )
