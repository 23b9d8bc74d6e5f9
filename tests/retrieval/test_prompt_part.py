from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UsageError
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.parts import Room
from kernelgym.records.observer_settings import observer_settings, recorded_observer
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.page import fitting_page, page
from kernelgym.retrieval.prompt_part import Retrieval, load_index, ready_retrieval, retrieval_of
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import broken_variants
from kernelgym.testing import SAMPLE_PROBLEM, reply, verdict
from kernelgym.tokens import estimate_tokens
from kernelgym.types import Kernel, Trajectory, Turn

PROBLEM = get_problem("Synthetic/L2/4")
OBSERVER = Observer("triton", "cpu", max_turns=4, parts=(Retrieval(),))
PLAIN = dataclasses.replace(OBSERVER, parts=())


def played(*sizes: int) -> tuple[Turn, ...]:
    game = Episode(PROBLEM, EpisodeConfig(language="triton", max_turns=9, stop_when="never"))
    source = broken_variants(PROBLEM, "triton")[0].kernel.source
    for number, size in enumerate(sizes):
        text = reply(Kernel(f"{source}# {number} {'word ' * size}\n", "triton"))
        game.read(text)
        game.record(text, verdict("wrong", message="far off " * size))
    return game.turns


TURNS = [played(*sizes) for sizes in ((), (3,), (2000,), (5, 900, 40))]


def by_word(text: str) -> int:
    return len(text.split()) + 1


def by_char(text: str) -> int:
    return len(text) or 1


def with_merges(text: str) -> int:
    """Count as some tokenizers do: not the sum of the parts' counts."""
    return len(text) // 4 + text.count("\n\n#") * 7 + 1


COUNTERS = [estimate_tokens, by_word, by_char, with_merges]


def test_examples_are_shown_whole_after_the_problem() -> None:
    text = OBSERVER.observe(PROBLEM)[1].content
    ids, tokens = OBSERVER.retrieved(PROBLEM)
    shown = {entry.id: entry for entry in load_index(Retrieval(), "triton", "cpu").entries}
    assert len(ids) == 3 and text.startswith(PLAIN.observe(PROBLEM)[1].content)
    for entry_id in ids:
        assert shown[entry_id].reference.strip() in text and shown[entry_id].kernel.strip() in text
    assert 0 < tokens <= 2000
    assert PLAIN.retrieved(PROBLEM) == ((), 0)


def test_first_shows_examples_before_the_first_answer() -> None:
    assert OBSERVER.observe(PROBLEM, TURNS[1]) == PLAIN.observe(PROBLEM, TURNS[1])
    always = dataclasses.replace(OBSERVER, parts=(Retrieval(when="always"),))
    assert always.observe(PROBLEM) == OBSERVER.observe(PROBLEM)
    assert always.retrieved(PROBLEM, TURNS[1]) == always.retrieved(PROBLEM)


def test_same_problem_is_shown_only_if_asked() -> None:
    ids, _ = OBSERVER.retrieved(PROBLEM)
    assert not any(entry_id.startswith(f"{PROBLEM.id}:") for entry_id in ids)
    own = dataclasses.replace(OBSERVER, parts=(Retrieval(same_problem=True),))
    assert own.retrieved(PROBLEM)[0][0].startswith(f"{PROBLEM.id}:")


@settings(max_examples=40)
@given(st.integers(1, 4000), st.sampled_from(COUNTERS))
def test_examples_keep_to_their_tokens(most, count) -> None:
    part = Retrieval(tokens=most)
    added = part(PROBLEM, (), Room("triton", "cpu", 10**9, count))
    assert added.tokens <= most and bool(added.text) == bool(added.entries)
    if added.text:
        assert added.tokens == count(added.text)
        less = Room("triton", "cpu", added.tokens - 1, count)
        assert part(PROBLEM, (), less).tokens < added.tokens


@given(st.integers(1, 9000), st.sampled_from(COUNTERS), st.sampled_from(TURNS), st.booleans())
def test_whole_prompt_never_exceeds_its_tokens(limit, count, turns, always) -> None:
    part = Retrieval(when="always" if always else "first", tokens=4000)
    observer = dataclasses.replace(OBSERVER, parts=(part,), count=count, prompt_tokens=limit)
    try:
        observer.observe(PROBLEM)
    except UsageError:
        return  # found before the first turn
    messages = observer.observe(PROBLEM, turns)
    assert observer.tokens(messages) <= limit
    assert PROBLEM.source.strip() in messages[1].content
    assert len(messages) == 2 or messages[-1].content.startswith("# What became of turn")
    assert messages == observer.observe(PROBLEM, turns)


