"""What is shown of a run."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from kernelgym import UsageError
from kernelgym_train.run.watchers import Lines, LiveTable, TensorBoard, WeightsAndBiases


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, round(event.value, 5)) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_holds_every_number_and_histogram(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path)
    for step in range(3):
        board.scalars(step, {"reward/mean": step / 10, "level_1/correct_rate": 0.5})
        board.histograms(step, {"rewards": [0.0, 0.5, 1.0]})
    board.close()
    found = scalars(tmp_path)
    assert found["reward/mean"] == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert found["level_1/correct_rate"] == [(0, 0.5), (1, 0.5), (2, 0.5)]
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Tags()["histograms"] == ["distribution/rewards"]


def test_tensorboard_leaves_out_what_a_resumed_run_plays_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = TensorBoard(tmp_path)
    for step in range(4):
        first.scalars(step, {"x": 1.0})
    first.close()
    # Files are read by name, which holds the second and then a number of this process: in one
    # second the tenth writer's would come before the ninth's.
    later = time.time() + 5
    monkeypatch.setattr(time, "time", lambda: later)
    again = TensorBoard(tmp_path, first=2)
    for step in range(2, 4):
        again.scalars(step, {"x": 2.0})
    again.close()
    assert sorted(scalars(tmp_path)["x"]) == [(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0)]


def test_the_live_table_shows_the_last_steps() -> None:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160)
    table = LiveTable("demo", 40, console)
    for step in range(20):
        table.scalars(
            step, {"batch/groups": 2.0, "reward/mean": step / 100, "kernel/correct_rate": 0.25}
        )
    table.scalars(20, {"eval/pass@1": 1.0})
    table.close()
    plain = Console(file=(text := io.StringIO()), width=160)
    plain.print(table.table())
    shown = text.getvalue()
    assert "20/40" in shown and "0.190" in shown and "0.250" in shown
    assert " 8/40" not in shown and "9/40" in shown, "twelve rows"
    assert "21/40" not in shown
    assert "demo" in out.getvalue()


def test_off_a_terminal_a_step_is_a_line() -> None:
    out = io.StringIO()
    lines = Lines(40, out)
    lines.scalars(6, {"batch/groups": 2.0, "reward/mean": 0.25})
    lines.scalars(6, {"eval/pass@1": 1.0})
    lines.close()
    (line,) = out.getvalue().splitlines()
    assert line.startswith("step 7/40  reward 0.250  parsed -")


def test_what_is_spent_is_shown_where_it_is_counted() -> None:
    from rich.console import Console

    out = io.StringIO()
    lines = Lines(40, out)
    lines.scalars(0, {"batch/groups": 2.0, "cost/tokens": 5000.0})
    lines.scalars(1, {"batch/groups": 2.0, "cost/tokens": 9000.0, "cost/usd": 1.5})
    first, second = out.getvalue().splitlines()
    assert first.endswith("tokens 5000") and second.endswith("tokens 9000  usd 1.500")
    table = LiveTable("demo", 40, Console(file=io.StringIO(), force_terminal=True, width=160))
    table.scalars(0, {"batch/groups": 2.0, "cost/tokens": 5000.0})
    table.close()
    assert [column.header for column in table.table().columns][-1] == "tokens"


def test_a_client_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="pip install wandb"):
        WeightsAndBiases("project", "run", {})
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"kernelgym\[report\]"):
        TensorBoard("nowhere")
