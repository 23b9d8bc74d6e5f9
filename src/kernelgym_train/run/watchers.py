"""Displays of a running training: TensorBoard files, a live table, Weights & Biases.

Contract: a `kernelgym_train.run.runlog.Watcher` is told of every row once it is written, and
decides nothing. Each needs its own package, imported when it is made; `UsageError` says what to
install.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kernelgym import UsageError
from kernelgym.pace import Pace
from kernelgym.records.run_lock import LOG
from kernelgym_train.run.runlog import Watcher

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = {
    "reward": "reward/mean",
    "parsed": "kernel/format_rate",
    "compiled": "kernel/compile_rate",
    "correct": "kernel/correct_rate",
    "solved": "episode/success_rate",
    "cheated": "kernel/cheat_rate",
    "groups": "groups/with_signal",
    "entropy": "train/entropy",
    "grad": "train/grad_norm",
    "model s": "time/model_s",
    "judge s": "time/judge_s",
}
_SPENT = {"tokens": "cost/tokens", "usd": "cost/usd"}
"""Columns that the live table shows if a backend counts its spending."""
_SCORES = ("eval/pass@1", "eval/fast_1", "greedy/pass@1")
"""Names of an evaluation's numbers that a log line shows."""
_ROWS = 12


class TensorBoard(Watcher):
    """Writes a run's numbers to TensorBoard's event files.

    Args:
        folder: Folder of the event files.
        first: The step the run goes on with; what files hold of later ones is left out.

    Raises:
        UsageError: If TensorBoard is not installed.
    """

    def __init__(self, folder: str | Path, first: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "logging.tensorboard needs TensorBoard: pip install 'kernelgym[report]', or set "
                "logging.tensorboard=false"
            ) from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=first or None)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def histograms(self, step: int, values: Mapping[str, Sequence[float]]) -> None:
        """Write the distributions of a step."""
        import numpy as np

        for name, some in values.items():
            self._writer.add_histogram(f"distribution/{name}", np.asarray(some), step)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


class WeightsAndBiases(Watcher):
    """Sends a run's numbers to Weights & Biases.

    Args:
        project: The project.
        name: The run's name, by which it is found again when it is resumed.
        config: The run's configuration.

    Raises:
        UsageError: If its client is not installed.
    """

    def __init__(self, project: str, name: str, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise UsageError(
                "logging.wandb_project needs the client of Weights & Biases: pip install wandb, or "
                "leave logging.wandb_project empty"
            ) from None
        self._wandb: Any = wandb
        self._run: Any = wandb.init(
            project=project, name=name, id=name, resume="allow", config=dict(config)
        )

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Send the numbers of a step."""
        self._run.log(dict(values), step=step)

    def histograms(self, step: int, values: Mapping[str, Sequence[float]]) -> None:
        """Send the distributions of a step."""
        sent = {f"distribution/{name}": self._wandb.Histogram(v) for name, v in values.items()}
        self._run.log(sent, step=step)

    def close(self) -> None:
        """End the run at Weights & Biases."""
        self._run.finish()


class Lines(Watcher):
    """Writes one line for each step, for logs and pipes.

    Args:
        steps: Number of steps of the run.
        out: Stream to write to; standard error if None.
    """

    def __init__(self, steps: int, out: TextIO | None = None) -> None:
        self._steps = steps
        self._out = sys.stderr if out is None else out

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write a line with the numbers of a step that the live table would show."""
        if not _of_training(values):
            return
        self._out.write(_told(step, self._steps, values) + "\n")
        self._out.flush()


class LoggedSteps(Watcher):
    """Logs one line per step, and counts steps for the line of each minute.

    Args:
        pace: Pace of the run's steps.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of a step or an evaluation."""
        if _of_training(values):
            self._pace.done = step + 1
            told = _told(step, self._pace.total, values)
        else:
            told = "  ".join(
                f"{name} {_number(values[name])}" for name in _SCORES if name in values
            )
            told = f"evaluated after {step} steps  {told}"
        LOG.info("%s", told)


class LiveTable(Watcher):
    """Shows the last steps as a table that renews itself; on a terminal only.

    Args:
        title: Stands above.
        steps: Number of steps of the run.
        console: Console to print to; standard error if None.
    """

    def __init__(self, title: str, steps: int, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title, self._steps = title, steps
        self._rows: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=_ROWS)
        out = Console(stderr=True) if console is None else console
        self._live = Live(console=out, auto_refresh=False, transient=False)
        self._live.start()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Add a row with the numbers of a training step; other numbers change nothing."""
        if not _of_training(values):
            return
        self._rows.append((step, values))
        self._live.update(self.table(), refresh=True)

    def close(self) -> None:
        """Stop renewing; the last table stays on the terminal."""
        self._live.stop()

    def table(self) -> Table:
        """Return the live table with its current rows."""
        from rich.table import Table

        table = Table(title=self._title, title_justify="left", box=None, pad_edge=False)
        columns = _columns([values for _, values in self._rows])
        for name in ("step", *columns):
            table.add_column(name, justify="right")
        for step, values in self._rows:
            cells = [_number(values.get(key)) for key in columns.values()]
            table.add_row(f"{step + 1}/{self._steps}", *cells)
        return table


def _told(step: int, steps: int, values: Mapping[str, float]) -> str:
    """Return the log line with the numbers of a training step."""
    told = [f"{name} {_number(values.get(key))}" for name, key in _columns([values]).items()]
    return f"step {step + 1}/{steps}  {'  '.join(told)}"


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """Return the live table's columns for some rows: names and the metrics shown."""
    spent = {name: key for name, key in _SPENT.items() if any(key in row for row in rows)}
    return _COLUMNS | spent


def _of_training(values: Mapping[str, float]) -> bool:
    """Return True if the numbers come from a training step, False for an evaluation."""
    return "batch/groups" in values


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