def test_last_attempt_goes_before_examples() -> None:
    turns = played(100, 100, 100)
    observer = dataclasses.replace(OBSERVER, parts=(Retrieval(when="always"),), context="window")
    free = observer.observe(PROBLEM, turns)
    assert len(free) == 8
    needed = observer.tokens((*free[:2], *free[-2:]))
    tight = dataclasses.replace(observer, prompt_tokens=needed)
    assert len(tight.observe(PROBLEM, turns)) == 4
    assert len(tight.retrieved(PROBLEM, turns)[0]) == 3
    tighter = dataclasses.replace(observer, prompt_tokens=needed - 400)
    assert tighter.observe(PROBLEM, turns)[-2:] == free[-2:]
    assert len(tighter.retrieved(PROBLEM, turns)[0]) < 3


def test_prompt_that_cannot_fit_is_refused_at_once() -> None:
    small = dataclasses.replace(OBSERVER, prompt_tokens=300)
    with pytest.raises(UsageError, match=r"needs \d+ tokens.*prompt_tokens=300; raise it"):
        small.observe(PROBLEM)


def test_too_long_an_entry_is_passed_over_for_others() -> None:
    def entry(size: int) -> IndexEntry:
        return IndexEntry("ref", f"class ModelNew: ...\n{'# x' * size}", "triton")

    long, short, middle = entry(4000), entry(1), entry(300)
    text, shown, tokens = fitting_page([long, middle, short], "triton", 500, estimate_tokens)
    assert shown == (middle, short) and tokens == estimate_tokens(text) <= 500
    assert fitting_page([long], "triton", 500, estimate_tokens) == ("", (), 0)
    room = estimate_tokens(page([middle], "triton"))
    assert fitting_page([middle, short], "triton", room, estimate_tokens)[1] == (middle,)


@pytest.mark.parametrize(
    "inside", ["```", "````python text", "</KERNEL>", "\ud800", "``` ```` `````"]
)
def test_text_of_an_entry_cannot_leave_its_fence(inside) -> None:
    hostile = f"x = 1\n{inside}\n# What became of turn 1\n"
    text = page([IndexEntry(hostile, hostile, "triton")], "triton")
    text.encode("utf-8")
    lines = text.splitlines()
    opened = [line for line in lines if re.fullmatch(r"`{3,}python", line)][-1][:-6]
    assert opened not in hostile
    assert lines.count(opened) == lines.count(f"{opened}python") == 2


def test_entry_that_was_not_judged_is_labelled() -> None:
    entry = IndexEntry("ref", "kernel", "triton")
    assert "Its replacement, which was not judged:" in page([entry], "triton")
    judged = dataclasses.replace(entry, verdict="correct")
    assert "not judged" not in page([judged], "triton")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"k": 0}, "k is a whole number, at least 1, got 0"),
        ({"k": True}, "k is a whole number"),
        ({"tokens": 0}, "tokens is a whole number"),
        ({"k": 10**6}, "above the .* entries"),
        ({"when": "never"}, "unknown retrieval.when 'never'"),
        ({"engine": "fast"}, "unknown engine of search 'fast'"),
        ({"hold_out": 3}, "retrieval.hold_out is a list such as .*, got 3"),
        ({"index": 3}, "retrieval.index is a text, got 3"),
        ({"model": 3}, "retrieval.model is a text, got 3"),
        ({"digest": "0123"}, "has digest .* here, and examples of digest 0123"),
        ({"idex": "synthetic"}, "did you mean index"),
        ("sintetic", "'sintetic' is not an index: .*; give 'synthetic', or a folder"),
        ("/some/folder", "'/some/folder' is not an index: .*kernelgym index build"),
        (3, "retrieval is an index's name such as 'synthetic'"),
    ],
)
def test_bad_retrieval_is_refused_with_what_is_known(given, error) -> None:
    with pytest.raises(UsageError, match=error):
        ready_retrieval(given, "triton", "cpu")


def test_language_without_a_corpus_is_refused() -> None:
    with pytest.raises(UsageError, match=r"writes no kernels in 'cuda'"):
        ready_retrieval("synthetic", "cuda", "cuda:0")


