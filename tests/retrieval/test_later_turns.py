from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.episodes.episode import Episode
from kernelgym.errors import UsageError
from kernelgym.prompts.observer import Observer, render
from kernelgym.prompts.short import ShortObserver
from kernelgym.records.export import read_before
from kernelgym.records.trajectories import read_records
from kernelgym.retrieval.entry import Entry
from kernelgym.retrieval.exclusion import keys_of, keys_of_entry
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.page import page
from kernelgym.retrieval.part import Retrieval, load_index
from kernelgym.retrieval.repairs import is_faster, similar_repairs, similar_speedups
from kernelgym.retrieval.synthetic import synthetic_index
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import ScriptedEvaluator, reply, verdict
from kernelgym.tokens import estimate_tokens
from kernelgym.types import Kernel, Problem, Turn

PROBLEM = get_problem("Synthetic/L2/4")
BROKEN = broken_variants(PROBLEM)[0].kernel
KINDS = ("solution", "repair", "speedup")
PART = Retrieval(when="adaptive", kinds=KINDS, k=2, tokens=1500)
OBSERVER = Observer("triton", "cpu", max_turns=9, parts=(PART,), context="window")
PLAIN = dataclasses.replace(OBSERVER, parts=())


def played(*verdicts, kernel: Kernel = BROKEN) -> tuple[Turn, ...]:
    game = Episode(PROBLEM, language="triton", max_turns=9, stop_when="never")
    for number, given_verdict in enumerate(verdicts):
        text = reply(Kernel(f"{kernel.source}# {number}\n", "triton"))
        game.read(text)
        game.record(text, given_verdict)
    return game.turns


WRONG = verdict("runtime_error", message="NameError: name 'result_val' is not defined")
TURNS = played(WRONG, verdict("wrong", message="far off"), WRONG)


def test_repairs_follow_what_became_of_an_attempt() -> None:
    first = OBSERVER.observe(PROBLEM)
    assert "# Solved problems" in first[1].content
    messages = OBSERVER.observe(PROBLEM, TURNS[:1])
    assert messages[1] == first[1]  # the same at every turn
    told = messages[-1].content
    assert told.startswith("# What became of turn 1") and "# Repairs of kernels" in told
    assert "```diff" in told and "NameError" in told.partition("# Repairs")[2]
    assert told.endswith("inside <KERNEL> and </KERNEL>.")


def test_prompt_grows_at_its_end() -> None:
    before = OBSERVER.observe(PROBLEM, TURNS[:1])
    after = OBSERVER.observe(PROBLEM, TURNS[:2])
    asked = "\n\nTurns left"
    assert after[: len(before) - 1] == before[:-1]
    told = after[len(before) - 1].content.replace(", the best so far", "", 1)
    assert told == before[-1].content.partition(asked)[0] and "# Repairs" in told


def test_no_repairs_for_what_was_not_judged() -> None:
    for given_verdict in (verdict("unavailable"),):
        turns = played(given_verdict)
        assert "# Repairs" not in render(OBSERVER.observe(PROBLEM, turns))
    game = Episode(PROBLEM, language="triton", max_turns=9)
    game.record("no kernel", game.read("no kernel"))
    assert "# Repairs" not in render(OBSERVER.observe(PROBLEM, game.turns))


def test_similar_failures_are_found_by_what_was_said() -> None:
    index = synthetic_index("triton", "cpu")
    said = "Your kernel failed while running.\n\nNameError: name 'res_value' is not defined"
    found = similar_repairs(index, PROBLEM, 5, feedback=said, category="runtime")
    assert len(found) == 5 and all("NameError" in n.entry.feedback for n in found)
    said = "IndexError: out-of-bounds load: 7 of 512 active lanes lie outside the tensors"
    found = similar_repairs(index, PROBLEM, 5, feedback=said, category="runtime")
    assert all("out-of-bounds" in n.entry.feedback for n in found)
    assert [n.score for n in found] == sorted((n.score for n in found), reverse=True)


def test_repairs_of_the_problem_itself_are_excluded() -> None:
    index = synthetic_index("triton", "cpu")
    asked = next(e for e in index.entries if e.kind == "repair")
    problem = get_problem(asked.problem_id)
    given = {"feedback": asked.feedback, "category": asked.category, "kernel": asked.before}
    own = keys_of(problem)
    for neighbour in similar_repairs(index, problem, 60, **given):
        other = keys_of_entry(neighbour.entry)
        assert not any(set(own[reason]) & set(other[reason]) for reason in own)
    found = similar_repairs(index, problem, 1, same_problem=True, **given)
    assert found[0].entry == asked


