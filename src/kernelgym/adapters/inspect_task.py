"""`kernels`: the environments as a task of Inspect, the evaluation framework of the UK's AISI.

Installed beside Inspect, it is found by name::

    inspect eval kernelgym/kernels --model openai/gpt-5 -T env_id=Synthetic-L1-MultiTurn

Contract:

- a sample is a problem, its solver plays one episode, and its score is a dictionary: ``solved``
  and ``correct`` (0 or 1), ``score`` (that of the best turn), ``speedup`` (of the best correct
  kernel, 0 if none was timed) and ``turns``;
- the score's explanation is the last feedback, its answer the best kernel; the scores of all turns
  and their verdicts are in its metadata;
- a kernel that could not be judged is an error of its sample, which Inspect plays anew with
  ``retry_on_error`` and never scores;
- an answer that a limit of tokens cut off is read as such;
- the judge has a sandbox of its own: the task asks Inspect for none.
"""

from __future__ import annotations

from typing import Any

from kernelgym.adapters.frameworks import check_framework
from kernelgym.adapters.live_episode import EpisodeFactory, LiveEpisode
from kernelgym.types import Message

check_framework("inspect")

from inspect_ai import Task, task  # noqa: E402
from inspect_ai.dataset import MemoryDataset, Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr  # noqa: E402
from inspect_ai.solver import Generate, Solver, TaskState, solver  # noqa: E402

_CUT_OFF = ("max_tokens", "model_length")
_METRICS = {name: [mean(), stderr()] for name in ("solved", "correct", "score", "speedup", "turns")}
_CHAT = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


@task
def kernels(env_id: str = "Synthetic-L1-MultiTurn", **options: Any) -> Task:
    """Return the task of an environment: a sample for each problem that it draws.

    Args:
        env_id: Id of the environment.
        **options: Options of `gym.make`, such as ``language``, ``problems``, ``evaluator``.

    Raises:
        UsageError: If an option is unknown or cannot be used.
    """
    episodes = EpisodeFactory(env_id, **options)
    samples = [
        Sample(
            id=problem.id,
            input=_chat(episodes.first_messages(problem)),
            metadata={"name": problem.name, "level": problem.level, "digest": problem.digest},
        )
        for problem in episodes.problems
    ]
    dataset = MemoryDataset(samples, name=env_id)
    return Task(dataset=dataset, solver=played(episodes), scorer=judged(), name=env_id)


@solver
def played(episodes: EpisodeFactory) -> Solver:
    """Return the solver that plays a sample's problem to its end.

    Args:
        episodes: Factory of the episodes.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        episode = await episodes.begin_async(str(state.sample_id))
        over = False
        while not over:
            state = await generate(state)
            cut_off = state.output.stop_reason in _CUT_OFF
            result = await episode.answer(state.output.completion, cut_off)
            over = result.over
            state.store.set("kernelgym", _summary(episode, result.info))
            if not over and episode.is_append_only:
                state.messages.append(ChatMessageUser(content=result.news))
            elif not over:
                state.messages = _chat(episode.messages)
        state.completed = True
        return state

    return solve


@scorer(metrics=_METRICS)
def judged() -> Scorer:
    """Return the scorer of episodes played by `played`, even if a limit of Inspect cut them off."""

    async def score(state: TaskState, target: Target) -> Score:
        summary = state.store.get("kernelgym")
        return Score(**summary) if summary else Score.unscored(reason="no_response")

    return score


def _summary(episode: LiveEpisode, info: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an episode's score for Inspect."""
    played = episode.trajectory
    right = [turn for turn in played.turns if turn.verdict.correct]
    best = played.best
    return {
        "value": {
            "solved": float(played.ended == "solved"),
            "correct": float(bool(right)),
            "score": max(played.scores),
            "speedup": max((turn.verdict.speedup for turn in right), default=0.0),
            "turns": float(len(played.turns)),
        },
        "answer": best.reply.kernel.source if best and best.reply.kernel else None,
        "explanation": str(played.turns[-1].feedback),
        "metadata": {
            "info": info,
            "scores": list(played.scores),
            "verdicts": [turn.verdict.to_dict() for turn in played.turns],
        },
    }


def _chat(messages: tuple[Message, ...]) -> list[ChatMessage]:
    return [_CHAT[each.role](content=each.content) for each in messages]
