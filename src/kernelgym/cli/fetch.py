"""``kernelgym fetch``: download the pretrained models that problems load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from kernelgym.cli.console import print_table, print_text
from kernelgym.cli.lint import chosen_problems
from kernelgym.cli.options import Command
from kernelgym.errors import UsageError
from kernelgym.judging_memory import in_gigabytes


@dataclass(frozen=True, kw_only=True)
class FetchCommand(Command):
    """Download the pretrained models that problems load, such as those of KernelBench's level 4.

    Judging needs no network then. A model that is here already stays at its revision. Exit code 0
    if all models are here, else 1.
    """

    targets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM|SUITE")
    ]
    """Problems or suites: KernelBench/L4, KernelBench/L4/7, KernelBench/L4/1-3,16, a problem file
    or a folder of them."""

    def run(self) -> int:
        """Download what is missing; return the exit code."""
        from kernelgym.pretrained import fetch, held, models_folder, models_of

        problems = chosen_problems(self.targets)
        names = tuple(dict.fromkeys(name for each in problems for name in models_of(each)))
        if not names:
            print_text(
                f"none of the {len(problems)} problems loads a pretrained model that its text names"
            )
            return 0
        rows, failed = [], 0
        for name in names:
            was_here = held(name) is not None
            try:
                found = fetch(name)
            except UsageError as error:
                if len(names) == 1:
                    raise
                failed += 1
                rows.append((name, "", "", str(error)))
            else:
                size = in_gigabytes(found.weight_bytes)
                rows.append(
                    (name, found.revision[:12], size, "was here" if was_here else "fetched")
                )
        print_table(("model", "revision", "weights", "state"), rows)
        print_text(f"in {models_folder()}", "dim")
        return 1 if failed else 0