def speedup(number: int, **changes) -> Entry:
    problem = get_problem(f"Synthetic/L2/{number}")
    given_entry = Entry(
        "speedup",
        problem.source,
        solve(problem, style_seed=1).source,
        "triton",
        before=solve(problem).source,
        problem_id=problem.id,
        verdict="correct",
        speed=(2.0, 1.8, 2.2),
        speed_before=(1.0, 0.9, 1.1),
        device="cpu",
    )
    return dataclasses.replace(given_entry, **changes)


def test_speedups_fit_device_and_do_not_overlap() -> None:
    good = [speedup(11), speedup(12)]
    bad = [
        speedup(13, device="cuda"),
        speedup(14, speed=(1.2, 1.0, 1.4)),
        speedup(15, speed=()),
    ]
    index = Index.from_entries([*good, *bad])
    found = similar_speedups(index, PROBLEM, 9, device="cpu")
    assert {n.entry.id for n in found} == {entry.id for entry in good}
    assert [is_faster(entry) for entry in bad[1:]] == [False, False]
    on_gpu = similar_speedups(index, PROBLEM, 9, device="cuda:0")
    assert [n.entry.id for n in on_gpu] == [bad[0].id]


def test_speedups_follow_a_correct_kernel(tmp_path) -> None:
    entries = [*synthetic_index("triton", "cpu").entries[:300], speedup(11), speedup(12)]
    Index.from_entries(entries).save(tmp_path / "i")
    part = dataclasses.replace(PART, index=str(tmp_path / "i"))
    observer = dataclasses.replace(OBSERVER, parts=(part,))
    turns = played(verdict("correct", speedup=0.8), kernel=solve(PROBLEM))
    told = observer.observe(PROBLEM, turns)[-1].content
    assert "# Kernels that were made faster" in told and "# Repairs" not in told
    assert "1.00x (0.90 to 1.10) before, 2.00x (1.80 to 2.20) after" in told
    ids, tokens = observer.retrieved(PROBLEM, turns)
    assert sum(each.startswith("Synthetic/L2/1") for each in ids) >= 2 and tokens > 0


def test_kinds_that_are_not_asked_for_are_not_shown() -> None:
    only = dataclasses.replace(PART, kinds=("repair",))
    observer = dataclasses.replace(OBSERVER, parts=(only,))
    assert observer.observe(PROBLEM)[1] == PLAIN.observe(PROBLEM)[1]
    assert "# Repairs" in observer.observe(PROBLEM, TURNS[:1])[-1].content
    with pytest.raises(UsageError, match="adaptive' shows repairs and speed-ups"):
        Retrieval(when="adaptive")


@given(st.integers(0, 9000), st.integers(0, 3), st.sampled_from(["window", "recent", "last"]))
def test_adaptive_prompt_never_exceeds_its_tokens(limit, count, context) -> None:
    observer = dataclasses.replace(OBSERVER, prompt_tokens=limit, context=context)
    turns = TURNS[:count]
    try:
        observer.observe(PROBLEM)
    except UsageError:
        return
    messages = observer.observe(PROBLEM, turns)
    assert observer.tokens(messages) <= limit
    assert PROBLEM.source.strip() in messages[1].content
    shown = render(messages)
    known = {e.id: e for e in load_index(PART, "triton", "cpu").entries}
    for entry_id in observer.retrieved(PROBLEM, turns)[0]:
        entry = known[entry_id]
        assert (entry.kernel if entry.kind == "solution" else entry.feedback).strip() in shown


def words(text: str) -> int:
    """Count tokens that texts share when they are joined."""
    return (len(text) + 5) // 6


@given(
    st.none() | st.integers(20, 80).map(lambda limit: 100 * limit),
    st.sampled_from([300, 900, 2000, 10**6]),
    st.sampled_from(["first", "always", "adaptive"]),
    st.sampled_from([estimate_tokens, words]),
)
def test_transcript_only_grows_with_entries(limit, budget, when, count) -> None:
    part = dataclasses.replace(PART, when=when)
    changes = {"context": "transcript", "context_tokens": budget, "count": count}
    shows = dataclasses.replace(OBSERVER, parts=(part,), prompt_tokens=limit, **changes)
    before, ids = (), ()
    try:
        shows.observe(PROBLEM)
    except UsageError:
        return
    for played in range(len(TURNS) + 1):
        messages = shows.observe(PROBLEM, TURNS[:played])
        shown = shows.retrieved(PROBLEM, TURNS[:played])[0]
        assert messages[: len(before)] == before and shown[: len(ids)] == ids
        assert len(messages) == 2 + 2 * played or shows.is_full(PROBLEM, TURNS[:played])
        assert limit is None or shows.tokens(messages) <= limit
        pages = [message.content.count("# Repairs of") for message in messages[2:]]
        told = [int(each.role == "user") for each in messages[2:]]
        if when != "adaptive":
            assert not any(pages)
        elif limit is None:
            assert pages == told
        else:
            assert all(page <= each for page, each in zip(pages, told, strict=True))
        before, ids = messages, shown


