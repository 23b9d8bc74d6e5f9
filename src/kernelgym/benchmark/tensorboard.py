"""Numbers of a recorded run as points of TensorBoard's curves."""

from __future__ import annotations

from pathlib import Path

from kernelgym.benchmark.numbers.metrics import pass_metrics, speed_metrics
from kernelgym.benchmark.recorded_runs import read_run
from kernelgym.errors import UsageError


def run_metrics(folder: Path) -> dict[str, float]:
    """Return ``eval/`` metrics of a run: pass@1, pass@k for its number of samples, and speeds.

    Raises:
        UsageError: If the folder holds no run.
    """
    run = read_run(folder)
    outcomes = run.outcomes
    ks = sorted({1, run.samples or 1})
    best = [verdict for each in outcomes if (verdict := each.verdict(within=True)) is not None]
    return pass_metrics("eval", outcomes, ks) | speed_metrics("eval", best)


def write_scalars(folder: Path, step: int, values: dict[str, float]) -> None:
    """Write numbers into a folder of TensorBoard, in a file of their own.

    Raises:
        UsageError: If TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "--tensorboard needs TensorBoard: pip install 'kernelgym[report]', or leave it out"
        ) from None
    writer = SummaryWriter(str(folder))
    for name, value in values.items():
        writer.add_scalar(name, value, step)
    writer.close()
