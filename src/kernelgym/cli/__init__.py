"""The `kernelgym` command: one module per subcommand.

Contract: `main` returns the exit code and raises nothing but what a debugger wants. 0: done.
1: failed, with one line on standard error (a traceback with ``-v``). 2: a usage error, with one
line that says what was given, what is known and what to do. 130: interrupted. Results go to
standard output, everything else to standard error.

It imports no PyTorch, and what a command needs only when that command runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

from kernelgym.cli.check import Check
from kernelgym.cli.demo import Demo
from kernelgym.cli.ls import Ls
from kernelgym.cli.play import Play
from kernelgym.cli.show import Show
from kernelgym.errors import UsageError

__all__ = ["main"]

_DESCRIPTION = """\
Problems, verdicts and episodes of GPU kernels written by models.

Exit codes: 0 done, 1 failed (for `check`: the kernel is not correct), 2 usage error,
130 interrupted. `-v` shows the traceback of a failure."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` is ``sys.argv[1:]`` if None. Returns the exit code."""
    import tyro

    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) > 1 and arguments[0] in ("-v", "--verbose"):
        arguments.append(arguments.pop(0))  # it belongs to every command, and stands after its name
    subcommand = tyro.conf.subcommand
    commands = (
        Annotated[Ls, subcommand("ls")]
        | Annotated[Show, subcommand("show")]
        | Annotated[Check, subcommand("check")]
        | Annotated[Play, subcommand("play")]
        | Annotated[Demo, subcommand("demo")]
    )
    verbose = False
    try:
        command = tyro.cli(
            commands,
            prog="kernelgym",
            description=_DESCRIPTION,
            args=arguments or ["--help"],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
        verbose = command.verbose
        code: int = command.run()
        sys.stdout.flush()
        return code
    except SystemExit as error:  # help, or one of tyro's own usage errors
        return error.code if isinstance(error.code, int) else int(bool(error.code))
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except UsageError as error:
        _say(f"error: {error}", verbose)
        return 2
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        _say(f"failed: {type(error).__name__}: {error}", verbose)
        return 1


def _say(text: str, verbose: bool = False) -> None:
    if verbose:
        traceback.print_exc()
    line = " ".join(text.split()).encode("utf-8", "backslashreplace").decode("utf-8")
    print(f"kernelgym: {line}", file=sys.stderr)
