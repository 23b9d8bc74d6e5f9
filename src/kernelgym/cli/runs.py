"""``kernelgym runs``: lists and watches the runs below folders, and asks a run to end."""

from __future__ import annotations

import difflib
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kernelgym.cli.console import STYLES, print_table, print_text, table_of
from kernelgym.cli.options import Command
from kernelgym.errors import UsageError
from kernelgym.pace import duration

if TYPE_CHECKING:
    from rich.table import Table

    from kernelgym.benchmark.run_states import RunState

_ACTIONS = ("list", "status", "watch", "stop")
_COLUMNS = ("run", "kind", "state", "step", "figures", "changed")
_EVERY_S = 2.0


@dataclass(frozen=True, kw_only=True)
class RunsCommand(Command):
    """Show training runs, eval runs and searches below a folder; watch them; ask one to end.

    kernelgym runs [list|status|watch|stop] [FOLDER ...]; without FOLDER, the working folder.
    stop asks a run of this host to end as Ctrl-C does: it finishes the step in hand and can be
    resumed.
    """

    asked: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ACTION] [FOLDER ...]")
    ] = ()
    """Action: list (the default), status, watch or stop; then folders."""
    json: bool = False
    """Print states as JSON (with list and status)."""

    def run(self) -> int:
        """List, watch or stop runs, or show their state, as asked; return the exit code."""
        action, given = "list", self.asked
        if given and given[0] in _ACTIONS:
            action, given = given[0], given[1:]
        folders = [_folder(name) for name in given or (".",)]
        if self.json and action not in ("list", "status"):
            raise UsageError("--json needs `kernelgym runs list` or `kernelgym runs status`")
        match action:
            case "watch":
                return _watch(folders)
            case "stop":
                return _stop(folders if given else [])
        states = _states(folders)
        if self.json:
            print(json.dumps([state.to_dict() for state in states], indent=2))
        elif not states:
            print_text(f"no runs below {', '.join(map(str, folders))}")
        elif action == "status":
            for state in states:
                _print_status(state)
        else:
            print_table(_COLUMNS, map(_cells, states))
        return 0


def _folder(name: str) -> Path:
    """Return a folder that was given to `kernelgym runs`.

    Raises:
        UsageError: If there is no such folder.
    """
    if not Path(name).is_dir():
        meant = difflib.get_close_matches(name, _ACTIONS, 1)
        raise UsageError(
            f"there is no folder {name!r}, and no action of `kernelgym runs` has that name; "
            f"actions: {', '.join(_ACTIONS)}" + (f"; did you mean {meant[0]}?" if meant else "")
        )
    return Path(name)


def _states(folders: Sequence[Path]) -> list[RunState]:
    from kernelgym.benchmark.run_states import read_states

    return _sorted(state for folder in folders for state in read_states(folder))


def _sorted(states: Iterable[RunState]) -> list[RunState]:
    """Return states, the running ones first, then by the time of their last change."""
    return sorted(states, key=lambda state: (state.condition != "running", -state.changed))


def _cells(state: RunState) -> tuple[str, ...]:
    """Return the cells of a run's row under `_COLUMNS`."""
    of = f"/{state.steps}" if state.steps is not None else ""
    figures = [f"{name} {_number(name, value)}" for name, value in state.figures.items()]
    figures += [state.note] if state.note else []
    return (
        str(state.folder),
        state.kind,
        state.condition,
        f"{state.step}{of}",
        ", ".join(figures),
        f"{duration(time.time() - state.changed)} ago",
    )


def _number(name: str, value: float) -> str:
    if name == "best":
        return f"{value:.3g}x"
    if name in ("solved", "correct", "pass@1"):
        return f"{value:.1%}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _print_status(state: RunState) -> None:
    _, _, _, step, figures, changed = _cells(state)
    print_text(str(state.folder), "bold")
    print_text(f"  kind     {state.kind}")
    held = f" ({state.holder}, since {state.holder.since})" if state.holder is not None else ""
    print_text(f"  state    {state.condition}{held}", STYLES.get(state.condition, ""))
    print_text(f"  step     {step}")
    if figures:
        print_text(f"  figures  {figures}")
    print_text(f"  changed  {changed}")


def _watch(folders: Sequence[Path]) -> int:
    """Show a table that renews itself until Ctrl-C; return the exit code."""
    if not sys.stdout.isatty():
        raise UsageError(
            "`kernelgym runs watch` needs a terminal; `kernelgym runs list --json` prints the "
            "states once"
        )
    from rich.console import Console
    from rich.live import Live

    from kernelgym.benchmark.run_states import RunReader, find_runs

    readers: dict[Path, RunReader] = {}

    def table() -> Table:
        found = [path for folder in folders for path in find_runs(folder)]
        for path in found:
            if path not in readers:
                readers[path] = RunReader(path)
        return _table(_sorted(readers[path].read() for path in found))

    with Live(table(), console=Console(), screen=False, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(_EVERY_S)
                live.update(table(), refresh=True)
        except KeyboardInterrupt:
            return 0


def _table(states: Sequence[RunState]) -> Table:
    """Return the table of runs and states that `kernelgym runs watch` keeps on the terminal."""
    running = sum(state.condition == "running" for state in states)
    title = f"{running} of {len(states)} runs are running; Ctrl-C leaves them as they are"
    return table_of(_COLUMNS, map(_cells, states), title)


def _stop(folders: Sequence[Path]) -> int:
    """Ask one run to end; return the exit code.

    Raises:
        UsageError: If no single run of this host is named.
    """
    from kernelgym.benchmark.run_states import RunReader

    if len(folders) != 1:
        raise UsageError("`kernelgym runs stop` takes the folder of one run")
    state = RunReader(folders[0]).read()
    holder = state.holder
    if holder is not None and not holder.is_here:
        raise UsageError(
            f"the run in {str(state.folder)!r} is written by {holder}; stop it on that host"
        )
    if state.condition != "running":
        raise UsageError(f"the run in {str(state.folder)!r} is not running: {state.condition}")
    if holder is None:
        raise UsageError(
            f"the process that writes the run in {str(state.folder)!r} is not known: an earlier "
            "version of kernelgym began it; end it by Ctrl-C in its own terminal"
        )
    try:
        os.kill(holder.pid, signal.SIGINT)
    except PermissionError:
        raise UsageError(f"{holder} belongs to another user; only that user can stop it") from None
    print_text(f"asked {holder} to end; it finishes the current step, and can be resumed")
    return 0
