"""The `kernelgym` command line: one module per subcommand.

Contract: `main` returns the exit code. 0: done. 1: failed, with one line on standard error (a
traceback with ``-v``). 2: a usage error, with one line that says what was given, what is known and
what to do. 130: interrupted by Ctrl-C, 143: by SIGTERM, which does the same. Results go to standard
output, everything else to standard error.

May import every room of kernelgym, but nothing imports it. It imports no PyTorch at start, and the
code of a command only when that command runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import itertools
import operator
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from kernelgym import __version__
from kernelgym.cli.baseline import BaselineCommand
from kernelgym.cli.check import CheckCommand
from kernelgym.cli.console import say
from kernelgym.cli.device import DeviceCommand
from kernelgym.cli.eval import EvalCommand
from kernelgym.cli.export import ExportCommand, RescoreCommand
from kernelgym.cli.export_tasks import ExportTasksCommand
from kernelgym.cli.fetch import FetchCommand
from kernelgym.cli.import_ import ImportCommand
from kernelgym.cli.index import (
    IndexBuildCommand,
    IndexCheckCommand,
    IndexInfoCommand,
    IndexQueryCommand,
)
from kernelgym.cli.languages import LanguagesCommand
from kernelgym.cli.lint import LintCommand
from kernelgym.cli.ls import LsCommand
from kernelgym.cli.options import Command
from kernelgym.cli.play import PlayCommand
from kernelgym.cli.redteam import RedteamCommand
from kernelgym.cli.report import ReportCommand
from kernelgym.cli.runs import RunsCommand
from kernelgym.cli.serve import ServeCommand
from kernelgym.cli.show import ShowCommand
from kernelgym.cli.trajectory import ShowTrajectoryCommand
from kernelgym.cli.workspace import McpCommand, WorkspaceCommand
from kernelgym.errors import UnknownName, UsageError
from kernelgym.interruption import exit_code
from kernelgym.working_folder import take_working_folder

_DESCRIPTION = """\
Problems, verdicts and episodes of GPU kernels written by models.

Exit codes: 0 done, 1 failed (for `check`: the kernel is not correct; for `redteam`: an exploit got
through or an honest kernel was refused), 2 usage error, 130 interrupted by Ctrl-C, 143 by SIGTERM.
`-v` shows the traceback of a failure, `--version` the version."""

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_NO_NUMBER = re.compile(
    r"Error parsing (?P<option>--[\w-]+): "
    r".*\b(?P<kind>INT|FLOAT|int|float)\b.*'(?P<given>[^']*)'\]?"
)
COMMANDS: dict[str, type[Command]] = {
    "ls": LsCommand,
    "show": ShowCommand,
    "check": CheckCommand,
    "play": PlayCommand,
    "fetch": FetchCommand,
    "lint": LintCommand,
    "baseline": BaselineCommand,
    "device": DeviceCommand,
    "languages": LanguagesCommand,
    "redteam": RedteamCommand,
    "eval": EvalCommand,
    "show-trajectory": ShowTrajectoryCommand,
    "rescore": RescoreCommand,
    "export": ExportCommand,
    "index build": IndexBuildCommand,
    "index query": IndexQueryCommand,
    "index info": IndexInfoCommand,
    "index check": IndexCheckCommand,
    "report": ReportCommand,
    "import": ImportCommand,
    "runs": RunsCommand,
    "serve": ServeCommand,
    "workspace": WorkspaceCommand,
    "mcp": McpCommand,
    "export-tasks": ExportTasksCommand,
}
"""Commands by name."""
_GROUP = "index"
"""First word of the commands whose names consist of two words, such as `index build`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; `argv` is ``sys.argv[1:]`` if None."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) > 1 and arguments[0] in ("-v", "--verbose"):
        arguments.append(arguments.pop(0))  # it belongs to every command, and stands after its name
    if arguments[:1] == [_GROUP]:
        arguments = _joined(arguments)
    verbose = False

    def run() -> int:
        nonlocal verbose
        for line in take_working_folder():
            say(line)
        if arguments == ["--version"]:
            print(f"kernelgym {__version__}")
            return 0
        command = _command(arguments or ["--help"])
        verbose = command.verbose
        return command.run()

    return exit_code(run, say, lambda: verbose)


def _joined(arguments: list[str]) -> list[str]:
    """Return arguments with a name of two words as one."""
    if len(arguments) < 2 or arguments[1] in ("-h", "--help"):
        return ["--help"]
    return [" ".join(arguments[:2]), *arguments[2:]]


def _command(arguments: list[str]) -> Command:
    """Return the command that the arguments ask for.

    Raises:
        SystemExit: After printing help.
        UsageError: If the arguments cannot be used.
    """
    import tyro

    named: list[Any] = [
        Annotated[kind, tyro.conf.subcommand(name)] for name, kind in COMMANDS.items()
    ]
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            command: Command = tyro.cli(
                functools.reduce(operator.or_, named),
                prog="kernelgym",
                description=_DESCRIPTION,
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
            return command
    except SystemExit as error:
        if not error.code:
            raise
    raise _refusal(_complaint(box.getvalue()), arguments)


def _complaint(box: str) -> str:
    """Return the complaint in Tyro's box of several lines, as one line."""
    # The box's title, the complaint, a line across, then help that does not fit on a line. It is
    # drawn in ASCII or not, in colour or not, as Tyro sees fit.
    lines = [line.strip("│ ") for line in _COLOUR.sub("", box).splitlines()[1:]]
    sections = itertools.groupby(lines, lambda line: line[:3] in ("───", "---", "╰──"))
    complaint = next((" ".join(section) for across, section in sections if not across), box)
    return " ".join(complaint.partition("Got errors:")[0].split()).rstrip(".")


def _refusal(complaint: str, arguments: Sequence[str]) -> UsageError:
    """Return the usage error for arguments that Tyro refuses."""
    name = arguments[0] if arguments[0] in COMMANDS else ""
    see = f"see `{' '.join(filter(None, ('kernelgym', name)))} --help`"
    if number := _NO_NUMBER.fullmatch(complaint):
        kind = "a number" if number["kind"].lower() == "float" else "a whole number"
        return UsageError(f"{number['option']} takes {kind}, got {number['given']!r}; {see}")
    head, _, given = complaint.partition(":")
    if not head.startswith("Unrecognized"):
        return UsageError(f"{complaint}; {see}")
    unknown = [word.strip() for word in given.split(",")]
    if not name:
        if unknown[0].startswith("-"):
            return UnknownName(
                "option", unknown[0], ("--help", "--version"), f"{see.capitalize()}."
            )
        return UnknownName("command", unknown[0], COMMANDS, f"{see.capitalize()}.")
    # A misspelt option leaves its value over too: the option is what was meant.
    option = next((word for word in unknown if word.startswith("-")), None)
    known = option_names(COMMANDS[name])
    if option is None:
        extra, listed = ", ".join(unknown), ", ".join(known)
        return UsageError(f"`kernelgym {name}` takes no argument {extra}; known: {listed}; {see}")
    return UnknownName("option", option.partition("=")[0], known, f"{see.capitalize()}.")


def option_names(command: type[Command]) -> tuple[str, ...]:
    """Return the options of a command as they are typed."""
    return tuple(
        f"--{'no-' if field.default is True else ''}{field.name.rstrip('_').replace('_', '-')}"
        for field in dataclasses.fields(command)
        if "Positional" not in str(field.type)
    )
