from __future__ import annotations

import itertools

import pytest

from kernelgym.errors import UnsupportedLanguage
from kernelgym.retrieval.exclusion import form_of, keys_of, keys_of_entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.synthetic import synthetic_entries, synthetic_index
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import SyntheticSuite, part_of


@pytest.fixture(scope="module")
def index() -> Index:
    return synthetic_index("triton", "cpu")


def test_corpus_holds_no_form_of_the_heldout_part(index) -> None:
    assert len(index.entries) > 500 and not index.left_out
    for entry in index.entries:
        assert part_of(entry.form) in ("warmstart", "rl")
        assert "@triton.jit" in entry.kernel
    heldout = SyntheticSuite().problems(split="heldout")
    assert not {entry.form for entry in index.entries} & set(map(form_of, heldout))


def test_corpus_is_made_once_in_a_process(index) -> None:
    assert synthetic_index("triton", "cpu") is index


def test_heldout_problems_have_three_examples(index) -> None:
    heldout = SyntheticSuite(per_level=60).problems(split="heldout")
    full = [len(index.search(problem, 3).neighbours) == 3 for problem in heldout]
    assert sum(full) >= 0.95 * len(full)


def test_entries_are_those_of_the_problem_they_name() -> None:
    for entry in itertools.islice(synthetic_entries("cpp"), 20):
        problem = get_problem(entry.problem_id)
        assert problem.source == entry.reference and problem.name == entry.name
        assert keys_of(problem) == keys_of_entry(entry)
        assert entry.language == "cpp" and "@triton.jit" not in entry.kernel


def test_corpus_in_another_language_is_refused() -> None:
    with pytest.raises(UnsupportedLanguage, match="'hip'"):
        next(synthetic_entries("hip"))
