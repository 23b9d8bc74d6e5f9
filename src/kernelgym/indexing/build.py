"""Building an index: read, embed, exclude, verify, test for copies, write.

Contract: `build_index` writes a folder that `kernelgym.retrieval.folder` reads, or raises and
leaves what was there. The same corpora, models and verdicts give the same entries. Verdicts are
kept by the evaluator's cache, so that a build that was killed judges nothing twice.

Only kernels that a judge found correct are kept, unless `IndexPlan.include_unverified`; those that
it found wrong never are. With `IndexPlan.reach_of`, only what these problems can be shown is
judged.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kernelgym.answers.python_source import normal_form
from kernelgym.errors import UsageError
from kernelgym.indexing.archives import LeftOut
from kernelgym.indexing.copies import copy_test, reach
from kernelgym.indexing.corpora import Corpus, read_corpus
from kernelgym.indexing.judging import BuildVerdicts, problem_of
from kernelgym.indexing.played import speed_of
from kernelgym.retrieval.embedding import Embedder, embedded
from kernelgym.retrieval.entry import NOT_JUDGED, IndexEntry, unusable
from kernelgym.retrieval.folder import check_place, write_index
from kernelgym.retrieval.index import Index
from kernelgym.types import Evaluator, Job, Kernel, Problem

REACH = 20
"""Number of nearest entries that are verified for each problem in `IndexPlan.reach_of`."""
_TESTED_BEYOND = 5
"""Number of entries beyond k that must pass the copy test."""
_EMBEDDED_AT_ONCE = 512

BuildProgress: TypeAlias = Callable[
    [str, int], contextlib.AbstractContextManager[Callable[[], None]]
]
"""Function that begins a stage, given its name and number of steps, as a context. The context gives
a function to call after each step.
"""
MakeEvaluator: TypeAlias = Callable[[bool], contextlib.AbstractContextManager[Evaluator]]
"""Function that opens a judge; the argument says whether it times correct kernels."""
_Counts: TypeAlias = "collections.Counter[str]"


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Corpora and embedder of an index, and the way in which its kernels are verified."""

    corpora: tuple[Corpus, ...]
    """Corpora that give the entries."""
    embedder: Embedder
    """Embedder that makes the vectors."""
    languages: tuple[str, ...] = ()
    """Languages of the kernels; all if empty."""
    device: str = "cpu"
    """Device that the kernels are for: the Synthetic suite's have other sizes on a GPU."""
    held_out: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    """Problems that no entry may give away, by a text that names them, such as
    ``Synthetic:heldout``."""
    reach_of: tuple[Problem, ...] = ()
    """Problems of a run: only the `REACH` nearest entries of each are verified; all if empty."""
    verify: bool = True
    """True to judge kernels that were not judged."""
    include_unverified: bool = False
    """True to keep kernels that were not judged."""
    minutes: float | None = None
    """Largest number of minutes for verifying, and again for the copy test; None for no limit."""
    k: int = 3
    """Number of entries that a prompt will show; `k` + 5 must pass the copy test of a problem."""


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """Result of a build."""

    folder: Path
    """Folder of the index."""
    entries: Mapping[str, int]
    """Number of entries by language."""
    left_out: Mapping[str, int]
    """Number of rows and entries that are not in the index, by reason."""
    untested: Mapping[str, str]
    """Reason why a held-out problem was not tested, by its id."""


