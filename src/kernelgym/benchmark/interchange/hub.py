"""Export of a run as a Hugging Face dataset: one row per answer.

Contract: rows hold the columns of a report's CSV (`kernelgym.benchmark.reporting.COLUMNS`) and the
texts: problem's source, answer, thought, kernel, message and log. Unknown values are null.
Characters that UTF-8 cannot hold become U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelgym.benchmark.recorded_runs import RecordedRun
from kernelgym.benchmark.reporting import COLUMNS, report
from kernelgym.errors import UsageError

TEXTS = ("reference", "answer", "thought", "kernel", "message", "log")
"""Columns that hold texts."""
_WHOLE = {"level", "sample", "turn", "prompt_tokens", "cached_tokens", "completion_tokens"}
_TRUTHS = {"degenerate", "compiled", "correct"}
_REAL = {
    *("speedup", "speedup_low", "speedup_high", "kernel_ms", "reference_ms", "floor_share"),
    *("custom_share", "score", "usd", "latency_s", "judge_s"),
}


def answer_rows(run: RecordedRun) -> Iterator[dict[str, Any]]:
    """Yield one row per answer, with all texts."""
    found = report(run)
    (view,) = found.views
    for row, (played, turn) in zip(found.rows(), view.turns_played, strict=True):
        texts = (
            played.record.trajectory.problem.source,
            turn.action,
            turn.reply.thought,
            turn.reply.kernel.source if turn.reply.kernel else None,
            turn.verdict.message,
            turn.verdict.log,
        )
        known = {name: None if value == "" else value for name, value in row.items()}
        yield known | {
            name: None if text is None else text.encode("utf-8", "replace").decode("utf-8")
            for name, text in zip(TEXTS, texts, strict=True)
        }


def export_dataset(run: RecordedRun, folder: Path) -> int:
    """Write a run as a dataset; return the number of rows.

    Raises:
        UsageError: If the folder cannot be written.
    """
    import datasets

    kinds = {name: "string" for name in (*COLUMNS, *TEXTS)}
    kinds |= dict.fromkeys(_WHOLE, "int64") | dict.fromkeys(_TRUTHS, "bool")
    kinds |= dict.fromkeys(_REAL, "float64")
    features = datasets.Features({name: datasets.Value(kind) for name, kind in kinds.items()})
    rows = list(answer_rows(run))
    columns = {name: [row[name] for row in rows] for name in kinds}
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(folder))
    except OSError as error:
        raise UsageError(f"cannot write {str(folder)!r}: {error.strerror or error}") from None
    finally:
        if shown:
            datasets.enable_progress_bars()
    return len(rows)
