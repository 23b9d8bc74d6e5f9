"""Episodes and run folders of known outcome, for tests of numbers and reports."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.records.jsonlines import write_lines
from kernelgym.records.trajectories import EpisodeRecord, write_records
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import (
    Ended,
    Finding,
    Problem,
    Score,
    Severity,
    Status,
    Trajectory,
    Turn,
    Verdict,
)

__all__ = [
    "CHEAT",
    "LOST",
    "RIGHT",
    "RULES",
    "WRONG",
    "eval_run",
    "fast",
    "made",
    "problem",
    "record",
    "spell",
]

RULES = RULESETS["strict"].label
RIGHT, WRONG = verdict("correct"), verdict("wrong")
LOST = Verdict(Status.UNAVAILABLE)
CHEAT = Verdict(
    Status.REJECTED,
    findings=(Finding("no_custom_kernel", "There is no kernel.", Severity.HARD, 3),),
    message="There is no kernel.",
)


def fast(speedup: float, low: float | None = None) -> Verdict:
    """Return a correct verdict of that speedup."""
    return verdict("correct", speedup=speedup, speedup_low=low)


def problem(name: str = "A", level: int = 1, family: str = "elementwise") -> Problem:
    """Return a problem of that name, with a source of its own."""
    return dataclasses.replace(
        SAMPLE_PROBLEM,
        **{"id": f"Test/L{level}/{name}", "suite": "Test", "name": name, "level": level},
        family=family,
        source=f"{SAMPLE_PROBLEM.source}\n# {name}\n",
    )


def made(
    verdicts: Sequence[Verdict],
    asked: Problem | str = "A",
    *,
    ended: Ended | None = None,
    texts: Sequence[str] = (),
    horizon: int = 4,
) -> Trajectory:
    """Return the episode in which answers got these verdicts.

    Args:
        verdicts: One a turn.
        asked: The problem, or its name.
        ended: Why it ended; what follows from the last verdict if None.
        texts: The answers; a sample kernel's where there are fewer.
        horizon: The budget of turns.
    """
    turns = []
    for index, found in enumerate(verdicts):
        text = texts[index] if index < len(texts) else reply(SAMPLE_KERNELS["triton"])
        read = parse(text, "triton")
        score = Score(1.0 if found.correct else 0.0, valid=found.valid)
        turns.append(Turn(index, text, read, found, feedback(found, read), score))
    if ended is None:
        ended = "solved" if verdicts and verdicts[-1].correct else "budget"
    place = problem(asked) if isinstance(asked, str) else asked
    return Trajectory(place, tuple(turns), ended, horizon)


_LETTERS = {"r": RIGHT, "w": WRONG, "x": LOST, "c": CHEAT}


def spell(words: str, name: str = "A") -> list[Trajectory]:
    """Return episodes on one problem: a word each, a letter a turn.

    r: right, w: wrong, x: not judged, c: refused, a digit: right and so many times as fast; a word
    that ends in ``-`` was cut.
    """
    return [
        made(
            [fast(float(c)) if c.isdigit() else _LETTERS[c] for c in word.rstrip("-")],
            name,
            ended="cut" if word.endswith("-") else None,
        )
        for word in words.split()
    ]


def record(played: Trajectory, sample: int = 0, **fields: Any) -> EpisodeRecord:
    """Return an episode as an eval run writes it."""
    known = {"language": "triton", "device": "cpu", "ruleset": RULES, "reward": "stage2"}
    key = f"{played.problem.id}#{sample}"
    return EpisodeRecord(played, **known | {"writer": "eval", "key": key} | fields)


def eval_run(
    folder: Path,
    words: Mapping[str, str],
    *,
    samples: int | None = None,
    episodes: Sequence[EpisodeRecord] = (),
    answers: Sequence[Mapping[str, Any]] = (),
    failures: Sequence[Mapping[str, Any]] = (),
    plan: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Path:
    """Write the folder of an eval run, and return it.

    Args:
        folder: Where; made if it is not there.
        words: Episodes by problem, spelled as for `spell`.
        samples: How many of each were planned; as many as there are, at most, if None.
        episodes: More episodes.
        answers: Lines of generations.jsonl.
        failures: Lines of failures.jsonl.
        plan: Fields of plan.json, over the usual ones.
        **fields: Of the records.
    """
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        record(played, sample, **fields)
        for name, text in words.items()
        for sample, played in enumerate(spell(text, name))
    ] + list(episodes)
    ids = {name: problem(name) for name in words}
    ids |= {each.trajectory.problem.id: each.trajectory.problem for each in episodes}
    about = {
        "version": 1,
        "kind": "eval",
        "name": folder.name,
        "policy": {"kind": "scripted"},
        "suite": "Test",
        "problems": [{"id": p.id, "digest": p.digest} for p in ids.values()],
        "samples": max((len(text.split()) for text in words.values()), default=1)
        if samples is None
        else samples,
        "turns": 4,
        "ruleset": RULES,
    }
    (folder / "plan.json").write_text(json.dumps(about | dict(plan or {})))
    write_records(folder / "trajectories.jsonl", records)
    write_lines(folder / "verdicts.jsonl", (row for each in records for row in _verdict_rows(each)))
    if answers:
        write_lines(folder / "generations.jsonl", answers)
    if failures:
        write_lines(folder / "failures.jsonl", failures)
    return folder


def _verdict_rows(played: EpisodeRecord) -> list[dict[str, Any]]:
    """Return an episode's lines of verdicts.jsonl."""
    name, _, sample = played.key.rpartition("#")
    return [
        {
            **{"problem": name, "sample": int(sample), "turn": turn.index},
            "kernel_digest": turn.reply.kernel.digest if turn.reply.kernel else "",
            "verdict": turn.verdict.to_dict(),
        }
        for turn in played.trajectory.turns
    ]
