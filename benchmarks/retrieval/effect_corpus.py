"""What the benchmark of retrieval's effect shows and teaches: its plan, its index, its corpus.

Contract: functions of plan and seed; nothing is judged. The index holds right kernels and repairs
for the Synthetic problems of the parts ``warmstart`` and ``rl``, in the vocabulary of the model's
answers. The operator that a seed withholds stands in entries of the index that held-out problems
are asked of, and nowhere in what the model is taught.

Both models learn the same answers in about as many updates. What differs is what stands before
them: the question alone, or the page of examples too. Of the second model's prompts some show no
page, so that it knows each kind of prompt that it is asked by.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import multiprocessing
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.gpu_plan import LARGER, OPERATORS
from kernelgym.answers.parsing import parse
from kernelgym.prompts.kinds import PROMPTS
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.short import bare, question, retry
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.page import page
from kernelgym.retrieval.part import _LOADED, Retrieval, ready_retrieval
from kernelgym.suites.synthetic import canonical_form, part_of, solve
from kernelgym.types import Feedback, Message, Problem, Score, Status, Turn, Verdict
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.demo.corpus import Example, fits, repairs, right_answers
from kernelgym_train.demo.dialogue import answer_of, compact, told
from kernelgym_train.demo.learning import RULES
from kernelgym_train.demo.model import ModelSize
from kernelgym_train.demo.splits import Scope, Splits, draw_splits
from kernelgym_train.demo.tokenizer import train_tokenizer
from kernelgym_train.demo.warmstart import encode
from kernelgym_train.launch.assembly import token_counter
from kernelgym_train.models import load_tokenizer
from kernelgym_train.rollout.policies import ChatText

__all__ = [
    "FULL",
    "TABLES",
    "TINY",
    "TURNS",
    "Plan",
    "held_out",
    "observer_of",
    "prepare",
    "rows_of",
    "splits_of",
]

TURNS = 2
TABLES = ("compositions", "shapes", "unseen_operator")
Row = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids that are read, and ids that are answered."""

_MODEL = dataclasses.replace(LARGER, context=2048)
_TRIES = 12
_SPELLING = 60
"""Most tokens by which another spelling of a question is longer, and some to spare."""
_BARE_FIRST, _BARE_SECOND = 6, 2
"""Of the second model's first answers one in so many has no page; of the second ones, too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every size and number that is fixed before running."""

    listed: int = 3000
    """Single operators that are looked through."""
    chains: int = 6000
    """Chains that are looked through."""
    per_problem: int = 5
    """First answers that are taught for each problem."""
    repairs: int = 2
    """Second answers that are taught for each problem."""
    answer_tokens: int = 340
    """Most tokens of an answer that is taught."""
    new_tokens: int = 352
    """Most tokens that are sampled."""
    k: int = 2
    page_tokens: int = 800
    """Most tokens of a page; there is one before the first answer, and one after a failure."""
    model: ModelSize = _MODEL
    epochs: int = 5
    warm_s: float = 150.0
    """Wall time after which a fitting ends; its epochs are told."""
    warm_rate: float = 1.2e-3
    batch_answers: int = 48
    """Answers of a batch, about; the same of both models, whatever they read."""
    compositions: int = 32
    shapes: int = 12
    unseen_operator: int = 16
    samples: int = 3
    """Sampled episodes of each held-out problem."""

    def changed(self, **values: Any) -> Plan:
        """Return the plan with what is given and not None in its place."""
        return dataclasses.replace(self, **{k: v for k, v in values.items() if v is not None})


FULL = Plan()
TINY = Plan(
    listed=300,
    chains=800,
    per_problem=1,
    repairs=1,
    model=ModelSize(hidden=32, layers=1, heads=2, key_value_heads=2, feed_forward=32, context=2048),
    epochs=1,
    warm_s=10.0,
    warm_rate=3e-3,
    batch_answers=8,
    new_tokens=40,
    compositions=1,
    shapes=1,
    unseen_operator=1,
    samples=2,
)
"""The same on a CPU, to see that it runs; nothing is learned."""


def splits_of(plan: Plan, seed: int) -> Splits:
    """Return the problems of a seed."""
    return draw_splits(seed, Scope(plan.listed, plan.chains, operators=OPERATORS))


def held_out(plan: Plan, splits: Splits, tokenizer: Any) -> dict[str, tuple[Problem, ...]]:
    """Return the problems that are asked, by table: those that have short answers."""

    def is_short(problem: Problem) -> bool:
        sources = (solve(problem, style_seed=style).source for style in range(_TRIES))
        return any(_length(tokenizer, answer_of(s)) <= plan.answer_tokens for s in sources)

    found = {}
    for name in TABLES:
        listed = getattr(splits, name)
        # Nothing with the operator that is withheld is taught, so that other parts will do, too.
        apart = [problem for problem in listed if _part(problem) == "heldout"]
        if name == "unseen_operator":
            apart += [problem for problem in listed if _part(problem) != "heldout"]
        found[name] = tuple(itertools.islice(filter(is_short, apart), getattr(plan, name)))
    return found


