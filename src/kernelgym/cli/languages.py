"""``kernelgym languages``: lists the languages in which this machine can judge kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from kernelgym.cli.console import print_table
from kernelgym.cli.options import Command
from kernelgym.devices import check_device, find_device
from kernelgym.errors import UsageError
from kernelgym.languages import LANGUAGES, check_language


@dataclass(frozen=True, kw_only=True)
class LanguagesCommand(Command):
    """List the languages that kernels are written in: usable here, or what is missing.

    Exit code 0 whether languages are usable or not.
    """

    device: str = ""
    """Device: cpu, or a GPU such as cuda:0; each language's own kinds of devices if not given."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Print the list; return the exit code."""
        if self.device:
            check_device(self.device)
        found = [
            _described(name, device)
            for name, entry in LANGUAGES.items()
            for device in ((self.device,) if self.device else entry.devices)
        ]
        if self.json:
            print(json.dumps(found, indent=2))
            return 0
        rows = [
            (
                *(row["language"], row["title"], row["device"]),
                "yes" if row["usable"] else "no",
                "yes" if row["timed"] else "no",
                row["note"],
            )
            for row in found
        ]
        print_table(("language", "title", "device", "usable", "timed", "note"), rows)
        return 0


def _described(name: str, device: str) -> dict[str, object]:
    """Return whether a language's sample kernel can be judged on a device, as plain data."""
    from kernelgym.judge.compiling.requirements import check_requirements

    entry, troubles = LANGUAGES[name], list[str]()
    checks: list[Callable[[], object]] = [lambda: check_language(name, device)]
    if device.partition(":")[0] in entry.devices:  # else nothing that one could install helps
        checks.append(lambda: check_requirements(entry, entry.sample, device))
        checks.append(lambda: find_device(device))
    for check in checks:
        try:
            check()
        except UsageError as error:
            troubles.append(str(error))
    note, usable = "; ".join(dict.fromkeys(troubles)), not troubles
    if usable and entry.is_interpreted(device):
        note = (entry.find_trouble() if entry.find_trouble is not None else "") or (
            "an interpreter runs its kernels here"
        )
    return {
        "language": name,
        "title": entry.title,
        "device": device,
        "usable": usable,
        "timed": usable and entry.is_timed(device),
        "note": note,
    }
