"""Tables of what retrieval gives away, for docs/performance.md."""

from __future__ import annotations

from typing import Any

from benchmarks.table_rows import table

__all__ = ["copies", "plants"]

_EXCLUSIONS = {
    "none": "none",
    "1": "own id and name",
    "1-3": "id, source, operators",
    "all": "these and the copy test",
}


def copies(data: Any) -> str:
    """Return how many held-out problems are solved by copying what is shown."""
    rows = [
        [
            row["language"],
            f"L{row['level']}",
            _EXCLUSIONS[row["exclusions"]],
            *(str(row[key]) for key in ("n", "accepted", "adapted", "chained", "three")),
        ]
        for row in data["copy_agent"]
    ]
    head = ["language", "level", "excluded", "problems", "verbatim", "adapted", "chained"]
    parts = [table([*head, "with three examples"], rows)]
    for language, tested in data["copy_test"].items():
        parts.append(
            f"{language}: of {data['entries'][language]:,} entries the copy test took out "
            f"{tested['left']}; of {tested['n']} problems it left {tested['untested']} untested."
        )
    return "\n\n".join(parts)


def plants(data: Any) -> str:
    """Return which exclusions find solutions in disguise, and what honest entries are lost."""
    keys = ("n", "id", "source", "operators", "shown", "judged", "held_out_copy", "shown_after")
    rows = [[row["disguise"], *(str(row[key]) for key in keys)] for row in data["plants"]]
    head = ["disguise", "plants", "found by id", "by source", "by operators", "shown"]
    head += ["of the rest judged", "found by the copy test", "then shown"]
    honest, easy = data["honest"], data["same_as_asked"]
    return "\n\n".join(
        [
            table(head, rows),
            f"Of {honest['n']} honest entries {honest['lost']} were lost. Of {easy['n']} entries "
            f"of the Synthetic suite's level 1 {easy['lost']} were excluded: they compute what a "
            f"problem of KernelBench's level 1 asks. The copy test asked the judge about "
            f"{data['tested']} problems in their small forms, for which there is a right kernel.",
        ]
    )
