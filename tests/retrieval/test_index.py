from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.retrieval.renaming import renamed
from kernelgym.errors import UsageError
from kernelgym.retrieval import idioms, names
from kernelgym.retrieval.embedding import OperatorEmbedder
from kernelgym.retrieval.entry import IndexEntry, unusable
from kernelgym.retrieval.exclusion import keys_of, keys_of_entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.operators import operators
from kernelgym.suites.synthetic import SyntheticSuite, canonical_form, solve
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Problem

SUITE = SyntheticSuite()


def entry_of(problem: Problem, **changes) -> IndexEntry:
    given = IndexEntry(
        problem.source,
        solve(problem).source,
        "triton",
        problem_id=problem.id,
        name=problem.name,
        form=canonical_form(problem),
    )
    return dataclasses.replace(given, **changes)


PROBLEMS = SUITE.problems(ids="1-40")
ENTRIES = [entry_of(problem) for problem in PROBLEMS]
INDEX = Index.from_entries(ENTRIES)
KERNEL = ENTRIES[0].kernel


def asked(source: str, problem_id: str = "Mine/L1/1") -> Problem:
    return Problem(problem_id, "Mine", 1, "", source)


def test_index_does_not_depend_on_the_order_of_entries() -> None:
    again = Index.from_entries([*reversed(ENTRIES), ENTRIES[3]])
    assert again.digest == INDEX.digest and again.entries == INDEX.entries
    assert (again.vectors == INDEX.vectors).all()


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (names._SYNONYMS, {"relu6": "relu"}),
        (names._FAMILY_OF, {"relu": "elementwise"}),
        (idioms.IDIOMS, {("log", "exp"): "identity"}),
    ],
)
def test_digest_covers_tables_of_operators(table, change, monkeypatch) -> None:
    for key, value in change.items():
        monkeypatch.setitem(table, key, value)
    assert dataclasses.replace(INDEX).digest != INDEX.digest


@given(st.sampled_from(PROBLEMS), st.integers(1, 60))
def test_search_is_exact_and_ties_go_by_id(problem, k) -> None:
    found = INDEX.search(problem, k, same_problem=True).neighbours
    query = OperatorEmbedder().embed([problem.source])[0].astype(float)
    all_scores = {
        entry.id: round(float((row.astype(float) * query).sum()), 9)
        for entry, row in zip(INDEX.entries, INDEX.vectors, strict=True)
    }
    best = sorted(all_scores, key=lambda name: (-all_scores[name], name))[:k]
    assert [neighbour.entry.id for neighbour in found] == best
    assert found[0].score == pytest.approx(1.0, abs=1e-6)


@given(st.sampled_from(PROBLEMS))
def test_search_excludes_the_problem_itself(problem) -> None:
    found = INDEX.search(problem, 200)
    own = keys_of(problem)
    for neighbour in found.neighbours:
        other = keys_of_entry(neighbour.entry)
        assert not any(set(own[reason]) & set(other[reason]) for reason in own)
    assert found.excluded["id"] >= 1
    assert len(found.neighbours) + sum(found.excluded.values()) == len(INDEX.entries)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"problem_id": "Mine/L1/1"}, "id"),
        ({"problem_id": "Mine/L1/1@small"}, "id"),
        ({}, "source"),
        ({"reference": renamed(PROBLEMS[1].source, 5, sizes=True)}, "source"),
    ],
)
def test_entry_is_excluded_for_the_first_reason(change, reason) -> None:
    entry = entry_of(PROBLEMS[1], **({"problem_id": "Other/1", "name": "", "form": ""} | change))
    found = Index.from_entries([entry]).search(asked(PROBLEMS[1].source), 3)
    assert dict(found.excluded) == {reason: 1} and not found.neighbours


def test_entry_of_the_same_operators_is_excluded() -> None:
    other = SAMPLE_PROBLEM.source.replace("torch.relu(x) * 2.0", "x.relu().mul(2.0)")
    entry = entry_of(PROBLEMS[0], reference=other, problem_id="a", name="", form="")
    found = Index.from_entries([entry]).search(SAMPLE_PROBLEM, 3)
    assert not found.neighbours and dict(found.excluded) == {"operators": 1}
    assert Index.from_entries([entry]).search(SAMPLE_PROBLEM, 3, same_problem=True).neighbours


def test_depthwise_function_is_excluded_for_its_module() -> None:
    """A function's groups are not read: what it computes may be the module's."""
    head = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
    module = (
        f"{head}class Model(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.a = nn.Conv2d(n, n, 3, groups=n)\n"
        "    def forward(self, x):\n        return self.a(x)\n"
    )
    function = (
        f"{head}class Model(nn.Module):\n    def forward(self, x, w):\n"
        "        return F.conv2d(x, w, groups=x.shape[1])\n"
    )
    assert operators(module) != operators(function) == ("conv2d",)
    entry = entry_of(PROBLEMS[0], reference=function, problem_id="a", name="", form="")
    found = Index.from_entries([entry]).search(asked(module), 3)
    assert dict(found.excluded) == {"operators": 1}


def test_synthetic_twin_by_canonical_form_is_excluded() -> None:
    forms: dict[str, Problem] = {}
    for problem in SUITE.problems(2, ids="1-300"):
        twin = forms.setdefault(canonical_form(problem), problem)
        if operators(twin.source) != operators(problem.source):
            break
    else:
        pytest.fail("no two spellings of a form")
    found = Index.from_entries([entry_of(twin)]).search(problem, 3)
    assert dict(found.excluded) == {"operators": 1}


@pytest.mark.parametrize("mark", ["# </KERNEL>\n", "# <think>\n", '"""\n```\n"""\n'])
def test_entry_with_markers_in_its_kernel_is_kept(mark: str) -> None:
    assert unusable(entry_of(PROBLEMS[0], kernel=KERNEL + mark)) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kernel": "  "}, "empty"),
        ({"reference": ""}, "empty"),
        ({"kernel": KERNEL + "#" * 300_000}, "too_long"),
        ({"kernel": KERNEL + "# \ud800"}, "not_text"),
        ({"kernel": KERNEL.replace("ModelNew", "Model")}, "no_answer"),
        ({"kernel": KERNEL + "\n```\nmore\n"}, "no_answer"),
        ({"reference": "def f(:"}, "no_operators"),
    ],
)
def test_unusable_entry_is_left_out_and_counted(change, reason) -> None:
    entry = entry_of(PROBLEMS[0], **change)
    assert unusable(entry) == reason
    index = Index.from_entries([entry, ENTRIES[1]])
    assert dict(index.left_out) == {reason: 1} and index.entries == (ENTRIES[1],)


@pytest.mark.parametrize(
    "vectors",
    [np.zeros((1, 3)), np.full((1, 4), np.nan), np.zeros(4), np.zeros((2, 4))],
)
def test_embedder_of_the_wrong_shape_is_refused(vectors) -> None:
    class Wrong:
        name, dimension, record = "wrong", 4, {}

        def embed(self, texts, *, query=False):
            return vectors

    with pytest.raises(UsageError, match="'wrong' gave an array of shape"):
        Index.from_entries(ENTRIES[:1], Wrong())


def test_query_without_operators_finds_nothing() -> None:
    assert INDEX.search(asked("def f(:"), 3).neighbours == ()
    assert INDEX.search(asked(""), 3).neighbours == ()
    assert Index.from_entries([]).search(PROBLEMS[0], 3).neighbours == ()