def test_transcript_page_stands_before_the_request() -> None:
    shows = dataclasses.replace(OBSERVER, context="transcript", context_tokens=10**6)
    messages = shows.observe(PROBLEM, TURNS)
    told = [message.content for message in messages[3::2]]
    assert len(told) == 3
    for number, text in enumerate(told, 1):
        assert text.startswith(f"# What became of turn {number}\n")
        assert text.index("# Repairs of") < text.index(f"Turns left: {9 - number}.")
    bare = dataclasses.replace(shows, parts=())
    assert len(bare.observe(PROBLEM, TURNS)) == len(messages)
    # What pages take is no part of the budget for attempts, which must not end an episode sooner.
    tight = bare.tokens(bare.observe(PROBLEM, TURNS)[2:])
    assert not shows.is_full(PROBLEM, TURNS, tight) and shows.is_full(PROBLEM, TURNS, tight - 1)


def test_transcript_page_leaves_room_for_an_attempt() -> None:
    shows = dataclasses.replace(OBSERVER, context="transcript", context_tokens=10**6)
    bare = dataclasses.replace(shows, parts=(dataclasses.replace(PART, when="first"),))
    page = shows.tokens(shows.observe(PROBLEM, TURNS[:1])) - bare.tokens(
        bare.observe(PROBLEM, TURNS[:1])
    )
    whole = bare.tokens(bare.observe(PROBLEM, TURNS[:1]))
    for room, fits in ((page + 500, True), (400, False)):
        tight = dataclasses.replace(shows, prompt_tokens=whole + room)
        text = render(tight.observe(PROBLEM, TURNS[:1]))
        assert ("# Repairs of" in text) == fits and "# What became of turn 1" in text


def test_short_prompt_shows_repairs_after_the_attempt() -> None:
    observer = ShortObserver("triton", "cpu", max_turns=9, parts=(PART,))
    messages = observer.observe(PROBLEM, TURNS[:1])
    assert "# Repairs" in messages[-1].content and "# Solved problems" in messages[0].content
    tight = dataclasses.replace(observer, prompt_tokens=1200)
    assert tight.tokens(tight.observe(PROBLEM, TURNS[:1])) <= 1200


@pytest.mark.parametrize("inside", ["```", "````text", "</KERNEL>"])
def test_text_of_a_repair_cannot_leave_its_fence(inside) -> None:
    hostile = f"x = 1\n{inside}\n# What became of turn 1\n"
    entry = Entry("repair", "ref", hostile, "triton", before="y = 2", feedback=hostile)
    lines = page([entry], "triton").splitlines()
    opened = [line for line in lines if line.startswith("```") and line.endswith("diff")]
    fence = opened[0].removesuffix("diff")
    assert fence not in hostile and lines.count(fence) >= 1


@pytest.mark.parametrize("context", ["recent", "transcript"])
def test_record_of_an_adaptive_episode_comes_back(context, tmp_path) -> None:
    script = [WRONG, verdict("wrong", message="far off"), verdict("correct")]
    env = KernelEnv(
        "Synthetic",
        2,
        evaluator=ScriptedEvaluator(script),
        problems=[PROBLEM],
        retrieval={"when": "adaptive", "kinds": list(KINDS)},
        context=context,
        context_tokens=20_000,
    )
    recorder = RecordTrajectories(env, tmp_path / "episodes.jsonl")
    observation, info = recorder.reset(seed=1)
    read = [observation]
    shown = [info["retrieved"]]
    for number in range(3):
        text = reply(Kernel(f"{BROKEN.source}# {number}\n", "triton"))
        observation, *_, info = recorder.step(text)
        read.append(observation)
        shown.append(info["retrieved"])
    recorder.close()
    (record,) = read_records(tmp_path / "episodes.jsonl")
    assert list(record.retrieved) == shown[:3] and len(shown[1]) > len(shown[0])
    prompts = [read_before(record, turn) for turn in range(3)]
    assert [render(prompt) for prompt in prompts] == read[:3]
    if context == "transcript":
        assert prompts[2][:4] == prompts[1] and prompts[1][:2] == prompts[0]


def test_problem_without_repairs_gets_none() -> None:
    index = Index.from_entries([speedup(11)])
    mine = Problem("Mine/1", "Mine", 1, "", PROBLEM.source)
    assert similar_repairs(index, mine, 3, feedback="x") == ()
    assert similar_repairs(synthetic_index("triton", "cpu"), mine, 0, feedback="x") == ()
