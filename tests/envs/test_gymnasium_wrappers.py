"""Every wrapper of Gymnasium works over our environments, or is refused in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import gymnasium.wrappers as single
import gymnasium.wrappers.vector as batched
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import utils

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.spaces import KernelText
from kernelgym.errors import UsageError
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply

ANSWER = reply(SAMPLE_KERNELS["cpp"])
OPTIONS = {"problems": [SAMPLE_PROBLEM], "language": "cpp", "stop_when": "never"}
GIVEN: Mapping[str, Mapping[str, Any]] = {
    "AddWhiteNoise": {"probability_of_noise_per_pixel": 0.5},
    "ArrayConversion": {"env_xp": np, "target_xp": np},
    "ClipReward": {"min_reward": 0, "max_reward": 1},
    "DelayObservation": {"delay": 1},
    "DiscretizeAction": {"bins": 3},
    "DiscretizeObservation": {"bins": 3},
    "DtypeObservation": {"dtype": np.float32},
    "FilterObservation": {"filter_keys": ["text"]},
    "FrameStackObservation": {"stack_size": 2},
    "MaxAndSkipObservation": {"skip": 2},
    "ObstructView": {"obstructed_pixels_ratio": 0.1, "obstruction_width": 2},
    "RecordVideo": {"video_folder": "videos"},
    "RepeatAction": {"num_repeats": 2},
    "RescaleAction": {"min_action": 0, "max_action": 1},
    "RescaleObservation": {"min_obs": 0, "max_obs": 1},
    "ReshapeObservation": {"shape": (4,)},
    "ResizeObservation": {"shape": (4, 4)},
    "StickyAction": {"repeat_action_probability": 0.5},
    "TimeLimit": {"max_episode_steps": 2},
    "TransformAction": {"func": lambda action: action, "action_space": None},
    "TransformObservation": {"func": lambda seen: seen, "observation_space": None},
    "TransformReward": {"func": lambda reward: 2 * reward},
    "VectorizeTransformAction": {
        "wrapper": single.TransformAction,
        "func": str.strip,
        "action_space": None,
    },
    "VectorizeTransformObservation": {
        "wrapper": single.TransformObservation,
        "func": str.upper,
        "observation_space": None,
    },
    "VectorizeTransformReward": {"wrapper": single.TransformReward, "func": lambda reward: reward},
}
RENDERED = {
    *("AddRenderObservation", "AddWhiteNoise", "HumanRendering", "ObstructView", "RecordVideo"),
    "RenderCollection",
}
REFUSED = {
    "AddRenderObservation": r"expects env.render\(\) to return a numpy array",
    "AddWhiteNoise": "renders text .*, which has no shape",
    "AtariPreprocessing": "opencv-python package not installed|Atari|grayscale|space",
    "ClipAction": "requires a Box action space",
    "DiscretizeAction": "only compatible with Box continuous actions",
    "DiscretizeObservation": "only compatible with Box continuous observations",
    "DtypeObservation": "requires a Box, Discrete",
    "FilterObservation": "only usable with `Dict` and `Tuple`",
    "FlattenObservation": "cannot be flattened; leave FlattenObservation",
    "GrayscaleObservation": "requires a Box observation space",
    "HumanRendering": "render_mode to be one of .* but got 'ansi'",
    "MaxAndSkipObservation": "must have the shape attribute",
    "NormalizeObservation": "to have a shape|to be AutoresetMode.NEXT_STEP",
    "ObstructView": "renders text .*, which has no shape",
    "RecordVideo": "ansi, which is incompatible with RecordVideo",
    "RescaleAction": "requires a Box action space",
    "RescaleObservation": "requires a Box observation space",
    "ReshapeObservation": "requires a Box observation space",
    "ResizeObservation": "requires a Box observation space",
    "TimeAwareObservation": "must be wrapped by a TimeLimit",
}
"""What the refusal of a wrapper says; every other wrapper works."""
FOR_ARRAYS = {"ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"}
"""Wrappers that change arrays of one framework into another's, whose packages are optional."""


def names(module: Any) -> list[str]:
    return sorted(name for name in module.__all__ if name != "vector")


def play(env: Any, action: Any) -> None:
    for _ in range(2):
        env.reset(seed=1)
        for _ in range(3):
            observation, _, terminated, truncated, _ = env.step(action)
            assert observation in env.observation_space
            if env.render_mode:
                env.render()
            if np.any(terminated) or np.any(truncated):
                break
    env.close()


def check(name: str, make: Any, action: Any) -> None:
    if name in FOR_ARRAYS:
        with pytest.raises(Exception, match=r"^.+$") as caught:
            play(make(), action)
        assert str(caught.value) and "\n" not in str(caught.value)
    elif name in REFUSED:
        errors = (TypeError, ValueError, AttributeError, DependencyNotInstalled)
        with pytest.raises(errors, match=REFUSED[name]) as caught:
            play(make(), action)
        assert "\n" not in str(caught.value)
    else:
        play(make(), action)


@pytest.mark.parametrize("name", names(single))
def test_gymnasium_wrapper_over_an_environment_works_or_is_refused(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def make() -> Any:
        mode = "ansi" if name in RENDERED else None
        env = KernelEnv(evaluator=ScriptedEvaluator(), render_mode=mode, **OPTIONS)
        return getattr(single, name)(env, **GIVEN.get(name, {}))

    check(name, make, ANSWER)


@pytest.mark.parametrize("name", names(batched))
def test_gymnasium_vector_wrapper_works_or_is_refused(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def make() -> Any:
        mode = "ansi" if name in RENDERED else None
        env = gym.make_vec(
            "KernelBench-L1-MultiTurn-v0",
            2,
            evaluator=ScriptedEvaluator(),
            render_mode=mode,
            autoreset_mode="Disabled",
            **OPTIONS,
        )
        given = dict(GIVEN.get(name, {}))
        if name.startswith("Transform"):
            given.pop("action_space", None)
            given.pop("observation_space", None)
        return getattr(batched, name)(env, **given)

    check(name, make, (ANSWER, ANSWER))


def test_time_aware_observation_without_flattening_works() -> None:
    env = single.TimeLimit(KernelEnv(evaluator=ScriptedEvaluator(), **OPTIONS), 2)
    with pytest.raises(UsageError, match="flatten=True"):
        single.TimeAwareObservation(env)
    play(single.TimeAwareObservation(env, flatten=False), ANSWER)


@pytest.mark.parametrize(
    "call",
    [
        lambda: utils.flatdim(KernelText()),
        lambda: utils.flatten_space(KernelText()),
        lambda: utils.flatten(KernelText(), "a b"),
        lambda: utils.unflatten(KernelText(), np.zeros(3)),
        lambda: utils.flatten_space(spaces.Dict(text=KernelText(), n=spaces.Discrete(2))),
    ],
)
def test_flattening_of_text_is_refused(call: Any) -> None:
    with pytest.raises(UsageError, match="cannot be flattened"):
        call()