def _part(problem: Problem) -> str:
    return part_of(canonical_form(problem))


def _length(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def prepare(folder: Path, plan: Plan, seed: int, device: str) -> dict[str, Any]:
    """Write the index, the tokenizer and both models' rows; return what they came to."""
    splits = splits_of(plan, seed)
    parts = _parts(splits.warmstart)
    processes = min(len(parts), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        asked = itertools.repeat((plan, seed, device))
        written = list(pool.map(_written, parts, asked))
        examples = [example for part in written for example in part]
        second = [example for example in examples if len(example.messages) > 1]
        shown = [*solutions((*splits.warmstart, *splits.rl))]
        shown += [_repair(example, device) for example in second]
        tokenizer = train_tokenizer((*examples, *_pages(shown)), 4096, words=True)
        tokenizer.save_pretrained(folder / "tokenizer")
        tables = held_out(plan, splits, tokenizer)
        asked_ones = {canonical_form(p) for table in tables.values() for p in table}
        rare = [p for p in splits.unseen_operator if canonical_form(p) not in asked_ones]
        sizes = {}
        for name, entries in (("taught", shown), ("asked", [*shown, *solutions(rare)])):
            _keep_entries(folder / f"index_{name}.json", entries)
            sizes[name] = len(_index(str(folder / f"index_{name}.json")).entries)
        given = itertools.repeat((str(folder), plan, device))
        done = [pair for part in pool.map(_encoded, written, given) for pair in part]
    for name, rows in zip(("without", "with"), zip(*done, strict=True), strict=True):
        _save(folder / f"rows_{name}.npz", rows)
    return {
        "entries": sizes,
        "tables": {name: [problem.id for problem in table] for name, table in tables.items()},
        "withheld_operator": splits.withheld,
        "problems": sum(map(len, parts)),
        "answers": len(done),
        "answers_too_long": len(examples) - len(done),
        "vocabulary": len(tokenizer),
        "read_tokens": {
            name: float(np.mean([len(pair[place][0]) for pair in done]))
            for place, name in enumerate(("without", "with"))
        },
        "answer_tokens": float(np.mean([len(pair[0][1]) for pair in done])),
    }


def _parts(problems: Sequence[Problem], most: int = 16) -> list[list[Problem]]:
    """Return the problems that are taught in parts, each of all families."""
    families: dict[str, list[Problem]] = collections.defaultdict(list)
    for problem in problems:
        if fits(problem):
            families[problem.family].append(problem)
    # A part without a family would be dealt other rates by `repairs`.
    count = min(most, *map(len, families.values()))
    return [[p for group in families.values() for p in group[n::count]] for n in range(count)]


def _written(problems: list[Problem], asked: tuple[Plan, int, str]) -> tuple[Example, ...]:
    """Return what is taught of some problems: right answers, and repairs of broken ones."""
    plan, seed, device = asked
    return (
        *right_answers(problems, seed, plan.per_problem),
        *repairs(problems, seed, plan.repairs, device=device),
    )


def solutions(problems: Iterable[Problem]) -> Iterator[Entry]:
    """Yield a right kernel of each problem, in a style that differs from entry to entry."""
    for problem in problems:
        kernel = compact(solve(problem, style_seed=zlib.crc32(problem.id.encode()) % 48).source)
        yield _entry("solution", problem, kernel)


def _entry(kind: Any, problem: Problem, kernel: str, **fields: Any) -> Entry:
    return Entry(
        kind,
        bare(problem.source),
        kernel,
        "triton",
        problem_id=problem.id,
        name=problem.name,
        form=canonical_form(problem),
        origin="Synthetic",
        licence="MIT",
        verdict="correct",
        **fields,
    )


def _repair(example: Example, device: str) -> Entry:
    """Return the repair that an example teaches, as an entry."""
    before = example.messages[1].content
    said, _ = _said(example, device)
    return _entry(
        "repair",
        example.problem,
        _kernel(example.answer),
        before=_kernel(before),
        feedback=str(said),
        category=said.category,
    )


def _kernel(answer: str) -> str:
    return answer.removeprefix("<KERNEL>\n").removesuffix("</KERNEL>")


def _said(example: Example, device: str) -> tuple[Feedback, Status]:
    """Return the feedback of an example's broken kernel, and the status it is of."""
    broken, shown = example.messages[1].content, example.messages[2]
    for status in (Status.WRONG, Status.RUNTIME_ERROR):
        try:
            said = told(broken, status, device)
        except ValueError:
            continue
        if retry(said) == shown:
            return said, status
    raise AssertionError(f"a repair of {example.problem.id} tells of no known failure")


def _keep_entries(path: Path, entries: Iterable[Entry]) -> None:
    rows = []
    for entry in entries:
        fields = {each.name: getattr(entry, each.name) for each in dataclasses.fields(Entry)}
        rows.append({name: text for name, text in fields.items() if name != "id" and text})
    path.write_text(json.dumps(rows))


@lru_cache(maxsize=8)
def _index(place: str) -> Index:
    """Return the index of entries that were kept, which stands for a folder in this process.

    A folder would be read by pyarrow: 48 MB that a machine lent for minutes need not have.
    """
    index = Index.from_entries(Entry(**row) for row in json.loads(Path(place).read_text()))
    _LOADED[os.path.realpath(place), "triton", index.digest, "", "numpy"] = index
    return index


def _pages(entries: Sequence[Entry], most: int = 200) -> list[Example]:
    """Return pages as texts that the tokenizer is trained on."""
    found = []
    for kind in ("solution", "repair"):
        some = [entry for entry in entries if entry.kind == kind][:most]
        texts = [page(some[at : at + 2], "triton") for at in range(0, len(some), 2)]
        problem: Any = None
        found += [
            Example(problem, (Message("user", text),), "", "right", Status.CORRECT)
            for text in texts
        ]
    return found


def observer_of(
    folder: Path,
    plan: Plan,
    device: str,
    tokenizer: Any,
    when: str,
    *,
    index: str = "index_asked",
    prompt: str = "short",
    most: int | None = None,
) -> Observer:
    """Return what the model reads.

    Args:
        folder: Holds the index.
        plan: Sizes.
        device: Of the kernels.
        tokenizer: The model's.
        when: ``never``; ``first``, for solutions before the first answer; ``adaptive``, for
            repairs after a failure, too.
        index: Name of the index in the folder.
        prompt: Kind of the prompt.
        most: Tokens of a prompt, without the chat template's; what the plan's model leaves if None.
    """
    parts: tuple[Retrieval, ...] = ()
    if when != "never":
        kinds = ["solution", "repair"] if when == "adaptive" else ["solution"]
        place = str(folder / f"{index}.json")
        given: dict[str, Any] = {"index": place, "digest": _index(place).digest}
        given |= {"k": plan.k, "tokens": plan.page_tokens}
        parts = (ready_retrieval({**given, "when": when, "kinds": kinds}, "triton", device),)
    count = token_counter(tokenizer)
    if most is None:
        answer = max(plan.new_tokens, plan.answer_tokens + _SPELLING)
        most = plan.model.context - answer - count.template_tokens(TURNS)
    return PROMPTS[prompt](
        "triton", device, RULES, TURNS, count=count, parts=parts, prompt_tokens=most
    )


def _encoded(examples: Sequence[Example], given: tuple[str, Plan, str]) -> list[tuple[Row, Row]]:
    """Return the rows of both models, of the examples whose answer is short enough."""
    place, plan, device = given
    folder = Path(place)
    tokenizer = load_tokenizer(ModelConfig(id=str(folder / "tokenizer")))
    text = ChatText(tokenizer)
    observers = {
        when: observer_of(folder, plan, device, tokenizer, when, index="index_taught")
        for when in ("never", "adaptive")
    }
    found = []
    for number, example in enumerate(examples):
        plain = encode(text, example)
        if len(plain[1]) > plan.answer_tokens:
            continue
        turns = (_failed(example, device),) if len(example.messages) > 1 else ()
        when = "never" if number % (_BARE_SECOND if turns else _BARE_FIRST) == 0 else "adaptive"
        read = observers[when].observe(example.problem, turns)
        # The example asks for a spelling of its problem, which stands in its first message only.
        own = question(example.problem)[0].content
        opened = example.messages[0].content + read[0].content.removeprefix(own)
        paged = dataclasses.replace(example, messages=(Message("user", opened), *read[1:]))
        found.append((plain, encode(text, paged)))
    return found


def _failed(example: Example, device: str) -> Turn:
    """Return the turn that an example's repair follows."""
    said, status = _said(example, device)
    broken = example.messages[1].content
    verdict = Verdict(status, compiled=True, trials=1, message="as labelled")
    return Turn(0, broken, parse(broken, "triton"), verdict, said, Score(0.0))


def _save(path: Path, rows: Sequence[Row]) -> None:
    whole = [np.asarray([*read, *answer], np.uint16) for read, answer in rows]
    np.savez_compressed(
        path,
        ids=np.concatenate(whole),
        reads=np.asarray([len(read) for read, _ in rows]),
        answers=np.asarray([len(answer) for _, answer in rows]),
    )


def rows_of(path: Path) -> list[tuple[list[int], list[int]]]:
    """Return the rows that `prepare` wrote."""
    with np.load(path) as kept:
        ids, reads, answers = (kept[name].tolist() for name in ("ids", "reads", "answers"))
    rows, at = [], 0
    for read, answer in zip(reads, answers, strict=True):
        rows.append((ids[at : at + read], ids[at + read : at + read + answer]))
        at += read + answer
    return rows
