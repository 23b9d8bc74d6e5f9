"""Let TRL's GRPOTrainer play episodes by calls of a tool: its `environment_factory`.

    python examples/16_trl_environment.py Qwen/Qwen3-0.6B

The model submits kernels by a tool and reads the feedback on each. TRL calls the tools of a batch
one after the other, and gives an episode one reward; `kernelgym-train --backend trl` judges the
kernels of a step together, and gives credit by turn.
"""

from __future__ import annotations

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from kernelgym import JudgeError
from kernelgym.adapters.live_episode import EpisodeFactory

TASK = "\n\nCall the tool `submit` with the source of a kernel; you may submit three times."


def environment(episodes: EpisodeFactory) -> type:
    """Return the class that TRL makes an environment of for each rollout."""

    class KernelTask:
        """One episode. TRL offers the methods as tools, but for `reset` and `get_reward`."""

        def reset(self, problem_id: str, **columns: object) -> str:
            """Begin an episode; TRL appends the text to the prompt."""
            self._episode = episodes.begin(problem_id)
            self._scores: list[float] = []
            self._failure: JudgeError | None = None
            return self._episode.messages[-1].content + TASK

        def submit(self, kernel: str) -> str:
            """
            Compile, run and time a kernel.

            Args:
                kernel: Source of a Python module that defines ModelNew.

            Returns:
                Feedback on the kernel.
            """
            if self._failure is not None or self._episode.trajectory.ended:
                return "The episode is over."
            try:
                result = self._episode.answer_now(f"<KERNEL>\n```python\n{kernel}\n```\n</KERNEL>")
            except JudgeError as failure:  # TRL would show it to the model and go on
                self._failure = failure
                return "The judge failed."
            self._scores.append(result.reward)
            return result.news

        def get_reward(self) -> float:
            """Return the score of the best kernel; TRL would take None for 0."""
            if self._failure is not None:
                raise self._failure
            return max(self._scores) if self._scores else self._episode.answer_now("").reward

    return KernelTask


def dataset(episodes: EpisodeFactory) -> Dataset:
    """Return a row for each problem; `reset` writes the rest of the prompt."""
    prompts = [[{"role": "user", "content": ""}] for _ in episodes.problems]
    ids = [problem.id for problem in episodes.problems]
    return Dataset.from_dict({"prompt": prompts, "problem_id": ids})


if __name__ == "__main__":
    tasks = EpisodeFactory("Synthetic-L1-MultiTurn", problems="1-8", max_turns=3)
    trainer = GRPOTrainer(
        model=sys.argv[1],
        args=GRPOConfig("runs/trl", num_generations=4, max_completion_length=8192, max_steps=10),
        train_dataset=dataset(tasks),
        environment_factory=environment(tasks),
    )
    trainer.train()
