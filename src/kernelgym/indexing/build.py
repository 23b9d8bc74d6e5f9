"""Building an index: read, embed, exclude, verify, test for copies, write.

Contract: `build_index` writes a folder that `kernelgym.retrieval.folder` reads, or raises and
leaves what was there. What takes long is kept in a folder beside it while it runs (vectors by text,
verdicts by kernel), so that a build that was killed goes on from there; a second build into the
same folder is refused meanwhile. The same corpora, models and verdicts give the same entries.

Only kernels that a judge found correct are kept, unless `Plan.include_unverified`; those that it
found wrong never are. With `Plan.reach_of`, only what these problems can be shown is judged.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from kernelgym.answers.python_source import normal_form
from kernelgym.errors import UsageError
from kernelgym.indexing.archives import LeftOut
from kernelgym.indexing.copies import Tested, copy_test, reach
from kernelgym.indexing.corpora import Corpus, Wanted, read_corpus
from kernelgym.indexing.embedding import embed_texts
from kernelgym.indexing.judging import Judged, problem_of
from kernelgym.retrieval.embedding import Embedder, view_text
from kernelgym.retrieval.entry import NOT_JUDGED, Entry, unusable
from kernelgym.retrieval.folder import check_place, write_index
from kernelgym.retrieval.index import Index
from kernelgym.types import Evaluator, Job, Kernel, Problem, Status

__all__ = ["REACH", "Built", "MakeEvaluator", "Plan", "Report", "build_index", "work_folder"]

REACH = 20
"""Nearest entries of a problem that are verified with `Plan.reach_of`."""
_TESTED_BEYOND = 5
"""Entries beyond k that must pass the copy test."""

Report: TypeAlias = Callable[[str, int], contextlib.AbstractContextManager[Callable[[], None]]]
"""Begins a stage of so many steps; gives what is called once per step."""
MakeEvaluator: TypeAlias = Callable[[bool], contextlib.AbstractContextManager[Evaluator]]
"""Opens a judge that takes times, or does not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is built."""

    corpora: tuple[Corpus, ...]
    embedder: Embedder
    view: str = "operators"
    wanted: Wanted = field(default_factory=Wanted)
    held_out: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    """By the text that names them, such as ``Synthetic:heldout``."""
    reach_of: tuple[Problem, ...] = ()
    """Problems of a run: only the `REACH` nearest entries of each are verified; all if empty."""
    verify: bool = True
    include_unverified: bool = False
    minutes: float | None = None
    """Most minutes for verifying, and for testing copies; None for no limit."""
    k: int = 3
    """Entries that a prompt will show; `k` + 5 must pass the copy test of a problem."""


@dataclass(frozen=True, slots=True)
class Built:
    """What was built."""

    folder: Path
    entries: Mapping[str, int]
    """Entries by language."""
    left_out: Mapping[str, int]
    """Rows and entries that are not in the index, by reason."""
    untested: Mapping[str, str]
    """By the id of a held-out problem, why it was not tested."""


@contextlib.contextmanager
def _silent(stage: str, total: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


def work_folder(out: Path) -> Path:
    """Return the folder in which a build keeps what takes long."""
    return out.with_name(f".{out.name}.building")


def build_index(
    plan: Plan, out: str | Path, make_evaluator: MakeEvaluator, report: Report = _silent
) -> Built:
    """Build an index.

    Args:
        plan: What is built.
        out: The folder; an index that is there is replaced at the end.
        make_evaluator: Opens a judge; called when one is first needed.
        report: Shows progress.

    Raises:
        UsageError: If a corpus cannot be read, nothing is left, something else is at `out`,
            another build into it runs, or it cannot be written.
    """
    place = Path(out)
    check_place(place)
    with _working(work_folder(place)) as work:
        left_out: collections.Counter[str] = collections.Counter()
        entries, corpora, references = _read(plan, left_out, report)
        if not entries:
            said = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
            raise UsageError(f"the corpora give no entry ({said or 'they are empty'})")
        parts: dict[str, Index] = {}
        found: dict[str, Tested] = {}
        for language, own in entries.items():
            index = _embedded(plan, own, work, report)
            held_out = [problem for each in plan.held_out.values() for problem in each]
            index, counts = index.without_answers(held_out)
            left_out.update({f"held_out_{reason}": count for reason, count in counts.items()})
            index = _verified(plan, index, work, left_out, make_evaluator, report)
            if held_out and index.entries:
                with (
                    make_evaluator(False) as evaluator,
                    report(f"testing {language} for copies", len(held_out)) as advance,
                ):
                    tested = copy_test(
                        index,
                        held_out,
                        Judged(evaluator, work / "copies.jsonl", plan.minutes),
                        needed=plan.k + _TESTED_BEYOND,
                        device=evaluator.device,
                        advance=advance,
                    )
                index, found[language] = tested.index, tested
                left_out["held_out_copy"] += len(tested.accepted)
            parts[language] = index
        left_out = +left_out
        write_index(
            place,
            parts,
            about={
                "kernelgym": version("kernelgym"),
                "corpora": corpora,
                "left_out": dict(sorted(left_out.items())),
                "verified": _counts(e.verdict for index in parts.values() for e in index.entries),
                "held_out": {name: len(each) for name, each in plan.held_out.items()},
            },
            held_out=_held_out(plan, found),
            references=references,
        )
        shutil.rmtree(work, ignore_errors=True)
    return Built(
        place,
        {name: len(index.entries) for name, index in parts.items()},
        dict(left_out),
        {key: why for tested in found.values() for key, why in tested.untested.items()},
    )


@contextlib.contextmanager
def _working(work: Path) -> Iterator[Path]:
    """Hold the folder of a build, so that no other build runs.

    Raises:
        UsageError: If another build holds it, or it cannot be made.
    """
    lock = work.with_name(f"{work.name}.lock")
    try:
        work.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot build in {str(work.parent)!r}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another build into the same folder runs (it works in {str(work)!r}); wait for "
                "it, or give another folder"
            ) from None
        try:
            yield work
        except OSError as error:
            raise UsageError(
                f"building in {str(work)!r} failed: {error.strerror or error}; the same command "
                "goes on from there"
            ) from None
        lock.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _read(
    plan: Plan, left_out: collections.Counter[str], report: Report
) -> tuple[dict[str, list[Entry]], list[dict[str, Any]], list[dict[str, str]]]:
    """Return entries by language, the manifest's rows of corpora, and references."""
    entries: dict[str, list[Entry]] = {}
    corpora: list[dict[str, Any]] = []
    references: list[dict[str, str]] = []
    seen: set[tuple[str, ...]] = set()
    for corpus in plan.corpora:
        licences: collections.Counter[str] = collections.Counter()
        rows = 0
        with report(f"reading {corpus}", 0) as advance:
            for found in read_corpus(corpus, plan.wanted):
                advance()
                rows += 1
                reason = found.reason if isinstance(found, LeftOut) else unusable(found)
                if isinstance(found, LeftOut) and found.reference:
                    references.append(
                        {
                            "reference": found.reference,
                            "reason": found.reason,
                            "origin": corpus.name,
                            "provenance": found.provenance,
                        }
                    )
                if isinstance(found, Entry) and not reason:
                    texts = (found.reference, found.before, found.kernel)
                    mark = (found.kind, found.language, *map(normal_form, texts))
                    reason = "duplicate" if mark in seen else ""
                    seen.add(mark)
                if reason or isinstance(found, LeftOut):
                    left_out[reason] += 1
                    continue
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
    return dict(sorted(entries.items())), corpora, references