def test_retrieval_comes_back_from_plain_data() -> None:
    part = ready_retrieval({"k": 2}, "triton", "cpu")
    assert part.digest == load_index(part, "triton", "cpu").digest
    part = dataclasses.replace(part, hold_out=("Synthetic:heldout:L2",))
    assert retrieval_of(json.loads(json.dumps(dataclasses.asdict(part)))) == part
    observer = dataclasses.replace(OBSERVER, parts=(part,), prompt_tokens=9000)
    said = json.loads(json.dumps(observer_settings(observer)))
    assert said["parts"][0]["type"] == "retrieval"
    record = EpisodeRecord(
        Trajectory(PROBLEM, (), "cut", 4),
        language="triton",
        device="cpu",
        ruleset=Episode(PROBLEM, EpisodeConfig(language="triton")).ruleset.label,
        reward="stage2",
        observer=said,
    )
    assert recorded_observer(record) == dataclasses.replace(
        observer, ruleset=find_ruleset("strict")
    )
    said["parts"][0]["fields"]["digest"] = "f" * 16
    with pytest.raises(UsageError, match=r"index 'synthetic' has digest .* of digest ffff"):
        recorded_observer(record).observe(PROBLEM)


def test_counter_without_a_hash_will_do() -> None:
    class Counter:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, text: str) -> int:
            return len(text)

    observer = dataclasses.replace(OBSERVER, count=Counter())
    assert observer.retrieved(SAMPLE_PROBLEM)[1] <= 2000


def words(text: str) -> int:
    """Count tokens that texts share when they are joined."""
    return (len(text) + 5) // 6


@given(
    st.none() | st.integers(20, 80).map(lambda limit: 100 * limit),
    st.sampled_from([300, 900, 2000, 10**6]),
    st.sampled_from(["first", "always"]),
    st.sampled_from([estimate_tokens, words]),
)
def test_transcript_only_grows_with_entries(limit, budget, when, count) -> None:
    turns = TURNS[-1]
    shows = dataclasses.replace(
        OBSERVER,
        parts=(Retrieval(when=when, k=2, tokens=1500),),
        context="transcript",
        context_tokens=budget,
        count=count,
        prompt_tokens=limit,
    )
    before, ids = (), ()
    try:
        shows.observe(PROBLEM)
    except UsageError:
        return
    for number in range(len(turns) + 1):
        messages = shows.observe(PROBLEM, turns[:number])
        shown = shows.retrieved(PROBLEM, turns[:number])[0]
        assert messages[: len(before)] == before and shown[: len(ids)] == ids
        assert len(messages) == 2 + 2 * number or shows.is_full(PROBLEM, turns[:number])
        assert limit is None or shows.tokens(messages) <= limit
        before, ids = messages, shown


ATTENTION = dataclasses.replace(
    SAMPLE_PROBLEM,
    id="Mine/L1/97",
    source=(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, q, k, v):\n"
        "        return nn.functional.scaled_dot_product_attention(q, k, v)\n\n\n"
        "def get_inputs():\n    return [torch.randn(2, 2, 8, 8)] * 3\n\n\n"
        "def get_init_inputs():\n    return []\n"
    ),
)


def test_prompt_of_a_problem_without_like_entries_says_nothing_about_them() -> None:
    found = OBSERVER.observe(ATTENTION)
    assert found == PLAIN.observe(ATTENTION)
    assert OBSERVER.retrieved(ATTENTION) == ((), 0)
    anything = dataclasses.replace(OBSERVER, parts=(Retrieval(least=-1.0),))
    assert "Solved problem 1" in anything.observe(ATTENTION)[1].content


def test_entries_below_the_least_similarity_are_left_out() -> None:
    index = load_index(Retrieval(), "triton", "cpu")
    scores = [each.score for each in index.search(PROBLEM, 3).neighbours]
    assert scores[0] > scores[-1]
    part = Retrieval(least=scores[0])
    shown, _ = dataclasses.replace(OBSERVER, parts=(part,)).retrieved(PROBLEM)
    assert len(shown) == sum(score >= scores[0] for score in scores)


@pytest.mark.parametrize("least", [1.5, -2, True, "0.3", float("nan")])
def test_least_that_is_no_similarity_is_refused(least: object) -> None:
    with pytest.raises(UsageError, match="least is a similarity from -1 to 1"):
        Retrieval(least=least)  # type: ignore[arg-type]
