"""The `info` of a reset or step, and the frame that `render` shows.

An info is flat and typed, with the same keys every time.

Vector environments gather infos into arrays by the type of the first value they meet, so a key
is never missing, a float is never an int, and nothing is None or NaN. What has not happened yet
is an empty string, 0, 0.0, False or an empty tuple:

- ``problem_id, language, device, ruleset``: str; ``level, turn, turns_left, prompt_tokens,
  retrieved_tokens, memory_bytes``: int;
- ``retrieved``: tuple of str, the ids of the entries that the next prompt shows;
- ``status, category, ended``: str;
- ``compiled, correct, timed, valid``: bool; ``trials, trials_passed``: int;
- ``speedup, speedup_low, kernel_ms, reference_ms, judge_s``: float;
- ``reward_parts``: dict of float, always of the keys in `kernelgym.rewards.PARTS`;
- ``turn_scores, turn_returns``: tuple of float, filled by the last step;
- ``verdict``: the whole `kernelgym.types.Verdict`; the one key that only steps have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from kernelgym.episodes.episode import Episode
from kernelgym.rewards import PARTS
from kernelgym.types import ReturnVariant, Turn, Verdict


def episode_info(
    episode: Episode,
    device: str,
    gamma: float,
    turn: Turn | None,
    *,
    returns: ReturnVariant = "sum",
    prompt_tokens: int = 0,
    memory_bytes: int = 0,
    retrieved: tuple[tuple[str, ...], int] = ((), 0),
) -> dict[str, Any]:
    """Return a new info for the current state of an episode.

    Args:
        episode: The episode as it stands.
        device: Device the kernels run on.
        gamma: Discount factor of ``turn_returns``.
        turn: The turn that a step just recorded; None after a reset.
        returns: Variant of ``turn_returns``.
        prompt_tokens: Number of tokens of the next prompt.
        memory_bytes: Largest number of bytes that judging one kernel may take; 0 for no limit.
        retrieved: Ids of the entries that the next prompt shows, and their tokens.
    """
    trajectory = episode.trajectory
    played = len(trajectory.turns)
    verdict = turn.verdict if turn else None
    timing = verdict.timing if verdict else None
    parts = turn.score.parts if turn else {}
    info: dict[str, Any] = {
        "problem_id": episode.problem.id,
        "level": episode.problem.level,
        "language": episode.language,
        "device": device,
        "ruleset": episode.ruleset.label,
        "memory_bytes": memory_bytes,
        "turn": played,
        "turns_left": 0 if episode.over else episode.max_turns - played,
        "ended": str(episode.ended),
        "prompt_tokens": prompt_tokens,
        "retrieved": retrieved[0],
        "retrieved_tokens": retrieved[1],
        "status": verdict.status.value if verdict else "",
        "category": turn.feedback.category if turn else "",
        "compiled": bool(verdict and verdict.compiled),
        "correct": bool(verdict and verdict.correct),
        "valid": trajectory.valid,
        "trials": verdict.trials if verdict else 0,
        "trials_passed": verdict.trials_passed if verdict else 0,
        "timed": timing is not None,
        "speedup": float(timing.speedup) if timing else 0.0,
        "speedup_low": float(timing.speedup_low) if timing else 0.0,
        "kernel_ms": float(timing.kernel_ms) if timing else 0.0,
        "reference_ms": float(timing.reference_ms) if timing else 0.0,
        "judge_s": float(verdict.wall_s) if verdict else 0.0,
        "reward_parts": {name: float(parts.get(name, 0.0)) for name in PARTS},
        "turn_scores": trajectory.scores if episode.over else (),
        "turn_returns": trajectory.returns(gamma, returns) if episode.over else (),
    }
    if verdict is not None:
        info["verdict"] = verdict
    return info


def as_json(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return an info as plain data that `json.dumps` takes: lists for tuples, a dict for a verdict.

    Args:
        info: The info of a reset or step of a single environment.

    Raises:
        TypeError: If a value is not one that kernelgym's environments put there, such as an object
            that a wrapper added.
    """
    return {str(key): _plain(value, key) for key, value in info.items()}


def _plain(value: Any, key: object) -> Any:
    if isinstance(value, Verdict):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, key) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, key) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"info[{key!r}] holds a {type(value).__name__}, which is not plain data: leave it out, or "
        "turn it into numbers and texts first"
    )


class RenderedText(str):
    """Text that `render` returns; a wrapper that needs an image is told so."""

    __slots__ = ()

    @property
    def shape(self) -> NoReturn:
        """Refuse to be an image.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(
            "a kernelgym environment renders text (render_mode 'ansi'), which has no shape; leave "
            "wrappers that change images out"
        )


def episode_frame(episode: Episode, device: str) -> RenderedText:
    """Return an episode's state as text: problem, turn, last verdict and last feedback."""
    head = (
        f"{episode.problem.id} {episode.problem.name}: {episode.language} on {device}, "
        f"turn {len(episode.turns)} of {episode.max_turns}"
    )
    if not episode.turns:
        return RenderedText(head)
    last = episode.turns[-1]
    tail = f"; over: {episode.ended}" if episode.over else ""
    told = f"{last.verdict.status}, score {last.score.total:.3f}{tail}"
    return RenderedText(f"{head}\n{told}\n{last.feedback}")
