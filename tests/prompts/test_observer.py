from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UsageError
from kernelgym.prompts.context import CONTEXTS
from kernelgym.prompts.first_message import problem_prompt, system_prompt
from kernelgym.prompts.observer import Observer, render
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.tokens import estimate_tokens
from kernelgym.types import Kernel, Turn
from support.strategies import texts, verdicts


def answer(number: int, size: int = 0) -> str:
    source = SAMPLE_KERNELS["triton"].source + f"\n# variant {number} {'x' * size}\n"
    return reply(Kernel(source, "triton"), f"secret thought {number}")


def play(*statuses: str, size: int = 0) -> tuple[Turn, ...]:
    game = Episode(SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=9, stop_when="never"))
    for number, status in enumerate(statuses, 1):
        game.read(answer(number, size))
        game.record(answer(number, size), verdict(status, message=f"message {number}"))
    return game.turns


OBSERVER = Observer("triton", "cuda:0", max_turns=9)


def test_the_first_observation_is_the_prompt() -> None:
    system, user = OBSERVER.observe(SAMPLE_PROBLEM)
    assert (system.role, system.content) == ("system", system_prompt("triton"))
    assert user.role == "user"
    assert user.content == problem_prompt(SAMPLE_PROBLEM, "triton", "cuda:0", max_turns=9)


def test_roles_alternate_and_the_last_is_the_user() -> None:
    messages = OBSERVER.observe(SAMPLE_PROBLEM, play("wrong", "timeout", "wrong"))
    roles = [message.role for message in messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]


def test_recent_attempts_are_shown_in_full_and_earlier_ones_in_a_line() -> None:
    turns = play("compile_error", "wrong", "timeout", "runtime_error")
    text = render(OBSERVER.observe(SAMPLE_PROBLEM, turns))
    assert "variant 3" in text and "variant 4" in text
    assert "variant 1" not in text and "variant 2" not in text
    assert "- Turn 1: compile_error: message 1" in text
    assert "- Turn 2: wrong: 0 of 4 calls passed" in text
    assert "- Turn 3" not in text
    assert "Turns left: 5" in text


def test_thinking_is_not_repeated() -> None:
    assert "secret thought" not in render(OBSERVER.observe(SAMPLE_PROBLEM, play("wrong", "wrong")))


def test_a_small_budget_drops_the_oldest_first() -> None:
    turns = play("compile_error", *["wrong"] * 6)
    whole = render(OBSERVER.observe(SAMPLE_PROBLEM, turns))
    small = render(OBSERVER.observe(SAMPLE_PROBLEM, turns, 380))
    assert "- Turn 1:" in whole and "variant 6" in whole
    assert "variant 7" in small and "variant 6" not in small
    last = OBSERVER.observe(SAMPLE_PROBLEM, turns, 380)[-2:]
    room_for_a_line = OBSERVER.tokens(last) + 20
    tight = render(OBSERVER.observe(SAMPLE_PROBLEM, turns, room_for_a_line))
    assert "- Turn 1:" not in tight and "- Turn 6:" in tight


def test_an_attempt_beyond_the_budget_is_cut_in_its_middle() -> None:
    turns = play("wrong", size=50_000)
    messages = OBSERVER.observe(SAMPLE_PROBLEM, turns, 1_000)
    shown = messages[2].content
    assert "middle left out" in shown
    assert shown.startswith("<KERNEL>") and shown.endswith("</KERNEL>")
    assert OBSERVER.tokens(messages[2:]) <= 1_000


@given(
    st.lists(st.tuples(texts, verdicts()), max_size=6),
    st.integers(0, 5_000),
    st.sampled_from(sorted(CONTEXTS)),
)
def test_any_history_fits_its_budget_and_can_be_encoded(steps, budget, context) -> None:
    game = Episode(SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=9, stop_when="never"))
    for text, found in steps:
        if game.over:
            break
        read = game.read(text)
        game.record(text, found if isinstance(read, Kernel) else read)
    observer = dataclasses.replace(OBSERVER, context=context)
    messages = observer.observe(SAMPLE_PROBLEM, game.turns, budget)
    assert messages == observer.observe(SAMPLE_PROBLEM, game.turns, budget)
    prompt = observer.tokens(observer.observe(SAMPLE_PROBLEM))
    spent = observer.tokens(messages) - prompt
    feedback = estimate_tokens(str(game.turns[-1].feedback)) if game.turns else 0
    # The last attempt is shown whatever the budget: about 250 tokens, and its feedback.
    assert spent <= max(budget + 2, 250 + feedback + 50)
    render(messages).encode("utf-8")


def test_parts_add_to_the_prompt_and_empty_ones_do_not() -> None:
    seen = []

    def similar(problem, turns, room):
        seen.append((problem, len(turns)))
        return "# Similar kernels\n\nnone yet"

    plain = OBSERVER.observe(SAMPLE_PROBLEM)
    with_part = Observer("triton", "cuda:0", max_turns=9, parts=(similar, lambda *_: ""))
    messages = with_part.observe(SAMPLE_PROBLEM, play("wrong"))
    assert messages[1].content == plain[1].content + "\n\n# Similar kernels\n\nnone yet"
    assert seen == [(SAMPLE_PROBLEM, 1)]


@pytest.mark.parametrize("size", [0, 900])
def test_limited_prompt_shows_older_attempts(size: int) -> None:
    turns = play(*["wrong"] * 5, size=size)
    made = []

    def part(*given: object) -> str:
        made.append(given)
        return "# A note"

    free = dataclasses.replace(OBSERVER, context="window", parts=(part,))
    whole = free.observe(SAMPLE_PROBLEM, turns)
    assert len(whole) == 12
    last_only = free.tokens((*whole[:2], *whole[-2:]))
    limit = (last_only + free.tokens(whole)) // 2
    made.clear()
    limited = dataclasses.replace(free, prompt_tokens=limit)
    shown = limited.observe(SAMPLE_PROBLEM, turns)
    assert 4 < len(shown) < 12 and shown[-2:] == whole[-2:]
    assert 0 <= limit - limited.tokens(shown) < free.tokens(whole[-4:-2])
    assert len(made) < 6  # it is not built again and again


def test_a_kernel_to_start_from_is_shown() -> None:
    start = Kernel("class ModelNew: ...  # start here", "triton")
    assert "start here" in OBSERVER.observe(SAMPLE_PROBLEM, start=start)[1].content


def test_the_system_part_is_rendered_once_and_first() -> None:
    text = render(OBSERVER.observe(SAMPLE_PROBLEM, play("wrong", "wrong")))
    assert text.startswith(system_prompt("triton"))
    assert text.count(system_prompt("triton")) == 1
    assert text.count("# Your answer\n") == 2


@pytest.mark.parametrize(
    "options",
    [
        {"language": "basic"},
        {"ruleset": "lax"},
        {"examples": "all"},
        {"examples": 9},
        {"context": "everything"},
        {"context": 3},
        {"context_tokens": "many"},
        {"count": 4},
        {"count": lambda text: None},
    ],
)
def test_bad_options_show_at_once(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Observer(**({"language": "triton", "device": "cpu"} | options))  # type: ignore[arg-type]
