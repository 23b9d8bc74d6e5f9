"""The short prompt: what it shows, what it leaves out, what it refuses."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.answers.parsing import parse
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UsageError
from kernelgym.feedback import feedback
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.short import ShortObserver, bare, question, retry
from kernelgym.suites import get_problem
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Problem, Score, Turn, Verdict
from support.strategies import texts, verdicts

OBSERVER = ShortObserver("triton", "cpu", max_turns=9)
SOURCE = '''\
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    """Adds one."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.rand(3, 5)]
'''


def play(*statuses: str) -> tuple[Turn, ...]:
    game = Episode(SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=9, stop_when="never"))
    for number, status in enumerate(statuses):
        text = reply(SAMPLE_KERNELS["triton"], f"thought {number}")
        game.read(text)
        game.record(text, verdict(status, message=f"IndexError: out of bounds: {number} of 8"))
    return game.turns


def test_question_is_the_task_and_the_bare_module() -> None:
    problem = Problem("T/1", "T", 1, "1", SOURCE)
    (asked,) = question(problem)
    assert (asked.role, asked.content) == (
        "user",
        "Write ModelNew with Triton kernels.\n"
        "class Model(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + 1.0\n"
        "def get_inputs():\n"
        "    return [torch.rand(3, 5)]\n",
    )
    (cpp,) = question(problem, "cpp")
    assert cpp.content == asked.content.replace("Triton", "C++")


def shown(source: str) -> str:
    (asked,) = question(Problem("T/1", "T", 1, "1", source))
    return asked.content.partition("\n")[2]


def test_question_drops_only_imports_at_the_top() -> None:
    usual = "import torch.nn.functional as F\n"
    assert shown(SOURCE.replace(usual, "")) == shown(SOURCE)
    inside = SOURCE.replace(usual, "").replace("return x", f"{usual}        return x")
    assert shown(inside) == shown(SOURCE).replace("return x", f"{usual}        return x")
    between = f"import torch\nHALF = 0.5\n{usual}class Model(torch.nn.Module):\n    size = 3\n"
    assert shown(between) == between.removeprefix("import torch\n")
    several = "from torch import (\n    nn,\n)\nclass Model(nn.Module):\n    size = 3\n"
    assert shown(several) == several


@pytest.mark.parametrize("first", ["n = 3", "for _ in range(2):", "nn.init.ones_(self.w)"])
def test_constructor_with_statements_keeps_its_def(first: str) -> None:
    init = "        super().__init__()\n"
    assert f"    def __init__(self):\n{init}        {first}\n" in bare(
        SOURCE.replace(init, f"{init}        {first}\n")
    )


@pytest.mark.parametrize("level", [1, 2, 3])
def test_synthetic_question_begins_after_its_imports(level: int) -> None:
    for number in range(1, 61):
        source = get_problem(f"Synthetic/L{level}/{number}").source
        last = "import torch.nn.functional as F\n"
        assert shown(source) == bare(source).partition(last)[2].removeprefix("\n") != ""


def test_retry_keeps_the_kind_and_drops_figures() -> None:
    one, two = (retry(turn.feedback) for turn in play("runtime_error", "runtime_error"))
    assert one == two
    assert one.content == (
        "Your kernel failed while running.\nIndexError: out of bounds\n"
        "Check indices, masks at the edges, argument types and the launch configuration.\n"
        "Write it again without the fault."
    )


def test_retry_after_success_asks_for_speed() -> None:
    (right,) = play("correct")
    assert retry(right.feedback).content.endswith("Write it again, faster.")


def test_only_the_last_turn_is_shown() -> None:
    turns = play("wrong", "runtime_error", "wrong")
    asked, answer, told = OBSERVER.observe(SAMPLE_PROBLEM, turns)
    assert (asked,) == question(SAMPLE_PROBLEM)
    assert (answer.role, answer.content) == ("assistant", turns[-1].action)
    assert told == retry(turns[-1].feedback)
    assert OBSERVER.observe(SAMPLE_PROBLEM, turns[-1:]) == (asked, answer, told)


@given(texts, verdicts(), st.integers(0, 4_000))
def test_prompt_never_exceeds_its_budget(action: str, found: Verdict, budget: int) -> None:
    answer = parse(action, "triton")
    turn = Turn(0, action, answer, found, feedback(found, answer), Score(0.0))
    asked, *tried = OBSERVER.observe(SAMPLE_PROBLEM, [turn], budget)
    assert (asked,) == OBSERVER.observe(SAMPLE_PROBLEM)
    assert len(tried) in (0, 2) and OBSERVER.tokens(tried) <= budget
    if not tried:
        assert OBSERVER.tokens(OBSERVER.observe(SAMPLE_PROBLEM, [turn], 10**6)[1:]) > budget
    "".join(message.content for message in tried).encode()  # no lone surrogates


def test_parts_follow_question_and_yield_to_attempt() -> None:
    def more(problem, turns, room):
        return "word " * min(50, room.tokens)

    observer = dataclasses.replace(OBSERVER, parts=(more,), count=lambda text: len(text.split()))
    plain = dataclasses.replace(observer, parts=())
    turns = play("wrong")
    asked, *tried = observer.observe(SAMPLE_PROBLEM, turns)
    bare, *same = plain.observe(SAMPLE_PROBLEM, turns)
    assert asked.content.startswith(bare.content) and asked.content.count("word") == 50
    assert tried == same and len(tried) == 2
    least = plain.tokens((bare, *same))
    for room in (0, 7, 60):
        tight = dataclasses.replace(observer, prompt_tokens=least + room)
        messages = tight.observe(SAMPLE_PROBLEM, turns)
        assert messages[1:] == tuple(same) and tight.tokens(messages) <= least + room
        assert messages[0].content.count("word") == min(50, room)


def test_what_it_cannot_show_is_refused() -> None:
    with pytest.raises(UsageError, match="shows no hardware"):
        dataclasses.replace(OBSERVER, hardware=Hardware("H200"))
    with pytest.raises(UsageError, match="no kernel to start from"):
        OBSERVER.observe(SAMPLE_PROBLEM, start=SAMPLE_KERNELS["triton"])
    with pytest.raises(UsageError, match="at least 0"):
        ShortObserver("triton", "cpu", context_tokens=-1)


def test_short_and_full_observers_are_never_equal() -> None:
    assert OBSERVER != Observer("triton", "cpu", max_turns=9)
