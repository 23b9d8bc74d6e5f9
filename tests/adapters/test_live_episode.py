"""Episodes that a framework's loop plays answer by answer."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import openai
import pytest

from adapters.environments import DOCS
from kernelgym import JudgeError, UsageError
from kernelgym.adapters.live_episode import AnswerResult, EpisodeFactory, LiveEpisode
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, reply
from kernelgym.types import Message
from support.chat_server import chat_server
from support.scripted_answers import (
    CASES,
    ENV,
    OPTIONS,
    PROBLEMS,
    ScriptedModel,
    essentials,
    expected,
    says,
)


def factory(evaluator: Any = None, **options: Any) -> EpisodeFactory:
    evaluator = evaluator or ScriptedEvaluator()
    return EpisodeFactory(ENV, **{**OPTIONS, "evaluator": evaluator} | options)


async def appended(episode: LiveEpisode, model: ScriptedModel) -> list[Message]:
    """Play an episode as a framework does that keeps the conversation itself."""
    messages = list(episode.messages)
    over = False
    while not over:
        answer = model.answer(messages)
        result = await episode.answer(str(answer), answer.cut_off)
        news = Message("user", result.news)
        messages += [Message("assistant", str(answer)), news]
        over = result.over
        assert over or messages == list(episode.messages)
    return messages


def test_appended_conversations_get_the_scores_of_play_episode() -> None:
    episodes = factory()
    assert [problem.id for problem in episodes.problems] == [each.id for each in PROBLEMS.values()]
    wanted = expected()

    async def play() -> None:
        played = [episodes.begin(problem.id) for problem in PROBLEMS.values()]
        await asyncio.gather(*(appended(each, ScriptedModel()) for each in played))
        for episode in played:
            assert episode.trajectory == wanted[episode.problem.id]

    asyncio.run(play())


@pytest.mark.parametrize("case", CASES)
def test_blocking_answers_get_the_scores_of_play_episode(case: str) -> None:
    episode = factory().begin(PROBLEMS[case].id)
    results: list[AnswerResult] = []
    for answer in CASES[case]:
        results.append(episode.answer_now(str(answer), getattr(answer, "cut_off", False)))
        if results[-1].over:
            break
    wanted = expected()[PROBLEMS[case].id]
    assert essentials(episode.trajectory) == essentials(wanted)
    assert [result.reward for result in results] == list(wanted.scores)
    assert json.loads(json.dumps(results[-1].info))["turn_scores"] == list(wanted.scores)


@pytest.mark.parametrize("blocking", [True, False])
def test_kernel_that_was_not_judged_raises_and_has_no_reward(blocking: bool) -> None:
    episode = factory().begin(PROBLEMS["malformed"].id)
    with pytest.raises(JudgeError, match="no fault of the kernel"):
        if blocking:
            episode.answer_now(says("unavailable"))
        else:
            asyncio.run(episode.answer(says("unavailable")))


def test_correct_kernel_that_the_reward_needs_timed_raises_if_it_was_not() -> None:
    episode = factory(reward="kevin", language="cpp").begin(PROBLEMS["malformed"].id)
    with pytest.raises(JudgeError, match="not timed"):
        episode.answer_now(reply(SAMPLE_KERNELS["cpp"]))


def test_same_seed_draws_the_same_problem() -> None:
    episodes = factory()
    drawn = [episodes.begin(seed=seed).problem.id for seed in (1, 2, 3, 1, 2, 3)]
    assert drawn[:3] == drawn[3:] and len(set(drawn)) > 1
    with pytest.raises(UsageError):
        episodes.begin("Synthetic/L1/9999")


def test_loop_of_the_docs_plays_by_an_openai_client() -> None:
    """The loop that docs/adapters.md shows for frameworks without an adapter."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "async def rollout" in block)
    loop = block[block.index("async def rollout") :]
    names: dict[str, Any] = {"episodes": factory()}
    exec(loop, names)
    model, wanted = ScriptedModel(), expected()

    async def play(url: str) -> dict[str, float]:
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            ids = [problem.id for problem in PROBLEMS.values()]
            scores = [names["rollout"](client, "kernel-writer", name) for name in ids]
            return dict(zip(ids, await asyncio.gather(*scores), strict=True))

    with chat_server(reply=model.reply) as server:
        best = asyncio.run(play(server.url))
    assert best == {name: max(played.scores) for name, played in wanted.items()}
    assert model.failures["server_fails_once"] == 1


def test_copied_episode_goes_on_by_itself_without_judging_anew() -> None:
    judge = ScriptedEvaluator()
    episode = factory(judge).begin(PROBLEMS["malformed"].id)
    episode.answer_now("no kernel")
    episode.answer_now(says("wrong"), cut_off=True)
    twin = episode.copy()
    assert twin.trajectory == episode.trajectory and len(judge.judged) == 1
    twin.answer_now(says("correct"))
    assert len(episode.trajectory.turns) == 2 and twin.trajectory.ended


def test_changed_factory_keeps_the_other_options() -> None:
    episodes = factory().changed(max_turns=1)
    assert episodes.max_turns == 1 and len(episodes.problems) == len(PROBLEMS)


def test_changed_factory_of_the_same_device_and_rules_shares_the_judge() -> None:
    episodes = EpisodeFactory(ENV, **OPTIONS)
    fewer = episodes.changed(max_turns=1)
    try:
        assert fewer.begin().env.evaluator is episodes.begin().env.evaluator
    finally:
        fewer.close()
        episodes.close()


def test_context_that_rewrites_messages_is_refused_where_a_framework_appends() -> None:
    factory().check_append_only("Some framework")
    with pytest.raises(UsageError, match=r"Some framework keeps .* context='last' rewrites"):
        factory(context="last").check_append_only("Some framework")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"language": "hip"}, "hip"),
        ({"max_turns": 0}, "max_turns"),
        ({"problems": "first"}, "first"),
        ({"turns": 2}, "did you mean"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_at_once(wrong: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        factory(**wrong)


def test_splits_hold_the_problems_that_are_played() -> None:
    splits = factory().splits
    assert [each.id for each in splits["all"]] == [each.id for each in PROBLEMS.values()]
    assert all(set(part) <= set(splits["all"]) for part in splits.values()) and len(splits) > 1


def test_given_evaluator_stays_open() -> None:
    judge = ScriptedEvaluator()
    episodes = factory(judge)
    episodes.begin()
    episodes.close()
    assert not judge.closed