@contextlib.contextmanager
def _silent(stage: str, total: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


def build_index(
    plan: IndexPlan,
    out: str | Path,
    make_evaluator: MakeEvaluator,
    progress: BuildProgress = _silent,
) -> BuiltIndex:
    """Build an index.

    Args:
        plan: Corpora, embedder and checks of the index.
        out: The folder; an index that is there is replaced at the end.
        make_evaluator: Opens a judge; called when one is first needed.
        progress: Shows how far the build is.

    Raises:
        UsageError: If a corpus cannot be read, nothing is left, something else is at `out`, or it
            cannot be written.
    """
    place = Path(out)
    check_place(place)
    left_out: _Counts = collections.Counter()
    entries, corpora = _read(plan, left_out)
    if not entries:
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        raise UsageError(f"the corpora give no entry ({said or 'they are empty'})")
    held_out = [problem for each in plan.held_out.values() for problem in each]
    parts: dict[str, Index] = {}
    untested: dict[str, dict[str, str]] = {}
    for language, own in entries.items():
        index = _index_of(own, plan.embedder, progress)
        index, counts = index.without_answers(held_out)
        left_out.update({f"held_out_{reason}": count for reason, count in counts.items()})
        index = _verified(plan, index, left_out, make_evaluator, progress)
        if held_out and index.entries:
            with (
                make_evaluator(False) as evaluator,
                progress(f"testing {language} for copies", len(held_out)) as advance,
            ):
                tested = copy_test(
                    index,
                    held_out,
                    BuildVerdicts(evaluator, plan.minutes),
                    needed=plan.k + _TESTED_BEYOND,
                    device=evaluator.capabilities.device,
                    advance=advance,
                )
            index, untested[language] = tested.index, dict(tested.untested)
            left_out["held_out_copy"] += len(tested.accepted)
        parts[language] = index
    left_out = +left_out
    verdicts = collections.Counter(e.verdict for index in parts.values() for e in index.entries)
    about = {
        "kernelgym": version("kernelgym"),
        "corpora": corpora,
        "left_out": dict(sorted(left_out.items())),
        "verdicts": dict(sorted(verdicts.items())),
        "held_out": {name: [p.id for p in each] for name, each in plan.held_out.items()},
        "untested": untested,
    }
    write_index(place, parts, about=about)
    return BuiltIndex(
        place,
        {name: len(index.entries) for name, index in parts.items()},
        dict(left_out),
        {key: why for each in untested.values() for key, why in each.items()},
    )


def _read(
    plan: IndexPlan, left_out: _Counts
) -> tuple[dict[str, list[IndexEntry]], list[dict[str, Any]]]:
    """Return entries by language, and one row for the manifest about each corpus."""
    entries: dict[str, list[IndexEntry]] = {}
    corpora: list[dict[str, Any]] = []
    seen: set[tuple[str, ...]] = set()
    for corpus in plan.corpora:
        licences: _Counts = collections.Counter()
        rows = 0
        for found in read_corpus(corpus, plan.languages, plan.device):
            rows += 1
            if isinstance(found, LeftOut):
                left_out[found.reason] += 1
                continue
            mark = (found.language, *map(normal_form, (found.reference, found.kernel)))
            reason = unusable(found) or ("duplicate" if mark in seen else "")
            if reason:
                left_out[reason] += 1
                continue
            seen.add(mark)
            licences[found.licence or "not said"] += 1
            entries.setdefault(found.language, []).append(found)
        corpora.append(
            {
                "corpus": str(corpus),
                "revision": corpus.revision,
                "rows": rows,
                "licences": dict(sorted(licences.items())),
            }
        )
    return dict(sorted(entries.items())), corpora


def _index_of(entries: Sequence[IndexEntry], embedder: Embedder, progress: BuildProgress) -> Index:
    """Return an index of entries that can all be used."""
    ordered = tuple({entry.id: entry for entry in sorted(entries, key=lambda e: e.id)}.values())
    rows = []
    with progress(f"embedding {ordered[0].language}", len(ordered)) as advance:
        for start in range(0, len(ordered), _EMBEDDED_AT_ONCE):
            some = ordered[start : start + _EMBEDDED_AT_ONCE]
            rows.append(embedded([entry.reference for entry in some], embedder))
            for _ in some:
                advance()
    return Index(ordered, np.concatenate(rows), embedder)


def _verified(
    plan: IndexPlan,
    index: Index,
    left_out: _Counts,
    make_evaluator: MakeEvaluator,
    progress: BuildProgress,
) -> Index:
    """Return an index of the correct entries, with the judge's verdicts and speedups in them."""
    judged: dict[str, IndexEntry] = {}
    wrong: set[str] = set()
    # What held-out problems can be shown is verified, too.
    asked = [*plan.reach_of, *(p for each in plan.held_out.values() for p in each)]
    chosen = reach(index, asked, REACH) if plan.reach_of else index.entries
    todo = [entry for entry in chosen if plan.verify and entry.verdict == NOT_JUDGED]
    if todo:
        jobs = [Job(problem_of(e), Kernel(e.kernel, e.language)) for e in todo]
        with (
            make_evaluator(True) as evaluator,
            progress(f"verifying {todo[0].language}", len(jobs)) as advance,
        ):
            verdicts = BuildVerdicts(evaluator, plan.minutes)
            verdicts.judge(jobs, advance)
        about = {
            "device": evaluator.capabilities.device.partition(":")[0],
            "ruleset": evaluator.capabilities.ruleset.label,
        }
        for entry, job in zip(todo, jobs, strict=True):
            verdict = verdicts.of(job.problem, job.kernel)
            if verdict is None:
                continue
            if not verdict.correct:
                wrong.add(entry.id)
                left_out[f"judged_{verdict.status.value}"] += 1
                continue
            judged[entry.id] = dataclasses.replace(
                entry, verdict=verdict.status.value, speed=speed_of(verdict), **about
            )
    named = tuple(judged.get(entry.id, entry) for entry in index.entries)
    out = set(wrong)
    if not plan.include_unverified:
        unknown = {entry.id for entry in named if entry.verdict == NOT_JUDGED} - wrong
        left_out["not_verified"] += len(unknown)
        out |= unknown
    return dataclasses.replace(index, entries=named).without(out)
