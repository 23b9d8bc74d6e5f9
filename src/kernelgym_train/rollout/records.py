"""Records of a rollout: the episode in kernelgym's schema, and its tokens in a file of their own.

Contract: pure. The episode's record is whole by itself (`kernelgym.records.trajectories`) and names
the rollout by its key, ``step/problem/trajectory``; a row of tokens names its turn by the whole
key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kernelgym import EpisodeRecord
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.episodes.playing import history_budget
from kernelgym.prompts.observer import Observer, render
from kernelgym.records.observer_settings import observer_settings
from kernelgym.rewards import reward_preset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import text_digest
from kernelgym_train.types import Rollout

WRITER = "kernelgym-train"


def rollout_record(rollout: Rollout, observer: Observer, rules: EpisodeConfig) -> EpisodeRecord:
    """Return an episode's record for trajectories.jsonl.

    Args:
        rollout: Rollout that was played.
        observer: Observer that wrote the prompts.
        rules: Rules by which the episode was scored and ended.
    """
    played = rollout.trajectory
    budget = history_budget(played.problem, observer, rules)
    before = [played.turns[:place] for place in range(len(played.turns))]
    read = tuple(
        text_digest(render(observer.observe(played.problem, turns, budget))) for turns in before
    )
    shown = tuple(observer.retrieved(played.problem, turns, budget)[0] for turns in before)
    return replace(
        bare_record(rollout, observer),
        reward=reward_preset(rules.reward).name,
        stop_when=str(rules.stop_when),
        observer=observer_settings(observer),
        observations=read,
        retrieved=shown if any(shown) else (),
    )


def bare_record(rollout: Rollout, observer: Observer) -> EpisodeRecord:
    """Return an episode's record without prompts, for an archive of solved problems.

    Args:
        rollout: Rollout that was played.
        observer: Observer that wrote the prompts.
    """
    return EpisodeRecord(
        rollout.trajectory,
        language=observer.language,
        device=observer.device,
        ruleset=find_ruleset(observer.ruleset).label,
        reward="",
        writer=WRITER,
        key="/".join(map(str, rollout.key[:3])),
    )


def token_rows(rollout: Rollout) -> Iterator[dict[str, Any]]:
    """Yield one row for each turn of a rollout, for tokens.jsonl."""
    for place, answer in enumerate(rollout.completions):
        yield {
            "key": list(rollout.key._replace(turn=place)),
            "prompt_ids": list(answer.prompt_ids),
            "ids": list(answer.ids),
            "logprobs": None if answer.logprobs is None else list(answer.logprobs),
            "finish": answer.finish,
            "policy_version": answer.policy_version,
        }