def _embedded(plan: Plan, entries: Sequence[Entry], work: Path, report: Report) -> Index:
    ordered = tuple({entry.id: entry for entry in sorted(entries, key=lambda e: e.id)}.values())
    texts = [view_text(entry.reference, plan.view) for entry in ordered]
    with report(f"embedding {ordered[0].language}", len(texts)) as advance:
        vectors = embed_texts(texts, plan.embedder, work / "vectors", advance)
    return Index(ordered, vectors, plan.embedder, view=plan.view)


def _verified(
    plan: Plan,
    index: Index,
    work: Path,
    left_out: collections.Counter[str],
    make_evaluator: MakeEvaluator,
    report: Report,
) -> Index:
    """Return an index of correct entries, with what the judge said."""
    if not index.entries:
        return index
    by_id: dict[str, Entry] = {}
    wrong: set[str] = set()
    if plan.verify:
        # Problems that are held out are asked, too: what they are shown is verified.
        asked = [*plan.reach_of, *(p for each in plan.held_out.values() for p in each)]
        chosen = reach(index, asked, REACH) if plan.reach_of else index.entries
        todo = [entry for entry in chosen if entry.verdict == NOT_JUDGED]
        if todo:
            jobs = [Job(problem_of(e), Kernel(e.kernel, e.language)) for e in todo]
            with (
                make_evaluator(True) as evaluator,
                report(f"verifying {todo[0].language}", len(jobs)) as advance,
            ):
                judged = Judged(evaluator, work / "verdicts.jsonl", plan.minutes)
                judged.judge(jobs, advance)
            for entry, job in zip(todo, jobs, strict=True):
                said = judged.of(job.problem, job.kernel)
                if said is None:
                    continue
                if said.status != Status.CORRECT.value:
                    wrong.add(entry.id)
                    left_out[f"judged_{said.status}"] += 1
                    continue
                by_id[entry.id] = dataclasses.replace(
                    entry,
                    verdict=said.status,
                    speed=said.speed,
                    device=said.device,
                    ruleset=said.ruleset,
                )
    named = tuple(by_id.get(entry.id, entry) for entry in index.entries)
    out = set(wrong)
    if not plan.include_unverified:
        unknown = {entry.id for entry in named if entry.verdict == NOT_JUDGED} - wrong
        left_out["not_verified"] += len(unknown)
        out |= unknown
    return dataclasses.replace(index, entries=named).without(out)


def _held_out(plan: Plan, found: Mapping[str, Tested]) -> dict[str, Any]:
    """Return what ``held_out.json`` says beside the entries that passed."""
    if not plan.held_out:
        return {}
    return {
        "parts": {
            name: {problem.id: problem.digest for problem in each}
            for name, each in plan.held_out.items()
        },
        "needed": plan.k + _TESTED_BEYOND,
        "accepted": {name: list(tested.accepted) for name, tested in found.items()},
        "untested": {name: dict(tested.untested) for name, tested in found.items()},
        "alike": {name: tested.alike for name, tested in found.items()},
        "covered": {name: tested.covered for name, tested in found.items()},
    }


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(collections.Counter(names).items()))
