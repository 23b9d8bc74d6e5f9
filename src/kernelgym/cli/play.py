"""``kernelgym play``: one episode, played by a person at the terminal or by the scripted agent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import tyro

from kernelgym.answers.parsing import parse
from kernelgym.cli import judging
from kernelgym.cli.console import print_text
from kernelgym.cli.options import JudgingOptions, MemoryOption
from kernelgym.cli.scripted import scripted_agent
from kernelgym.cli.transcript import (
    print_answer,
    print_heading,
    print_returns,
    print_turn,
    problem_title,
)
from kernelgym.episodes.episode import Episode
from kernelgym.errors import UsageError
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import GAMMA, Feedback, Kernel, Trajectory

if TYPE_CHECKING:
    import gymnasium as gym

Player = Callable[[Feedback | None], str | None]
"""Function that returns the next answer of a game, given the feedback on the last one; None ends
the game."""


@dataclass(frozen=True, kw_only=True)
class PlayCommand(MemoryOption, JudgingOptions):
    """Play one episode, on a problem or in an environment.

    A person types or pastes a reply and ends it with a line that says EOF; a line @path takes the
    reply from a file instead. Ctrl-D leaves the game.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = ""
    """Environment id, such as Synthetic-L1-MultiTurn; or give --problem."""
    problem: str = ""
    """Id of the problem, such as Synthetic/L1/2, or the path of a problem file."""
    agent: Literal["human", "scripted"] = "human"
    """Agent that plays. The scripted one knows the Synthetic suite."""
    max_turns: int | None = None
    """Largest number of answers; the environment's own, or 4, if not given."""
    reward: str | None = None
    """Reward preset; the environment's own if not given."""
    stop_when: str = "correct"
    """Rule that ends the episode early: correct, never, speedup:<x> or no_improvement:<k>."""
    seed: int | None = None
    """Seed of the choice of problem, and of the scripted agent."""

    def run(self) -> int:
        """Play the episode; return the exit code."""
        if bool(self.env) == bool(self.problem):
            raise UsageError(
                "`kernelgym play` needs one of an environment id and --problem, as in `kernelgym "
                "play Synthetic-L1-MultiTurn` or `kernelgym play --problem Synthetic/L1/2`"
            )
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"--seed must be at least 0, got {self.seed}")
        rules = judging.rules_at(self.problem, find_ruleset(self.ruleset))
        with judging.open_evaluator(self.device, rules, memory=self.memory) as evaluator:
            judging.check_tools(self.language, self.device)
            options: dict[str, Any] = {
                "language": self.language,
                "stop_when": self.stop_when,
                "evaluator": evaluator,
            }
            if self.problem:
                problem = judging.problem_at(self.problem, sizes=self.sizes)
                options |= {"problems": [problem], "level": None}
            else:
                options["sizes"] = self.sizes
            given = {"max_turns": self.max_turns, "reward": self.reward}
            options |= {name: value for name, value in given.items() if value is not None}
            env = make_env(self.env or "Synthetic-L1-MultiTurn", **options)
            observation, _ = env.reset(seed=self.seed)
            problem = episode_of(env).problem
            answer: Player = _ask
            if self.agent == "scripted":
                answer = scripted_agent(problem, self.language, self.seed or 0)
            print_heading(f"{problem_title(problem)}: {self.language} on {self.device}")
            print_text(observation)
            print_returns(play_episode(env, answer), gamma=GAMMA)
        return 0


def make_env(env_id: str, **options: Any) -> gym.Env[str, str]:
    """Return `gym.make`'s environment.

    Raises:
        UsageError: If there is no such environment, or an option is wrong.
    """
    import gymnasium as gym

    from kernelgym import ENV_IDS
    from kernelgym.errors import UnknownName

    name = env_id if env_id in ENV_IDS else f"{env_id}-v0"
    if name not in ENV_IDS:
        raise UnknownName("environment", env_id, ENV_IDS, "`kernelgym ls` lists all.")
    return gym.make(name, **options)


def episode_of(env: gym.Env[str, str]) -> Episode:
    """Return the episode that an environment of kernelgym is playing."""
    from kernelgym.envs.kernel_env import KernelEnv

    return cast(KernelEnv, env.unwrapped).episode


def play_episode(env: gym.Env[str, str], answer: Player) -> Trajectory:
    """Play an episode that was reset, and print it as it goes.

    Args:
        env: The environment.
        answer: Function from the feedback on the last answer (None at first) to the next answer;
            None ends the game.

    Returns:
        The turns that were played.
    """
    feedback: Feedback | None = None
    earlier: Kernel | None = None
    over = False
    while not over:
        text = answer(feedback)
        if text is None:
            break
        reply = parse(text, episode_of(env).language)
        print_answer(len(episode_of(env).turns) + 1, reply.kernel, earlier, reply.thought)
        _, _, terminated, truncated, _ = env.step(text)
        over = terminated or truncated
        turn = episode_of(env).turns[-1]
        print_turn(turn)
        feedback, earlier = turn.feedback, turn.reply.kernel or earlier
    return episode_of(env).trajectory


def read_reply(lines: Iterator[str]) -> str | None:
    """Read one reply from lines: up to one that says EOF, or a file named by ``@path``.

    Returns:
        The reply; None if the lines end before one began.
    """
    kept: list[str] = []
    for line in lines:
        bare = line.strip()
        begun = any(kept_line.strip() for kept_line in kept)
        if bare == "EOF":
            if begun:
                return "".join(kept)
            continue  # an EOF after @path, say: an empty reply would only cost a turn
        # A module may begin with a decorator such as @triton.jit.
        if not begun and bare.startswith("@") and not bare.startswith(("@triton.", "@torch.")):
            try:
                return judging.read_text(bare[1:], "reply file")
            except UsageError as error:
                print_text(str(error), "red")
                continue
        kept.append(line)
    return "".join(kept) if any(line.strip() for line in kept) else None


def _ask(feedback: Feedback | None) -> str | None:
    print_text("\nYour reply, ended by a line EOF (or @path, or Ctrl-D to leave):", "bold")
    return read_reply(iter(sys.stdin.readline, ""))
