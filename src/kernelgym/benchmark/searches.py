"""Reading the folder of a search as episodes, one turn for each judged variant.

Contract: files are read as `kernelgym_train.mcgs` writes them (``kernels/NAME/`` with
``events.jsonl``, ``baseline/`` and ``variants/KEY/``), and nothing of that package is imported.
Turns are in the order in which variants were judged, after the start kernel. A variant without a
verdict on disk is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelgym.errors import KernelgymError, UsageError
from kernelgym.feedback import feedback
from kernelgym.records.jsonlines import read_lines
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.types import Kernel, Problem, Reply, Score, Trajectory, Turn, Verdict


def read_search(path: Path) -> tuple[str, list[EpisodeRecord]]:
    """Return a search's name and its episodes.

    Args:
        path: The output folder, or the folder of one kernel in it.

    Raises:
        UsageError: If a file in it cannot be used.
    """
    alone = (path / "events.jsonl").exists()
    folders = (
        [path] if alone else sorted(each.parent for each in path.glob("kernels/*/events.jsonl"))
    )
    try:
        return path.resolve().name, [_episode(folder) for folder in folders]
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise UsageError(f"the search in {str(path)!r} cannot be read: {error}") from None


def _episode(folder: Path) -> EpisodeRecord:
    keys, rules, identity = [], "", ""
    for _, row in read_lines(folder / "events.jsonl", on_cut=lambda _: None):
        match row.get("event"):
            case "search":
                rules = str(row["context"].get("ruleset", ""))
            case "judged":
                keys.append(str(row["key"]))
            case "finished":
                identity = str(row["result"].get("problem", ""))
    turns: list[Turn] = []
    device = ""
    for place in [folder / "baseline", *(folder / "variants" / key for key in keys)]:
        for kernel, verdict, thought in _variant(place):
            reply = Reply(kernel, thought)
            said = feedback(verdict, reply)
            score = Score(verdict.speedup, valid=verdict.valid)
            turns.append(Turn(len(turns), kernel.source, reply, verdict, said, score))
            device = verdict.device or device
            rules = verdict.ruleset or rules
    language = turns[0].reply.kernel.language if turns and turns[0].reply.kernel else "cpp"
    played = Trajectory(_problem(identity, folder.name), tuple(turns), "budget", len(turns) or 1)
    return EpisodeRecord(
        played,
        language=language,
        device=device,
        ruleset=rules,
        reward="speedup",
        stop_when="never",
        writer="mcgs",
        key=folder.name,
    )


def _variant(place: Path) -> Iterator[tuple[Kernel, Verdict, str]]:
    """Yield the kernel, verdict and moves of a variant that was judged."""
    told, source = place / "result.json", place / "kernel_module.py"
    if not (told.exists() and source.exists()):
        return
    control = place / "control.json"
    about: dict[str, Any] = json.loads(control.read_text("utf-8")) if control.exists() else {}
    moves = ", ".join(
        f"{move} {target} ({choice})" for move, target, choice in about.get("applied", ())
    )
    verdict = Verdict.from_dict(json.loads(told.read_text("utf-8")))
    # Not as text: that would turn each carriage return into a newline.
    text = source.read_bytes().decode("utf-8", "surrogateescape")
    yield Kernel(text, about.get("language", "cpp")), verdict, moves or "The start."


def _problem(identity: str, name: str) -> Problem:
    """Return the searched problem, without source if no suite has it."""
    if identity:
        from kernelgym.suites import get_problem

        try:
            return get_problem(identity)
        except (KernelgymError, OSError):
            pass
    return Problem(identity or name, "search", 0, identity or name, "")
